/* SPDX-License-Identifier: MIT
 *
 * What a launcher has told this process in its environment. torchrun, mpirun and srun start one process a rank and set
 * which rank it is, of how many, and which on its machine; docs/launching.md has their commands. */
#ifndef PERF_LAUNCHER_H_
#define PERF_LAUNCHER_H_

#include <stdbool.h>
#include <stdint.h>

typedef struct perfLaunch {
  const char* launcher; /* NULL: none started this process among others */
  int rank;
  int nRanks;
  int localRank; /* among the processes on this machine */
  uint64_t job;  /* of what the launcher calls this job: equal on its ranks, usually different in the next run */
} perfLaunch_t;

/* nGpus of this machine stand in for a launcher that does not say which process of its machine this is. A refusal has
 * been reported, by name and value of the variable. */
bool perfLaunchFind(int nGpus, perfLaunch_t* launch);

/* Where ranks that are processes meet, by NCCL's own variable: NULL where it is not set. */
const char* perfMeetingVariable(void);
bool perfIsMeeting(const char* hostAndPort);

#endif /* PERF_LAUNCHER_H_ */
