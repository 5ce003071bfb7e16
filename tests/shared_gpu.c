/* SPDX-License-Identifier: MIT
 *
 * Processes that share one GPU, loaded before NCCL (LD_PRELOAD), so that direct and copy_engine run between processes
 * where there is one GPU only. NCCL refuses two ranks of a host on one GPU; of two hosts (NCCL_HOSTID) it accepts them,
 * and then has no windows. Here a window is CUDA's own memory, which each process opens in every other by a handle:
 * kernels and engines write the other process' memory as they do over NVLink, and only the wire is missing. CUDA gives
 * the processes the GPU in turns, so nothing measured here says anything.
 *
 * ulyx asks for peers' addresses by the function of NCCL 2.29 wherever there is one, so with an older NCCL too. Memory
 * may be freed before every peer has closed it, which CUDA leaves undefined; it was seen to stay until then.
 */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <time.h>

#include "nccl_windows.h"

#define MOST_RANKS 64
#define LOOK_NS 100000
#define MOST_LOOKS 600000 /* a minute, if communicators are not aborted before */

#define SHOWN __attribute__((visibility("default")))

typedef struct Window {
  struct Window* next;
  void* token; /* what the window is called: device memory, which is all that is asked of a window */
  void* peers[MOST_RANKS];
  int nRanks, rank;
} Window;

static Window* windows; /* of threads that take turns: a process has one rank here */

static ncclResult_t ofCuda(cudaError_t error) {
  if (error == cudaSuccess) return ncclSuccess;
  (void)cudaGetLastError();
  return ncclUnhandledCudaError;
}

/* Handles name whole allocations, which are of this size at least. */
#define GRAIN ((size_t)2 << 20)

SHOWN ncclResult_t ncclMemAlloc(void** data, size_t bytes) {
  return ofCuda(cudaMalloc(data, (bytes + GRAIN - 1) / GRAIN * GRAIN));
}

SHOWN ncclResult_t ncclMemFree(void* data) {
  return ofCuda(cudaFree(data));
}

/* Work of the stream has ended, or the communicator been aborted, which ends it. */
static ncclResult_t await(ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t state = ncclInProgress;
  for (int looks = 0; looks < MOST_LOOKS; ++looks) {
    if (state == ncclInProgress && ncclCommGetAsyncError(comm, &state) != ncclSuccess) return ncclSystemError;
    if (state != ncclSuccess && state != ncclInProgress) return state;
    const cudaError_t reached = state == ncclSuccess ? cudaStreamQuery(stream) : cudaErrorNotReady;
    if (reached != cudaErrorNotReady) return ofCuda(reached);
    (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
  }
  return ncclSystemError;
}

/* handles[nRanks], of which each rank brings its own. */
static ncclResult_t gather(ncclComm_t comm, int nRanks, int rank, cudaIpcMemHandle_t* handles) {
  const size_t bytes = sizeof *handles;
  char* device = NULL;
  cudaStream_t stream = NULL;
  ncclResult_t result = ofCuda(cudaMalloc((void**)&device, bytes * (size_t)nRanks));
  if (result != ncclSuccess) return result;
  char* const mine = device + (size_t)rank * bytes;
  result = ofCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  if (result != ncclSuccess) goto freeDevice;
  result = ofCuda(cudaMemcpyAsync(mine, &handles[rank], bytes, cudaMemcpyHostToDevice, stream));
  if (result != ncclSuccess) goto destroyStream;
  result = ncclAllGather(mine, device, bytes, ncclUint8, comm, stream);
  if (result != ncclSuccess && result != ncclInProgress) goto destroyStream;
  result = await(comm, stream);
  if (result != ncclSuccess) goto destroyStream;
  result = ofCuda(cudaMemcpy(handles, device, bytes * (size_t)nRanks, cudaMemcpyDeviceToHost));

destroyStream:
  (void)cudaStreamDestroy(stream);
freeDevice:
  (void)cudaFree(device);
  return result;
}

static void closePeers(Window* window) {
  for (int rank = 0; rank < window->nRanks; ++rank) {
    if (rank != window->rank && window->peers[rank] != NULL) (void)cudaIpcCloseMemHandle(window->peers[rank]);
  }
  (void)cudaFree(window->token);
  free(window);
}

static ncclResult_t openPeers(Window* window, const cudaIpcMemHandle_t* handles) {
  for (int rank = 0; rank < window->nRanks; ++rank) {
    if (rank == window->rank) continue;
    const ncclResult_t result =
        ofCuda(cudaIpcOpenMemHandle(&window->peers[rank], handles[rank], cudaIpcMemLazyEnablePeerAccess));
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

SHOWN ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, size_t bytes, ncclWindow_t* handle, int flags) {
  cudaIpcMemHandle_t handles[MOST_RANKS];
  int nRanks = 0, rank = 0;
  (void)bytes, (void)flags;
  *handle = NULL;
  if (ncclCommCount(comm, &nRanks) != ncclSuccess || ncclCommUserRank(comm, &rank) != ncclSuccess) {
    return ncclInvalidArgument;
  }
  if (nRanks > MOST_RANKS) return ncclInvalidArgument;
  Window* const window = calloc(1, sizeof *window);
  if (window == NULL) return ncclSystemError;
  window->nRanks = nRanks;
  window->rank = rank;
  window->peers[rank] = data;
  ncclResult_t result = ofCuda(cudaMalloc(&window->token, 1));
  if (result != ncclSuccess) goto closeWindow;
  result = ofCuda(cudaIpcGetMemHandle(&handles[rank], data));
  if (result != ncclSuccess) goto closeWindow;
  result = gather(comm, nRanks, rank, handles);
  if (result != ncclSuccess) goto closeWindow;
  result = openPeers(window, handles);
  if (result != ncclSuccess) goto closeWindow;
  window->next = windows;
  windows = window;
  *handle = (ncclWindow_t)window->token;
  return ncclSuccess;

closeWindow:
  closePeers(window);
  return result;
}

SHOWN ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t handle) {
  (void)comm;
  for (Window** at = &windows; *at != NULL; at = &(*at)->next) {
    Window* const window = *at;
    if (window->token != (void*)handle) continue;
    *at = window->next;
    closePeers(window);
    return ncclSuccess;
  }
  return ncclInvalidArgument;
}

/* NCCL has this from 2.29 on. */
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t handle, size_t offset, int rank, void** pointer);
SHOWN ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t handle, size_t offset, int rank, void** pointer) {
  for (const Window* window = windows; window != NULL; window = window->next) {
    if (window->token != (void*)handle || rank >= window->nRanks) continue;
    *pointer = (char*)window->peers[rank] + offset;
    return ncclSuccess;
  }
  return ncclInvalidArgument;
}
