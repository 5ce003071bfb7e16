/* SPDX-License-Identifier: MIT
 *
 * A device on which work does not end, as an exchange of NCCL's does not while a peer stays away: asked, streams and
 * events are not ready; whoever waits for them waits until a communicator is aborted, or the test lets go. A stream
 * that has nothing to do with any other goes on: the host can still look at the device's memory. */
#include <pthread.h>
#include <time.h>

#include "fake_state.h"

#define LONGEST_S 20

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool hangs;

void fakeSetHanging(int hanging) {
  pthread_mutex_lock(&mutex);
  hangs = hanging != 0;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
}

int fakeIsHanging(void) {
  pthread_mutex_lock(&mutex);
  const bool now = hangs && !fakeIsQuiet();
  pthread_mutex_unlock(&mutex);
  return now;
}

void fakeWaitWhileHanging(const char* function) {
  struct timespec until;
  if (fakeIsQuiet()) return;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += LONGEST_S;
  pthread_mutex_lock(&mutex);
  while (hangs && pthread_cond_timedwait(&changed, &mutex, &until) == 0) {
  }
  const bool still = hangs;
  hangs = false;
  pthread_mutex_unlock(&mutex);
  if (still) fakeViolation("%s waited %d s for a device on which nothing ended", function, LONGEST_S);
}
