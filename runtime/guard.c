/* SPDX-License-Identifier: MIT */
#include "guard.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "check.h"

/* How long whoever loses a world waits for the owner to leave NCCL by itself. */
#define GRACE_MS 500

/* Between two looks: a small part of the deadline. */
#define LOOKS_A_DEADLINE 20
#define LONGEST_LOOK_MS 250

/* A wait on the host polls this long before it sleeps between polls. */
#define EAGER_NS INT64_C(2000000)

static int64_t nowNs(void) {
  struct timespec at;
  (void)clock_gettime(CLOCK_MONOTONIC, &at);
  return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static struct timespec timeAt(int64_t ns) {
  return (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
}

/* ---- Losing ------------------------------------------------------------------------------------------ */

/* With the lock held, but not while NCCL aborts: the owner comes out then. */
static void abortComm(ulyxGuard* guard) {
  const ncclComm_t comm = guard->comm;
  guard->comm = NULL;
  if (comm == NULL) return;
  pthread_mutex_unlock(&guard->lock);
  (void)ncclCommAbort(comm);
  pthread_mutex_lock(&guard->lock);
}

/* With the lock held. The owner gets a moment to leave; if it does not, it stands inside NCCL. */
static void abandon(ulyxGuard* guard) {
  if (guard->call == NULL && !guard->waiting && guard->enqueued == guard->finished) return;
  const struct timespec until = timeAt(nowNs() + GRACE_MS * INT64_C(1000000));
  while (guard->call != NULL && pthread_cond_timedwait(&guard->changed, &guard->lock, &until) != ETIMEDOUT) {
  }
  abortComm(guard);
}

static void loseLocked(ulyxGuard* guard, ulyxResult_t code, const char* format, va_list arguments) {
  if (guard->lost != ulyxSuccess) return;
  (void)vsnprintf(guard->why, sizeof guard->why, format, arguments);
  guard->lost = code;
  abandon(guard);
}

void ulyxGuardLose(ulyxGuard* guard, ulyxResult_t code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  pthread_mutex_lock(&guard->lock);
  loseLocked(guard, code, format, arguments);
  pthread_mutex_unlock(&guard->lock);
  va_end(arguments);
}

void ulyxGuardLetGo(ulyxGuard* guard) {
  pthread_mutex_lock(&guard->lock);
  if (guard->lost != ulyxSuccess) abortComm(guard);
  pthread_mutex_unlock(&guard->lock);
}

ulyxResult_t ulyxGuardFound(ulyxGuard* guard) {
  pthread_mutex_lock(&guard->lock);
  const ulyxResult_t result = guard->lost == ulyxSuccess ? ulyxSuccess : ulyxFail(guard->lost, "%s", guard->why);
  pthread_mutex_unlock(&guard->lock);
  return result;
}

/* ---- The owner ----------------------------------------------------------------------------------------- */

ulyxResult_t ulyxGuardEnter(ulyxGuard* guard, const char* call) {
  ULYX_TRY(ulyxGuardFound(guard));
  pthread_mutex_lock(&guard->lock);
  guard->call = call;
  guard->calledNs = nowNs();
  pthread_mutex_unlock(&guard->lock);
  return ulyxSuccess;
}

ulyxResult_t ulyxGuardLeave(ulyxGuard* guard, ulyxResult_t result) {
  pthread_mutex_lock(&guard->lock);
  guard->call = NULL;
  pthread_cond_broadcast(&guard->changed);
  pthread_mutex_unlock(&guard->lock);
  const ulyxResult_t found = ulyxGuardFound(guard);
  return found != ulyxSuccess ? found : result;
}

static void setWaiting(ulyxGuard* guard, bool waiting) {
  pthread_mutex_lock(&guard->lock);
  guard->waiting = waiting;
  pthread_mutex_unlock(&guard->lock);
}

static ulyxResult_t waitFor(ulyxGuard* guard, cudaStream_t stream, const char* what) {
  const int64_t startNs = nowNs();
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaSuccess) return ulyxGuardFound(guard);
    if (state != cudaErrorNotReady) return ulyxCudaFail(state, "cudaStreamQuery");
    (void)cudaGetLastError(); /* not ready is no error */
    ULYX_TRY(ulyxGuardFound(guard));
    const int64_t waitedNs = nowNs() - startNs;
    if (guard->timeoutMs > 0 && waitedNs > guard->timeoutMs * INT64_C(1000000)) {
      ulyxGuardLose(guard, ulyxTimeout, "%s was not reached by every rank within %d ms; destroy the runtime", what,
                    guard->timeoutMs);
    } else if (waitedNs < EAGER_NS) {
      (void)sched_yield();
    } else {
      (void)nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
  }
}

ulyxResult_t ulyxGuardWait(ulyxGuard* guard, cudaStream_t stream, const char* what) {
  setWaiting(guard, true);
  const ulyxResult_t result = waitFor(guard, stream, what);
  setWaiting(guard, false);
  return result;
}

ulyxResult_t ulyxGuardWatch(ulyxGuard* guard, cudaStream_t stream) {
  pthread_mutex_lock(&guard->lock);
  if (guard->enqueued == guard->finished) guard->movedNs = nowNs();
  const ulyxResult_t result = ULYX_CUDA(cudaEventRecord(guard->ends[guard->enqueued % ULYX_GUARD_EVENTS], stream));
  if (result == ulyxSuccess) ++guard->enqueued;
  pthread_mutex_unlock(&guard->lock);
  return result;
}

/* ---- The thread ---------------------------------------------------------------------------------------- */

/* Counts what has ended. An event that was recorded anew stands for the later exchange. */
static void countFinished(ulyxGuard* guard) {
  for (int64_t exchange = guard->enqueued - 1; exchange >= guard->finished; --exchange) {
    if (guard->enqueued - exchange > ULYX_GUARD_EVENTS) return;
    if (cudaEventQuery(guard->ends[exchange % ULYX_GUARD_EVENTS]) != cudaSuccess) continue;
    guard->finished = exchange + 1;
    guard->movedNs = nowNs();
    return;
  }
}

__attribute__((format(printf, 3, 4))) static void loseNow(ulyxGuard* guard, ulyxResult_t code, const char* format,
                                                          ...) {
  va_list arguments;
  va_start(arguments, format);
  loseLocked(guard, code, format, arguments);
  va_end(arguments);
}

static void look(ulyxGuard* guard) {
  const int64_t patienceNs = guard->timeoutMs * INT64_C(1000000);
  if (guard->call != NULL && nowNs() - guard->calledNs > patienceNs) {
    loseNow(guard, ulyxTimeout, "%s took longer than %d ms: a rank did not come; destroy the runtime", guard->call,
            guard->timeoutMs);
    return;
  }
  if (guard->enqueued == guard->finished) return;
  countFinished(guard);
  if (guard->enqueued == guard->finished || nowNs() - guard->movedNs <= patienceNs) return;
  loseNow(guard, ulyxTimeout,
          "exchange %" PRId64
          " by nccl did not end within %d ms: a rank did not come, or what precedes it on its stream "
          "takes longer; destroy the runtime",
          guard->finished, guard->timeoutMs);
}

static void* keepWatch(void* argument) {
  ulyxGuard* const guard = argument;
  const int64_t shareMs = ulyxMax64(1, guard->timeoutMs / LOOKS_A_DEADLINE);
  const int64_t lookMs = ulyxMin64(shareMs, LONGEST_LOOK_MS);
  (void)cudaSetDevice(guard->device);                             /* what fails here fails in every query as well */
  enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed; /* a query must not spoil somebody's capture */
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  pthread_mutex_lock(&guard->lock);
  while (!guard->ending && guard->lost == ulyxSuccess) {
    const struct timespec until = timeAt(nowNs() + lookMs * 1000000);
    (void)pthread_cond_timedwait(&guard->changed, &guard->lock, &until);
    if (!guard->ending && guard->lost == ulyxSuccess) look(guard);
  }
  pthread_mutex_unlock(&guard->lock);
  return NULL;
}

/* ---- Life ---------------------------------------------------------------------------------------------- */

static bool initLock(ulyxGuard* guard) {
  pthread_condattr_t monotonic;
  if (pthread_mutex_init(&guard->lock, NULL) != 0) return false;
  if (pthread_condattr_init(&monotonic) == 0) {
    guard->ready = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
                   pthread_cond_init(&guard->changed, &monotonic) == 0;
    pthread_condattr_destroy(&monotonic);
  }
  if (!guard->ready) pthread_mutex_destroy(&guard->lock);
  return guard->ready;
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
  if (timeoutMs == 0) return ulyxSuccess;
  guard->started = pthread_create(&guard->thread, NULL, keepWatch, guard) == 0;
  if (guard->started) return ulyxSuccess;
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

/* Watched, since a destruction waits for the peers. */
static ulyxResult_t destroyComm(ulyxGuard* guard) {
  if (guard->ready) ulyxGuardLetGo(guard);
  const ncclComm_t comm = guard->comm;
  if (comm == NULL) return ulyxSuccess;
  const bool entered = guard->ready && ulyxGuardEnter(guard, "the destruction of the communicator") == ulyxSuccess;
  const ulyxResult_t result = ULYX_NCCL(NULL, ncclCommDestroy(comm));
  guard->comm = NULL;
  if (entered) (void)ulyxGuardLeave(guard, ulyxSuccess);
  return result;
}

ulyxResult_t ulyxGuardDestroy(ulyxGuard* guard) {
  ulyxResult_t result = destroyComm(guard);
  stopThread(guard);
  for (int i = 0; i < ULYX_GUARD_EVENTS; ++i) {
    if (guard->ends[i] != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaEventDestroy(guard->ends[i])));
    guard->ends[i] = NULL;
  }
  destroyLock(guard);
  return result;
}

void ulyxGuardForget(ulyxGuard* guard) {
  stopThread(guard);
  destroyLock(guard);
}
