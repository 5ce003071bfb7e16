/* SPDX-License-Identifier: MIT */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

#include "agreement.h"
#include "check.h"
#include "partition.h"

#define RUNTIME_MAGIC 0x756c7972u
#define PLAN_MAGIC 0x756c7970u

ulyxResult_t ulyxRuntimeEnter(ulyxRuntime_t rt, ulyxAdmission admission) {
  if (rt == NULL) return ulyxFail(ulyxInvalidArgument, "the runtime is NULL");
  if (rt->magic != RUNTIME_MAGIC) {
    return ulyxFail(ulyxInvalidArgument, "%p is no runtime: it was destroyed or never made", (void*)rt);
  }
  if (atomic_exchange_explicit(&rt->entered, true, memory_order_acquire)) {
    return ulyxFail(ulyxInvalidUsage, "another thread is inside this runtime (rank %d); one thread drives a rank",
                    rt->transport->rank);
  }
  if (rt->closed && admission == ulyxOpenOnly) {
    return ulyxRuntimeLeave(rt, ulyxFail(ulyxClosed, "the runtime of rank %d was closed", rt->transport->rank));
  }
  return ulyxSuccess;
}

ulyxResult_t ulyxRuntimeLeave(ulyxRuntime_t rt, ulyxResult_t result) {
  if (result != ulyxSuccess) strcpy(rt->lastError, ulyxThreadMessage());
  atomic_store_explicit(&rt->entered, false, memory_order_release);
  return result;
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
    runtimes[wrapped]->magic = RUNTIME_MAGIC;
    runtimes[wrapped]->agreePlans = settings->agreePlans;
    runtimes[wrapped]->transport = transports[wrapped];
    atomic_init(&runtimes[wrapped]->entered, false);
  }
  memcpy(rts, runtimes, (size_t)count * sizeof *rts);
  free(made);
  return ulyxSuccess;

freeRuntimes:
  for (int i = 0; i < wrapped; ++i) free(((ulyxRuntime_t*)made)[i]);
  free(made);
destroyTransports:
  for (int i = 0; i < count; ++i) (void)transports[i]->ops->destroy(transports[i]);
  return result;
}

ulyxResult_t ulyxRuntimeUnwrap(ulyxRuntime_t rt) {
  while (rt->plans != NULL) ulyxPlanRelease(rt->plans);
  const ulyxResult_t result = rt->transport->ops->destroy(rt->transport);
  rt->magic = 0;
  free(rt);
  return result;
}

ulyxResult_t ulyxPlanCheckHandle(ulyxPlan_t plan) {
  if (plan == NULL) return ulyxFail(ulyxInvalidArgument, "the plan is NULL");
  if (plan->magic != PLAN_MAGIC) {
    return ulyxFail(ulyxInvalidArgument, "%p is no plan: it was destroyed or never made", (void*)plan);
  }
  return ulyxSuccess;
}

static int expectSide(const ulyxGeometry* geometry, const ulyxOperation* operation, ulyxSide side, int rank,
                      ulyxExpected* expected) {
  int count = 0;
  for (int role = operation->firstRole; role <= (int)operation->lastRole; ++role) {
    if (count == 1 && geometry->packed[side]) break; /* q stands for all */
    expected[count++] = ulyxTensorExpect(geometry, side, (ulyxRole)role, rank);
  }
  return count;
}

static void sumBytes(const ulyxPhase* phase, int64_t* sendBytes, int64_t* recvBytes) {
  for (int peer = 0; peer < phase->nRanks; ++peer) {
    const int64_t* const send = &phase->sendStart[peer];
    const int64_t* const recv = &phase->recvStart[peer];
    sendBytes[peer] = ulyxCopiesBytes(phase->copies + send[0], send[1] - send[0]);
    recvBytes[peer] =
        peer == phase->rank ? sendBytes[peer] : ulyxCopiesBytes(phase->copies + recv[0], recv[1] - recv[0]);
  }
}

static ulyxResult_t buildOps(ulyxPlan_t plan) {
  const ulyxTransport* const transport = plan->rt->transport;
  for (int i = 0; i < ULYX_OP_COUNT; ++i) {
    const ulyxOperation* const operation = &ulyxOperations[i];
    ulyxPlanOp* const op = &plan->ops[i];
    int64_t arenaBytes = 0;
    ULYX_TRY(ulyxPhaseBuild(&plan->geometry, operation->list, transport->rank, &op->phase));
    ULYX_TRY(transport->ops->prepare(&op->phase, &op->prepared, &arenaBytes));
    plan->arenaBytes = ulyxMax64(plan->arenaBytes, arenaBytes);
    op->inCount = expectSide(&plan->geometry, operation, operation->from, transport->rank, op->in);
    op->outCount = expectSide(&plan->geometry, operation, operation->to, transport->rank, op->out);
  }
  return ulyxSuccess;
}

static ulyxResult_t buildCounts(ulyxPlan_t plan) {
  const ulyxGeometry* const geometry = &plan->geometry;
  const int nRanks = geometry->nRanks;
  void* counts = NULL;
  ULYX_TRY(ulyxAllocate(&counts, (3 + 2 * ULYX_OP_COUNT) * (size_t)nRanks, sizeof(int64_t), "counts"));
  plan->counts = counts;
  for (int rank = 0; rank < nRanks; ++rank) {
    plan->counts[rank] = ulyxRangeLength(geometry->tokenRanges[rank]);
    plan->counts[nRanks + rank] = ulyxRangeLength(geometry->headRanges[rank]);
    plan->counts[2 * nRanks + rank] = ulyxRangeLength(geometry->kvHeadRanges[rank]);
  }
  for (int i = 0; i < ULYX_OP_COUNT; ++i) {
    ulyxPlanOp* const op = &plan->ops[i];
    op->sendBytes = plan->counts + (3 + 2 * i) * nRanks;
    op->recvBytes = op->sendBytes + nRanks;
    sumBytes(&op->phase, op->sendBytes, op->recvBytes);
  }
  return ulyxSuccess;
}

/* Everything that one rank can do by itself. */
static ulyxResult_t buildLocally(ulyxPlan_t plan, const ulyxShape_t* shape) {
  const ulyxTransport* const transport = plan->rt->transport;
  ULYX_TRY(ulyxGeometryResolve(shape, transport->nRanks, &plan->geometry));
  ULYX_TRY(buildOps(plan));
  ULYX_TRY(buildCounts(plan));
  if (plan->arenaBytes > transport->arenaBytes) {
    return ulyxFail(ulyxArenaTooSmall,
                    "the plan stages %lld bytes on rank %d, whose arena has %lld; call ulyxRuntimeReserve",
                    (long long)plan->arenaBytes, transport->rank, (long long)transport->arenaBytes);
  }
  return ulyxSuccess;
}

ulyxResult_t ulyxPlanBuild(ulyxRuntime_t rt, const ulyxShape_t* shape, ulyxPlan_t* created) {
  void* memory = NULL;
  ULYX_TRY(ulyxAllocate(&memory, 1, sizeof(struct ulyxPlan), "a plan"));
  ulyxPlan_t const plan = memory;
  plan->magic = PLAN_MAGIC;
  plan->rt = rt;
  plan->next = rt->plans;
  plan->link = &rt->plans;
  if (plan->next != NULL) plan->next->link = &plan->next;
  rt->plans = plan;
  ulyxResult_t result = buildLocally(plan, shape);
  if (rt->agreePlans && rt->transport->nRanks > 1) {
    result = ulyxAgree(rt->transport, result, &plan->geometry, plan->arenaBytes);
  }
  if (result != ulyxSuccess) {
    ulyxPlanRelease(plan);
    return result;
  }
  *created = plan;
  return ulyxSuccess;
}

void ulyxPlanRelease(ulyxPlan_t plan) {
  *plan->link = plan->next;
  if (plan->next != NULL) plan->next->link = plan->link;
  for (int i = 0; i < ULYX_OP_COUNT; ++i) {
    plan->rt->transport->ops->unprepare(plan->ops[i].prepared);
    ulyxPhaseFree(&plan->ops[i].phase);
  }
  ulyxGeometryFree(&plan->geometry);
  free(plan->counts);
  plan->magic = 0;
  free(plan);
}
