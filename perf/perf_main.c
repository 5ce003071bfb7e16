/* SPDX-License-Identifier: MIT
 *
 * From a command line to an exit status: options, world and steps are settled first, then every local rank
 * runs the same sweep in a thread of its own and rank 0 reports. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"
#include "measure.h"
#include "output.h"
#include "report.h"
#include "sweep_bytes.h"

/* What one rank's thread works on. */
typedef struct rankJob {
  perfRank_t* rank;
  const perfOp_t* op;
  const perfSteps_t* steps;
  perfOutput_t* output; /* rank 0's; NULL on the others */
  double wrongBytes;    /* of all ranks */
  bool ok;
} rankJob_t;

static bool beginOutput(rankJob_t* job) {
  perfRank_t* me = job->rank;
  bool ok = false;
  perfPlace_t place;
  char host[64] = "";
  (void)gethostname(host, sizeof(host) - 1);
  char device[96];
  me->backend->describe(me, device, sizeof(device));
  memset(&place, 0, sizeof(place));
  (void)snprintf(place.text, sizeof(place.text), "Pid %6ld on %10s %s", (long)getpid(), host, device);
  perfPlace_t* places = calloc((size_t)me->nRanks, sizeof(*places));
  if (places == NULL) {
    perfError("out of memory for %d ranks", me->nRanks);
    return false;
  }
  ulyxRuntimeInfo_t info = ULYX_RUNTIME_INFO_INITIALIZER;
  if (!perfTeamGather(me->team, me->rank, &place, sizeof(place), places)) goto freePlaces;
  if (!perfUlyxOk(ulyxRuntimeGetInfo(me->rt, &info), me->rt, "ulyxRuntimeGetInfo")) goto freePlaces;
  if (job->output != NULL) {
    const perfRepeat_t repeat = perfRepeatOf(me);
    perfOutputBegin(job->output, &info, &repeat, places);
  }
  ok = true;

freePlaces:
  free(places);
  return ok;
}

/* One arena for the whole sweep: growing it between steps would cost every step its registration. */
static bool reserveArena(rankJob_t* job) {
  int64_t arenaBytes = 0;
  for (int i = 0; i < job->steps->count; i++) {
    if (job->steps->steps[i].arenaBytes > arenaBytes) arenaBytes = job->steps->steps[i].arenaBytes;
  }
  return perfUlyxOk(ulyxRuntimeReserve(job->rank->rt, arenaBytes), job->rank->rt, "ulyxRuntimeReserve");
}

static bool sweep(rankJob_t* job) {
  perfRank_t* me = job->rank;
  bool ok = false;
  perfValues_t* all = calloc((size_t)me->nRanks, sizeof(*all));
  if (all == NULL) {
    perfError("out of memory for %d ranks", me->nRanks);
    return false;
  }
  const int steps = job->steps->count;
  const int64_t runs = me->options->cycles * steps; /* 0: without end */
  for (int64_t run = 0; runs == 0 || run < runs; run++) {
    const perfStep_t* step = &job->steps->steps[run % steps];
    perfValues_t mine;
    perfChoice_t choice;
    if (!perfMeasure(me, job->op, step, &mine, &choice)) goto freeAll;
    if (!perfTeamGather(me->team, me->rank, &mine, sizeof(mine), all)) goto freeAll;
    for (int rank = 0; rank < me->nRanks; rank++) job->wrongBytes += all[rank].of[perfValueWrong];
    if (job->output == NULL) continue;
    perfOutputRow(job->output, step, &choice, all);
    if (runs == 0 || run + 1 < runs) perfOutputProgress(job->output, run + 1, runs);
  }
  ok = true;

freeAll:
  free(all);
  return ok;
}

/* What was not given stays undefined, so that the environment decides. */
static void configure(const perfOptions_t* options, ulyxConfig_t* config) {
  config->timeoutMs = (int)options->timeoutSeconds * 1000;
  if (options->transport != PERF_UNSET) config->transport = (int)options->transport;
  if (options->maxCtas != PERF_UNSET) config->maxCtas = (int)options->maxCtas;
  if (options->undisturbed != 0) config->undisturbed = 1;
  if (options->copyStreams != PERF_UNSET) config->copyStreams = (int)options->copyStreams;
}

static bool createRuntimes(const perfOptions_t* options, const perfWorld_t* world, perfRank_t* ranks) {
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  configure(options, &config);
  if (world->kind != perfWorldCpu) return perfCudaCreateRuntimes(&config, options, world, ranks);
  bool ok = false;
  ulyxRuntime_t* runtimes = calloc((size_t)world->nRanks, sizeof(*runtimes));
  if (runtimes == NULL) {
    perfError("out of memory for %d ranks", world->nRanks);
    return false;
  }
  if (!perfUlyxOk(ulyxRuntimeCreateLocal(&config, world->nRanks, NULL, runtimes), NULL, "ulyxRuntimeCreateLocal")) {
    goto freeRuntimes;
  }
  for (int rank = 0; rank < world->nRanks; rank++) {
    ranks[rank].device = -1;
    ranks[rank].backend = perfCpuBackend();
    ranks[rank].rt = runtimes[rank];
  }
  ok = true;

freeRuntimes:
  free(runtimes);
  return ok;
}

static void destroyRank(perfRank_t* me, bool* ok) {
  if (!perfUlyxOk(ulyxRuntimeDestroy(&me->rt), NULL, "ulyxRuntimeDestroy")) *ok = false;
  me->backend->close(me);
}

static void* runRank(void* argument) {
  rankJob_t* job = argument;
  perfRank_t* me = job->rank;
  job->ok = me->backend->open(me) && reserveArena(job) && beginOutput(job) && sweep(job);
  if (!job->ok) perfTeamFail(me->team);
  destroyRank(me, &job->ok);
  perfTeamLeave(me->team);
  return NULL;
}

/* A thread a rank, until all have ended. Ranks that get none fail the team. */
static bool runRanks(rankJob_t* jobs, int nLocal, perfTeam_t* team, int graceSeconds) {
  pthread_t threads[PERF_MAX_LOCAL_RANKS];
  int started = 0;
  while (started < nLocal && pthread_create(&threads[started], NULL, runRank, &jobs[started]) == 0) {
    started++;
  }
  bool ok = started == nLocal;
  if (!ok) {
    perfError("cannot start %d threads", nLocal);
    perfTeamFail(team);
    for (int i = started; i < nLocal; i++) perfTeamLeave(team);
  }
  if (!perfTeamWaitAllLeft(team, graceSeconds)) {
    /* A rank waits on the device for one that has failed; no call gets it back. */
    perfError("some ranks did not end within %d s of the failure", graceSeconds);
    (void)fflush(NULL);
    _exit(perfExitFailure);
  }
  for (int i = 0; i < started; i++) {
    (void)pthread_join(threads[i], NULL);
    ok = ok && jobs[i].ok;
  }
  for (int i = started; i < nLocal; i++) destroyRank(jobs[i].rank, &ok);
  return ok;
}

static int runWorld(const perfOptions_t* options, const perfWorld_t* world, const perfOp_t* op,
                    const perfSteps_t* steps) {
  int status = perfExitFailure;
  perfOutput_t output;
  const bool reports = world->firstRank == 0;
  perfTeam_t* team = NULL;
  rankJob_t* jobs = calloc((size_t)world->nLocal, sizeof(*jobs));
  perfRank_t* ranks = calloc((size_t)world->nLocal, sizeof(*ranks));
  if (jobs == NULL || ranks == NULL) {
    perfError("out of memory for %d ranks", world->nLocal);
    goto freeRanks;
  }
  team = perfTeamCreate(world->nRanks, world->nLocal);
  if (team == NULL) {
    perfError("out of memory for %d ranks", world->nRanks);
    goto freeRanks;
  }
  if (reports && !perfOutputOpen(options, op, world, &output)) goto freeRanks;
  for (int i = 0; i < world->nLocal; i++) {
    ranks[i] = (perfRank_t){
        .rank = world->firstRank + i, .nRanks = world->nRanks, .team = team, .options = options, .world = world};
  }
  bool ok = createRuntimes(options, world, ranks);
  if (ok) {
    for (int i = 0; i < world->nLocal; i++) {
      jobs[i] = (rankJob_t){.rank = &ranks[i], .op = op, .steps = steps};
      if (ranks[i].rank == 0) jobs[i].output = &output;
    }
    ok = runRanks(jobs, world->nLocal, team, (int)options->timeoutSeconds + 5);
  }
  if (reports && !perfOutputClose(&output, !ok)) ok = false;
  const bool bad = jobs[0].wrongBytes > 0 || (reports && perfTooSlow(options, &output.total));
  if (ok) status = bad ? perfExitWrongData : perfExitOk;

freeRanks:
  perfTeamDestroy(team);
  free(ranks);
  free(jobs);
  return status;
}

int perfMain(int argc, char** argv, const perfOp_t* op) {
  int status = perfExitUsage;
  perfOptions_t options;
  perfWorld_t world;
  perfSteps_t steps = {NULL, 0};
  const perfParse_t parsed = perfOptionsParse(op, argc, argv, &options);
  if (parsed == perfHelpAsked) status = perfExitOk;
  if (parsed != perfParsed) goto freeOptions;
  if (!perfWorldDetect(&options, perfCudaDeviceCount(), &world)) goto freeOptions;
  if (!perfSweepOfBytes(op, world.nRanks, &options)) goto freeOptions;
  if (!perfStepsCreate(&options, op, world.nRanks, &steps)) goto freeSteps;
  status = runWorld(&options, &world, op, &steps);

freeSteps:
  perfStepsFree(&steps);
freeOptions:
  perfOptionsFree(&options);
  return status;
}
