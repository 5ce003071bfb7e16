/* SPDX-License-Identifier: MIT
 *
 * What keeps a rank from waiting for ever on NCCL, which has no deadlines: the one way to end a wait in it is to abort
 * the communicator from another thread. A guard owns the communicator's life. Calls into NCCL stand between
 * ulyxGuardEnter and ulyxGuardLeave; exchanges that NCCL carries are watched by event. A thread of the guard looks at
 * both, and past the deadline loses the world: for good, with the reason kept.
 *
 * Whoever loses a world waits a moment for the owner to leave, so that the communicator does not vanish under a call
 * that would have returned by itself. */
#ifndef ULYX_RUNTIME_GUARD_H_
#define ULYX_RUNTIME_GUARD_H_

#include <pthread.h>
#include <stdbool.h>

#include "cuda_check.h"

/* Exchanges that can be told apart while they run; of more, the oldest are looked at together. */
#define ULYX_GUARD_EVENTS 16

typedef struct ulyxGuard {
  pthread_mutex_t lock;
  pthread_cond_t changed; /* CLOCK_MONOTONIC */
  pthread_t thread;
  bool ready;   /* lock and condition exist */
  bool started; /* the thread exists */
  bool ending;
  _Atomic(ncclComm_t) comm; /* its owner reads it while whoever loses the world takes it away */
  int device;
  int timeoutMs;    /* 0: for ever */
  const char* call; /* what the owner is inside of; NULL: nothing */
  int64_t calledNs;
  bool waiting;                        /* the owner waits for a stream that NCCL works on */
  cudaEvent_t ends[ULYX_GUARD_EVENTS]; /* of exchange i at i mod their number */
  int64_t enqueued, finished;          /* exchanges */
  int64_t movedNs;                     /* when `finished` last grew, or something was enqueued onto nothing */
  ulyxResult_t lost;                   /* not ulyxSuccess: why, and the communicator is gone */
  char why[ULYX_MESSAGE_BYTES];
} ulyxGuard;

/* Takes the communicator over, also on failure. The current device is the communicator's. */
ulyxResult_t ulyxGuardCreate(ulyxGuard* guard, ncclComm_t comm, int device, int timeoutMs);
/* Destroys the communicator, or what losing it has left. */
ulyxResult_t ulyxGuardDestroy(ulyxGuard* guard);
/* CUDA has gone: the thread ends, and nothing else is touched. */
void ulyxGuardForget(ulyxGuard* guard);

/* `call` is a constant that names what the owner is about to do, for the error. Fails where the world is lost. */
ulyxResult_t ulyxGuardEnter(ulyxGuard* guard, const char* call);
/* Returns result, or why the world was lost meanwhile. */
ulyxResult_t ulyxGuardLeave(ulyxGuard* guard, ulyxResult_t result);

/* Waits for what this thread has enqueued on the stream, by the deadline. Not between Enter and Leave. */
ulyxResult_t ulyxGuardWait(ulyxGuard* guard, cudaStream_t stream, const char* what);

/* The stream's last work is an exchange that NCCL carries: it must end by the deadline, counted from when the one
 * before it ended. */
ulyxResult_t ulyxGuardWatch(ulyxGuard* guard, cudaStream_t stream);

/* Loses the world: whoever waits in NCCL, on the host or on the device, returns. Where nobody does the communicator is
 * left alone, since kernels may still use memory that it has mapped. Any thread; the first reason stays. */
__attribute__((format(printf, 3, 4))) void ulyxGuardLose(ulyxGuard* guard, ulyxResult_t code, const char* format, ...);

/* Aborts a lost world's communicator where that was left undone: nothing on the device uses it any more. Its windows go
 * with it. */
void ulyxGuardLetGo(ulyxGuard* guard);

/* Speaks why the world was lost; ulyxSuccess if it was not. Any thread. */
ulyxResult_t ulyxGuardFound(ulyxGuard* guard);

#endif /* ULYX_RUNTIME_GUARD_H_ */
