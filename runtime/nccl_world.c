/* SPDX-License-Identifier: MIT */
#include "nccl_world.h"

#include <stdlib.h>
#include <string.h>

#include "agreement.h"
#include "check.h"
#include "wire.h"

/* NCCL sends up to 16 KiB a channel through its own buffers, and has at most 64 channels to a peer: a message
 * longer than this uses registered memory. */
#define REGISTERED_FROM_BYTES ((INT64_C(1) << 20) + 256)

ulyxResult_t ulyxCudaFail(cudaError_t error, const char* call) {
  (void)cudaGetLastError(); /* it has been seen: it must not surface in a later call */
  return ulyxFail(ulyxUnhandledCudaError, "%s: %s (%s)", call, cudaGetErrorName(error), cudaGetErrorString(error));
}

ulyxResult_t ulyxNcclFail(ncclComm_t comm, ncclResult_t error, const char* call) {
  const char* const detail = ncclGetLastError(comm);
  return ulyxFail((ulyxResult_t)error, "%s: %s%s%s", call, ncclGetErrorString(error),
                  detail != NULL && detail[0] != '\0' ? ": " : "", detail != NULL ? detail : "");
}

ulyxResult_t ulyxDeviceEnter(int device, int* previous) {
  ULYX_TRY(ULYX_CUDA(cudaGetDevice(previous)));
  return *previous == device ? ulyxSuccess : ULYX_CUDA(cudaSetDevice(device));
}

void ulyxDeviceLeave(int device, int previous) {
  if (previous != device) (void)cudaSetDevice(previous); /* it was current before: nothing new can fail */
}

enum cudaStreamCaptureMode ulyxRelaxCapture(void) {
  enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode); /* fails where there is no capture to spoil */
  return mode;
}

bool ulyxCudaIsGone(cudaError_t error) {
  return error == cudaErrorCudartUnloading || error == cudaErrorContextIsDestroyed;
}

static ulyxResult_t ask(ncclComm_t comm, ulyxNcclWorld* world) {
  ULYX_TRY(ULYX_NCCL(comm, ncclCommCount(comm, &world->nRanks)));
  ULYX_TRY(ULYX_NCCL(comm, ncclCommUserRank(comm, &world->rank)));
  return ULYX_NCCL(comm, ncclCommCuDevice(comm, &world->device));
}

ulyxResult_t ulyxNcclWorldCreate(ncclComm_t comm, int timeoutMs, ulyxNcclWorld* world) {
  *world = (ulyxNcclWorld){0};
  ulyxResult_t result = ask(comm, world);
  if (result != ulyxSuccess) {
    (void)ncclCommDestroy(comm);
    return result;
  }
  ULYX_TRY(ulyxGuardCreate(&world->guard, comm, world->device, timeoutMs));
  world->wordCapacity = ulyxAgreementWords(world->nRanks);
  const size_t bytes = (size_t)world->wordCapacity * ((size_t)world->nRanks + 1) * sizeof(int64_t);
  ULYX_TRY_GOTO(ULYX_CUDA(cudaStreamCreateWithFlags(&world->side, cudaStreamNonBlocking)), destroyWorld);
  ULYX_TRY_GOTO(ULYX_CUDA(cudaEventCreateWithFlags(&world->done, cudaEventDisableTiming)), destroyWorld);
  ULYX_TRY_GOTO(ULYX_CUDA(cudaMalloc((void**)&world->deviceWords, bytes)), destroyWorld);
  ULYX_TRY_GOTO(ULYX_CUDA(cudaMallocHost((void**)&world->hostWords, bytes)), destroyWorld);
  ULYX_TRY_GOTO(ulyxNcclWorldWarm(world, world->deviceWords, 1), destroyWorld);
  return ulyxSuccess;

destroyWorld:
  ulyxUndoBegin();
  (void)ulyxNcclWorldDestroy(world);
  ulyxUndoEnd();
  return result;
}

/* Our own stream comes after the exchanges enqueued on the callers'. */
static ulyxResult_t followExchanges(ulyxNcclWorld* world) {
  return world->doneRecorded ? ULYX_CUDA(cudaStreamWaitEvent(world->side, world->done, 0)) : ulyxSuccess;
}

static ulyxResult_t gatherOnDevice(ulyxNcclWorld* world, size_t bytes) {
  ncclComm_t comm = NULL;
  ULYX_TRY(ulyxGuardEnterToEnqueue(&world->guard, "an agreement", &comm));
  int64_t* const all = world->deviceWords + world->wordCapacity;
  return ulyxGuardLeave(&world->guard,
                        ULYX_NCCL(comm, ncclAllGather(world->deviceWords, all, bytes, ncclUint8, comm, world->side)));
}

ulyxResult_t ulyxNcclWorldGather(ulyxNcclWorld* world, const int64_t* mine, int count, int64_t* all) {
  const size_t bytes = (size_t)count * sizeof *mine;
  if (count > world->wordCapacity) {
    return ulyxFail(ulyxInternalError, "a gather of %d words, made for %d", count, world->wordCapacity);
  }
  if (world->nRanks == 1) {
    memcpy(all, mine, bytes);
    return ulyxSuccess;
  }
  int64_t* const deviceAll = world->deviceWords + world->wordCapacity;
  int64_t* const hostAll = world->hostWords + world->wordCapacity;
  memcpy(world->hostWords, mine, bytes);
  ULYX_TRY(followExchanges(world));
  ULYX_TRY(
      ULYX_CUDA(cudaMemcpyAsync(world->deviceWords, world->hostWords, bytes, cudaMemcpyHostToDevice, world->side)));
  ULYX_TRY(gatherOnDevice(world, bytes));
  ULYX_TRY(ULYX_CUDA(
      cudaMemcpyAsync(hostAll, deviceAll, bytes * (size_t)world->nRanks, cudaMemcpyDeviceToHost, world->side)));
  ULYX_TRY(ulyxGuardWait(&world->guard, world->side, "an agreement"));
  memcpy(all, hostAll, bytes * (size_t)world->nRanks);
  return ulyxSuccess;
}

ulyxResult_t ulyxNcclWorldGatherWord(ulyxNcclWorld* world, int64_t mine, int64_t** all) {
  void* words = NULL;
  ULYX_TRY(ulyxAllocate(&words, (size_t)world->nRanks, sizeof(int64_t), "words of all ranks"));
  const ulyxResult_t result = ulyxNcclWorldGather(world, &mine, 1, words);
  if (result != ulyxSuccess) {
    free(words);
    return result;
  }
  *all = words;
  return ulyxSuccess;
}

ulyxResult_t ulyxNcclWorldLargest(ulyxNcclWorld* world, int64_t mine, int64_t* largest) {
  int64_t* all = NULL;
  ULYX_TRY(ulyxNcclWorldGatherWord(world, mine, &all));
  *largest = all[0];
  for (int rank = 1; rank < world->nRanks; ++rank) *largest = ulyxMax64(*largest, all[rank]);
  free(all);
  return ulyxSuccess;
}

static ulyxResult_t warmDistance(const ulyxNcclWorld* world, ncclComm_t comm, void* memory, size_t bytes,
                                 int distance) {
  const int nRanks = world->nRanks;
  const int to = (world->rank + distance) % nRanks, from = (world->rank - distance + nRanks) % nRanks;
  ULYX_TRY(ULYX_NCCL(comm, ncclSend(memory, bytes, ncclUint8, to, comm, world->side)));
  return ULYX_NCCL(comm, ncclRecv(memory, bytes, ncclUint8, from, comm, world->side));
}

/* One group of distances of an all-pairs exchange. */
static ulyxResult_t warmGroup(ulyxNcclWorld* world, void* memory, size_t bytes, int first, int last) {
  ncclComm_t comm = NULL;
  ULYX_TRY(ulyxGuardEnterToEnqueue(&world->guard, "the first messages", &comm));
  ulyxResult_t result = ULYX_NCCL(comm, ncclGroupStart());
  if (result == ulyxSuccess) {
    for (int distance = first; distance < last && result == ulyxSuccess; ++distance) {
      result = warmDistance(world, comm, memory, bytes, distance);
    }
    ulyxKeepFirst(&result, ULYX_NCCL(comm, ncclGroupEnd()));
  }
  return ulyxGuardLeave(&world->guard, result);
}

ulyxResult_t ulyxNcclWorldWarm(ulyxNcclWorld* world, void* memory, int64_t bytes) {
  const int perGroup = ulyxWireDistancesPerGroup(world->nRanks);
  const size_t sent = (size_t)ulyxMin64(bytes, REGISTERED_FROM_BYTES);
  ULYX_TRY(followExchanges(world));
  for (int distance = 1; distance < world->nRanks; distance += perGroup) {
    const int last = distance + perGroup < world->nRanks ? distance + perGroup : world->nRanks;
    ULYX_TRY(warmGroup(world, memory, sent, distance, last));
  }
  return ulyxGuardWait(&world->guard, world->side, "the first message of every pair");
}

cudaError_t ulyxNcclWorldDrain(ulyxNcclWorld* world) {
  ncclComm_t comm = NULL;
  int device = 0;
  const cudaError_t there = cudaGetDevice(&device);
  if (ulyxCudaIsGone(there)) return there; /* NCCL must not be called either */
  const ulyxResult_t entered = ulyxGuardEnter(&world->guard, "the end of this rank's exchanges", &comm);
  if (entered != ulyxSuccess) ulyxGuardLetGo(&world->guard); /* NCCL's kernels may wait, with nobody to end that */
  const cudaError_t error = cudaDeviceSynchronize();         /* replayed graphs are known to the device alone */
  if (entered == ulyxSuccess) (void)ulyxGuardLeave(&world->guard, ulyxSuccess);
  if (ulyxCudaIsGone(error)) return error;
  ulyxGuardLetGo(&world->guard);
  (void)ulyxGuardAwaitAbort(&world->guard);
  return error != cudaSuccess ? error : there;
}

ulyxResult_t ulyxNcclWorldDestroy(ulyxNcclWorld* world) {
  ulyxResult_t result = ulyxSuccess;
  if (world->hostWords != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaFreeHost(world->hostWords)));
  if (world->deviceWords != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaFree(world->deviceWords)));
  if (world->done != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaEventDestroy(world->done)));
  if (world->side != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaStreamDestroy(world->side)));
  ulyxKeepFirst(&result, ulyxGuardDestroy(&world->guard));
  *world = (ulyxNcclWorld){0};
  return result;
}
