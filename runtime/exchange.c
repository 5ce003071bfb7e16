/* SPDX-License-Identifier: MIT */
#include "exchange.h"

#include "partition.h"
#include "status.h"

ulyxResult_t ulyxListSeqToHeads(const ulyxGeometry* geometry, int src, int dst, ulyxCopyList* list) {
  const ulyxRange_t tokens = geometry->tokenRanges[src];
  for (int i = ulyxRoleQ; i <= ulyxRoleV; ++i) {
    const ulyxRole role = (ulyxRole)i;
    const ulyxRange_t heads = ulyxGeometryHeadRange(geometry, role, dst);
    const ulyxView from = ulyxGeometryView(geometry, ulyxSideSeq, role, src);
    const ulyxView to = ulyxGeometryView(geometry, ulyxSideHeads, role, dst);
    ULYX_TRY(ulyxCopyListAppendBlock(list, &from, from.offset + heads.start * from.headStride, &to,
                                     to.offset + tokens.start * to.tokenStride, ulyxRangeLength(tokens),
                                     ulyxRangeLength(heads)));
  }
  return ulyxSuccess;
}

ulyxResult_t ulyxListHeadsToSeq(const ulyxGeometry* geometry, int src, int dst, ulyxCopyList* list) {
  const ulyxRange_t tokens = geometry->tokenRanges[dst];
  const ulyxRange_t heads = geometry->headRanges[src];
  const ulyxView from = ulyxGeometryView(geometry, ulyxSideHeads, ulyxRoleO, src);
  const ulyxView to = ulyxGeometryView(geometry, ulyxSideSeq, ulyxRoleO, dst);
  return ulyxCopyListAppendBlock(list, &from, from.offset + tokens.start * from.tokenStride, &to,
                                 to.offset + heads.start * to.headStride, ulyxRangeLength(tokens),
                                 ulyxRangeLength(heads));
}
