/* SPDX-License-Identifier: MIT
 *
 * Plans of the convolution halo, and their entry points: operation 0 is forward, operation 1 backward. */
#include "element.h"
#include "runtime.h"

enum { opForward, opBackward };

static ulyxResult_t build(ulyxPlan_t plan, const void* description) {
  const ulyxTransport* const transport = plan->rt->transport;
  ulyxHalo* const halo = &plan->about.halo;
  ULYX_TRY(ulyxHaloResolve(description, transport->nRanks, transport->rank, halo));
  plan->opCount = 1;
  ULYX_TRY(ulyxHaloForward(halo, &plan->ops[opForward].phase));
  if (ulyxElementIsSummed(halo->type)) {
    plan->opCount = 2;
    ULYX_TRY(ulyxHaloBackward(halo, &plan->ops[opBackward].phase));
  }
  for (int i = 0; i < plan->opCount; ++i) {
    ulyxPlanOp* const op = &plan->ops[i];
    const bool forward = i == opForward;
    op->name = forward ? "conv_halo" : "conv_halo_backward";
    op->inCount = op->outCount = 1;
    op->inNames[0] = forward ? "local" : "halo";
    op->outNames[0] = forward ? "halo" : "local";
    op->in[0] = forward ? ulyxHaloExpectLocal(halo) : ulyxHaloExpectHalo(halo);
    op->out[0] = forward ? ulyxHaloExpectHalo(halo) : ulyxHaloExpectLocal(halo);
  }
  return ulyxSuccess;
}

static ulyxStatement state(ulyxPlan_t plan) {
  return ulyxHaloState(&plan->about.halo);
}

const ulyxSubject ulyxHaloSubject = {"a convolution halo", build, state};

ulyxResult_t ulyxHaloPlanCreate(ulyxRuntime_t rt, const ulyxHaloShape_t* shape, ulyxPlan_t* plan) {
  return ulyxPlanCreateAbout(rt, &ulyxHaloSubject, shape, plan);
}

ulyxResult_t ulyxPlanGetHalo(ulyxPlan_t plan, ulyxTensor_t* local, ulyxTensor_t* halo) {
  ULYX_TRY(ulyxPlanEnter(plan, &ulyxHaloSubject));
  if (local != NULL) *local = plan->ops[opForward].in[0].tensor;
  if (halo != NULL) *halo = plan->ops[opForward].out[0].tensor;
  return ulyxRuntimeLeave(plan->rt, ulyxSuccess);
}

ulyxResult_t ulyxConvHalo(ulyxPlan_t plan, const ulyxTensor_t* local, const ulyxTensor_t* halo, ulyxStream_t stream) {
  ULYX_TRY(ulyxPlanEnter(plan, &ulyxHaloSubject));
  return ulyxRuntimeLeave(plan->rt, ulyxPlanRun(plan, opForward, &local, &halo, stream));
}

ulyxResult_t ulyxConvHaloBackward(ulyxPlan_t plan, const ulyxTensor_t* halo, const ulyxTensor_t* local,
                                  ulyxStream_t stream) {
  ULYX_TRY(ulyxPlanEnter(plan, &ulyxHaloSubject));
  if (plan->opCount <= opBackward) {
    return ulyxRuntimeLeave(
        plan->rt,
        ulyxFail(ulyxInvalidArgument, "halo.type is %s: gradients are summed in float16, bfloat16 and float32 only",
                 ulyxElementName(plan->about.halo.type)));
  }
  return ulyxRuntimeLeave(plan->rt, ulyxPlanRun(plan, opBackward, &halo, &local, stream));
}
