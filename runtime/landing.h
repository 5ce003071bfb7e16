/* SPDX-License-Identifier: MIT
 *
 * Where peers write an output that lies in memory they cannot reach: into the arena, laid out as the output itself, so
 * that senders need not know the difference; a copy on the receiving rank brings it home. Scratch lies behind. The
 * offsets are equal on every rank wherever the outputs' sizes are known to all. */
#ifndef ULYX_RUNTIME_LANDING_H_
#define ULYX_RUNTIME_LANDING_H_

#include "plan.h"

typedef struct ulyxLanding {
  int64_t offset[ULYX_ALL_BUFFERS]; /* in the arena, by destination buffer */
  bool written[ULYX_ALL_BUFFERS];   /* peers write into it, on some rank */
  int64_t span[ULYX_ALL_BUFFERS];   /* bytes of it that peers write on this rank */
  int64_t bytes;
} ulyxLanding;

ulyxLanding ulyxLandingMake(const ulyxPhase* phase);

#endif /* ULYX_RUNTIME_LANDING_H_ */
