/* SPDX-License-Identifier: MIT */
#include "gpu_run.h"

#include <string.h>

#include "chain.h"
#include "kernels.h"
#include "sum.h"

static int transportOf(const ulyxExchange* exchange) {
  return ((const ulyxGpuPrepared*)exchange->prepared)->choice.transport;
}

/* What follows an exchange that devices may refuse; NULL: none can. */
static const ulyxVerdict* skipOf(const ulyxGpu* gpu, const ulyxExchange* exchange) {
  return transportOf(exchange) == ulyxTransportNccl ? NULL : &gpu->meetings.state->verdict;
}

static ulyxResult_t finishSum(ulyxGpu* gpu, const ulyxExchange* exchange) {
  ulyxSumBatch batch;
  ulyxSumBatchFill(&exchange->phase->after.sum, exchange->src, exchange->dst, &batch);
  batch.skip = skipOf(gpu, exchange);
  return ulyxCudaResult(ulyxLaunchSum(&batch, gpu->maxCtas, exchange->stream), "launch of the sum kernel");
}

static ulyxResult_t finishChain(const ulyxGpu* gpu, const ulyxExchange* exchange) {
  ulyxChainArgs args;
  ulyxChainArgsFill(&exchange->phase->after.chain, exchange->src, exchange->dst, &args);
  args.skip = skipOf(gpu, exchange);
  return ulyxCudaResult(ulyxLaunchChain(&args, gpu->maxCtas, exchange->stream), "launch of the chain kernel");
}

/* What this rank does by itself once everything has arrived. */
static ulyxResult_t finish(ulyxGpu* gpu, const ulyxExchange* exchange) {
  switch (exchange->phase->after.kind) {
    case ulyxLocalSum:
      return finishSum(gpu, exchange);
    case ulyxLocalChain:
      return finishChain(gpu, exchange);
    case ulyxLocalNothing:
      break;
  }
  return ulyxSuccess;
}

/* Carriers of the same plan in a different way must not meet. */
static uint64_t signatureOf(const ulyxExchange* exchange, int transport) {
  return exchange->signature * 8 + (uint64_t)transport;
}

/* *halfWay: it failed, and other ranks may have seen some of it. */
static ulyxResult_t carry(ulyxGpu* gpu, const ulyxExchange* exchange, int transport, bool* halfWay) {
  if (transport == ulyxTransportNccl) return ulyxNcclCarry(gpu, exchange, halfWay);
  const ulyxResult_t result =
      transport == ulyxTransportDirect ? ulyxDirectCarry(gpu, exchange) : ulyxCopyEngineCarry(gpu, exchange);
  *halfWay = result != ulyxSuccess;
  return result;
}

static ulyxResult_t enqueue(ulyxGpu* gpu, const ulyxExchange* given, bool* halfWay) {
  const ulyxGpuPrepared* const prepared = given->prepared;
  void* dst[ULYX_ALL_BUFFERS];
  memcpy(dst, given->dst, ULYX_MAX_BUFFERS * sizeof *dst);
  dst[ULYX_SCRATCH] = gpu->arena->data + prepared->scratchOffset;
  ulyxExchange exchange = *given;
  exchange.dst = dst;
  exchange.signature = signatureOf(given, prepared->choice.transport);
  const ulyxResult_t carried = carry(gpu, &exchange, prepared->choice.transport, halfWay);
  return carried == ulyxSuccess ? finish(gpu, &exchange) : carried;
}

static ulyxResult_t checkStream(const ulyxGpu* gpu, ulyxStream_t stream, bool* captured) {
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ULYX_TRY(ULYX_CUDA(cudaStreamIsCapturing(stream, &status)));
  *captured = status != cudaStreamCaptureStatusNone;
#if CUDART_VERSION >= 12080
  int device = gpu->base.device;
  if (stream != NULL && !*captured) { /* CUDA does not say while capturing */
    ULYX_TRY(ULYX_CUDA(cudaStreamGetDevice(stream, &device)));
  }
  if (device != gpu->base.device) {
    return ulyxFail(ulyxInvalidArgument, "the stream is on CUDA device %d, the runtime on %d", device,
                    gpu->base.device);
  }
#else
  (void)gpu;
#endif
  return ulyxSuccess;
}

/* An exchange outside a graph is followed by the event of its end, also if it failed half-way: what it launched still
 * uses the arena. */
static ulyxResult_t follow(ulyxGpu* gpu, const ulyxExchange* exchange, bool byNccl, bool halfWay) {
  ulyxNcclWorld* const world = &gpu->world;
  ulyxResult_t result = ULYX_CUDA(cudaEventRecord(world->done, exchange->stream));
  if (result == ulyxSuccess) world->doneRecorded = true;
  if (byNccl) {
    const ulyxGuardExchange watched = {exchange->number, exchange->operation, exchange->plan};
    ulyxKeepFirst(&result, ulyxGuardWatch(&world->guard, exchange->stream, watched));
  }
  if (halfWay) ulyxGpuLoseHalfWay(gpu);
  return result;
}

ulyxResult_t ulyxGpuRun(ulyxGpu* gpu, const ulyxExchange* exchange) {
  ulyxNcclWorld* const world = &gpu->world;
  bool captured = false;
  ULYX_TRY(ulyxGuardFound(&world->guard));
  ULYX_TRY(checkStream(gpu, exchange->stream, &captured));
  if (!captured && world->doneRecorded) { /* the arena is free once the exchange before has run */
    ULYX_TRY(ULYX_CUDA(cudaStreamWaitEvent(exchange->stream, world->done, 0)));
  }
  if (captured) ULYX_TRY(ulyxGraphsHold(gpu->graphs, exchange->stream));
  /* an earlier mismatch is returned below, by a call that is enqueued all the same: ranks find out at different calls,
   * and one that left out a call would be out of step. A call that is refused or fails leaves it untold. */
  const bool mismatched = ulyxMeetingsHavePassing(&gpu->meetings) || ulyxLabelsHavePassing(&gpu->labels);
  bool halfWay = false;
  ulyxResult_t result = enqueue(gpu, exchange, &halfWay);
  const bool byNccl = transportOf(exchange) == ulyxTransportNccl;
  if (!captured) {
    ulyxKeepFirst(&result, follow(gpu, exchange, byNccl, halfWay));
  } else if (byNccl) {
    ulyxGuardWasCaptured(&world->guard);
  }
  if (result != ulyxSuccess || !mismatched) return result;
  ULYX_TRY(ulyxMeetingsPassing(&gpu->meetings));
  return ulyxLabelsPassing(&gpu->labels);
}
