/* SPDX-License-Identifier: MIT
 *
 * What a shard sees of spans that are given for the whole sequence: clip, then count from the shard's start. */
#ifndef ULYX_RUNTIME_SEGMENTS_H_
#define ULYX_RUNTIME_SEGMENTS_H_

#include "ulyx.h"

/* All three write on success only; pointers have been checked. */
ulyxResult_t ulyxSegmentsLocalize(const ulyxSegment_t* segments, int64_t count, ulyxRange_t shard, ulyxSegment_t* local,
                                  int64_t* localCount);
ulyxResult_t ulyxSegmentsTargetLocal(ulyxRange_t target, ulyxRange_t shard, ulyxRange_t* local);
ulyxResult_t ulyxSegmentsTargetCounts(ulyxRange_t target, const ulyxRange_t* tokenRanges, int nRanks, int64_t* counts);

#endif /* ULYX_RUNTIME_SEGMENTS_H_ */
