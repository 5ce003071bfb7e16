/* SPDX-License-Identifier: MIT
 *
 * Entry points of segments and targets: check pointers, then call down. */
#include <stddef.h>

#include "segments.h"
#include "status.h"

ulyxResult_t ulyxLocalizeSegments(const ulyxSegment_t* segments, int64_t count, ulyxRange_t shard, ulyxSegment_t* local,
                                  int64_t* localCount) {
  if (localCount == NULL) return ulyxFail(ulyxInvalidArgument, "localCount is NULL");
  if (count > 0 && (segments == NULL || local == NULL)) {
    return ulyxFail(ulyxInvalidArgument, "%s is NULL", segments == NULL ? "segments" : "local");
  }
  return ulyxSegmentsLocalize(segments, count, shard, local, localCount);
}

ulyxResult_t ulyxTargetIntersection(ulyxRange_t target, ulyxRange_t shard, ulyxRange_t* local) {
  if (local == NULL) return ulyxFail(ulyxInvalidArgument, "local is NULL");
  return ulyxSegmentsTargetLocal(target, shard, local);
}

ulyxResult_t ulyxTargetCounts(ulyxRange_t target, const ulyxRange_t* tokenRanges, int nRanks, int64_t* counts) {
  if (tokenRanges == NULL || counts == NULL) {
    return ulyxFail(ulyxInvalidArgument, "%s is NULL", tokenRanges == NULL ? "tokenRanges" : "counts");
  }
  return ulyxSegmentsTargetCounts(target, tokenRanges, nRanks, counts);
}
