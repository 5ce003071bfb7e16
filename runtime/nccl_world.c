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

bool ulyxCudaIsGone(cudaError_t error) {
  return error == cudaErrorCudartUnloading || error == cudaErrorContextIsDestroyed;
}

ulyxResult_t ulyxNcclWorldCreate(ncclComm_t comm, ulyxNcclWorld* world) {
  ulyxResult_t result = ulyxSuccess;
  *world = (ulyxNcclWorld){.comm = comm};
  ULYX_TRY_GOTO(ULYX_NCCL(comm, ncclCommCount(comm, &world->nRanks)), destroyWorld);
  ULYX_TRY_GOTO(ULYX_NCCL(comm, ncclCommUserRank(comm, &world->rank)), destroyWorld);
  ULYX_TRY_GOTO(ULYX_NCCL(comm, ncclCommCuDevice(comm, &world->device)), destroyWorld);
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
  ULYX_TRY(
      ULYX_NCCL(world->comm, ncclAllGather(world->deviceWords, deviceAll, bytes, ncclUint8, world->comm, world->side)));
  ULYX_TRY(ULYX_CUDA(
      cudaMemcpyAsync(hostAll, deviceAll, bytes * (size_t)world->nRanks, cudaMemcpyDeviceToHost, world->side)));
  ULYX_TRY(ULYX_CUDA(cudaStreamSynchronize(world->side)));
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

/* One group of distances of an all-pairs exchange. */
static ulyxResult_t warmGroup(ulyxNcclWorld* world, void* memory, size_t bytes, int first, int last) {
  const int nRanks = world->nRanks;
  ulyxResult_t result = ULYX_NCCL(world->comm, ncclGroupStart());
  if (result != ulyxSuccess) return result;
  for (int distance = first; distance < last && result == ulyxSuccess; ++distance) {
    const int to = (world->rank + distance) % nRanks, from = (world->rank - distance + nRanks) % nRanks;
    result = ULYX_NCCL(world->comm, ncclSend(memory, bytes, ncclUint8, to, world->comm, world->side));
    if (result != ulyxSuccess) break;
    result = ULYX_NCCL(world->comm, ncclRecv(memory, bytes, ncclUint8, from, world->comm, world->side));
  }
  const ulyxResult_t ended = ULYX_NCCL(world->comm, ncclGroupEnd());
  return result != ulyxSuccess ? result : ended;
}

ulyxResult_t ulyxNcclWorldWarm(ulyxNcclWorld* world, void* memory, int64_t bytes) {
  const int perGroup = ulyxWireDistancesPerGroup(world->nRanks);
  const size_t sent = (size_t)ulyxMin64(bytes, REGISTERED_FROM_BYTES);
  ULYX_TRY(followExchanges(world));
  for (int distance = 1; distance < world->nRanks; distance += perGroup) {
    const int last = distance + perGroup < world->nRanks ? distance + perGroup : world->nRanks;
    ULYX_TRY(warmGroup(world, memory, sent, distance, last));
  }
  return ULYX_CUDA(cudaStreamSynchronize(world->side));
}

ulyxResult_t ulyxNcclWorldDrain(ulyxNcclWorld* world) {
  (void)world;
  return ULYX_CUDA(cudaDeviceSynchronize()); /* replayed graphs are known to the device alone */
}

ulyxResult_t ulyxNcclWorldDestroy(ulyxNcclWorld* world) {
  ulyxResult_t result = ulyxSuccess;
  if (world->hostWords != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaFreeHost(world->hostWords)));
  if (world->deviceWords != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaFree(world->deviceWords)));
  if (world->done != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaEventDestroy(world->done)));
  if (world->side != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaStreamDestroy(world->side)));
  ulyxKeepFirst(&result, ULYX_NCCL(NULL, ncclCommDestroy(world->comm)));
  *world = (ulyxNcclWorld){0};
  return result;
}
