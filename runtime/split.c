/* SPDX-License-Identifier: MIT */
#include "split.h"

#include <inttypes.h>

#include "check.h"
#include "status.h"

static ulyxResult_t checkSplit(int64_t total, int nRanks, int kind) {
  if (nRanks < 1) return ulyxFail(ulyxInvalidArgument, "nRanks is %d, expected 1 or more", nRanks);
  switch (kind) {
    case ulyxSplitBalanced:
      return ulyxSuccess;
    case ulyxSplitEqual:
      if (total >= nRanks && total % nRanks == 0) return ulyxSuccess;
      return ulyxFail(ulyxInvalidArgument,
                      "cannot split %" PRId64 " tokens equally over %d ranks: expected a positive multiple", total,
                      nRanks);
    case ulyxSplitTruncate:
      if (total >= nRanks) return ulyxSuccess;
      return ulyxFail(ulyxInvalidArgument,
                      "cannot truncate %" PRId64 " tokens to equal shards of %d ranks: expected one a rank or more",
                      total, nRanks);
    default:
      return ulyxFail(ulyxInvalidArgument, "split is %d, expected %d to %d", kind, (int)ulyxSplitBalanced,
                      (int)ulyxSplitTruncate);
  }
}

ulyxResult_t ulyxTokenSplitResolve(int64_t total, int nRanks, int kind, ulyxTokenSplit* split) {
  ULYX_TRY(checkSplit(total, nRanks, kind));
  *split = (ulyxTokenSplit){nRanks, total, total / nRanks, kind == ulyxSplitBalanced ? total % nRanks : 0};
  return ulyxSuccess;
}

static int64_t startOf(const ulyxTokenSplit* split, int64_t rank) {
  return rank * split->base + ulyxMin64(rank, split->longer);
}

ulyxRange_t ulyxTokenSplitRange(const ulyxTokenSplit* split, int rank) {
  return (ulyxRange_t){startOf(split, rank), startOf(split, (int64_t)rank + 1)};
}

int64_t ulyxTokenSplitKept(const ulyxTokenSplit* split) {
  return startOf(split, split->nRanks);
}

int64_t ulyxTokenSplitOwner(const ulyxTokenSplit* split, int64_t token) {
  const int64_t behindLonger = startOf(split, split->longer);
  if (token < behindLonger) return token / (split->base + 1);
  return split->longer + (token - behindLonger) / split->base; /* a base of 0 leaves no token to come here */
}
