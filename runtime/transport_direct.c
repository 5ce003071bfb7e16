/* SPDX-License-Identifier: MIT
 *
 * One exchange by one kernel: it meets the peers, stores every copy into its final place in their memory, makes the
 * rank's own copies meanwhile, and meets them again (cuda/exchange.cu). Peers are served in order of their distance,
 * so that at any time the ranks write to different ones. */
#include "gpu.h"
#include "kernels.h"

static ulyxResult_t launch(ulyxGpu* gpu, cudaStream_t stream) {
  ulyxExchangeBatch* const batch = &gpu->exchange;
  const int needed = batch->tiles < (uint32_t)gpu->directCtas ? (int)batch->tiles : gpu->directCtas;
  batch->mix = ulyxExchangeMix(batch->remoteTiles, batch->tiles);
  const cudaError_t error = ulyxLaunchExchange(batch, needed > 0 ? needed : 1, stream);
  batch->count = batch->tiles = batch->remoteTiles = 0;
  batch->meeting.enters = 0;
  return ulyxCudaResult(error, "launch of the exchange kernel");
}

/* target as in exchange_layout.h; a remote strip's dst is an offset. More copies than a launch holds make several of
 * one exchange: the first enters, the last leaves. */
static ulyxResult_t addStrip(ulyxGpu* gpu, ulyxStrip strip, uint32_t target, cudaStream_t stream) {
  ulyxExchangeBatch* const batch = &gpu->exchange;
  while (strip.rows > 0) {
    if (batch->count == ULYX_EXCHANGE_BATCH_LARGE) ULYX_TRY(launch(gpu, stream));
    ulyxCopyDesc* const desc = &batch->desc[batch->count++];
    ulyxCopyDescTake(desc, &batch->tiles, &strip);
    desc->target = target;
    if (target != 0) batch->remoteTiles = batch->tiles;
  }
  return ulyxSuccess;
}

static ulyxResult_t addCopies(ulyxGpu* gpu, const ulyxExchange* exchange, int peer) {
  const ulyxPhase* const phase = exchange->phase;
  for (int64_t c = phase->sendStart[peer]; c < phase->sendStart[peer + 1]; ++c) {
    const ulyxCopy* const copy = &phase->copies[c];
    const bool own = peer == phase->rank;
    unsigned char* const base = own ? exchange->dst[copy->dstBuffer] : NULL;
    const ulyxStrip strip = {.src = ulyxAt(exchange->src[copy->srcBuffer], copy->srcOffset),
                             .dst = (unsigned char*)((uintptr_t)base + (uintptr_t)copy->dstOffset),
                             .rows = copy->rows,
                             .rowBytes = copy->rowBytes,
                             .srcPitch = copy->srcPitch,
                             .dstPitch = copy->dstPitch};
    const uint32_t target = own ? 0 : (uint32_t)(1 + peer * ULYX_EXCHANGE_PLACES + copy->dstBuffer);
    ULYX_TRY(addStrip(gpu, strip, target, exchange->stream));
  }
  return ulyxSuccess;
}

/* Where each peer's copies start in this rank's output, where only this rank knows. */
static void writeStarts(const ulyxPhase* phase, uint64_t* starts) {
  for (int peer = 0; peer < phase->nRanks; ++peer) {
    const bool listed = phase->facts.startsAreTheReceivers && phase->recvStart[peer] < phase->recvStart[peer + 1];
    starts[peer] = listed ? (uint64_t)phase->copies[phase->recvStart[peer]].dstOffset : 0;
  }
}

ulyxResult_t ulyxDirectCarry(ulyxGpu* gpu, const ulyxExchange* exchange) {
  const ulyxPhase* const phase = exchange->phase;
  ulyxExchangeBatch* const batch = &gpu->exchange;
  const ulyxOutputs outputs = ulyxGpuFindOutputs(gpu, exchange, false);
  batch->count = batch->tiles = batch->remoteTiles = 0;
  batch->meeting = ulyxMeetingsNext(&gpu->meetings, &gpu->windows, &gpu->world, exchange->signature);
  ulyxGpuWritePlaces(&outputs, &batch->meeting);
  batch->meeting.leaves = 0;
  writeStarts(phase, batch->starts);
  for (int distance = 1; distance <= phase->nRanks; ++distance) { /* its own copies last */
    ULYX_TRY(addCopies(gpu, exchange, (phase->rank + distance) % phase->nRanks));
  }
  batch->meeting.leaves = 1;
  ULYX_TRY(launch(gpu, exchange->stream));
  return ulyxGpuBringHome(gpu, exchange, &outputs);
}
