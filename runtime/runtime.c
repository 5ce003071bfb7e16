/* SPDX-License-Identifier: MIT */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

#include "agreement.h"

#define RUNTIME_MAGIC 0x756c7972u

ulyxResult_t ulyxRuntimeCheckHandle(ulyxRuntime_t rt) {
  if (rt == NULL) return ulyxFail(ulyxInvalidArgument, "the runtime is NULL");
  if (rt->magic != RUNTIME_MAGIC) {
    return ulyxFail(ulyxInvalidArgument, "%p is no runtime: it was destroyed or never made", (void*)rt);
  }
  return ulyxSuccess;
}

ulyxResult_t ulyxRuntimeEnter(ulyxRuntime_t rt, ulyxAdmission admission) {
  ULYX_TRY(ulyxRuntimeCheckHandle(rt));
  if (atomic_exchange_explicit(&rt->entered, true, memory_order_acquire)) {
    return ulyxFail(ulyxInvalidUsage, "another thread is inside this runtime (rank %d); one thread drives a rank",
                    rt->transport->rank);
  }
  if (rt->closed && admission == ulyxOpenOnly) {
    return ulyxRuntimeLeave(rt, ulyxFail(ulyxClosed, "the runtime of rank %d was closed", rt->transport->rank));
  }
  return ulyxSuccess;
}

void ulyxRuntimeTellRecord(ulyxRuntime_t rt) {
  ulyxTransport* const transport = rt->transport;
  if (rt->logger == NULL) return;
  ulyxFlightLog(&rt->flight, transport->rank, transport->ops->hasEnded(transport), rt->logger, rt->loggerUser);
}

/* What the caller can mend by calling otherwise tells nothing about the exchanges before. */
static bool isRefusal(ulyxResult_t result) {
  return result == ulyxInvalidArgument || result == ulyxInvalidUsage || result == ulyxArenaTooSmall ||
         result == ulyxClosed || result == ulyxUnsupported;
}

/* A world that is lost says so with every call, and its record once. */
static void logError(ulyxRuntime_t rt, ulyxResult_t result) {
  if (rt->logger == NULL) return;
  rt->logger(rt->loggerUser, ulyxLogError, rt->lastError);
  if (isRefusal(result) || rt->flight.count == 0) return;
  if (rt->loggedError == result && rt->loggedExchanges == rt->flight.count) return;
  rt->loggedError = result;
  rt->loggedExchanges = rt->flight.count;
  ulyxRuntimeTellRecord(rt);
}

ulyxResult_t ulyxRuntimeLeave(ulyxRuntime_t rt, ulyxResult_t result) {
  if (result != ulyxSuccess) {
    strcpy(rt->lastError, ulyxThreadMessage());
    logError(rt, result);
    (void)ulyxFail(result, "%s", rt->lastError); /* also where the logger has heard of failures of its own */
  }
  if (result == ulyxTimeout || result == ulyxRemoteError) rt->lost = true;
  atomic_store_explicit(&rt->entered, false, memory_order_release);
  return result;
}

static void freeObject(ulyxRuntime_t rt) {
  (void)ulyxContextCacheDestroy(rt->contexts);
  ulyxStorageFree(&rt->agreement);
  ulyxFlightFree(&rt->flight);
  ulyxForgetMagic(&rt->magic);
  free(rt);
}

/* What making a plan compares has its memory from the beginning: a rank that has none left can still say so. */
static ulyxResult_t fillObject(const ulyxSettings* settings, ulyxTransport* transport, ulyxRuntime_t rt) {
  const size_t ranks = (size_t)transport->nRanks, words = (size_t)ulyxAgreementWords(transport->nRanks);
  rt->magic = RUNTIME_MAGIC;
  rt->agreePlans = settings->agreePlans;
  rt->transport = transport;
  atomic_init(&rt->entered, false);
  if (rt->agreePlans && ranks > 1) {
    ULYX_TRY(ulyxStorageEnsure(&rt->agreement, words * (ranks + 1), sizeof(int64_t), "an agreement"));
  }
  ULYX_TRY(ulyxFlightCreate(transport->nRanks, &rt->flight));
  return ulyxContextCacheCreate(0, &rt->contexts);
}

ulyxResult_t ulyxRuntimeWrap(const ulyxSettings* settings, int count, ulyxTransport** transports, ulyxRuntime_t* rts) {
  ulyxResult_t result = ulyxSuccess;
  void* made = NULL;
  int wrapped = 0;
  ULYX_TRY_GOTO(ulyxAllocate(&made, (size_t)count, sizeof(ulyxRuntime_t), "runtimes"), destroyTransports);
  ulyxRuntime_t* const runtimes = made;
  for (; wrapped < count; ++wrapped) {
    void* memory = NULL;
    ULYX_TRY_GOTO(ulyxAllocate(&memory, 1, sizeof(struct ulyxRuntime), "a runtime"), freeRuntimes);
    runtimes[wrapped] = memory;
    ULYX_TRY_GOTO(fillObject(settings, transports[wrapped], runtimes[wrapped]), freeLast);
  }
  memcpy(rts, runtimes, (size_t)count * sizeof *rts);
  free(made);
  return ulyxSuccess;

freeLast:
  freeObject(((ulyxRuntime_t*)made)[wrapped]);
freeRuntimes:
  for (int i = 0; i < wrapped; ++i) freeObject(((ulyxRuntime_t*)made)[i]);
  free(made);
destroyTransports:
  for (int i = 0; i < count; ++i) (void)transports[i]->ops->destroy(transports[i]);
  return result;
}

ulyxResult_t ulyxRuntimeUnwrap(ulyxRuntime_t rt) {
  ulyxPlansFree(rt);
  const ulyxResult_t result = rt->transport->ops->destroy(rt->transport);
  freeObject(rt);
  return result;
}

ulyxResult_t ulyxRuntimeCheckStoreTarget(ulyxRuntime_t rt, const int32_t* data, const char* name) {
  if (data == NULL) return ulyxFail(ulyxInvalidArgument, "%s is NULL", name);
  if ((uintptr_t)data % sizeof *data != 0) {
    return ulyxFail(ulyxInvalidArgument, "%s is %p, expected a multiple of %zu", name, (const void*)data, sizeof *data);
  }
  return rt->transport->ops->checkMemory(rt->transport, data, name);
}
