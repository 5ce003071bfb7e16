/* SPDX-License-Identifier: MIT
 *
 * How ranks meet outside ulyx: one call, a gather, that is also the barrier. Ranks that are threads of this
 * process meet on a board in memory; ranks that are processes give the team a gather of their own.
 *
 * A rank that fails says so (perfTeamFail); every other rank then leaves at its next gather, so that nobody
 * waits for it. */
#ifndef PERF_TEAM_H_
#define PERF_TEAM_H_

#include <stdbool.h>
#include <stddef.h>

#define PERF_GATHER_MAX_BYTES 256

typedef struct perfTeam perfTeam_t;

/* A gather between processes: all[nRanks * bytes] from every process' mine[bytes]. */
typedef bool (*perfGatherFn_t)(void* state, const void* mine, size_t bytes, void* all);

/* nRanks ranks, nLocal of them threads of this process: all or one. NULL where memory is short. */
perfTeam_t* perfTeamCreate(int nRanks, int nLocal);
void perfTeamDestroy(perfTeam_t* team);

/* For ranks that are processes. Call it before the first gather. The team's destruction frees the state. */
void perfTeamSetGather(perfTeam_t* team, perfGatherFn_t gather, void* state, void (*freeState)(void* state));

/* all[nRanks * bytes] = every rank's mine[bytes], in rank order, on every rank; bytes at most
 * PERF_GATHER_MAX_BYTES. Blocks until every rank has come. False if the team has failed. */
bool perfTeamGather(perfTeam_t* team, int rank, const void* mine, size_t bytes, void* all);

/* A gather of nothing. */
bool perfTeamBarrier(perfTeam_t* team, int rank);

/* Marks the team as failed and wakes every waiting rank. */
void perfTeamFail(perfTeam_t* team);
bool perfTeamFailed(perfTeam_t* team);

/* Called by each local rank when its thread is about to end. */
void perfTeamLeave(perfTeam_t* team);

/* Waits until every local rank has left. Once the team has failed it waits graceSeconds at most; false then. */
bool perfTeamWaitAllLeft(perfTeam_t* team, int graceSeconds);

#endif /* PERF_TEAM_H_ */
