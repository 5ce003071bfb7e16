/* SPDX-License-Identifier: MIT */
#include "choice.h"

#include "cost.h"

/* Copy engines are given addresses by the host, so every rank must know where the others' outputs are. */
static bool placesAreKnown(const ulyxPhaseFacts* phase) {
  for (int buffer = 0; buffer < ULYX_MAX_BUFFERS; ++buffer) {
    if (phase->dstSpan[buffer] < 0) return false;
  }
  return phase->remoteBytes >= 0;
}

static ulyxChoice_t nccl(const char* reason) {
  return (ulyxChoice_t){.transport = ulyxTransportNccl, .reason = reason, .predictedUs = -1};
}

static ulyxChoice_t direct(double us, const char* reason) {
  return (ulyxChoice_t){.transport = ulyxTransportDirect, .reason = reason, .predictedUs = us};
}

static ulyxChoice_t copyEngine(double us, const char* reason) {
  return (ulyxChoice_t){.transport = ulyxTransportCopyEngine, .reason = reason, .predictedUs = us};
}

ulyxChoice_t ulyxChoose(const ulyxWorldFacts* world, const ulyxPhaseFacts* phase) {
  if (world->fixed == ulyxTransportNccl) return nccl("the configuration asks for nccl");
  if (!world->reachable) return nccl("peers' memory cannot be reached (ulyxRuntimeGetInfo says why)");
  const bool known = phase->remoteBytes >= 0;
  const ulyxCost cost = known ? ulyxCostOf(phase, world->nRanks) : (ulyxCost){-1, -1, -1};
  if (world->fixed == ulyxTransportDirect) return direct(cost.direct, "the configuration asks for direct");
  if (!placesAreKnown(phase)) return direct(cost.direct, "only its own rank knows where an output is");
  if (world->fixed == ulyxTransportCopyEngine) {
    return copyEngine(cost.copyEngine, "the configuration asks for copy_engine");
  }
  if (world->undisturbed) return copyEngine(cost.copyEngine, "the multiprocessors are to stay free");
  if (phase->someDstEmpty) {
    return direct(cost.direct, "a rank without outputs cannot tell where the others have theirs");
  }
  /* beyond two ranks what engines take is not measured as well */
  const double engines = world->nRanks > 2 ? cost.copyEngine * 1.03 : cost.copyEngine;
  return cost.direct <= engines ? direct(cost.direct, "the fastest by the table of costs: few bytes")
                                : copyEngine(cost.copyEngine, "the fastest by the table of costs: many bytes");
}
