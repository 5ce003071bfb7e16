/* SPDX-License-Identifier: MIT
 *
 * The limit: what the wire between GPUs carries when nothing else is asked of it. Every GPU copies one
 * contiguous buffer to the next rank's GPU while one comes from the rank before; with two ranks that is both
 * directions of one link at once. Only where all ranks are in this process, which can name both addresses. */
#include "cuda_backend.h"
#include "report.h"

#define PEER_COPY_SAMPLES 10
#define PEER_COPY_PER_SAMPLE 20
#define PEER_COPY_WARMUP 1

typedef struct peerCopy {
  void* from;
  void* to; /* on device toDevice */
  int fromDevice;
  int toDevice;
  size_t bytes;
} peerCopy_t;

/* What a rank tells the others. */
typedef struct peerBuffer {
  void* ptr;
  int device;
} peerBuffer_t;

static bool enqueuePeerCopy(void* state, ulyxStream_t stream) {
  const peerCopy_t* copy = state;
  return perfCudaOk(cudaMemcpyPeerAsync(copy->to, copy->toDevice, copy->from, copy->fromDevice, copy->bytes, stream),
                    "cudaMemcpyPeerAsync");
}

/* Without peer access a peer copy goes through the host. */
static bool enablePeerAccess(int device, int peerDevice) {
  int can = 0;
  if (!perfCudaOk(cudaDeviceCanAccessPeer(&can, device, peerDevice), "cudaDeviceCanAccessPeer")) return false;
  if (can == 0) return true;
  const cudaError_t error = cudaDeviceEnablePeerAccess(peerDevice, 0);
  if (error != cudaErrorPeerAccessAlreadyEnabled) return perfCudaOk(error, "cudaDeviceEnablePeerAccess");
  (void)cudaGetLastError(); /* not a fault, and must not be taken for a later call's */
  return true;
}

bool perfCudaTimePeerCopy(perfRank_t* me, int64_t bytes, double* us) {
  peerBuffer_t received[PERF_MAX_LOCAL_RANKS];
  const int next = (me->rank + 1) % me->nRanks;
  const perfRepeat_t repeat = {PEER_COPY_WARMUP, PEER_COPY_SAMPLES, PEER_COPY_PER_SAMPLE, 0, false};
  perfTimes_t times;
  bool ok = false;
  peerBuffer_t mine = {NULL, me->device};
  peerCopy_t copy = {NULL, NULL, me->device, 0, (size_t)bytes};
  if (!perfCudaOk(cudaMalloc(&copy.from, (size_t)bytes), "cudaMalloc")) goto freeBuffers;
  if (!perfCudaOk(cudaMalloc(&mine.ptr, (size_t)bytes), "cudaMalloc")) goto freeBuffers;
  if (!perfTeamGather(me->team, me->rank, &mine, sizeof(mine), received)) goto freeBuffers;
  copy.to = received[next].ptr;
  copy.toDevice = received[next].device;
  if (!enablePeerAccess(me->device, copy.toDevice)) goto freeBuffers;
  const perfTask_t task = {enqueuePeerCopy, NULL, &copy};
  if (!perfCudaTime(me, &task, &repeat, &times)) goto freeBuffers;
  /* The rank before copies into this rank's buffer until it has passed here. */
  if (!perfTeamBarrier(me->team, me->rank)) goto freeBuffers;
  *us = times.medianUs;
  ok = true;

freeBuffers:
  if (mine.ptr != NULL && !perfCudaOk(cudaFree(mine.ptr), "cudaFree")) ok = false;
  if (copy.from != NULL && !perfCudaOk(cudaFree(copy.from), "cudaFree")) ok = false;
  return ok;
}
