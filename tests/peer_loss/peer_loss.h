/* SPDX-License-Identifier: MIT
 *
 * What the processes of a trial share: the one that watches (peer_loss.c) and the two ranks (rank.c). */
#ifndef ULYX_TESTS_PEER_LOSS_H_
#define ULYX_TESTS_PEER_LOSS_H_

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "ulyx.h"

/* In place of a signal. */
#define ABSENT 0
#define ORDER (-1)
#define OVERLAP (-2)
#define REST (-3)

#define EXCHANGES_BEFORE 20 /* that a rank has made when the signal comes, at least */

typedef struct Options {
  int transport, signal, trials, sideBySide, timeoutMs;
  bool hosts; /* each rank is one of its own */
  int gpus;
} Options;

/* Shared by the three processes of a trial. */
typedef struct Trial {
  ulyxUniqueId_t id;
  volatile int idReady;
  volatile int joined[2];
  volatile int go;               /* the exchanges may begin: those of many trials hold up each other's joining */
  volatile int64_t exchanges[2]; /* that each rank has seen to end */
  volatile int64_t struckNs;     /* when the signal was sent; 0: not yet */
  volatile int64_t errorMs, destroyMs;
  volatile int result;    /* ulyxResult_t that rank 0 got */
  char said[2][512];      /* what each rank got told */
  char plans[2][17];      /* of each rank's last exchange */
  volatile int otherSaid; /* rank 1's words are there */
  pid_t ranks[2];
} Trial;

_Noreturn void waitForNobody(const Options* options, Trial* trial);
_Noreturn void survive(const Options* options, Trial* trial);
_Noreturn void beLost(const Options* options, Trial* trial);

static inline int64_t nowNs(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static inline void sleepMs(int64_t ms) {
  (void)nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

#endif /* ULYX_TESTS_PEER_LOSS_H_ */
