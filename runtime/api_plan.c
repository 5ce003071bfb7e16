/* SPDX-License-Identifier: MIT
 *
 * Entry points of plans and exchanges: check arguments, then call down. */
#include "check.h"
#include "partition.h"
#include "runtime.h"
#include "sequences.h"

ulyxResult_t ulyxPlanCreate(ulyxRuntime_t rt, const ulyxShape_t* shape, ulyxPlan_t* plan) {
  return ulyxPlanCreateAbout(rt, &ulyxExchangeSubject, shape, plan);
}

ulyxResult_t ulyxPlanDestroy(ulyxPlan_t plan) {
  if (plan == NULL) return ulyxSuccess;
  ULYX_TRY(ulyxPlanCheckHandle(plan));
  const ulyxRuntime_t rt = plan->rt;
  ULYX_TRY(ulyxRuntimeEnter(rt, ulyxOpenOrClosed));
  ulyxPlanRelease(plan);
  return ulyxRuntimeLeave(rt, ulyxSuccess);
}

ulyxResult_t ulyxPlanGetInfo(ulyxPlan_t plan, ulyxPlanInfo_t* info) {
  ULYX_TRY(ulyxPlanEnter(plan, &ulyxExchangeSubject));
  const ulyxResult_t result = ulyxCheckStruct(info, sizeof *info, ULYX_PLAN_INFO_MAGIC, "info");
  if (result != ulyxSuccess) return ulyxRuntimeLeave(plan->rt, result);
  const ulyxTransport* const transport = plan->rt->transport;
  const ulyxGeometry* const geometry = &plan->about.geometry;
  const int rank = transport->rank, nRanks = transport->nRanks;
  info->rank = rank;
  info->nRanks = nRanks;
  info->seqToHeads = transport->ops->choice(transport, plan->ops[ulyxOpSeqToHeads].prepared);
  info->headsToSeq = transport->ops->choice(transport, plan->ops[ulyxOpHeadsToSeq].prepared);
  info->transport = info->seqToHeads.transport;
  info->type = geometry->type;
  info->elementBytes = geometry->elementBytes;
  info->tokens = geometry->tokens;
  info->heads = geometry->heads;
  info->kvHeads = geometry->kvHeads;
  info->headDim = geometry->headDim;
  info->valueDim = geometry->valueDim;
  info->batch = geometry->batch;
  info->replicatedTokens = geometry->replicatedTokens;
  info->seqReplicated = ulyxGeometryReplicated(geometry, ulyxSideSeq, rank);
  info->headsReplicated = ulyxGeometryReplicated(geometry, ulyxSideHeads, rank);
  info->tokenRange = geometry->tokenRanges[rank];
  info->headRange = geometry->headRanges[rank];
  info->kvHeadRange = geometry->kvHeadRanges[rank];
  info->tokenCount = ulyxRangeLength(info->tokenRange);
  info->headCount = ulyxRangeLength(info->headRange);
  info->kvHeadCount = ulyxRangeLength(info->kvHeadRange);
  info->tokenRanges = geometry->tokenRanges;
  info->headRanges = geometry->headRanges;
  info->kvHeadRanges = geometry->kvHeadRanges;
  info->tokenCounts = geometry->counts;
  info->headCounts = geometry->counts + nRanks;
  info->kvHeadCounts = info->headCounts + nRanks;
  info->kvHeadOfHead = plan->kvHeadOfHead.data;
  info->sequenceCount = geometry->sequences != NULL ? geometry->sequences->count : 0;
  info->longestSequence = geometry->sequences != NULL ? ulyxSequencesLongest(geometry->sequences) : 0;
  info->seqToHeadsSendBytes = plan->peerBytes.data;
  info->seqToHeadsRecvBytes = info->seqToHeadsSendBytes + nRanks;
  info->headsToSeqSendBytes = info->seqToHeadsRecvBytes + nRanks;
  info->headsToSeqRecvBytes = info->headsToSeqSendBytes + nRanks;
  info->arenaBytes = plan->arenaBytes;
  info->signature = plan->signature;
  return ulyxRuntimeLeave(plan->rt, ulyxSuccess);
}

/* The bounds are 64-bit and the device wants 32: a piece of them at a time. */
static ulyxResult_t storeBounds(ulyxTransport* transport, const struct ulyxSequences* sequences, int32_t* cuSeqlens,
                                ulyxStream_t stream) {
  int32_t piece[512];
  const int64_t capacity = (int64_t)(sizeof piece / sizeof *piece), count = sequences->count + 1;
  for (int64_t done = 0; done < count; done += capacity) {
    const int64_t n = ulyxMin64(capacity, count - done);
    for (int64_t i = 0; i < n; ++i) piece[i] = (int32_t)sequences->bounds[done + i];
    ULYX_TRY(transport->ops->store(transport, piece, n, cuSeqlens + done, stream));
  }
  return ulyxSuccess;
}

static ulyxResult_t storeCuSeqlens(ulyxPlan_t plan, int32_t* cuSeqlens, ulyxStream_t stream) {
  ulyxTransport* const transport = plan->rt->transport;
  const struct ulyxSequences* const sequences = plan->about.geometry.sequences;
  if (sequences == NULL) return ulyxFail(ulyxInvalidUsage, "the plan was made without shape.sequences");
  ULYX_TRY(ulyxRuntimeCheckStoreTarget(plan->rt, cuSeqlens, "cuSeqlens"));
  return storeBounds(transport, sequences, cuSeqlens, stream);
}

ulyxResult_t ulyxPlanStoreCuSeqlens(ulyxPlan_t plan, int32_t* cuSeqlens, ulyxStream_t stream) {
  ULYX_TRY(ulyxPlanEnter(plan, &ulyxExchangeSubject));
  return ulyxRuntimeLeave(plan->rt, storeCuSeqlens(plan, cuSeqlens, stream));
}

ulyxResult_t ulyxPlanGetChoice(ulyxPlan_t plan, int backward, ulyxChoice_t* choice) {
  ULYX_TRY(ulyxPlanEnter(plan, NULL));
  const ulyxTransport* const transport = plan->rt->transport;
  if (choice == NULL) return ulyxRuntimeLeave(plan->rt, ulyxFail(ulyxInvalidArgument, "choice is NULL"));
  if (backward < 0 || backward >= plan->opCount) {
    return ulyxRuntimeLeave(
        plan->rt, ulyxFail(ulyxInvalidArgument, "backward is %d, expected 0 to %d", backward, plan->opCount - 1));
  }
  *choice = transport->ops->choice(transport, plan->ops[backward].prepared);
  return ulyxRuntimeLeave(plan->rt, ulyxSuccess);
}

static void giveQkv(const ulyxExpected* expected, int count, ulyxQkv_t* qkv) {
  if (qkv == NULL) return;
  *qkv = (ulyxQkv_t)ULYX_QKV_INITIALIZER;
  qkv->q = expected[0].tensor;
  if (count == 1) return;
  qkv->k = expected[1].tensor;
  qkv->v = expected[2].tensor;
}

ulyxResult_t ulyxPlanGetQkv(ulyxPlan_t plan, ulyxQkv_t* in, ulyxQkv_t* out) {
  ULYX_TRY(ulyxPlanEnter(plan, &ulyxExchangeSubject));
  const ulyxPlanOp* const op = &plan->ops[ulyxOpSeqToHeads];
  giveQkv(op->in, op->inCount, in);
  giveQkv(op->out, op->outCount, out);
  return ulyxRuntimeLeave(plan->rt, ulyxSuccess);
}

ulyxResult_t ulyxPlanGetOutput(ulyxPlan_t plan, ulyxTensor_t* in, ulyxTensor_t* out) {
  ULYX_TRY(ulyxPlanEnter(plan, &ulyxExchangeSubject));
  const ulyxPlanOp* const op = &plan->ops[ulyxOpHeadsToSeq];
  if (in != NULL) *in = op->in[0].tensor;
  if (out != NULL) *out = op->out[0].tensor;
  return ulyxRuntimeLeave(plan->rt, ulyxSuccess);
}

ulyxResult_t ulyxSeqToHeads(ulyxPlan_t plan, const ulyxQkv_t* in, const ulyxQkv_t* out, ulyxStream_t stream) {
  ULYX_TRY(ulyxPlanEnter(plan, &ulyxExchangeSubject));
  if (in == NULL || out == NULL) {
    return ulyxRuntimeLeave(plan->rt, ulyxFail(ulyxInvalidArgument, "%s is NULL", in == NULL ? "in" : "out"));
  }
  const ulyxTensor_t* const ins[ULYX_MAX_BUFFERS] = {&in->q, &in->k, &in->v};
  const ulyxTensor_t* const outs[ULYX_MAX_BUFFERS] = {&out->q, &out->k, &out->v};
  return ulyxRuntimeLeave(plan->rt, ulyxPlanRun(plan, ulyxOpSeqToHeads, ins, outs, stream));
}

ulyxResult_t ulyxHeadsToSeq(ulyxPlan_t plan, const ulyxTensor_t* in, const ulyxTensor_t* out, ulyxStream_t stream) {
  ULYX_TRY(ulyxPlanEnter(plan, &ulyxExchangeSubject));
  return ulyxRuntimeLeave(plan->rt, ulyxPlanRun(plan, ulyxOpHeadsToSeq, &in, &out, stream));
}
