/* SPDX-License-Identifier: MIT */
#include "guard.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

#include "check.h"
#include "clock.h"

/* Between two looks: a small part of the deadline. Where there is none NCCL may fail all the same. */
#define LOOKS_A_DEADLINE 20
#define LONGEST_LOOK_MS 250

/* An abort that takes longer waits for a graph. */
#define LONGEST_ABORT_MS (2 * ULYX_GRACE_MS + 2000)

/* A wait on the host polls this long before it sleeps between polls. */
#define EAGER_NS (2 * ULYX_NS_A_MS)

#define REASON_BYTES 256

/* ---- Losing ------------------------------------------------------------------------------------------ */

/* With the lock held, which is released meanwhile. It ends with the last graph that holds NCCL's work, so nobody but
 * the guard's thread does it. */
static void reap(ulyxGuard* guard) {
  const struct timespec until = ulyxTimeAt(ulyxNowNs() + ULYX_GRACE_MS * ULYX_NS_A_MS);
  const ulyxGuardOwner owner = guard->owner;
  pthread_mutex_unlock(&guard->lock);
  if (owner.settle != NULL) owner.settle(owner.self);
  pthread_mutex_lock(&guard->lock);
  while (guard->call != NULL && pthread_cond_timedwait(&guard->changed, &guard->lock, &until) != ETIMEDOUT) {
  }
  const ncclComm_t comm = guard->comm;
  guard->comm = NULL;
  pthread_mutex_unlock(&guard->lock);
  (void)ncclCommAbort(comm);
  pthread_mutex_lock(&guard->lock);
  guard->aborted = true;
  pthread_cond_broadcast(&guard->changed);
}

/* With the lock held. */
static void abortComm(ulyxGuard* guard) {
  if (guard->doomed || guard->comm == NULL) return;
  guard->doomed = true;
  pthread_cond_broadcast(&guard->changed);
}

static bool ncclMayWork(const ulyxGuard* guard) {
  return guard->call != NULL || guard->unwatched || guard->inGraphs || guard->running > 0;
}

/* With the lock held, which is released meanwhile. */
static ulyxResult_t spread(ulyxGuard* guard) {
  ulyxResult_t told = ulyxSuccess;
  if (guard->owner.tell != NULL) {
    guard->losing = true;
    pthread_mutex_unlock(&guard->lock);
    told = guard->owner.tell(guard->owner.self);
    pthread_mutex_lock(&guard->lock);
    guard->losing = false;
    pthread_cond_broadcast(&guard->changed);
  }
  if (ncclMayWork(guard)) abortComm(guard);
  return told;
}

/* With the lock held. A kernel that was told to give up reports that it did: by then there is a reason. */
static void takeReport(ulyxGuard* guard) {
  if (guard->owner.reported == NULL) return;
  ulyxUndoBegin(); /* spoken when somebody asks */
  guard->lost = guard->owner.reported(guard->owner.self);
  ulyxUndoEnd();
  guard->byDevices = guard->lost != ulyxSuccess;
}

/* As spread. */
static ulyxResult_t loseLocked(ulyxGuard* guard, ulyxResult_t code, const char* format, va_list arguments) {
  if (guard->lost != ulyxSuccess) return ulyxSuccess;
  takeReport(guard);
  if (guard->lost == ulyxSuccess) {
    (void)vsnprintf(guard->why, sizeof guard->why, format, arguments);
    guard->lost = code;
  }
  return spread(guard);
}

void ulyxGuardLose(ulyxGuard* guard, ulyxResult_t code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  pthread_mutex_lock(&guard->lock);
  (void)loseLocked(guard, code, format, arguments);
  pthread_mutex_unlock(&guard->lock);
  va_end(arguments);
}

ulyxResult_t ulyxGuardAbort(ulyxGuard* guard, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  pthread_mutex_lock(&guard->lock);
  const ulyxResult_t told = loseLocked(guard, ulyxRemoteError, format, arguments);
  pthread_mutex_unlock(&guard->lock);
  va_end(arguments);
  return told;
}

void ulyxGuardLetGo(ulyxGuard* guard) {
  pthread_mutex_lock(&guard->lock);
  while (guard->losing) pthread_cond_wait(&guard->changed, &guard->lock);
  if (guard->lost != ulyxSuccess) abortComm(guard);
  pthread_mutex_unlock(&guard->lock);
}

bool ulyxGuardAwaitAbort(ulyxGuard* guard) {
  const struct timespec until = ulyxTimeAt(ulyxNowNs() + LONGEST_ABORT_MS * ULYX_NS_A_MS);
  pthread_mutex_lock(&guard->lock);
  while (guard->doomed && !guard->aborted &&
         pthread_cond_timedwait(&guard->changed, &guard->lock, &until) != ETIMEDOUT) {
  }
  const bool gone = !guard->doomed || guard->aborted;
  pthread_mutex_unlock(&guard->lock);
  return gone;
}

static ulyxResult_t foundLocked(const ulyxGuard* guard) {
  if (guard->lost == ulyxSuccess) return ulyxSuccess;
  if (!guard->byDevices) return ulyxFail(guard->lost, "%s", guard->why);
  if (guard->owner.reported != NULL) return guard->owner.reported(guard->owner.self);
  return ulyxFail(guard->lost, "an exchange lost the world; destroy the runtime");
}

ulyxResult_t ulyxGuardFound(ulyxGuard* guard) {
  pthread_mutex_lock(&guard->lock);
  if (guard->lost == ulyxSuccess) {
    takeReport(guard);
    if (guard->lost != ulyxSuccess) (void)spread(guard);
  }
  const ulyxResult_t result = foundLocked(guard);
  pthread_mutex_unlock(&guard->lock);
  return result;
}

/* ---- The owner ----------------------------------------------------------------------------------------- */

static ulyxResult_t enter(ulyxGuard* guard, const char* call, bool enqueues, ncclComm_t* comm) {
  pthread_mutex_lock(&guard->lock);
  const ulyxResult_t result = foundLocked(guard);
  if (result == ulyxSuccess) {
    guard->call = call;
    guard->calledNs = ulyxNowNs();
    if (enqueues) guard->unwatched = true;
    *comm = guard->comm;
  }
  pthread_mutex_unlock(&guard->lock);
  return result;
}

ulyxResult_t ulyxGuardEnter(ulyxGuard* guard, const char* call, ncclComm_t* comm) {
  return enter(guard, call, false, comm);
}

ulyxResult_t ulyxGuardEnterToEnqueue(ulyxGuard* guard, const char* call, ncclComm_t* comm) {
  return enter(guard, call, true, comm);
}

ulyxResult_t ulyxGuardLeave(ulyxGuard* guard, ulyxResult_t result) {
  pthread_mutex_lock(&guard->lock);
  guard->call = NULL;
  if (guard->lost != ulyxSuccess) pthread_cond_broadcast(&guard->changed); /* else nobody waits for it */
  const ulyxResult_t found = foundLocked(guard);
  pthread_mutex_unlock(&guard->lock);
  return found != ulyxSuccess ? found : result;
}

static ulyxResult_t waitFor(ulyxGuard* guard, cudaStream_t stream, const char* what) {
  const int64_t startNs = ulyxNowNs();
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaSuccess) return ulyxGuardFound(guard);
    if (state != cudaErrorNotReady) return ulyxCudaFail(state, "cudaStreamQuery");
    (void)cudaGetLastError(); /* not ready is no error */
    ULYX_TRY(ulyxGuardFound(guard));
    const int64_t waitedNs = ulyxNowNs() - startNs;
    if (guard->timeoutMs > 0 && waitedNs > guard->timeoutMs * ULYX_NS_A_MS) {
      ulyxGuardLose(guard, ulyxTimeout, "%s was not reached by every rank within %d ms; destroy the runtime", what,
                    guard->timeoutMs);
    } else if (waitedNs < EAGER_NS) {
      (void)sched_yield();
    } else {
      ulyxSleepUs(50);
    }
  }
}

ulyxResult_t ulyxGuardWait(ulyxGuard* guard, cudaStream_t stream, const char* what) {
  const ulyxResult_t result = waitFor(guard, stream, what);
  pthread_mutex_lock(&guard->lock);
  if (result == ulyxSuccess) guard->unwatched = false;
  pthread_mutex_unlock(&guard->lock);
  return result;
}

/* A place for one more running exchange. Where all are taken the newest is taken again, since it is from the oldest
 * that one sees whether exchanges end at all. */
static int takePlace(ulyxGuard* guard) {
  pthread_mutex_lock(&guard->lock);
  if (guard->running == ULYX_GUARD_EVENTS) --guard->running;
  const int place = (guard->oldest + guard->running) % ULYX_GUARD_EVENTS;
  pthread_mutex_unlock(&guard->lock);
  return place;
}

ulyxResult_t ulyxGuardWatch(ulyxGuard* guard, cudaStream_t stream, ulyxGuardExchange exchange) {
  /* not under the lock: a full queue holds the owner here, and may need an abort to empty */
  const int place = takePlace(guard);
  const ulyxResult_t result = ULYX_CUDA(cudaEventRecord(guard->ends[place], stream));
  pthread_mutex_lock(&guard->lock);
  if (result == ulyxSuccess) {
    if (guard->running == 0) guard->movedNs = ulyxNowNs();
    guard->exchanges[place] = exchange;
    ++guard->running; /* what has ended meanwhile made room at the other end */
    guard->unwatched = false;
  }
  const ulyxResult_t found = foundLocked(guard);
  pthread_mutex_unlock(&guard->lock);
  return found != ulyxSuccess ? found : result;
}

void ulyxGuardWasCaptured(ulyxGuard* guard) {
  pthread_mutex_lock(&guard->lock);
  guard->inGraphs = true;
  guard->unwatched = false;
  pthread_mutex_unlock(&guard->lock);
}

/* ---- The thread ---------------------------------------------------------------------------------------- */

static void countEnded(ulyxGuard* guard) {
  while (guard->running > 0 && cudaEventQuery(guard->ends[guard->oldest]) == cudaSuccess) {
    guard->oldest = (guard->oldest + 1) % ULYX_GUARD_EVENTS;
    --guard->running;
    guard->movedNs = ulyxNowNs();
  }
}

__attribute__((format(printf, 3, 4))) static void loseNow(ulyxGuard* guard, ulyxResult_t code, const char* format,
                                                          ...) {
  va_list arguments;
  va_start(arguments, format);
  (void)loseLocked(guard, code, format, arguments);
  va_end(arguments);
}

/* What NCCL's own threads have met, a network's end among it; kernels of it wait on for ever. */
static ncclResult_t failureOfNccl(const ulyxGuard* guard) {
  ncclResult_t found = ncclSuccess;
  if (guard->comm == NULL || ncclCommGetAsyncError(guard->comm, &found) != ncclSuccess) return ncclSuccess;
  return found == ncclInProgress ? ncclSuccess : found;
}

/* The oldest exchange that runs, and what is known of why it does; with the lock held, which is released meanwhile.
 * False: it has ended, or the world was lost, by then. */
static bool explainOldest(ulyxGuard* guard, ulyxGuardExchange* exchange, char* because, size_t bytes) {
  const ulyxGuardOwner owner = guard->owner;
  const int oldest = guard->oldest;
  const int64_t movedNs = guard->movedNs;
  *exchange = guard->exchanges[oldest];
  (void)snprintf(because, bytes, "a rank did not come");
  if (owner.explain == NULL) return true;
  guard->losing = true;
  pthread_mutex_unlock(&guard->lock);
  owner.explain(owner.self, exchange, because, bytes);
  pthread_mutex_lock(&guard->lock);
  guard->losing = false;
  pthread_cond_broadcast(&guard->changed);
  countEnded(guard);
  return guard->lost == ulyxSuccess && guard->running > 0 && guard->oldest == oldest && guard->movedNs == movedNs;
}

static void loseToNccl(ulyxGuard* guard, ncclResult_t failure) {
  char because[REASON_BYTES];
  ulyxGuardExchange exchange;
  if (guard->running > 0 && explainOldest(guard, &exchange, because, sizeof because)) {
    loseNow(guard, ulyxRemoteError,
            "NCCL failed in exchange %" PRId64 " (%s of plan %016" PRIx64 "): %s; %s; destroy the runtime",
            exchange.number, exchange.operation, exchange.plan, ncclGetErrorString(failure), because);
  } else { /* no effect where the world was lost meanwhile */
    loseNow(guard, ulyxRemoteError, "NCCL failed: %s; destroy the runtime", ncclGetErrorString(failure));
  }
}

static void loseToDeadline(ulyxGuard* guard) {
  char because[REASON_BYTES];
  ulyxGuardExchange exchange;
  if (!explainOldest(guard, &exchange, because, sizeof because)) return;
  loseNow(guard, ulyxTimeout,
          "exchange %" PRId64 " by nccl (%s of plan %016" PRIx64 ") did not end within %d ms: %s; destroy the runtime",
          exchange.number, exchange.operation, exchange.plan, guard->timeoutMs, because);
}

static void look(ulyxGuard* guard) {
  const int64_t patienceNs = guard->timeoutMs > 0 ? guard->timeoutMs * ULYX_NS_A_MS : INT64_MAX;
  takeReport(guard);
  if (guard->lost != ulyxSuccess) {
    (void)spread(guard);
    return;
  }
  const ncclResult_t failure = failureOfNccl(guard);
  countEnded(guard);
  if (failure != ncclSuccess) {
    loseToNccl(guard, failure);
  } else if (guard->call != NULL && ulyxNowNs() - guard->calledNs > patienceNs) {
    loseNow(guard, ulyxTimeout, "%s took longer than %d ms: a rank did not come; destroy the runtime", guard->call,
            guard->timeoutMs);
  } else if (guard->running > 0 && ulyxNowNs() - guard->movedNs > patienceNs) {
    loseToDeadline(guard);
  }
}

/* Until something changes, or for a small part of the deadline. */
static void rest(ulyxGuard* guard) {
  if (guard->lost != ulyxSuccess) {
    (void)pthread_cond_wait(&guard->changed, &guard->lock);
    return;
  }
  const int64_t shareMs = ulyxMax64(1, guard->timeoutMs / LOOKS_A_DEADLINE);
  const int64_t restMs = guard->timeoutMs > 0 ? ulyxMin64(shareMs, LONGEST_LOOK_MS) : LONGEST_LOOK_MS;
  const struct timespec until = ulyxTimeAt(ulyxNowNs() + restMs * ULYX_NS_A_MS);
  (void)pthread_cond_timedwait(&guard->changed, &guard->lock, &until);
}

static void* keepWatch(void* argument) {
  ulyxGuard* const guard = argument;
  (void)cudaSetDevice(guard->device); /* what fails here fails in every query as well */
  (void)ulyxRelaxCapture();
  pthread_mutex_lock(&guard->lock);
  for (;;) {
    if (guard->doomed && !guard->aborted) reap(guard);
    if (guard->ending) break;
    rest(guard);
    if (!guard->ending && guard->lost == ulyxSuccess) look(guard);
  }
  pthread_mutex_unlock(&guard->lock);
  return NULL;
}

/* ---- Life ---------------------------------------------------------------------------------------------- */

static bool initLock(ulyxGuard* guard) {
  if (pthread_mutex_init(&guard->lock, NULL) != 0) return false;
  guard->ready = ulyxConditionInit(&guard->changed);
  if (!guard->ready) pthread_mutex_destroy(&guard->lock);
  return guard->ready;
}

/* The process's signals are for its own threads. */
static bool startThread(ulyxGuard* guard) {
  sigset_t all, before;
  (void)sigfillset(&all);
  if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return false;
  guard->started = pthread_create(&guard->thread, NULL, keepWatch, guard) == 0;
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  return guard->started;
}

void ulyxGuardSetOwner(ulyxGuard* guard, ulyxGuardOwner owner) {
  if (!guard->ready) return;
  pthread_mutex_lock(&guard->lock);
  while (guard->losing) pthread_cond_wait(&guard->changed, &guard->lock);
  guard->owner = owner;
  pthread_mutex_unlock(&guard->lock);
}

void ulyxGuardDisown(ulyxGuard* guard) {
  ulyxGuardLetGo(guard);
  (void)ulyxGuardAwaitAbort(guard);
  ulyxGuardSetOwner(guard, (ulyxGuardOwner){0});
}

ulyxResult_t ulyxGuardCreate(ulyxGuard* guard, ncclComm_t comm, int device, int timeoutMs) {
  ulyxResult_t result = ulyxSuccess;
  *guard = (ulyxGuard){.comm = comm, .device = device, .timeoutMs = timeoutMs};
  if (!initLock(guard)) {
    result = ulyxFail(ulyxSystemError, "a lock of a guard could not be made");
    goto destroyGuard;
  }
  for (int i = 0; i < ULYX_GUARD_EVENTS; ++i) {
    ULYX_TRY_GOTO(ULYX_CUDA(cudaEventCreateWithFlags(&guard->ends[i], cudaEventDisableTiming)), destroyGuard);
  }
  if (startThread(guard)) return ulyxSuccess;
  result = ulyxFail(ulyxSystemError, "the thread of a guard could not be started");

destroyGuard:
  ulyxUndoBegin();
  (void)ulyxGuardDestroy(guard);
  ulyxUndoEnd();
  return result;
}

static void stopThread(ulyxGuard* guard) {
  if (!guard->started) return;
  pthread_mutex_lock(&guard->lock);
  guard->ending = true;
  pthread_cond_broadcast(&guard->changed);
  pthread_mutex_unlock(&guard->lock);
  pthread_join(guard->thread, NULL);
  guard->started = false;
}

static void destroyLock(ulyxGuard* guard) {
  if (!guard->ready) return;
  pthread_cond_destroy(&guard->changed);
  pthread_mutex_destroy(&guard->lock);
  guard->ready = false;
}

/* Not watched: an abort would free what NCCL is destroying, and a rank without work waits for no peer here. */
static ulyxResult_t destroyComm(ulyxGuard* guard) {
  const ncclComm_t comm = guard->comm;
  guard->comm = NULL;
  return comm != NULL ? ULYX_NCCL(NULL, ncclCommDestroy(comm)) : ulyxSuccess;
}

ulyxResult_t ulyxGuardDestroy(ulyxGuard* guard) {
  if (guard->started) ulyxGuardLetGo(guard);
  stopThread(guard); /* which aborts first, if it is to */
  ulyxResult_t result = destroyComm(guard);
  for (int i = 0; i < ULYX_GUARD_EVENTS; ++i) {
    if (guard->ends[i] != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaEventDestroy(guard->ends[i])));
    guard->ends[i] = NULL;
  }
  destroyLock(guard);
  return result;
}

bool ulyxGuardForget(ulyxGuard* guard) {
  pthread_mutex_lock(&guard->lock);
  const bool aborting = guard->doomed && !guard->aborted;
  pthread_mutex_unlock(&guard->lock);
  if (aborting) { /* inside what has gone; it looks at the guard when it comes out */
    pthread_detach(guard->thread);
    return false;
  }
  stopThread(guard);
  destroyLock(guard);
  return true;
}
