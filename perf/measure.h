/* SPDX-License-Identifier: MIT
 *
 * One step of a sweep, measured by one rank: checked, warmed, timed, checked again. */
#ifndef PERF_MEASURE_H_
#define PERF_MEASURE_H_

#include <stdbool.h>

#include "backend.h"

/* What a rank measures, all as doubles so that ranks exchange and combine them alike. Times are in
 * microseconds, PERF_NOT_MEASURED where they were not. */
typedef enum {
  perfValueMedian,
  perfValueMin,
  perfValueMax,
  perfValueMean,
  perfValueP99,
  perfValueLimit,    /* one plain peer copy of the same remote bytes */
  perfValueBaseline, /* the op's baselines */
  perfValueLastBaseline = perfValueBaseline + PERF_MAX_BASELINES - 1,
  perfValueEnqueue, /* host time of one call */
  perfValueWrong,   /* bytes */
  perfValueMemory,  /* bytes of the rank's tensors */
  perfValueCount
} perfValue_t;

typedef struct perfValues {
  double of[perfValueCount];
} perfValues_t;

#define PERF_REASON_BYTES 256

/* How ulyx moves a step's bytes: a copy of its plan's choice, which the plan takes with it. */
typedef struct perfChoice {
  int transport;
  double predictedUs; /* PERF_NOT_MEASURED: no prediction */
  char reason[PERF_REASON_BYTES];
} perfChoice_t;

/* How the options and the backend repeat an exchange. */
perfRepeat_t perfRepeatOf(const perfRank_t* me);

/* Collective. A failure has been reported, and the team been told. */
bool perfMeasure(perfRank_t* me, const perfOp_t* op, const perfStep_t* step, perfValues_t* values,
                 perfChoice_t* choice);

#endif /* PERF_MEASURE_H_ */
