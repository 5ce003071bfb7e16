/* SPDX-License-Identifier: MIT
 *
 * The clock that deadlines are counted by. It never jumps; conditions that wait by it are made with
 * ulyxConditionInit. */
#ifndef ULYX_RUNTIME_CLOCK_H_
#define ULYX_RUNTIME_CLOCK_H_

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define ULYX_NS_A_MS INT64_C(1000000)

static inline int64_t ulyxNowNs(void) {
  struct timespec at;
  (void)clock_gettime(CLOCK_MONOTONIC, &at);
  return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static inline struct timespec ulyxTimeAt(int64_t ns) {
  return (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
}

/* At most a second. */
static inline void ulyxSleepUs(int us) {
  (void)nanosleep(&(struct timespec){.tv_nsec = us * 1000L}, NULL);
}

/* A condition whose timed waits end by this clock. */
static inline bool ulyxConditionInit(pthread_cond_t* condition) {
  pthread_condattr_t monotonic;
  if (pthread_condattr_init(&monotonic) != 0) return false;
  const bool made =
      pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 && pthread_cond_init(condition, &monotonic) == 0;
  pthread_condattr_destroy(&monotonic);
  return made;
}

#endif /* ULYX_RUNTIME_CLOCK_H_ */
