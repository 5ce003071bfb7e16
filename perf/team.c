/* SPDX-License-Identifier: MIT */
#include "team.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct perfTeam {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int nRanks;
  int nLocal;
  int arrived;         /* ranks in the gather under way */
  int left;            /* ranks whose threads are about to end */
  uint64_t generation; /* gathers completed */
  bool failed;
  unsigned char* boards[2]; /* by generation's parity: nobody can be two gathers ahead of a reader */
  perfGatherFn_t gather;
  void* gatherState;
  void (*freeGatherState)(void* state);
};

perfTeam_t* perfTeamCreate(int nRanks, int nLocal) {
  perfTeam_t* team = calloc(1, sizeof(*team));
  if (team == NULL) return NULL;
  team->nRanks = nRanks;
  team->nLocal = nLocal;
  team->boards[0] = calloc((size_t)nRanks, PERF_GATHER_MAX_BYTES);
  team->boards[1] = calloc((size_t)nRanks, PERF_GATHER_MAX_BYTES);
  if (team->boards[0] == NULL || team->boards[1] == NULL) goto freeTeam;
  if (pthread_mutex_init(&team->mutex, NULL) != 0) goto freeTeam;
  if (pthread_cond_init(&team->changed, NULL) != 0) goto destroyMutex;
  return team;

destroyMutex:
  (void)pthread_mutex_destroy(&team->mutex);
freeTeam:
  free(team->boards[0]);
  free(team->boards[1]);
  free(team);
  return NULL;
}

void perfTeamDestroy(perfTeam_t* team) {
  if (team == NULL) return;
  if (team->freeGatherState != NULL) team->freeGatherState(team->gatherState);
  (void)pthread_cond_destroy(&team->changed);
  (void)pthread_mutex_destroy(&team->mutex);
  free(team->boards[0]);
  free(team->boards[1]);
  free(team);
}

void perfTeamSetGather(perfTeam_t* team, perfGatherFn_t gather, void* state, void (*freeState)(void* state)) {
  team->gather = gather;
  team->gatherState = state;
  team->freeGatherState = freeState;
}

bool perfTeamGather(perfTeam_t* team, int rank, const void* mine, size_t bytes, void* all) {
  if (team->gather != NULL) return team->gather(team->gatherState, mine, bytes, all);
  (void)pthread_mutex_lock(&team->mutex);
  const uint64_t generation = team->generation;
  unsigned char* board = team->boards[generation % 2];
  if (bytes > 0) memcpy(board + (size_t)rank * bytes, mine, bytes);
  if (++team->arrived == team->nRanks) {
    team->arrived = 0;
    team->generation++;
    (void)pthread_cond_broadcast(&team->changed);
  }
  while (team->generation == generation && !team->failed) {
    (void)pthread_cond_wait(&team->changed, &team->mutex);
  }
  const bool ok = !team->failed;
  if (ok && bytes > 0) memcpy(all, board, (size_t)team->nRanks * bytes);
  (void)pthread_mutex_unlock(&team->mutex);
  return ok;
}

bool perfTeamBarrier(perfTeam_t* team, int rank) {
  return perfTeamGather(team, rank, NULL, 0, NULL);
}

void perfTeamFail(perfTeam_t* team) {
  (void)pthread_mutex_lock(&team->mutex);
  team->failed = true;
  (void)pthread_cond_broadcast(&team->changed);
  (void)pthread_mutex_unlock(&team->mutex);
}

bool perfTeamFailed(perfTeam_t* team) {
  (void)pthread_mutex_lock(&team->mutex);
  const bool failed = team->failed;
  (void)pthread_mutex_unlock(&team->mutex);
  return failed;
}

void perfTeamLeave(perfTeam_t* team) {
  (void)pthread_mutex_lock(&team->mutex);
  team->left++;
  (void)pthread_cond_broadcast(&team->changed);
  (void)pthread_mutex_unlock(&team->mutex);
}

bool perfTeamWaitAllLeft(perfTeam_t* team, int graceSeconds) {
  (void)pthread_mutex_lock(&team->mutex);
  while (team->left < team->nLocal && !team->failed) (void)pthread_cond_wait(&team->changed, &team->mutex);
  struct timespec deadline;
  (void)clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_sec += graceSeconds;
  int waited = 0;
  while (team->left < team->nLocal && waited == 0) {
    waited = pthread_cond_timedwait(&team->changed, &team->mutex, &deadline);
  }
  const bool allLeft = team->left == team->nLocal;
  (void)pthread_mutex_unlock(&team->mutex);
  return allLeft;
}
