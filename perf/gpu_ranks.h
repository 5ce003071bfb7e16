/* SPDX-License-Identifier: MIT
 *
 * Programs that do something of their own on the GPUs of this process: a thread and a runtime a GPU, watched by the
 * main thread. A rank that fails, or a device on which nothing moves any more, ends the program at once: the other
 * ranks may be waiting on their devices, and no call gets them back. */
#ifndef PERF_GPU_RANKS_H_
#define PERF_GPU_RANKS_H_

#include <stdbool.h>
#include <stdint.h>

#include "team.h"
#include "ulyx.h"

#define PERF_EXIT_SKIPPED 77 /* fewer GPUs than asked for */

typedef struct perfGpuRank {
  int rank; /* also its CUDA device */
  int nRanks;
  ulyxRuntime_t rt;
  perfTeam_t* team; /* its barriers never fail: a rank that fails has ended the program */
} perfGpuRank_t;

/* What the threads do. `state` is shared by all of them; progress, stands and tick are called by the main thread
 * meanwhile. */
typedef struct perfGpuProgram {
  bool (*run)(const perfGpuRank_t* me, void* state); /* the rank's device is current. false: has been reported */
  uint64_t (*progress)(const void* state);           /* another number whenever anything has moved */
  void (*stands)(const void* state);                 /* reports which rank stands, and where */
  void (*tick)(const void* state);                   /* every few seconds; may be NULL */
  void* state;
  int64_t timeoutSeconds; /* without progress */
} perfGpuProgram_t;

/* False, with one line that says so, where there are fewer GPUs. */
bool perfGpusAreThere(int64_t asked);

/* Makes the runtimes on devices 0 to nRanks - 1, runs a thread a rank and destroys the runtimes. False, reported,
 * where they could not be made or destroyed; it does not return where a rank failed or stands. The config's timeoutMs
 * is set here, beyond timeoutSeconds, so that the program speaks before the library. */
bool perfGpuRun(const ulyxConfig_t* config, int nRanks, const perfGpuProgram_t* program);

/* Ends the program without waiting for any device. */
_Noreturn void perfGpuStop(int status);

#endif /* PERF_GPU_RANKS_H_ */
