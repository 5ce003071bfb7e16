/* SPDX-License-Identifier: MIT
 *
 * Plans of the two exchanges: operation ulyxOpSeqToHeads and operation ulyxOpHeadsToSeq of one shape. */
#include "exchange.h"
#include "partition.h"
#include "runtime.h"

static const char* const inNames[ULYX_OP_COUNT][ULYX_MAX_BUFFERS] = {{"in.q", "in.k", "in.v"}, {"in"}};
static const char* const outNames[ULYX_OP_COUNT][ULYX_MAX_BUFFERS] = {{"out.q", "out.k", "out.v"}, {"out"}};

static int expectSide(const ulyxGeometry* geometry, const ulyxOperation* operation, ulyxSide side, int rank,
                      ulyxExpected* expected) {
  int count = 0;
  for (int role = operation->firstRole; role <= (int)operation->lastRole; ++role) {
    if (count == 1 && geometry->packed[side]) break; /* q stands for all */
    expected[count++] = ulyxTensorExpect(geometry, side, (ulyxRole)role, rank);
  }
  return count;
}

static void sumBytes(const ulyxPhase* phase, int64_t* sent, int64_t* received) {
  for (int peer = 0; peer < phase->nRanks; ++peer) {
    const int64_t* const send = &phase->sendStart[peer];
    const int64_t* const recv = &phase->recvStart[peer];
    sent[peer] = ulyxCopiesBytes(phase->copies + send[0], send[1] - send[0]);
    received[peer] = peer == phase->rank ? sent[peer] : ulyxCopiesBytes(phase->copies + recv[0], recv[1] - recv[0]);
  }
}

static ulyxResult_t mapHeads(const ulyxGeometry* geometry, int rank, ulyxStorage* kvHeadOfHead) {
  const ulyxRange_t heads = geometry->headRanges[rank];
  const int64_t count = ulyxRangeLength(heads), group = geometry->heads / geometry->kvHeads;
  ULYX_TRY(ulyxStorageEnsure(kvHeadOfHead, (size_t)count, sizeof(int64_t), "heads"));
  int64_t* const map = kvHeadOfHead->data;
  for (int64_t i = 0; i < count; ++i) map[i] = (heads.start + i) / group - geometry->kvHeadRanges[rank].start;
  return ulyxSuccess;
}

static ulyxResult_t build(ulyxPlan_t plan, const void* description) {
  const int nRanks = plan->rt->transport->nRanks, rank = plan->rt->transport->rank;
  ulyxGeometry* const geometry = &plan->about.geometry;
  ULYX_TRY(ulyxGeometryResolve(description, nRanks, geometry));
  ULYX_TRY(ulyxStorageEnsure(&plan->peerBytes, (size_t)nRanks * 2 * ULYX_OP_COUNT, sizeof(int64_t), "bytes by peer"));
  ULYX_TRY(mapHeads(geometry, rank, &plan->kvHeadOfHead));
  for (int i = 0; i < ULYX_OP_COUNT; ++i) {
    const ulyxOperation* const operation = &ulyxOperations[i];
    ulyxPlanOp* const op = &plan->ops[i];
    plan->opCount = i + 1;
    ULYX_TRY(ulyxPhaseBuild(geometry, operation->list, rank, nRanks, &op->phase));
    op->phase.facts = ulyxExchangeFacts(geometry, operation);
    op->name = operation->name;
    op->inCount = expectSide(geometry, operation, operation->from, rank, op->in);
    op->outCount = expectSide(geometry, operation, operation->to, rank, op->out);
    for (int buffer = 0; buffer < ULYX_MAX_BUFFERS; ++buffer) {
      op->inNames[buffer] = inNames[i][buffer];
      op->outNames[buffer] = outNames[i][buffer];
    }
    int64_t* const sent = (int64_t*)plan->peerBytes.data + (int64_t)nRanks * 2 * i;
    sumBytes(&op->phase, sent, sent + nRanks);
  }
  return ulyxSuccess;
}

static ulyxStatement state(ulyxPlan_t plan) {
  return ulyxGeometryState(&plan->about.geometry);
}

const ulyxSubject ulyxExchangeSubject = {"an exchange", build, state};
