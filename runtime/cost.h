/* SPDX-License-Identifier: MIT
 *
 * How long a phase should take where NVLink joins all ranks: a time to begin and end, the link's speed a direction, and
 * what short rows cost. Fitted to two H200s with NVLink 4 (docs/performance.md); for more ranks it is a prediction. */
#ifndef ULYX_RUNTIME_COST_H_
#define ULYX_RUNTIME_COST_H_

#include "plan.h"

/* Microseconds. */
typedef struct ulyxCost {
  double limit; /* one contiguous copy of the busiest rank's bytes to a peer */
  double direct;
  double copyEngine;
} ulyxCost;

/* facts->remoteBytes is known. All 0 on one rank, which has no peers. */
ulyxCost ulyxCostOf(const ulyxPhaseFacts* facts, int nRanks);

#endif /* ULYX_RUNTIME_COST_H_ */
