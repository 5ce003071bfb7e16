/* SPDX-License-Identifier: MIT
 *
 * A sweep as a list of shapes, made and judged before anything runs: an impossible one ends the program
 * before a rank has been started. */
#ifndef PERF_STEPS_H_
#define PERF_STEPS_H_

#include <stdbool.h>
#include <stdint.h>

#include "op.h"
#include "options.h"
#include "ulyx.h"

typedef struct perfStep {
  char model[64]; /* "" without one */
  ulyxShape_t shape;
  int64_t tokens;
  int64_t sizeBytes;   /* the op's, of the busiest rank */
  int64_t remoteBytes; /* of the busiest rank's busier direction */
  int64_t arenaBytes;  /* the most that a rank needs */
} perfStep_t;

typedef struct perfSteps {
  perfStep_t* steps;
  int count;
} perfSteps_t;

/* The shapes point to the options' counts. A refusal has been reported. Free in either case. */
bool perfStepsCreate(const perfOptions_t* options, const perfOp_t* op, int nRanks, perfSteps_t* steps);

void perfStepsFree(perfSteps_t* steps);

#endif /* PERF_STEPS_H_ */
