/* SPDX-License-Identifier: MIT
 *
 * Who owns which token, in constant time both ways. Every rank owns `base` tokens and the first `longer` ranks
 * one more; what is left behind the last rank belongs to nobody. All three kinds of split are this one. */
#ifndef ULYX_RUNTIME_SPLIT_H_
#define ULYX_RUNTIME_SPLIT_H_

#include "ulyx.h"

typedef struct ulyxTokenSplit {
  int nRanks;
  int64_t total;
  int64_t base;
  int64_t longer; /* ranks, fewer than nRanks */
} ulyxTokenSplit;

/* total is not negative. Writes on success only. */
ulyxResult_t ulyxTokenSplitResolve(int64_t total, int nRanks, int kind, ulyxTokenSplit* split);

ulyxRange_t ulyxTokenSplitRange(const ulyxTokenSplit* split, int rank);

/* Tokens that some rank owns: [0, kept). */
int64_t ulyxTokenSplitKept(const ulyxTokenSplit* split);

/* The owner of a token of [0, total). Behind the kept ones the ranks are counted on: nRanks or more. */
int64_t ulyxTokenSplitOwner(const ulyxTokenSplit* split, int64_t token);

#endif /* ULYX_RUNTIME_SPLIT_H_ */
