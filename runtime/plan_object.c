/* SPDX-License-Identifier: MIT
 *
 * Plans as objects of a runtime: built from a subject, agreed upon, kept as spares once they are destroyed. */
#include <stdlib.h>

#include "agreement.h"
#include "check.h"
#include "runtime.h"

#define PLAN_MAGIC 0x756c7970u

ulyxResult_t ulyxPlanCheckHandle(ulyxPlan_t plan) {
  if (plan == NULL) return ulyxFail(ulyxInvalidArgument, "the plan is NULL");
  if (plan->magic != PLAN_MAGIC) {
    return ulyxFail(ulyxInvalidArgument, "%p is no plan: it was destroyed or never made", (void*)plan);
  }
  return ulyxSuccess;
}

ulyxResult_t ulyxPlanEnter(ulyxPlan_t plan, const ulyxSubject* subject) {
  ULYX_TRY(ulyxPlanCheckHandle(plan));
  ULYX_TRY(ulyxRuntimeEnter(plan->rt, ulyxOpenOnly));
  if (subject == NULL || plan->subject == subject) return ulyxSuccess;
  return ulyxRuntimeLeave(
      plan->rt, ulyxFail(ulyxInvalidUsage, "the plan is for %s, the call for %s", plan->subject->what, subject->what));
}

static void sumBytes(const ulyxPhase* phase, int64_t* sent, int64_t* received) {
  for (int peer = 0; peer < phase->nRanks; ++peer) {
    const int64_t* const send = &phase->sendStart[peer];
    const int64_t* const recv = &phase->recvStart[peer];
    sent[peer] = ulyxCopiesBytes(phase->copies + send[0], send[1] - send[0]);
    received[peer] = peer == phase->rank ? sent[peer] : ulyxCopiesBytes(phase->copies + recv[0], recv[1] - recv[0]);
  }
}

static ulyxResult_t sumAllBytes(ulyxPlan_t plan) {
  const int nRanks = plan->rt->transport->nRanks;
  const size_t count = 2 * (size_t)plan->opCount * (size_t)nRanks;
  ULYX_TRY(ulyxStorageEnsure(&plan->peerBytes, count, sizeof(int64_t), "bytes by peer"));
  for (int i = 0; i < plan->opCount; ++i) {
    int64_t* const sent = ulyxPlanPeerBytes(plan, i);
    sumBytes(&plan->ops[i].phase, sent, sent + nRanks);
  }
  return ulyxSuccess;
}

/* Everything that one rank can do by itself. */
static ulyxResult_t buildLocally(ulyxPlan_t plan, const void* description, bool wanted) {
  const ulyxTransport* const transport = plan->rt->transport;
  if (!wanted) return ulyxFail(ulyxInvalidArgument, "plan is NULL");
  ULYX_TRY(plan->subject->build(plan, description));
  ULYX_TRY(sumAllBytes(plan));
  for (int i = 0; i < plan->opCount; ++i) {
    int64_t arenaBytes = 0;
    ULYX_TRY(transport->ops->prepare(transport, &plan->ops[i].phase, &plan->ops[i].prepared, &arenaBytes));
    plan->arenaBytes = ulyxMax64(plan->arenaBytes, arenaBytes);
  }
  if (plan->arenaBytes > transport->arenaBytes) {
    return ulyxFail(ulyxArenaTooSmall,
                    "the plan stages %lld bytes on rank %d, whose arena has %lld; call ulyxRuntimeReserve",
                    (long long)plan->arenaBytes, transport->rank, (long long)transport->arenaBytes);
  }
  return ulyxSuccess;
}

/* plan may be NULL where `mine` is a failure: a rank that could make none says so too. */
static ulyxResult_t agree(ulyxRuntime_t rt, ulyxPlan_t plan, ulyxResult_t mine) {
  ulyxStatement statement = {0};
  if (plan != NULL && (mine == ulyxSuccess || mine == ulyxArenaTooSmall)) {
    statement = plan->subject->state(plan);
    plan->signature = statement.signature;
  }
  if (!rt->agreePlans || rt->transport->nRanks == 1) return mine;
  return ulyxAgree(rt->transport, mine, &statement, plan != NULL ? plan->arenaBytes : 0, &rt->agreement);
}

/* A plan among the runtime's plans, of whose former life only memory is left. */
static ulyxResult_t takePlan(ulyxRuntime_t rt, ulyxPlan_t* taken) {
  void* memory = rt->spares;
  if (memory == NULL) {
    ULYX_TRY(ulyxAllocate(&memory, 1, sizeof(struct ulyxPlan), "a plan"));
  } else {
    rt->spares = rt->spares->next;
  }
  ulyxPlan_t const plan = memory;
  plan->magic = PLAN_MAGIC;
  plan->rt = rt;
  plan->opCount = 0;
  plan->arenaBytes = 0;
  plan->next = rt->plans;
  plan->link = &rt->plans;
  if (plan->next != NULL) plan->next->link = &plan->next;
  rt->plans = plan;
  *taken = plan;
  return ulyxSuccess;
}

static ulyxResult_t buildPlan(ulyxRuntime_t rt, const ulyxSubject* subject, const void* description,
                              ulyxPlan_t* created) {
  ulyxPlan_t plan = NULL;
  const ulyxResult_t taken = takePlan(rt, &plan);
  if (taken != ulyxSuccess) return agree(rt, NULL, taken);
  plan->subject = subject;
  const ulyxResult_t result = agree(rt, plan, buildLocally(plan, description, created != NULL));
  if (result != ulyxSuccess) {
    ulyxPlanRelease(plan);
    return result;
  }
  *created = plan; /* NOLINT(clang-analyzer-core.NullDereference): refused by buildLocally, which agreeing upholds */
  return ulyxSuccess;
}

ulyxResult_t ulyxPlanCreateAbout(ulyxRuntime_t rt, const ulyxSubject* subject, const void* description,
                                 ulyxPlan_t* plan) {
  ULYX_TRY(ulyxRuntimeEnter(rt, ulyxOpenOnly));
  return ulyxRuntimeLeave(rt, buildPlan(rt, subject, description, plan));
}

void ulyxPlanRelease(ulyxPlan_t plan) {
  ulyxRuntime_t const rt = plan->rt;
  *plan->link = plan->next;
  if (plan->next != NULL) plan->next->link = plan->link;
  ulyxForgetMagic(&plan->magic);
  ulyxGeometryClear(&plan->about.geometry); /* a spare keeps nobody's sequences alive */
  plan->next = rt->spares;
  rt->spares = plan;
}

static void freePlan(ulyxPlan_t plan) {
  for (int i = 0; i < ULYX_MAX_OPS; ++i) {
    plan->rt->transport->ops->unprepare(plan->ops[i].prepared);
    ulyxPhaseFree(&plan->ops[i].phase);
  }
  ulyxGeometryFree(&plan->about.geometry);
  ulyxRowsFree(&plan->about.rows);
  ulyxHaloFree(&plan->about.halo);
  ulyxChainFree(&plan->about.chain);
  ulyxStorageFree(&plan->peerBytes);
  ulyxStorageFree(&plan->kvHeadOfHead);
  free(plan);
}

void ulyxPlansFree(ulyxRuntime_t rt) {
  while (rt->plans != NULL) ulyxPlanRelease(rt->plans);
  while (rt->spares != NULL) {
    ulyxPlan_t const plan = rt->spares;
    rt->spares = plan->next;
    freePlan(plan);
  }
}
