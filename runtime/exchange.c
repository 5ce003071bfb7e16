/* SPDX-License-Identifier: MIT */
#include "exchange.h"

#include "check.h"
#include "partition.h"
#include "status.h"

/* Heads that nobody has lie nowhere: their offset may be outside the tensor, and outside 64 bits. */
static bool isEmpty(ulyxRange_t range) {
  return range.start == range.stop;
}

/* The same tokens and heads as seen by two ranks: rows from `row` on and heads from `head` on in each tensor. */
typedef struct Corner {
  int64_t row, head;
} Corner;

static int64_t offsetOf(const ulyxView* view, Corner corner) {
  return view->offset + corner.row * view->tokenStride + corner.head * view->headStride;
}

static ulyxResult_t append(ulyxCopyList* list, const ulyxView* from, Corner fromCorner, const ulyxView* to,
                           Corner toCorner, int64_t tokens, int64_t heads) {
  if (tokens == 0) return ulyxSuccess;
  return ulyxCopyListAppendBlock(list, from, offsetOf(from, fromCorner), to, offsetOf(to, toCorner), tokens, heads);
}

static ulyxResult_t listSeqToHeads(const void* subject, int src, int dst, ulyxCopyList* list) {
  const ulyxGeometry* const geometry = subject;
  const ulyxRange_t tokens = geometry->tokenRanges[src];
  const int64_t first = ulyxGeometryFirstRow(geometry);
  const ulyxRange_t here = ulyxGeometryReplicated(geometry, ulyxSideSeq, src);
  const ulyxRange_t there = ulyxGeometryReplicated(geometry, ulyxSideHeads, dst);
  for (int i = ulyxRoleQ; i <= ulyxRoleV; ++i) {
    const ulyxRole role = (ulyxRole)i;
    const ulyxRange_t heads = ulyxGeometryHeadRange(geometry, role, dst);
    if (isEmpty(heads)) continue;
    const ulyxView from = ulyxGeometryView(geometry, ulyxSideSeq, role, src);
    const ulyxView to = ulyxGeometryView(geometry, ulyxSideHeads, role, dst);
    ULYX_TRY(append(list, &from, (Corner){first, heads.start}, &to, (Corner){first + tokens.start, 0},
                    ulyxRangeLength(tokens), ulyxRangeLength(heads)));
    if (src != dst) continue; /* every rank has the replicated tokens already */
    ULYX_TRY(append(list, &from, (Corner){here.start, heads.start}, &to, (Corner){there.start, 0},
                    geometry->replicatedTokens, ulyxRangeLength(heads)));
  }
  return ulyxSuccess;
}

static ulyxResult_t listHeadsToSeq(const void* subject, int src, int dst, ulyxCopyList* list) {
  const ulyxGeometry* const geometry = subject;
  const ulyxRange_t tokens = geometry->tokenRanges[dst];
  const ulyxRange_t heads = geometry->headRanges[src];
  const int64_t first = ulyxGeometryFirstRow(geometry);
  if (isEmpty(heads)) return ulyxSuccess;
  const ulyxView from = ulyxGeometryView(geometry, ulyxSideHeads, ulyxRoleO, src);
  const ulyxView to = ulyxGeometryView(geometry, ulyxSideSeq, ulyxRoleO, dst);
  ULYX_TRY(append(list, &from, (Corner){first + tokens.start, 0}, &to, (Corner){first, heads.start},
                  ulyxRangeLength(tokens), ulyxRangeLength(heads)));
  return append(list, &from, (Corner){ulyxGeometryReplicated(geometry, ulyxSideHeads, src).start, 0}, &to,
                (Corner){ulyxGeometryReplicated(geometry, ulyxSideSeq, dst).start, heads.start},
                geometry->replicatedTokens, ulyxRangeLength(heads));
}

const ulyxOperation ulyxOperations[ULYX_OP_COUNT] = {
    {"seq_to_heads", listSeqToHeads, ulyxSideSeq, ulyxSideHeads, ulyxRoleQ, ulyxRoleV},
    {"heads_to_seq", listHeadsToSeq, ulyxSideHeads, ulyxSideSeq, ulyxRoleO, ulyxRoleO},
};

/* Every rank sends its share `from` of every other's share `to`: tokens and heads, or heads and tokens. Replicated
 * tokens are everybody's to receive and nobody's to send. */
typedef struct Shares {
  int64_t from, to;
} Shares;

static Shares sharesOf(const ulyxGeometry* geometry, const ulyxOperation* operation, ulyxRole role, int rank) {
  const int64_t tokens = ulyxRangeLength(geometry->tokenRanges[rank]);
  const int64_t heads = ulyxRangeLength(ulyxGeometryHeadRange(geometry, role, rank));
  return operation->from == ulyxSideSeq ? (Shares){tokens, heads}
                                        : (Shares){heads, tokens + geometry->replicatedTokens};
}

/* The bytes that the rank's busier direction carries. Tokens and heads come first in the products: where there are
 * none, a batch and a head may be so large that theirs would not fit. */
static int64_t busierBytes(const ulyxGeometry* geometry, const ulyxOperation* operation, const Shares* all, int rank) {
  int64_t sent = 0, received = 0;
  for (int role = operation->firstRole; role <= (int)operation->lastRole; ++role) {
    const int64_t headBytes = ulyxGeometryView(geometry, operation->from, (ulyxRole)role, rank).headBytes;
    const Shares own = sharesOf(geometry, operation, (ulyxRole)role, rank);
    sent += own.from * (all[role].to - own.to) * headBytes * geometry->batch;
    received += (all[role].from - own.from) * own.to * headBytes * geometry->batch;
  }
  return ulyxMax64(sent, received);
}

/* The row that a slice of a role's heads has in memory: all of them where they are dense on both sides. */
static int64_t sliceBytes(const ulyxGeometry* geometry, const ulyxOperation* operation, ulyxRole role, int64_t heads) {
  const ulyxView from = ulyxGeometryView(geometry, operation->from, role, 0);
  const ulyxView to = ulyxGeometryView(geometry, operation->to, role, 0);
  const bool dense = from.headStride == from.headBytes && to.headStride == to.headBytes;
  return dense ? heads * from.headBytes : from.headBytes;
}

/* The distance of such slices in the receiver's tensor, where they leave gaps. */
static int64_t writtenPitch(const ulyxGeometry* geometry, const ulyxOperation* operation, ulyxRole role, int rank,
                            int64_t slice) {
  const ulyxView to = ulyxGeometryView(geometry, operation->to, role, rank);
  const int64_t inner = to.batches > 1 ? ulyxMin64(to.batchStride, to.tokenStride) : to.tokenStride;
  return inner == slice ? 0 : inner;
}

ulyxPhaseFacts ulyxExchangeFacts(const ulyxGeometry* geometry, const ulyxOperation* operation) {
  ulyxPhaseFacts facts = {.rowBytes = INT64_MAX};
  const int tensors = (int)operation->lastRole - (int)operation->firstRole + 1;
  const bool inTwoParts = operation->to == ulyxSideSeq && geometry->replicatedTokens > 0; /* those come besides */
  facts.copiesPerPeer = inTwoParts ? 2 * tensors : tensors;
  Shares all[ulyxRoleCount] = {{0, 0}};
  for (int i = operation->firstRole; i <= (int)operation->lastRole; ++i) {
    const ulyxRole role = (ulyxRole)i;
    for (int rank = 0; rank < geometry->nRanks; ++rank) {
      const Shares own = sharesOf(geometry, operation, role, rank);
      const int64_t heads = ulyxRangeLength(ulyxGeometryHeadRange(geometry, role, rank));
      const bool inQ = role != ulyxRoleQ && role != ulyxRoleO && geometry->packed[operation->to]; /* q stands for all */
      const int64_t span = inQ ? 0 : ulyxGeometrySpanBytes(geometry, operation->to, role, rank);
      const int buffer = ulyxGeometryView(geometry, operation->to, role, rank).buffer;
      all[role].from += own.from;
      all[role].to += own.to;
      facts.dstSpan[buffer] = ulyxMax64(facts.dstSpan[buffer], span);
      if (span == 0 && !inQ) facts.someDstEmpty = true;
      if (heads == 0) continue;
      const int64_t slice = sliceBytes(geometry, operation, role, heads);
      facts.rowBytes = ulyxMin64(facts.rowBytes, slice);
      facts.writtenPitch = ulyxMax64(facts.writtenPitch, writtenPitch(geometry, operation, role, rank, slice));
    }
  }
  for (int rank = 0; rank < geometry->nRanks; ++rank) {
    facts.remoteBytes = ulyxMax64(facts.remoteBytes, busierBytes(geometry, operation, all, rank));
  }
  return facts;
}
