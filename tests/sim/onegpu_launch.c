/* SPDX-License-Identifier: MIT
 *
 * Ranks that share a GPU also share its few hardware queues, in which a kernel that waits for a peer can stand before
 * what the peer still has to enqueue. So all ranks of a world launch the exchange kernel together: none launches before
 * all have come with everything that precedes it enqueued, and none goes on before all have launched. */
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "kernels.h"

cudaError_t ulyxLaunchExchangeAlone(const ulyxExchangeBatch* batch, int ctas, cudaStream_t stream);

#define MOST_WORLDS 64

/* A meeting point of one world's ranks, named by the address of rank 0's records. */
typedef struct Point {
  uint64_t world;
  int arrived;
  int64_t generation;
} Point;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static Point points[MOST_WORLDS];

static Point* pointOf(uint64_t world) {
  Point* free = NULL;
  for (int i = 0; i < MOST_WORLDS; i++) {
    if (points[i].world == world) return &points[i];
    if (points[i].arrived == 0 && free == NULL) free = &points[i];
  }
  free->world = world;
  return free;
}

/* A rank that does not come is the kernel's affair: it has a deadline of its own. */
static void meetOnHost(uint64_t world, int nRanks, uint64_t timeoutNs) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += (time_t)(timeoutNs / 2000000000) + 1;
  pthread_mutex_lock(&mutex);
  Point* point = pointOf(world);
  const int64_t generation = point->generation;
  if (++point->arrived == nRanks) {
    point->arrived = 0;
    point->generation++;
    pthread_cond_broadcast(&changed);
  }
  while (point->generation == generation && point->arrived > 0) {
    if (pthread_cond_timedwait(&changed, &mutex, &until) == 0) continue;
    point->arrived = 0;
    point->generation++;
    pthread_cond_broadcast(&changed);
  }
  pthread_mutex_unlock(&mutex);
}

cudaError_t ulyxLaunchExchange(const ulyxExchangeBatch* batch, int ctas, cudaStream_t stream) {
  const ulyxMeeting* meeting = &batch->meeting;
  uint64_t world = 0;
  const cudaError_t read = cudaMemcpy(&world, meeting->windows, sizeof world, cudaMemcpyDeviceToHost);
  if (read != cudaSuccess) return read;
  meetOnHost(world, meeting->nRanks, meeting->timeoutNs);
  const cudaError_t launched = ulyxLaunchExchangeAlone(batch, ctas, stream);
  meetOnHost(world, meeting->nRanks, meeting->timeoutNs);
  return launched;
}
