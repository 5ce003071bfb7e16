/* SPDX-License-Identifier: MIT */
#include "partition.h"

#include <inttypes.h>

#include "check.h"
#include "status.h"

static ulyxResult_t checkParts(int parts, const char* what) {
  if (parts >= 1) return ulyxSuccess;
  return ulyxFail(ulyxInvalidArgument, "cannot split %s into %d parts: at least 1 is needed", what, parts);
}

ulyxResult_t ulyxPartitionBalanced(int64_t total, int parts, const char* what, ulyxRange_t* ranges) {
  ULYX_TRY(checkParts(parts, what));
  if (total < parts) {
    return ulyxFail(ulyxInvalidArgument,
                    "cannot split %" PRId64 " %s into %d non-empty ranges; give explicit counts to leave some empty",
                    total, what, parts);
  }
  const int64_t base = total / parts;
  const int64_t longer = total % parts;
  int64_t start = 0;
  for (int part = 0; part < parts; ++part) {
    const int64_t stop = start + base + (part < longer ? 1 : 0);
    ranges[part] = (ulyxRange_t){start, stop};
    start = stop;
  }
  return ulyxSuccess;
}

ulyxResult_t ulyxPartitionCounts(const int64_t* counts, int parts, const char* what, ulyxRange_t* ranges) {
  ULYX_TRY(checkParts(parts, what));
  int64_t sum = 0;
  for (int part = 0; part < parts; ++part) {
    if (counts[part] < 0) {
      return ulyxFail(ulyxInvalidArgument, "count %d of %s is %" PRId64 ", expected 0 or more", part, what,
                      counts[part]);
    }
    if (!ulyxAddFits(sum, counts[part], &sum)) {
      return ulyxFail(ulyxInvalidArgument, "the counts of %s pass 2^63 at part %d", what, part);
    }
  }
  int64_t start = 0;
  for (int part = 0; part < parts; ++part) {
    ranges[part] = (ulyxRange_t){start, start + counts[part]};
    start += counts[part];
  }
  return ulyxSuccess;
}

ulyxRange_t ulyxPartitionKvHeads(int64_t heads, int64_t kvHeads, ulyxRange_t headRange) {
  const int64_t group = heads / kvHeads;
  const int64_t start = headRange.start / group;
  if (headRange.start == headRange.stop) return (ulyxRange_t){start, start};
  return (ulyxRange_t){start, (headRange.stop - 1) / group + 1};
}
