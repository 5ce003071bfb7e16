/* SPDX-License-Identifier: MIT
 *
 * Where the ranks of a run are: threads on the CPU, threads with a GPU each, or processes with a GPU each
 * that a launcher started. */
#ifndef PERF_WORLD_H_
#define PERF_WORLD_H_

#include <stdbool.h>
#include <stdint.h>

#include "options.h"

typedef enum { perfWorldCpu, perfWorldGpus, perfWorldProcesses } perfWorldKind_t;

typedef struct perfWorld {
  perfWorldKind_t kind;
  int nRanks;
  int firstRank; /* of the ranks in this process */
  int nLocal;    /* ranks in this process: all, or one */
  int localRank; /* perfWorldProcesses: this process among those on its machine */
  uint64_t job;  /* the launcher's name for it, hashed (launcher.h) */
} perfWorld_t;

/* Decides from the flags, the launcher's environment variables and the number of GPUs. A refusal has been
 * reported. */
bool perfWorldDetect(const perfOptions_t* options, int nGpus, perfWorld_t* world);

#endif /* PERF_WORLD_H_ */
