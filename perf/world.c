/* SPDX-License-Identifier: MIT */
#include "world.h"

#include <inttypes.h>
#include <stddef.h>

#include "launcher.h"
#include "report.h"
#include "ulyx.h"

static perfWorld_t threadsWorld(perfWorldKind_t kind, int nRanks) {
  return (perfWorld_t){kind, nRanks, 0, nRanks, 0, 0};
}

static bool chooseKind(const perfOptions_t* options, int nGpus, perfWorld_t* world) {
  const int64_t perThread = options->gpus > 0 ? options->gpus : 1;
  const int64_t threads = options->threads > 0 ? options->threads : 1;
  const bool asksGpus = options->gpus > 0 || options->threads > 0;
  const int64_t asked = perThread * threads;
  if (options->ranks > 0) {
    *world = threadsWorld(perfWorldCpu, (int)options->ranks);
    return true;
  }
  *world = threadsWorld(perfWorldCpu, 2);
  perfLaunch_t launch;
  if (!perfLaunchFind(nGpus, &launch)) return false;
  if (launch.launcher != NULL) {
    if (asked > 1) {
      perfError("%s started %d processes, and each drives one GPU: drop -g and -t", launch.launcher, launch.nRanks);
      return false;
    }
    if (nGpus == 0) {
      perfError("%s started %d processes, which need a GPU each, but rank %d (local rank %d) sees none",
                launch.launcher, launch.nRanks, launch.rank, launch.localRank);
      return false;
    }
    *world = (perfWorld_t){perfWorldProcesses, launch.nRanks, launch.rank, 1, launch.localRank, launch.job};
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
    *world = threadsWorld(perfWorldGpus, asksGpus ? (int)asked : allGpus);
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
  if (world->kind == perfWorldProcesses && options->idFile == NULL) {
    const char* meeting = perfMeetingVariable();
    if (meeting == NULL) {
      why = "ranks that are processes meet through --id-file PATH or NCCL_COMM_ID=host:port";
    } else if (!perfIsMeeting(meeting)) {
      perfError("NCCL_COMM_ID=%s is no host:port", meeting);
      return false;
    }
  }
  if (options->baseline > 0 && world->nRanks < 2) why = "--baseline needs two ranks or more";
  if (why != NULL) perfError("%s", why);
  return why == NULL;
}
