/* SPDX-License-Identifier: MIT
 *
 * What keeps a rank from waiting for ever on NCCL, which has no deadlines: the one way to end a wait in it is to abort
 * the communicator from another thread. A guard owns the communicator's life. Calls into NCCL stand between
 * ulyxGuardEnter and ulyxGuardLeave; what they have put on a stream is then waited for (ulyxGuardWait), watched by
 * event (ulyxGuardWatch), or part of a graph. A thread of the guard looks, and past the deadline, or once NCCL says
 * that it failed, loses the world: for good, with the reason kept.
 *
 * Losing goes in one order, whoever does it. The owner tells its kernels and its peers. If NCCL may be at work, its
 * communicator is then aborted, by the guard's thread: that takes away the memory that the owner's kernels have
 * mapped, so they get a moment to end; the owner gets one to leave NCCL, so that the communicator does not vanish under
 * a call that would have returned; and NCCL does not come back from an abort before every graph that holds its work is
 * gone. */
#ifndef ULYX_RUNTIME_GUARD_H_
#define ULYX_RUNTIME_GUARD_H_

#include <pthread.h>
#include <stdbool.h>

#include "cuda_check.h"

/* Exchanges that can be told apart while they run; of more, the newest are looked at together. */
#define ULYX_GUARD_EVENTS 16

/* The moment that each gets before a communicator is aborted. */
#define ULYX_GRACE_MS 500

/* An exchange as an error names it. */
typedef struct ulyxGuardExchange {
  int64_t number;
  const char* operation; /* outlives the guard */
  uint64_t plan;         /* its signature */
} ulyxGuardExchange;

/* Whose communicator it is. It is told and settles once at most, on any thread, with the communicator still whole. */
typedef struct ulyxGuardOwner {
  void* self;
  /* Speaks of the loss that devices have reported, which then stays; ulyxSuccess where they have not. Whenever the
   * guard likes, and with its lock held. */
  ulyxResult_t (*reported)(void* self);
  /* The world is lost: this rank's kernels that wait give up, and the peers are told in their memory, since this rank
   * may be at rest. */
  ulyxResult_t (*tell)(void* self);
  void (*settle)(void* self); /* waits for this rank's kernels, ULYX_GRACE_MS at most */
  /* Writes why an exchange that is watched does not end. By the guard's thread. */
  void (*explain)(void* self, const ulyxGuardExchange* exchange, char* text, size_t bytes);
} ulyxGuardOwner;

typedef struct ulyxGuard {
  pthread_mutex_t lock;
  pthread_cond_t changed; /* by ulyxNowNs */
  pthread_t thread;       /* looks, and aborts */
  bool ready;             /* lock and condition exist */
  bool started;           /* the thread exists */
  bool ending;
  bool losing;     /* the owner is telling, or explaining */
  bool doomed;     /* the communicator is being aborted */
  bool aborted;    /* and is gone */
  ncclComm_t comm; /* NULL: destroyed or aborted */
  int device;
  int timeoutMs; /* 0: for ever */
  ulyxGuardOwner owner;
  const char* call; /* what the owner is inside of; NULL: nothing */
  int64_t calledNs;
  bool unwatched; /* NCCL has work on a stream that is neither waited for yet nor watched */
  bool inGraphs;  /* NCCL has work that may be replayed at any time */
  /* Exchanges that run, a ring of `running` from `oldest` on: an event behind each, and which it is. */
  cudaEvent_t ends[ULYX_GUARD_EVENTS];
  ulyxGuardExchange exchanges[ULYX_GUARD_EVENTS];
  int oldest, running;
  int64_t movedNs;   /* when one last ended, or was enqueued onto nothing */
  ulyxResult_t lost; /* not ulyxSuccess: why */
  bool byDevices;    /* the owner has the words */
  char why[ULYX_MESSAGE_BYTES];
} ulyxGuard;

/* Takes the communicator over, also on failure. The current device is the communicator's. */
ulyxResult_t ulyxGuardCreate(ulyxGuard* guard, ncclComm_t comm, int device, int timeoutMs);
/* After it the owner before is not called any more, but for a settling that has begun. */
void ulyxGuardSetOwner(ulyxGuard* guard, ulyxGuardOwner owner);
/* What the owner tells its kernels by is about to go: a lost world is let go and waited for, and nobody is told after.
 */
void ulyxGuardDisown(ulyxGuard* guard);
/* Destroys the communicator, or waits for what losing it has begun. This rank has nothing on the device any more, and
 * no graph that holds NCCL's work is left. */
ulyxResult_t ulyxGuardDestroy(ulyxGuard* guard);
/* CUDA has gone: the thread ends, and nothing else is touched. false: the guard's memory must stay, another thread may
 * be using it. */
bool ulyxGuardForget(ulyxGuard* guard);

/* `call` is a constant that names what the owner is about to do, for the error. *comm is good until ulyxGuardLeave.
 * Fails where the world is lost. What is enqueued in between is waited for or watched after. */
ulyxResult_t ulyxGuardEnter(ulyxGuard* guard, const char* call, ncclComm_t* comm);
ulyxResult_t ulyxGuardEnterToEnqueue(ulyxGuard* guard, const char* call, ncclComm_t* comm);
/* Returns result, or why the world was lost meanwhile. */
ulyxResult_t ulyxGuardLeave(ulyxGuard* guard, ulyxResult_t result);

/* Waits for what this thread has enqueued on the stream, by the deadline. Not between Enter and Leave. */
ulyxResult_t ulyxGuardWait(ulyxGuard* guard, cudaStream_t stream, const char* what);

/* The stream's last work is this exchange, which NCCL carries: it must end by the deadline, counted from when the one
 * before it ended. Fails where the world is lost. */
ulyxResult_t ulyxGuardWatch(ulyxGuard* guard, cudaStream_t stream, ulyxGuardExchange exchange);
/* What was enqueued last is part of a graph: only an abort ends what it may wait for. */
void ulyxGuardWasCaptured(ulyxGuard* guard);

/* Loses the world: whoever waits in NCCL or in the owner's kernels, on the host or on the device, returns. Where NCCL
 * has nothing to do its communicator is left whole. Any thread; the first reason stays, and what devices have reported
 * came before. */
__attribute__((format(printf, 3, 4))) void ulyxGuardLose(ulyxGuard* guard, ulyxResult_t code, const char* format, ...);
/* The same because a caller says so, as ulyxRemoteError. Returns what telling came to. */
__attribute__((format(printf, 2, 3))) ulyxResult_t ulyxGuardAbort(ulyxGuard* guard, const char* format, ...);

/* Has a lost world's communicator aborted where that was left undone. Its windows go with it. */
void ulyxGuardLetGo(ulyxGuard* guard);
/* Waits for an abort that has begun. false: graphs hold NCCL's work, and what it has mapped is still in use. */
bool ulyxGuardAwaitAbort(ulyxGuard* guard);

/* Speaks why the world was lost; ulyxSuccess if it was not. What devices have reported loses it here, if nothing has
 * before: what they have lost is lost for NCCL too. Any thread. */
ulyxResult_t ulyxGuardFound(ulyxGuard* guard);

#endif /* ULYX_RUNTIME_GUARD_H_ */
