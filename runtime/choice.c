/* SPDX-License-Identifier: MIT */
#include "choice.h"

/* Measured on two H200s with NVLink 4: a time to begin and end, and bytes a microsecond after that. */
typedef struct Cost {
  double startUs, bytesPerUs;
} Cost;

static const Cost directCost = {7.0, 360e3};
static const Cost copyEngineCost = {20.0, 393e3};

/* Copy engines slow down on rows shorter than this. */
#define SHORT_ROW_BYTES 256

/* The widest access that rows of this length allow. */
static double unitBytes(int64_t rowBytes) {
  return rowBytes > 0 ? (double)(((uint64_t)rowBytes | 16) & (0 - ((uint64_t)rowBytes | 16))) : 16;
}

static double predict(Cost cost, double slowdown, int64_t bytes) {
  return cost.startUs + slowdown * (double)bytes / cost.bytesPerUs;
}

static double directUs(const ulyxPhaseFacts* phase) {
  return predict(directCost, 16 / unitBytes(phase->rowBytes), phase->remoteBytes);
}

static double copyEngineUs(const ulyxPhaseFacts* phase) {
  const double slowdown = phase->rowBytes < SHORT_ROW_BYTES ? SHORT_ROW_BYTES / (double)(phase->rowBytes + 1) : 1;
  return predict(copyEngineCost, slowdown, phase->remoteBytes);
}

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

static ulyxChoice_t direct(const ulyxPhaseFacts* phase, const char* reason) {
  return (ulyxChoice_t){.transport = ulyxTransportDirect,
                        .reason = reason,
                        .predictedUs = phase->remoteBytes >= 0 ? directUs(phase) : -1};
}

static ulyxChoice_t copyEngine(const ulyxPhaseFacts* phase, const char* reason) {
  return (ulyxChoice_t){.transport = ulyxTransportCopyEngine, .reason = reason, .predictedUs = copyEngineUs(phase)};
}

ulyxChoice_t ulyxChoose(const ulyxWorldFacts* world, const ulyxPhaseFacts* phase) {
  if (world->fixed == ulyxTransportNccl) return nccl("the configuration asks for nccl");
  if (!world->reachable) return nccl("peers' memory cannot be reached (ulyxRuntimeGetInfo says why)");
  if (world->fixed == ulyxTransportDirect) return direct(phase, "the configuration asks for direct");
  if (!placesAreKnown(phase)) return direct(phase, "only its own rank knows where an output is");
  if (world->fixed == ulyxTransportCopyEngine) return copyEngine(phase, "the configuration asks for copy_engine");
  if (world->undisturbed) return copyEngine(phase, "the multiprocessors are to stay free");
  if (phase->someDstEmpty) return direct(phase, "a rank without outputs cannot tell where the others have theirs");
  return directUs(phase) <= copyEngineUs(phase) ? direct(phase, "the fastest by the table of costs: few bytes")
                                                : copyEngine(phase, "the fastest by the table of costs: many bytes");
}
