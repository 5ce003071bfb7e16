/* SPDX-License-Identifier: MIT */
#include "world.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

#include "numbers.h"
#include "report.h"
#include "ulyx.h"

typedef struct perfLauncher {
  const char* name;
  const char* rank;
  const char* nRanks;
  const char* localRank;
} perfLauncher_t;

/* The innermost launcher comes first: torchrun may itself have been started by mpirun, and that by srun. */
static const perfLauncher_t launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};

/* An empty variable is one that was not set. */
static const char* readVariable(const char* name) {
  const char* text = getenv(name);
  return text != NULL && text[0] != '\0' ? text : NULL;
}

/* A number from 0 to below `end`. */
static bool parsePlace(const char* text, int64_t end, int64_t* place) {
  return perfParseInt(text, place) && *place >= 0 && *place < end;
}

/* The launcher's world, if one started this process among others; without one the world is left alone. False, reported,
 * where a launcher's variables do not fit together. */
static bool findProcesses(int nGpus, perfWorld_t* world) {
  for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
    const perfLauncher_t* of = &launchers[i];
    const char* rankText = readVariable(of->rank);
    const char* nRanksText = readVariable(of->nRanks);
    const char* localText = readVariable(of->localRank);
    int64_t rank = 0;
    int64_t nRanks = 0;
    int64_t localRank = 0;
    if (rankText == NULL || nRanksText == NULL) continue;
    if (!perfParseInt(nRanksText, &nRanks) || nRanks < 1 || nRanks > INT32_MAX ||
        !parsePlace(rankText, nRanks, &rank)) {
      perfError("%s=%s and %s=%s are no rank and number of ranks: unset them, or give --ranks", of->rank, rankText,
                of->nRanks, nRanksText);
      return false;
    }
    if (nRanks < 2) continue;
    /* Without a local rank, machines are taken to be filled one after another. */
    if (localText == NULL) {
      localRank = nGpus > 0 ? rank % nGpus : 0;
    } else if (!parsePlace(localText, nRanks, &localRank)) {
      perfError("%s=%s is no rank on this machine of %s=%s: unset it, or give --ranks", of->localRank, localText,
                of->nRanks, nRanksText);
      return false;
    }
    *world = (perfWorld_t){perfWorldProcesses, (int)nRanks, (int)rank, 1, (int)localRank, of->name};
    return true;
  }
  return true;
}

static bool chooseKind(const perfOptions_t* options, int nGpus, perfWorld_t* world) {
  const int64_t perThread = options->gpus > 0 ? options->gpus : 1;
  const int64_t threads = options->threads > 0 ? options->threads : 1;
  const bool asksGpus = options->gpus > 0 || options->threads > 0;
  const int64_t asked = perThread * threads;
  if (options->ranks > 0) {
    *world = (perfWorld_t){perfWorldCpu, (int)options->ranks, 0, (int)options->ranks, 0, NULL};
    return true;
  }
  *world = (perfWorld_t){perfWorldCpu, 2, 0, 2, 0, NULL};
  if (!findProcesses(nGpus, world)) return false;
  if (world->kind == perfWorldProcesses) {
    if (asked > 1) {
      perfError("%s started %d processes, and each drives one GPU: drop -g and -t", world->launcher, world->nRanks);
      return false;
    }
    if (nGpus == 0) {
      perfError("%s started %d processes, which need a GPU each, but there is none", world->launcher, world->nRanks);
      return false;
    }
    return true;
  }
  if (asked > PERF_MAX_LOCAL_RANKS) {
    perfError("a process drives %d GPUs at most, not %" PRId64, PERF_MAX_LOCAL_RANKS, asked);
    return false;
  }
  if (asksGpus && asked > nGpus) {
    perfError("%" PRId64 " GPUs were asked for, but there are %d", asked, nGpus);
    return false;
  }
  if (asksGpus || nGpus >= 2) {
    const int allGpus = nGpus < PERF_MAX_LOCAL_RANKS ? nGpus : PERF_MAX_LOCAL_RANKS;
    const int nRanks = asksGpus ? (int)asked : allGpus;
    *world = (perfWorld_t){perfWorldGpus, nRanks, 0, nRanks, 0, NULL};
    return true;
  }
  return true;
}

bool perfWorldDetect(const perfOptions_t* options, int nGpus, perfWorld_t* world) {
  if (!chooseKind(options, nGpus, world)) return false;
  const char* why = NULL;
  if (world->kind == perfWorldCpu && options->graphLaunches > 0) why = "-G needs GPUs";
  if (world->kind == perfWorldCpu && options->baseline > 0) why = "--baseline needs GPUs";
  if (world->kind == perfWorldCpu && options->enqueue > 0) {
    why = "--enqueue needs GPUs: on the CPU an exchange blocks until it is done";
  }
  if (world->kind == perfWorldCpu && options->transport > ulyxTransportLoopback) {
    why = "on the CPU there is only --transport loopback: nccl, direct and copy_engine are for GPUs";
  }
  if (world->kind != perfWorldProcesses && options->idFile != NULL) why = "--id-file is for ranks that are processes";
  if (world->kind == perfWorldProcesses && options->idFile == NULL && getenv("NCCL_COMM_ID") == NULL) {
    why = "ranks that are processes meet through --id-file PATH or NCCL_COMM_ID=host:port";
  }
  if (options->baseline > 0 && world->nRanks < 2) why = "--baseline needs two ranks or more";
  if (why != NULL) perfError("%s", why);
  return why == NULL;
}
