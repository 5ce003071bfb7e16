/* SPDX-License-Identifier: MIT
 *
 * One exchange by the copy engines: a one-block kernel meets the peers, copies into their memory run on streams of
 * their own, one a peer, the rank's own copies beside them, and another one-block kernel meets the peers again. The
 * host computes the peers' addresses, so their outputs must lie where this rank's lie; the meeting checks that. */
#include <limits.h>
#include <string.h>

#include "gpu.h"
#include "kernels.h"

/* Thread blocks that copy within the device as fast as NVLink 4 brings bytes. */
#define OWN_CTAS 32

static ulyxResult_t meet(ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxOutputs* outputs, bool enters) {
  ulyxExchangeBatch* const batch = &gpu->exchange;
  batch->count = batch->tiles = batch->remoteTiles = 0;
  batch->mix = 0;
  memset(batch->starts, 0, (size_t)gpu->world.nRanks * sizeof batch->starts[0]);
  batch->meeting = ulyxMeetingsNext(&gpu->meetings, &gpu->windows, &gpu->world, exchange->signature);
  ulyxGpuWritePlaces(outputs, &batch->meeting);
  batch->meeting.samePlaces = 1;
  batch->meeting.enters = enters ? 1 : 0;
  batch->meeting.leaves = enters ? 0 : 1;
  return ulyxCudaResult(ulyxLaunchExchange(batch, 1, exchange->stream), "launch of a barrier");
}

static ulyxResult_t copyRows(unsigned char* dst, const unsigned char* src, const ulyxCopy* copy, cudaStream_t stream) {
  const bool dense = copy->srcPitch == copy->rowBytes && copy->dstPitch == copy->rowBytes;
  if (copy->rows == 1 || dense) {
    return ULYX_CUDA(cudaMemcpyAsync(dst, src, (size_t)(copy->rows * copy->rowBytes), cudaMemcpyDefault, stream));
  }
  if (copy->srcPitch <= INT_MAX && copy->dstPitch <= INT_MAX) {
    return ULYX_CUDA(cudaMemcpy2DAsync(dst, (size_t)copy->dstPitch, src, (size_t)copy->srcPitch,
                                       (size_t)copy->rowBytes, (size_t)copy->rows, cudaMemcpyDefault, stream));
  }
  for (int64_t row = 0; row < copy->rows; ++row) { /* longer pitches than CUDA takes */
    ULYX_TRY(ULYX_CUDA(cudaMemcpyAsync(dst + row * copy->dstPitch, src + row * copy->srcPitch, (size_t)copy->rowBytes,
                                       cudaMemcpyDefault, stream)));
  }
  return ulyxSuccess;
}

static ulyxResult_t copyToPeer(const ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxOutputs* outputs, int peer,
                               cudaStream_t stream) {
  const ulyxPhase* const phase = exchange->phase;
  for (int64_t c = phase->sendStart[peer]; c < phase->sendStart[peer + 1]; ++c) {
    const ulyxCopy* const copy = &phase->copies[c];
    const ulyxArena* const arena = outputs->arena[copy->dstBuffer];
    void* const base = ulyxWindowsPeer(&gpu->windows, arena->number, peer);
    ULYX_TRY(copyRows(ulyxAt(base, outputs->offset[copy->dstBuffer] + copy->dstOffset),
                      ulyxAt(exchange->src[copy->srcBuffer], copy->srcOffset), copy, stream));
  }
  return ulyxSuccess;
}

static ulyxResult_t copyOwn(ulyxGpu* gpu, const ulyxExchange* exchange) {
  const ulyxPhase* const phase = exchange->phase;
  const cudaStream_t stream = gpu->beside.stream;
  if (!gpu->facts.undisturbed) {
    const int ctas = gpu->maxCtas > 0 && gpu->maxCtas < OWN_CTAS ? gpu->maxCtas : OWN_CTAS;
    ulyxCopyBatchReset(&gpu->batch);
    ULYX_TRY(ulyxGpuAddOwn(gpu, exchange, ctas, stream));
    return ulyxGpuFlush(gpu, ctas, stream);
  }
  for (int64_t c = phase->sendStart[phase->rank]; c < phase->sendStart[phase->rank + 1]; ++c) {
    const ulyxCopy* const copy = &phase->copies[c];
    ULYX_TRY(copyRows(ulyxAt(exchange->dst[copy->dstBuffer], copy->dstOffset),
                      ulyxAt(exchange->src[copy->srcBuffer], copy->srcOffset), copy, stream));
  }
  return ulyxSuccess;
}

/* Everything between the two meetings, on branches; how many of the engines' were forked is for the join. */
static ulyxResult_t enqueueCopies(ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxOutputs* outputs, int* forked,
                                  bool* besideForked) {
  const ulyxPhase* const phase = exchange->phase;
  for (int distance = 1; distance < phase->nRanks; ++distance) {
    const int peer = (phase->rank + distance) % phase->nRanks;
    const ulyxBranch* const engine = &gpu->engines[(distance - 1) % gpu->engineCount];
    if (*forked < gpu->engineCount) {
      ULYX_TRY(ulyxBranchFork(gpu, engine));
      ++*forked;
    }
    ULYX_TRY(copyToPeer(gpu, exchange, outputs, peer, engine->stream));
  }
  if (phase->sendStart[phase->rank] == phase->sendStart[phase->rank + 1]) return ulyxSuccess;
  ULYX_TRY(ulyxBranchFork(gpu, &gpu->beside));
  *besideForked = true;
  return copyOwn(gpu, exchange);
}

ulyxResult_t ulyxCopyEngineCarry(ulyxGpu* gpu, const ulyxExchange* exchange) {
  const ulyxOutputs outputs = ulyxGpuFindOutputs(gpu, exchange, true);
  int forked = 0;
  bool besideForked = false;
  ULYX_TRY(meet(gpu, exchange, &outputs, true));
  ulyxResult_t result = ULYX_CUDA(cudaEventRecord(gpu->fork, exchange->stream));
  if (result == ulyxSuccess) result = enqueueCopies(gpu, exchange, &outputs, &forked, &besideForked);
  /* on every path: a capture with an unjoined stream could not be ended, and the peers wait for this rank to leave */
  for (int i = 0; i < forked; ++i) ulyxKeepFirst(&result, ulyxBranchJoin(&gpu->engines[i], exchange->stream));
  if (besideForked) ulyxKeepFirst(&result, ulyxBranchJoin(&gpu->beside, exchange->stream));
  ulyxKeepFirst(&result, meet(gpu, exchange, &outputs, false));
  if (result != ulyxSuccess) return result;
  ulyxCopyBatchReset(&gpu->batch);
  return ulyxGpuBringHome(gpu, exchange, &outputs);
}
