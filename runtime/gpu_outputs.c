/* SPDX-License-Identifier: MIT
 *
 * Outputs that peers write: in place where they lie in memory that peers see, else in the arena and brought home. */
#include "gpu.h"

/* The exchange kernel stores 16 bytes at a time from the start of an output. */
#define PLACE_ALIGNMENT 16

static const ulyxArena* seenByPeers(const ulyxGpu* gpu, const void* data, int64_t bytes) {
  if (data == NULL || (uintptr_t)data % PLACE_ALIGNMENT != 0) return NULL;
  const ulyxArena* const arena = ulyxGpuArenaOf(gpu, data, bytes);
  return arena != NULL && arena->number != ULYX_NO_WINDOW ? arena : NULL;
}

/* What must lie in memory that peers see. An engine is given a peer's address by this rank's: then the largest rank's
 * output must fit, so that no engine leaves a window, and the answer depends on the place alone. */
static int64_t spanOf(const ulyxPhase* phase, const ulyxLanding* landing, int buffer, bool sameEverywhere) {
  return sameEverywhere ? phase->facts.dstSpan[buffer] : landing->span[buffer];
}

ulyxOutputs ulyxGpuFindOutputs(const ulyxGpu* gpu, const ulyxExchange* exchange, bool sameEverywhere) {
  const ulyxLanding* const landing = &((const ulyxGpuPrepared*)exchange->prepared)->landing;
  /* a rank without outputs cannot tell where the others have theirs: then all land */
  const bool allLand = sameEverywhere && exchange->phase->facts.someDstEmpty;
  ulyxOutputs outputs = {{NULL}, {0}, {false}};
  for (int buffer = 0; buffer < ULYX_ALL_BUFFERS; ++buffer) {
    if (!landing->written[buffer] || (!sameEverywhere && landing->span[buffer] == 0)) continue;
    const ulyxArena* const arena =
        allLand || buffer == ULYX_SCRATCH
            ? NULL
            : seenByPeers(gpu, exchange->dst[buffer], spanOf(exchange->phase, landing, buffer, sameEverywhere));
    outputs.lands[buffer] = arena == NULL && buffer != ULYX_SCRATCH;
    outputs.arena[buffer] = arena != NULL ? arena : gpu->arena;
    outputs.offset[buffer] = arena != NULL ? (const char*)exchange->dst[buffer] - arena->data : landing->offset[buffer];
  }
  return outputs;
}

void ulyxGpuWritePlaces(const ulyxOutputs* outputs, ulyxMeeting* meeting) {
  _Static_assert(ULYX_ALL_BUFFERS == ULYX_EXCHANGE_PLACES, "a place for every destination buffer");
  for (int buffer = 0; buffer < ULYX_ALL_BUFFERS; ++buffer) {
    const ulyxArena* const arena = outputs->arena[buffer];
    meeting->places[buffer] =
        arena != NULL ? ulyxPlaceMake(arena->number, (uint64_t)outputs->offset[buffer]) : ULYX_PLACE_NONE;
  }
}

ulyxResult_t ulyxGpuBringHome(ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxOutputs* outputs) {
  const ulyxPhase* const phase = exchange->phase;
  ulyxCopyBatchReset(&gpu->batch);
  gpu->batch.skip = &gpu->meetings.state->verdict;
  for (int64_t c = phase->recvStart[0]; c < phase->recvStart[phase->nRanks]; ++c) {
    const ulyxCopy* const copy = &phase->copies[c];
    const int buffer = copy->dstBuffer;
    if (!outputs->lands[buffer]) continue;
    const ulyxStrip strip = {.src = ulyxAt(outputs->arena[buffer]->data, outputs->offset[buffer] + copy->dstOffset),
                             .dst = ulyxAt(exchange->dst[buffer], copy->dstOffset),
                             .rows = copy->rows,
                             .rowBytes = copy->rowBytes,
                             .srcPitch = copy->dstPitch,
                             .dstPitch = copy->dstPitch};
    ULYX_TRY(ulyxGpuAddStrip(gpu, strip, gpu->maxCtas, exchange->stream));
  }
  return ulyxGpuFlush(gpu, gpu->maxCtas, exchange->stream);
}
