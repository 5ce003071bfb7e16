/* SPDX-License-Identifier: MIT
 *
 * Plans of row collectives, and their entry points. */
#include "runtime.h"

static ulyxResult_t build(ulyxPlan_t plan, const void* description) {
  const ulyxTransport* const transport = plan->rt->transport;
  ulyxRows* const rows = &plan->about.rows;
  ulyxPlanOp* const op = &plan->ops[0];
  ULYX_TRY(ulyxRowsResolve(description, transport->nRanks, transport->rank, rows));
  plan->opCount = 1;
  ULYX_TRY(ulyxRowsPhase(rows, &op->phase));
  op->name = ulyxRowsState(rows).operation;
  op->inCount = op->outCount = 1;
  op->inNames[0] = "in";
  op->outNames[0] = "out";
  op->in[0] = ulyxRowsExpect(rows, true);
  op->out[0] = ulyxRowsExpect(rows, false);
  return ulyxSuccess;
}

static ulyxStatement state(ulyxPlan_t plan) {
  return ulyxRowsState(&plan->about.rows);
}

const ulyxSubject ulyxRowsSubject = {"a row collective", build, state};

ulyxResult_t ulyxRowsPlanCreate(ulyxRuntime_t rt, const ulyxRowsShape_t* shape, ulyxPlan_t* plan) {
  return ulyxPlanCreateAbout(rt, &ulyxRowsSubject, shape, plan);
}

ulyxResult_t ulyxPlanGetRows(ulyxPlan_t plan, ulyxTensor_t* in, ulyxTensor_t* out) {
  ULYX_TRY(ulyxPlanEnter(plan, &ulyxRowsSubject));
  if (in != NULL) *in = plan->ops[0].in[0].tensor;
  if (out != NULL) *out = plan->ops[0].out[0].tensor;
  return ulyxRuntimeLeave(plan->rt, ulyxSuccess);
}

static ulyxResult_t runRows(ulyxPlan_t plan, ulyxRowsOp_t op, const ulyxTensor_t* in, const ulyxTensor_t* out,
                            ulyxStream_t stream) {
  static const char* const names[] = {"all-gather", "reduce-scatter", "all-to-all"};
  ULYX_TRY(ulyxPlanEnter(plan, &ulyxRowsSubject));
  const int planned = plan->about.rows.op;
  if (planned != (int)op) {
    return ulyxRuntimeLeave(plan->rt,
                            ulyxFail(ulyxInvalidUsage, "the plan is for rows.op %d (%s), the call for %d (%s)", planned,
                                     names[planned], (int)op, names[op]));
  }
  return ulyxRuntimeLeave(plan->rt, ulyxPlanRun(plan, 0, &in, &out, stream));
}

ulyxResult_t ulyxAllGatherRows(ulyxPlan_t plan, const ulyxTensor_t* in, const ulyxTensor_t* out, ulyxStream_t stream) {
  return runRows(plan, ulyxRowsAllGather, in, out, stream);
}

ulyxResult_t ulyxReduceScatterRows(ulyxPlan_t plan, const ulyxTensor_t* in, const ulyxTensor_t* out,
                                   ulyxStream_t stream) {
  return runRows(plan, ulyxRowsReduceScatter, in, out, stream);
}

ulyxResult_t ulyxAllToAllRows(ulyxPlan_t plan, const ulyxTensor_t* in, const ulyxTensor_t* out, ulyxStream_t stream) {
  return runRows(plan, ulyxRowsAllToAll, in, out, stream);
}
