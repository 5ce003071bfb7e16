/* SPDX-License-Identifier: MIT
 *
 * A sweep as a list of shapes, made and judged before anything runs: an impossible one ends the program
 * before a rank has been started. */
#ifndef PERF_STEPS_H_
#define PERF_STEPS_H_

#include <stdbool.h>
#include <stdint.h>

#include "problem.h"

struct perfOp;

typedef struct perfSteps {
  perfStep_t* steps;
  int count;
} perfSteps_t;

/* A refusal has been reported. Free in either case. */
bool perfStepsCreate(const perfOptions_t* options, const struct perfOp* op, int nRanks, perfSteps_t* steps);

void perfStepsFree(perfSteps_t* steps);

/* For an op's list: one step, and one for each token count that -b, -e, -f and -i name. */
bool perfStepsAppend(perfSteps_t* steps, const perfStep_t* step);
bool perfStepsAppendSweep(perfSteps_t* steps, const perfOptions_t* options, perfStep_t step);

/* What an op's messages says, in a new array; NULL if it failed or memory is short, which has been reported. */
int64_t* perfMessagesCreate(const struct perfOp* op, const perfProblem_t* problem);

#endif /* PERF_STEPS_H_ */
