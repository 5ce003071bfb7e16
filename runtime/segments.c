/* SPDX-License-Identifier: MIT */
#include "segments.h"

#include <inttypes.h>

#include "check.h"
#include "partition.h"
#include "status.h"

static ulyxResult_t checkRange(ulyxRange_t range, const char* what) {
  if (range.start >= 0 && range.start <= range.stop) return ulyxSuccess;
  return ulyxFail(ulyxInvalidArgument, "%s is [%" PRId64 ", %" PRId64 "), expected 0 <= start <= stop", what,
                  range.start, range.stop);
}

/* start >= stop is no fault here: such a segment is empty and gets dropped. */
static ulyxResult_t checkSegments(const ulyxSegment_t* segments, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (segments[i].start < 0 || segments[i].stop < 0) {
      return ulyxFail(ulyxInvalidArgument, "segment %" PRId64 " is [%" PRId64 ", %" PRId64 "), expected 0 or more", i,
                      segments[i].start, segments[i].stop);
    }
  }
  return ulyxSuccess;
}

static ulyxResult_t checkRanges(const ulyxRange_t* tokenRanges, int nRanks) {
  for (int rank = 0; rank < nRanks; ++rank) {
    if (tokenRanges[rank].start < 0 || tokenRanges[rank].stop < tokenRanges[rank].start) {
      return ulyxFail(ulyxInvalidArgument, "tokenRanges[%d] is [%" PRId64 ", %" PRId64 "), expected 0 <= start <= stop",
                      rank, tokenRanges[rank].start, tokenRanges[rank].stop);
    }
  }
  return ulyxSuccess;
}

/* What two spans share; start >= stop where they share nothing. */
static ulyxRange_t intersect(int64_t start, int64_t stop, ulyxRange_t shard) {
  return (ulyxRange_t){ulyxMax64(start, shard.start), ulyxMin64(stop, shard.stop)};
}

ulyxResult_t ulyxSegmentsLocalize(const ulyxSegment_t* segments, int64_t count, ulyxRange_t shard, ulyxSegment_t* local,
                                  int64_t* localCount) {
  if (count < 0) return ulyxFail(ulyxInvalidArgument, "count is %" PRId64 ", expected 0 or more", count);
  ULYX_TRY(checkRange(shard, "shard"));
  ULYX_TRY(checkSegments(segments, count));
  int64_t kept = 0;
  for (int64_t i = 0; i < count; ++i) {
    const ulyxSegment_t segment = segments[i]; /* local may be segments: written behind what is read */
    const ulyxRange_t shared = intersect(segment.start, segment.stop, shard);
    if (shared.start >= shared.stop) continue;
    local[kept++] = (ulyxSegment_t){shared.start - shard.start, shared.stop - shard.start, segment.row};
  }
  *localCount = kept;
  return ulyxSuccess;
}

ulyxResult_t ulyxSegmentsTargetLocal(ulyxRange_t target, ulyxRange_t shard, ulyxRange_t* local) {
  ULYX_TRY(checkRange(target, "target"));
  ULYX_TRY(checkRange(shard, "shard"));
  const ulyxRange_t shared = intersect(target.start, target.stop, shard);
  if (shared.start >= shared.stop) {
    *local = (ulyxRange_t){0, 0};
    return ulyxSuccess;
  }
  *local = (ulyxRange_t){shared.start - shard.start, shared.stop - shard.start};
  return ulyxSuccess;
}

ulyxResult_t ulyxSegmentsTargetCounts(ulyxRange_t target, const ulyxRange_t* tokenRanges, int nRanks, int64_t* counts) {
  if (nRanks < 1) return ulyxFail(ulyxInvalidArgument, "nRanks is %d, expected 1 or more", nRanks);
  ULYX_TRY(checkRange(target, "target"));
  ULYX_TRY(checkRanges(tokenRanges, nRanks));
  for (int rank = 0; rank < nRanks; ++rank) {
    counts[rank] = ulyxMax64(0, ulyxRangeLength(intersect(target.start, target.stop, tokenRanges[rank])));
  }
  return ulyxSuccess;
}
