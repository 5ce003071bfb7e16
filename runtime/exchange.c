/* SPDX-License-Identifier: MIT */
#include "exchange.h"

#include "partition.h"
#include "status.h"

/* The offset of an empty range is nobody's: it may lie outside the tensor, and outside 64 bits. */
static bool isEmpty(ulyxRange_t range) {
  return range.start == range.stop;
}

static ulyxResult_t listSeqToHeads(const void* subject, int src, int dst, ulyxCopyList* list) {
  const ulyxGeometry* const geometry = subject;
  const ulyxRange_t tokens = geometry->tokenRanges[src];
  for (int i = ulyxRoleQ; i <= ulyxRoleV; ++i) {
    const ulyxRole role = (ulyxRole)i;
    const ulyxRange_t heads = ulyxGeometryHeadRange(geometry, role, dst);
    if (isEmpty(tokens) || isEmpty(heads)) continue;
    const ulyxView from = ulyxGeometryView(geometry, ulyxSideSeq, role, src);
    const ulyxView to = ulyxGeometryView(geometry, ulyxSideHeads, role, dst);
    ULYX_TRY(ulyxCopyListAppendBlock(list, &from, from.offset + heads.start * from.headStride, &to,
                                     to.offset + tokens.start * to.tokenStride, ulyxRangeLength(tokens),
                                     ulyxRangeLength(heads)));
  }
  return ulyxSuccess;
}

static ulyxResult_t listHeadsToSeq(const void* subject, int src, int dst, ulyxCopyList* list) {
  const ulyxGeometry* const geometry = subject;
  const ulyxRange_t tokens = geometry->tokenRanges[dst];
  const ulyxRange_t heads = geometry->headRanges[src];
  if (isEmpty(tokens) || isEmpty(heads)) return ulyxSuccess;
  const ulyxView from = ulyxGeometryView(geometry, ulyxSideHeads, ulyxRoleO, src);
  const ulyxView to = ulyxGeometryView(geometry, ulyxSideSeq, ulyxRoleO, dst);
  return ulyxCopyListAppendBlock(list, &from, from.offset + tokens.start * from.tokenStride, &to,
                                 to.offset + heads.start * to.headStride, ulyxRangeLength(tokens),
                                 ulyxRangeLength(heads));
}

const ulyxOperation ulyxOperations[ULYX_OP_COUNT] = {
    {"seq_to_heads", listSeqToHeads, ulyxSideSeq, ulyxSideHeads, ulyxRoleQ, ulyxRoleV},
    {"heads_to_seq", listHeadsToSeq, ulyxSideHeads, ulyxSideSeq, ulyxRoleO, ulyxRoleO},
};
