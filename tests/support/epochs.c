/* SPDX-License-Identifier: MIT */
#include "support/epochs.h"

#include "gpu.h"
#include "runtime.h"

void ulyxTestSetExchangesDone(ulyxRuntime_t rt, uint64_t done) {
  ulyxGpu* const gpu = (ulyxGpu*)rt->transport;
  ulyxGuard* const guard = &gpu->world.guard;
  if (gpu->meetings.state != NULL) gpu->meetings.state->epoch = done;
  pthread_mutex_lock(&guard->lock);
  guard->enqueued = guard->finished = (int64_t)done;
  pthread_mutex_unlock(&guard->lock);
}

uint64_t ulyxTestExchangesDone(ulyxRuntime_t rt) {
  ulyxGpu* const gpu = (ulyxGpu*)rt->transport;
  ulyxGuard* const guard = &gpu->world.guard;
  if (gpu->meetings.state != NULL) return gpu->meetings.state->epoch;
  pthread_mutex_lock(&guard->lock);
  const uint64_t done = (uint64_t)guard->enqueued;
  pthread_mutex_unlock(&guard->lock);
  return done;
}
