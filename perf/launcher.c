/* SPDX-License-Identifier: MIT */
#include "launcher.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "numbers.h"
#include "report.h"

#define JOB_NAMES 2

typedef struct perfLauncher {
  const char* name;
  const char* rank;
  const char* nRanks;
  const char* localRank;
  const char* nLocal;  /* NULL: it does not say */
  bool inBatchScripts; /* its rank is set there as well, without the number */
  const char* jobs[JOB_NAMES];
} perfLauncher_t;

/* The innermost launcher comes first: torchrun may itself have been started by mpirun, and that by srun. srun's number
 * is that of the step: a batch script that sbatch runs has SLURM_PROCID and SLURM_NTASKS, too, but is one process. */
static const perfLauncher_t launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", false, {"TORCHELASTIC_RUN_ID", "MASTER_PORT"}},
    {"mpirun",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     false,
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", false, {"PMI_JOBID", NULL}},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, true, {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};
#define LAUNCHERS (sizeof(launchers) / sizeof(launchers[0]))

/* What a launcher's variables say; an empty variable is one that was not set, and then NULL. */
typedef struct perfSaid {
  const char* rank;
  const char* nRanks;
  const char* localRank;
  const char* nLocal;
} perfSaid_t;

static const char* readVariable(const char* name) {
  const char* text = name != NULL ? getenv(name) : NULL;
  return text != NULL && text[0] != '\0' ? text : NULL;
}

static perfSaid_t readLauncher(const perfLauncher_t* of) {
  return (perfSaid_t){readVariable(of->rank), readVariable(of->nRanks), readVariable(of->localRank),
                      readVariable(of->nLocal)};
}

static bool isComplete(const perfSaid_t* said) {
  return said->rank != NULL && said->nRanks != NULL;
}

/* A number from `least` to `most`. */
static bool parseWithin(const char* text, int64_t least, int64_t most, int64_t* value) {
  return perfParseInt(text, value) && *value >= least && *value <= most;
}

static bool parsePlace(const perfSaid_t* said, int64_t* rank, int64_t* nRanks) {
  return parseWithin(said->nRanks, 1, INT32_MAX, nRanks) && parseWithin(said->rank, 0, *nRanks - 1, rank);
}

/* FNV-1a, of one text after the other. */
static uint64_t hashText(uint64_t hash, const char* text) {
  for (const char* c = text != NULL ? text : ""; *c != '\0'; c++) {
    hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
  }
  return (hash ^ 0xffu) * UINT64_C(1099511628211);
}

/* Of this launcher's own names: of mpirun's ranks only those that it starts through srun have a step of Slurm's. */
static uint64_t hashJob(const perfLauncher_t* of) {
  uint64_t hash = hashText(UINT64_C(14695981039346656037), of->name);
  for (int i = 0; i < JOB_NAMES; i++) hash = hashText(hash, readVariable(of->jobs[i]));
  return hash;
}

/* The launcher that says which process of its machine this is: `of` itself, else any that means the same rank of as
 * many. srun --mpi=pmi2 sets PMI's rank and number, and the place on the machine in its own variables alone. NULL: none
 * does. */
static const perfLauncher_t* whoKnowsLocal(const perfLauncher_t* of, int64_t rank, int64_t nRanks) {
  if (readVariable(of->localRank) != NULL) return of;
  for (size_t i = 0; i < LAUNCHERS; i++) {
    const perfSaid_t said = readLauncher(&launchers[i]);
    int64_t itsRank = 0;
    int64_t itsNumber = 0;
    if (!isComplete(&said) || said.localRank == NULL || !parsePlace(&said, &itsRank, &itsNumber)) continue;
    if (itsRank == rank && itsNumber == nRanks) return &launchers[i];
  }
  return NULL;
}

static bool findLocal(const perfLauncher_t* of, int nGpus, int64_t rank, int64_t nRanks, int64_t* localRank) {
  const perfLauncher_t* knows = whoKnowsLocal(of, rank, nRanks);
  /* Without anyone's word, machines are taken to be filled one after another. */
  if (knows == NULL) {
    *localRank = nGpus > 0 ? rank % nGpus : 0;
    return true;
  }
  const perfSaid_t said = readLauncher(knows);
  int64_t nLocal = nRanks;
  if (!parseWithin(said.localRank, 0, nRanks - 1, localRank)) {
    perfError("%s=%s is no rank on this machine of %lld ranks: unset it, or give --ranks", knows->localRank,
              said.localRank, (long long)nRanks);
    return false;
  }
  if (said.nLocal != NULL && (!parseWithin(said.nLocal, 1, nRanks, &nLocal) || *localRank >= nLocal)) {
    perfError("%s=%s and %s=%s are no rank on this machine and number of them: unset them, or give --ranks",
              knows->localRank, said.localRank, knows->nLocal, said.nLocal);
    return false;
  }
  return true;
}

/* What is half there must not be taken for nothing: each process would think that it is alone. */
static bool refuseHalf(const perfLauncher_t* of) {
  const perfSaid_t said = readLauncher(of);
  const bool hasRank = said.rank != NULL;
  perfError("%s=%s is set, but %s is not: set both or neither, or give --ranks", hasRank ? of->rank : of->nRanks,
            hasRank ? said.rank : said.nRanks, hasRank ? of->nRanks : of->rank);
  return false;
}

bool perfLaunchFind(int nGpus, perfLaunch_t* launch) {
  const perfLauncher_t* half = NULL;
  *launch = (perfLaunch_t){NULL, 0, 1, 0, 0};
  for (size_t i = 0; i < LAUNCHERS; i++) {
    const perfLauncher_t* of = &launchers[i];
    const perfSaid_t said = readLauncher(of);
    int64_t rank = 0;
    int64_t nRanks = 0;
    int64_t localRank = 0;
    if (!isComplete(&said)) {
      const bool isHalf = said.nRanks != NULL || (said.rank != NULL && !of->inBatchScripts);
      if (isHalf && half == NULL) half = of;
      continue;
    }
    if (!parsePlace(&said, &rank, &nRanks)) {
      perfError("%s=%s and %s=%s are no rank and number of ranks: unset them, or give --ranks", of->rank, said.rank,
                of->nRanks, said.nRanks);
      return false;
    }
    if (nRanks < 2) continue; /* one process says nothing of those that an outer launcher started */
    if (!findLocal(of, nGpus, rank, nRanks, &localRank)) return false;
    *launch = (perfLaunch_t){of->name, (int)rank, (int)nRanks, (int)localRank, hashJob(of)};
    return true;
  }
  return half == NULL || refuseHalf(half);
}

const char* perfMeetingVariable(void) {
  return readVariable("NCCL_COMM_ID");
}

bool perfIsMeeting(const char* hostAndPort) {
  enum { mostPorts = 65535 };
  int64_t port = 0;
  const char* colon = strrchr(hostAndPort, ':');
  return colon != NULL && colon != hostAndPort && parseWithin(colon + 1, 1, mostPorts, &port);
}
