/* SPDX-License-Identifier: MIT
 *
 * What rank 0 prints and writes: nccl-tests' table on standard output (table.h), JSON where a file was named
 * (results.h), and a line of progress on standard error now and then while a long sweep runs. */
#ifndef PERF_OUTPUT_H_
#define PERF_OUTPUT_H_

#include <stdbool.h>
#include <stdio.h>

#include "json.h"
#include "measure.h"

#define PERF_DESCRIPTION_BYTES 224

/* Where a rank runs, as nccl-tests says it after the rank. */
typedef struct perfPlace {
  char text[PERF_DESCRIPTION_BYTES];
} perfPlace_t;

/* One row: a step and its ranks' values combined. */
typedef struct perfRow {
  const perfStep_t* step;
  const perfChoice_t* choice;
  perfValues_t values;
  double algorithmGBps;
  double busGBps;
  double limitPercent; /* PERF_NOT_MEASURED: no limit */
} perfRow_t;

/* Of all rows. */
typedef struct perfTotal {
  int rows;
  double busGBpsSum;
  double wrongBytes;
  double tensorBytes; /* the most that a rank's tensors took */
  int64_t arenaBytes; /* of a rank */
} perfTotal_t;

typedef struct perfOutput {
  const perfOptions_t* options;
  const perfOp_t* op;
  int nRanks;
  int nLocal;
  perfJson_t json;
  char* besidePath; /* what becomes the JSON file at the end; NULL: it is written itself */
  bool begun;       /* the headers are out */
  perfTotal_t total;
  double startUs;
  double progressUs; /* when the last line of progress was written */
} perfOutput_t;

/* Opens the JSON file if one was named. A failure has been reported. */
bool perfOutputOpen(const perfOptions_t* options, const perfOp_t* op, const perfWorld_t* world, perfOutput_t* output);

/* Headers, once the runtime is known. */
void perfOutputBegin(perfOutput_t* output, const ulyxRuntimeInfo_t* info, const perfRepeat_t* repeat,
                     const perfPlace_t* places);

/* steps 0: without end. */
void perfOutputProgress(perfOutput_t* output, int64_t stepsDone, int64_t steps);

/* values[nRanks], one a rank. The choice is the same on every rank. */
void perfOutputRow(perfOutput_t* output, const perfStep_t* step, const perfChoice_t* choice,
                   const perfValues_t* values);

double perfAverageGBps(const perfTotal_t* total);

/* nccl-tests grants a tenth of what NCCL_TESTS_MIN_BW asks for. */
bool perfTooSlow(const perfOptions_t* options, const perfTotal_t* total);

/* nccl-tests' stamp of the present second. */
#define PERF_STAMP_BYTES 32
void perfStamp(char stamp[PERF_STAMP_BYTES]);

/* The footer, unless the run failed. False if the JSON file could not be written. */
bool perfOutputClose(perfOutput_t* output, bool failed);

#endif /* PERF_OUTPUT_H_ */
