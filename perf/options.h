/* SPDX-License-Identifier: MIT
 *
 * What one of the perf programs was asked to do, as its flags say it. */
#ifndef PERF_OPTIONS_H_
#define PERF_OPTIONS_H_

#include <stdbool.h>
#include <stdint.h>

#include "flags.h"
#include "numbers.h"
#include "types.h"

#define PERF_MAX_LOCAL_RANKS 64 /* ulyxRuntimeCreateLocal's */

#define PERF_UNSET (-1) /* a flag that was not given, where that differs from every value */

struct perfOp;

typedef enum { perfMemoryPlain, perfMemorySymmetric } perfMemory_t;

typedef struct perfOptions {
  int argc; /* the command line */
  char** argv;
  /* The sweep. */
  int64_t beginTokens; /* PERF_UNSET: see options.c */
  int64_t endTokens;
  int64_t tokensFactor;
  int64_t tokensStep;
  int64_t beginBytes; /* the same in bytes of the size column, until perfSweepOfBytes has turned them into tokens */
  int64_t endBytes;
  int64_t stepBytes;
  /* Shapes. An op uses its own; 0 and NULL were not given. */
  const perfType_t* type;
  perfCounts_t counts; /* tokens or rows of each rank */
  int64_t heads;
  int64_t kvHeads;
  int64_t headDim;
  int64_t keyDim;
  int64_t valueDim;
  int64_t batch;
  int64_t replicatedTokens; /* PERF_UNSET: a model's, else none */
  int64_t replicatedLast;
  perfCounts_t headCounts;
  int64_t packedIn;
  int64_t packedOut;
  const char* model;
  int64_t tokensDivide;
  int64_t rowElements;
  perfCounts_t target;    /* start and stop */
  const char* matrixPath; /* of `matrix` */
  perfCounts_t matrix;    /* rows from rank to rank, matrixRanks x matrixRanks */
  int64_t matrixRanks;
  int64_t matrixUnit; /* perfMatrixUnit_t, or PERF_UNSET */
  double matrixScale; /* or PERF_UNSET */
  perfCounts_t cuSeqlens;
  int64_t convKernel;
  int64_t backward;
  int64_t initial;
  int64_t final;
  /* Ranks. */
  int64_t ranks;
  int64_t gpus;
  int64_t threads;
  const char* idFile;
  int64_t timeoutSeconds;
  /* The runtime's configuration. PERF_UNSET leaves a field to the environment. */
  int64_t transport; /* ulyxTransport_t */
  int64_t maxCtas;
  int64_t undisturbed; /* 1; not given is 0 */
  int64_t copyStreams;
  /* Measuring. */
  int64_t iterations;
  int64_t warmup;
  int64_t skip;         /* leading samples that do not count */
  int64_t perIteration; /* 0: the backend's */
  int64_t checks;
  int64_t graphLaunches;
  int64_t cycles;  /* 0: without end */
  int64_t average; /* perfAverage_t */
  int64_t memory;  /* perfMemory_t */
  int64_t unalign; /* elements by which data lies off its alignment */
  int64_t baseline;
  int64_t enqueue;
  int64_t timestamps;
  int64_t memoryReport;
  double leastGBps;     /* NCCL_TESTS_MIN_BW; 0: none */
  const char* jsonPath; /* NULL: none */
} perfOptions_t;

/* Fills in *options from a command line, checks that the flags agree and sets what was not given. On
 * perfHelpAsked the help has been printed, on perfRefused one line says why. Free the options either way. */
perfParse_t perfOptionsParse(const struct perfOp* op, int argc, char** argv, perfOptions_t* options);

void perfOptionsFree(perfOptions_t* options);

/* The flag of the element type, for ops that have one. */
perfFlag_t perfTypeFlag(perfOptions_t* options);

/* True unless `counts` were given and are not one a rank, which is then reported. */
bool perfOneCountARank(const char* flag, const perfCounts_t* counts, int nRanks);

#endif /* PERF_OPTIONS_H_ */
