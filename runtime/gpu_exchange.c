/* SPDX-License-Identifier: MIT */
#include "gpu_exchange.h"

#include "kernels.h"

static void empty(ulyxExchangeBatch* batch) {
  batch->count = batch->tiles = batch->remoteTiles = 0;
}

/* Where each peer's copies start in this rank's output, where only this rank knows. */
static void writeStarts(const ulyxPhase* phase, uint64_t* starts) {
  for (int peer = 0; peer < phase->nRanks; ++peer) {
    const bool listed = phase->facts.startsAreTheReceivers && phase->recvStart[peer] < phase->recvStart[peer + 1];
    starts[peer] = listed ? (uint64_t)phase->copies[phase->recvStart[peer]].dstOffset : 0;
  }
}

void ulyxGpuExchangeBegin(ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxOutputs* outputs) {
  ulyxExchangeBatch* const batch = &gpu->exchange;
  empty(batch);
  batch->meeting = ulyxMeetingsNext(&gpu->meetings, &gpu->windows, &gpu->world, exchange->signature);
  ulyxGpuWritePlaces(outputs, &batch->meeting);
  writeStarts(exchange->phase, batch->starts);
}

ulyxResult_t ulyxGpuExchangeLaunch(ulyxGpu* gpu, cudaStream_t stream, int ctas, uint64_t mix) {
  ulyxExchangeBatch* const batch = &gpu->exchange;
  const int needed = batch->tiles < (uint32_t)ctas ? (int)batch->tiles : ctas;
  batch->mix = mix;
  const cudaError_t error = ulyxLaunchExchange(batch, needed > 0 ? needed : 1, stream);
  empty(batch);
  batch->meeting.enters = 0;
  return ulyxCudaResult(error, "launch of the exchange kernel");
}

static ulyxResult_t makeRoom(ulyxGpu* gpu, cudaStream_t stream) {
  ulyxExchangeBatch* const batch = &gpu->exchange;
  if (batch->count < ULYX_EXCHANGE_BATCH_LARGE) return ulyxSuccess;
  const uint16_t leaves = batch->meeting.leaves;
  batch->meeting.leaves = 0; /* the last launch alone does */
  const ulyxResult_t result =
      ulyxGpuExchangeLaunch(gpu, stream, gpu->directCtas, ulyxExchangeMix(batch->remoteTiles, batch->tiles));
  batch->meeting.leaves = leaves;
  return result;
}

ulyxResult_t ulyxGpuExchangeAdd(ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxCopy* copy, int peer,
                                int64_t firstRow, int64_t rows) {
  ulyxExchangeBatch* const batch = &gpu->exchange;
  const bool own = peer == gpu->world.rank;
  unsigned char* const base = own ? exchange->dst[copy->dstBuffer] : NULL;
  const int64_t dstOffset = copy->dstOffset + firstRow * copy->dstPitch;
  ulyxStrip strip = {.src = ulyxAt(exchange->src[copy->srcBuffer], copy->srcOffset + firstRow * copy->srcPitch),
                     .dst = (unsigned char*)((uintptr_t)base + (uintptr_t)dstOffset),
                     .rows = rows,
                     .rowBytes = copy->rowBytes,
                     .srcPitch = copy->srcPitch,
                     .dstPitch = copy->dstPitch};
  while (strip.rows > 0) {
    ULYX_TRY(makeRoom(gpu, exchange->stream));
    ulyxCopyDesc* const desc = &batch->desc[batch->count++];
    ulyxCopyDescTake(desc, &batch->tiles, &strip);
    desc->target = own ? 0 : (uint32_t)(1 + peer * ULYX_EXCHANGE_PLACES + copy->dstBuffer);
    if (!own) batch->remoteTiles = batch->tiles;
  }
  return ulyxSuccess;
}
