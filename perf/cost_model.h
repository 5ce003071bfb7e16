/* SPDX-License-Identifier: MIT
 *
 * How long an exchange should take, from the bytes of the busiest rank: a time to begin and end, the link's speed a
 * direction, and what short rows cost a link that is written in rows. Fitted to two H200s with NVLink 4
 * (docs/performance.md); for more ranks it is a prediction that a run is to prove wrong. */
#ifndef PERF_COST_MODEL_H_
#define PERF_COST_MODEL_H_

#include <stdint.h>

typedef struct perfCost {
  double limitUs; /* one contiguous copy by a copy engine */
  double directUs;
  double copyEngineUs;
} perfCost_t;

/* writtenRowBytes: the rows that a peer's memory is written in; INT64_MAX: dense. */
perfCost_t perfPredict(int64_t busiestBytes, int64_t writtenRowBytes, int nRanks);

#endif /* PERF_COST_MODEL_H_ */
