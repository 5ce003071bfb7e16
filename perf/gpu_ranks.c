/* SPDX-License-Identifier: MIT */
#include "gpu_ranks.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cuda_backend.h"
#include "report.h"
#include "stats.h"

#define WATCH_NS 20000000
#define TICK_US 5e6

typedef struct rankThread {
  perfGpuRank_t rank;
  const perfGpuProgram_t* program;
  atomic_int* running;
} rankThread_t;

bool perfGpusAreThere(int64_t asked) {
  const int gpus = perfCudaDeviceCount();
  if (gpus >= asked) return true;
  (void)fprintf(stderr, "skipped: %lld GPUs were asked for, but there are %d\n", (long long)asked, gpus);
  return false;
}

_Noreturn void perfGpuStop(int status) {
  (void)fflush(NULL);
  _exit(status);
}

static void* runRank(void* argument) {
  const rankThread_t* thread = argument;
  const perfGpuProgram_t* program = thread->program;
  if (!perfCudaOk(cudaSetDevice(thread->rank.rank), "cudaSetDevice")) perfGpuStop(perfExitFailure);
  if (!program->run(&thread->rank, program->state)) {
    perfError("rank %d failed", thread->rank.rank);
    perfGpuStop(perfExitFailure);
  }
  atomic_fetch_sub(thread->running, 1);
  return NULL;
}

/* Until every rank's thread is about to end. */
static void watch(const perfGpuProgram_t* program, const atomic_int* running) {
  const struct timespec pause = {0, WATCH_NS};
  uint64_t progress = program->progress(program->state);
  double movedUs = perfNowUs();
  double tickUs = movedUs;
  while (atomic_load(running) > 0) {
    (void)nanosleep(&pause, NULL);
    const double nowUs = perfNowUs();
    const uint64_t now = program->progress(program->state);
    if (now != progress) {
      progress = now;
      movedUs = nowUs;
    }
    if (nowUs - movedUs > (double)program->timeoutSeconds * 1e6) {
      perfError("nothing has moved for %lld s", (long long)program->timeoutSeconds);
      program->stands(program->state);
      perfGpuStop(perfExitFailure);
    }
    if (program->tick != NULL && nowUs - tickUs > TICK_US) {
      program->tick(program->state);
      tickUs = nowUs;
    }
  }
}

bool perfGpuRun(const ulyxConfig_t* config, int nRanks, const perfGpuProgram_t* program) {
  int devices[PERF_MAX_LOCAL_RANKS];
  ulyxRuntime_t runtimes[PERF_MAX_LOCAL_RANKS];
  rankThread_t ranks[PERF_MAX_LOCAL_RANKS];
  pthread_t threads[PERF_MAX_LOCAL_RANKS];
  atomic_int running;
  ulyxConfig_t patient = *config;
  patient.timeoutMs = program->timeoutSeconds < INT_MAX / 2000 ? (int)program->timeoutSeconds * 2000 : INT_MAX;
  /* NVLink multicast is left alone, unless the caller's environment asks for it. No thread runs yet. */
  (void)setenv("NCCL_NVLS_ENABLE", "0", 0);
  perfTeam_t* team = perfTeamCreate(nRanks, nRanks);
  if (team == NULL) {
    perfError("out of memory for %d ranks", nRanks);
    return false;
  }
  for (int rank = 0; rank < nRanks; rank++) devices[rank] = rank;
  bool ok = perfUlyxOk(ulyxRuntimeCreateLocal(&patient, nRanks, devices, runtimes), NULL, "ulyxRuntimeCreateLocal");
  if (!ok) goto destroyTeam;
  atomic_init(&running, nRanks);
  for (int rank = 0; rank < nRanks; rank++) {
    ranks[rank] = (rankThread_t){{rank, nRanks, runtimes[rank], team}, program, &running};
    if (pthread_create(&threads[rank], NULL, runRank, &ranks[rank]) != 0) {
      perfError("cannot start %d threads", nRanks);
      perfGpuStop(perfExitFailure);
    }
  }
  watch(program, &running);
  for (int rank = 0; rank < nRanks; rank++) (void)pthread_join(threads[rank], NULL);
  for (int rank = 0; rank < nRanks; rank++) {
    if (!perfUlyxOk(ulyxRuntimeDestroy(&runtimes[rank]), NULL, "ulyxRuntimeDestroy")) ok = false;
  }

destroyTeam:
  perfTeamDestroy(team);
  return ok;
}
