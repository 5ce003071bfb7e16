/* SPDX-License-Identifier: MIT
 *
 * What a rank needs from the machine it runs on: memory, the pattern in that memory, and a clock. Two of
 * these: the CPU's, and the GPU's where the build has CUDA (cuda_absent.c stands in where it has not).
 *
 * Every function is called by the rank's own thread, reports its failure and returns false. */
#ifndef PERF_BACKEND_H_
#define PERF_BACKEND_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "addends.h"
#include "op.h"
#include "options.h"
#include "pattern.h"
#include "stats.h"
#include "steps.h"
#include "team.h"
#include "ulyx.h"
#include "world.h"

struct perfBackend;

/* One rank. The team, the options and the world are shared and outlive it. */
typedef struct perfRank {
  int rank;
  int nRanks;
  int device; /* -1 on the CPU */
  perfTeam_t* team;
  const perfOptions_t* options;
  const perfWorld_t* world;
  const struct perfBackend* backend;
  ulyxRuntime_t rt;      /* destroyed by the rank */
  struct ncclComm* comm; /* of the baseline and of processes; NULL: none. Destroyed by the rank */
  ulyxStream_t stream;   /* of the backend; NULL on the CPU */
  void* backendState;
} perfRank_t;

/* Something to time: one call of enqueue is one operation. */
typedef struct perfTask {
  bool (*enqueue)(void* state, ulyxStream_t stream);
  bool (*refresh)(void* state); /* new data between warm-up and timing; may be NULL */
  void* state;
} perfTask_t;

typedef struct perfRepeat {
  int warmup;
  int samples;
  int perSample;
  int skip;   /* leading samples that do not count; fewer than there are */
  bool graph; /* a sample is one launch of a graph of perSample operations */
} perfRepeat_t;

typedef struct perfBackend {
  int perSample; /* operations of a sample, unless -m says */

  bool (*open)(perfRank_t* me);
  void (*close)(perfRank_t* me);
  void (*describe)(const perfRank_t* me, char* text, size_t bytes);

  /* 256-byte aligned. bytes > 0. */
  bool (*alloc)(perfRank_t* me, int64_t bytes, void** ptr);
  void (*release)(perfRank_t* me, void* ptr);

  /* Writes PERF_POISON_BYTE, or the pattern of a view of a buffer at `data`. Ordered with the rank's stream. */
  bool (*poison)(perfRank_t* me, void* ptr, int64_t bytes);
  bool (*fill)(perfRank_t* me, void* data, const perfView_t* view, uint64_t seed);

  /* Adds the bytes that are not as the functions above write them to *wrong. Blocking. */
  bool (*countNotPoison)(perfRank_t* me, const void* ptr, int64_t bytes, int64_t* wrong);
  bool (*countWrong)(perfRank_t* me, const void* data, const perfView_t* view, uint64_t seed, int64_t* wrong);

  /* The same for what a reduction adds up and for its sums. */
  bool (*fillAddends)(perfRank_t* me, void* data, const perfAddends_t* addends, uint64_t seed);
  bool (*countWrongSums)(perfRank_t* me, const void* data, const perfAddends_t* sums, uint64_t seed, int64_t* wrong);

  /* Copy from and to host memory; for little. Ordered with the rank's stream; the host memory may be reused at once. */
  bool (*put)(perfRank_t* me, void* to, const void* from, int64_t bytes);
  bool (*get)(perfRank_t* me, void* to, const void* from, int64_t bytes);

  /* Waits for what this rank has enqueued, until the team fails or the timeout passes. */
  bool (*drain)(perfRank_t* me);

  /* Collective: ranks start each timing together. */
  bool (*time)(perfRank_t* me, const perfTask_t* task, const perfRepeat_t* repeat, perfTimes_t* times);

  /* What only GPUs can measure; NULL on the CPU. Collective.
   * timeEnqueue: the median host time of one call of enqueue.
   * timePeerCopy: one contiguous copy of `bytes` to the next rank while one comes from the rank before.
   * timeBaseline: NCCL's own way; *us is PERF_NOT_MEASURED where it cannot move these bytes. */
  bool (*timeEnqueue)(perfRank_t* me, const perfTask_t* task, double* us);
  bool (*timePeerCopy)(perfRank_t* me, int64_t bytes, double* us);
  bool (*timeBaseline)(perfRank_t* me, const perfOp_t* op, const perfProblem_t* problem, perfBaselineKind_t kind,
                       const perfRepeat_t* repeat, double* us);
} perfBackend_t;

const perfBackend_t* perfCpuBackend(void);

/* GPUs of this machine; 0 in a build without CUDA. */
int perfCudaDeviceCount(void);

/* The runtimes of this process' ranks on GPUs, with the devices and communicators that they use, and the
 * ranks' backend. What it made is destroyed by the ranks; on failure it has been destroyed. */
bool perfCudaCreateRuntimes(const ulyxConfig_t* config, const perfOptions_t* options, const perfWorld_t* world,
                            perfRank_t* ranks);

#endif /* PERF_BACKEND_H_ */
