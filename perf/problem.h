/* SPDX-License-Identifier: MIT
 *
 * One step of a sweep, and everything that decides what it moves: the options, the step and the world. */
#ifndef PERF_PROBLEM_H_
#define PERF_PROBLEM_H_

#include <stdint.h>

#include "options.h"
#include "ulyx.h"

typedef struct perfStep {
  char model[64];      /* "" without one */
  ulyxShape_t shape;   /* of an attention exchange; unused by the others */
  int64_t tokens;      /* that are split over the ranks; rows where rows are moved */
  int64_t sizeBytes;   /* the op's, of the busiest rank */
  int64_t remoteBytes; /* of the busiest rank's busier direction */
  int64_t arenaBytes;  /* the most that a rank needs */
} perfStep_t;

typedef struct perfProblem {
  const perfOptions_t* options;
  const perfStep_t* step;
  int nRanks;
} perfProblem_t;

#endif /* PERF_PROBLEM_H_ */
