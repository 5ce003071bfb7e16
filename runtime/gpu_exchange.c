/* SPDX-License-Identifier: MIT */
#include "gpu_exchange.h"

#include "kernels.h"
#include "statement.h"

static void empty(ulyxExchangeBatch* batch) {
  batch->count = batch->tiles = batch->remoteTiles = 0;
}

static int64_t bytesOf(const ulyxPhase* phase, const int64_t* start, int peer) {
  return ulyxCopiesBytes(phase->copies + start[peer], start[peer + 1] - start[peer]);
}

/* The same word on both ranks of a pair that expect the same bytes of each other. */
static uint64_t pairOf(const ulyxPhase* phase, int peer) {
  const int64_t sent = bytesOf(phase, phase->sendStart, peer), received = bytesOf(phase, phase->recvStart, peer);
  const bool lower = phase->rank < peer;
  return ulyxHashWord(ulyxHashWord(ULYX_HASH_START, lower ? sent : received), lower ? received : sent);
}

/* What only the two ranks of a pair know: where the sender's copies start in the receiver's output, and how many bytes
 * they are, which no signature covers. */
static void writePairs(const ulyxPhase* phase, ulyxExchangeBatch* batch) {
  for (int peer = 0; peer < phase->nRanks; ++peer) {
    const bool paired = phase->facts.startsAreTheReceivers && peer != phase->rank;
    const bool listed = paired && phase->recvStart[peer] < phase->recvStart[peer + 1];
    batch->starts[peer] = listed ? (uint64_t)phase->copies[phase->recvStart[peer]].dstOffset : 0;
    batch->pairs[peer] = paired ? pairOf(phase, peer) : 0;
  }
}

void ulyxGpuExchangeBegin(ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxOutputs* outputs) {
  ulyxExchangeBatch* const batch = &gpu->exchange;
  empty(batch);
  batch->meeting = ulyxMeetingsNext(&gpu->meetings, &gpu->windows, &gpu->world, exchange->signature);
  ulyxGpuWritePlaces(outputs, &batch->meeting);
  writePairs(exchange->phase, batch);
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
