/* SPDX-License-Identifier: MIT
 *
 * Plans of the chain of states, and their entry points: operation 0 is forward, operation 1 backward. */
#include "runtime.h"

static void describe(ulyxPlanOp* op, const ulyxStateChainPlan* chain, bool backward) {
  op->name = backward ? "state_chain_backward" : "state_chain";
  op->inNames[0] = "state";
  op->in[0] = ulyxChainExpect(chain, chain->valueDim);
  op->inNames[1] = "transition";
  op->in[1] = ulyxChainExpect(chain, chain->keyDim);
  op->inNames[2] = "initial";
  op->in[2] = op->in[0];
  op->inCount = ulyxChainReadsInitial(chain, backward) ? 3 : 2;
  op->outNames[0] = "received";
  op->out[0] = op->in[0];
  op->outNames[1] = "final";
  op->out[1] = op->in[0];
  op->outCount = chain->wantsFinal ? 2 : 1;
}

static ulyxResult_t build(ulyxPlan_t plan, const void* description) {
  const ulyxTransport* const transport = plan->rt->transport;
  ulyxStateChainPlan* const chain = &plan->about.chain;
  ULYX_TRY(ulyxChainResolve(description, transport->nRanks, transport->rank, chain));
  for (int i = 0; i < 2; ++i) {
    plan->opCount = i + 1;
    ULYX_TRY(ulyxChainPhase(chain, i == 1, &plan->ops[i].phase));
    describe(&plan->ops[i], chain, i == 1);
  }
  return ulyxSuccess;
}

static ulyxStatement state(ulyxPlan_t plan) {
  return ulyxChainState(&plan->about.chain);
}

const ulyxSubject ulyxChainSubject = {"a chain of states", build, state};

ulyxResult_t ulyxStatePlanCreate(ulyxRuntime_t rt, const ulyxStateShape_t* shape, ulyxPlan_t* plan) {
  return ulyxPlanCreateAbout(rt, &ulyxChainSubject, shape, plan);
}

ulyxResult_t ulyxPlanGetStates(ulyxPlan_t plan, ulyxStates_t* states) {
  ULYX_TRY(ulyxPlanEnter(plan, &ulyxChainSubject));
  if (states == NULL) return ulyxRuntimeLeave(plan->rt, ulyxFail(ulyxInvalidArgument, "states is NULL"));
  const ulyxPlanOp* const op = &plan->ops[0];
  states->state = states->initial = states->received = states->final = op->in[0].tensor;
  states->transition = op->in[1].tensor;
  return ulyxRuntimeLeave(plan->rt, ulyxSuccess);
}

static ulyxResult_t run(ulyxPlan_t plan, int op, const ulyxStates_t* states, ulyxStream_t stream) {
  ULYX_TRY(ulyxPlanEnter(plan, &ulyxChainSubject));
  if (states == NULL) return ulyxRuntimeLeave(plan->rt, ulyxFail(ulyxInvalidArgument, "states is NULL"));
  const ulyxTensor_t* const in[ULYX_MAX_BUFFERS] = {&states->state, &states->transition, &states->initial};
  const ulyxTensor_t* const out[ULYX_MAX_BUFFERS] = {&states->received, &states->final, NULL};
  return ulyxRuntimeLeave(plan->rt, ulyxPlanRun(plan, op, in, out, stream));
}

ulyxResult_t ulyxStateChain(ulyxPlan_t plan, const ulyxStates_t* states, ulyxStream_t stream) {
  return run(plan, 0, states, stream);
}

ulyxResult_t ulyxStateChainBackward(ulyxPlan_t plan, const ulyxStates_t* states, ulyxStream_t stream) {
  return run(plan, 1, states, stream);
}
