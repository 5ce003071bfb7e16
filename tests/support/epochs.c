/* SPDX-License-Identifier: MIT */
#include "support/epochs.h"

#include "gpu.h"
#include "runtime.h"

void ulyxTestSetExchangesDone(ulyxRuntime_t rt, uint64_t done) {
  ulyxGpu* const gpu = (ulyxGpu*)rt->transport;
  if (gpu->meetings.state != NULL) gpu->meetings.state->epoch = gpu->meetings.state->entered = done;
  rt->flight.count = (int64_t)done;
}

bool ulyxTestBeginExchange(ulyxRuntime_t rt) {
  ulyxGpu* const gpu = (ulyxGpu*)rt->transport;
  if (gpu->labels.device == NULL) return false;
  gpu->labels.run->running = (uint64_t)rt->flight.count;
  if (gpu->meetings.state != NULL) ++gpu->meetings.state->entered;
  return true;
}

uint64_t ulyxTestExchangesDone(ulyxRuntime_t rt) {
  const ulyxGpu* const gpu = (const ulyxGpu*)rt->transport;
  return gpu->meetings.state != NULL ? gpu->meetings.state->epoch : (uint64_t)rt->flight.count;
}
