/* SPDX-License-Identifier: MIT
 *
 * Who owns what: part r owns items [start(r), stop(r)), ranges follow one another without gaps from 0.
 * Balanced: the first `total mod parts` ranges are one item longer than the rest. */
#ifndef ULYX_RUNTIME_PARTITION_H_
#define ULYX_RUNTIME_PARTITION_H_

#include "ulyx.h"

static inline int64_t ulyxRangeLength(ulyxRange_t range) {
  return range.stop - range.start;
}

/* `what` names the items in errors ("tokens"). Both write ranges[parts] on success only. */
ulyxResult_t ulyxPartitionBalanced(int64_t total, int parts, const char* what, ulyxRange_t* ranges);
ulyxResult_t ulyxPartitionCounts(const int64_t* counts, int parts, const char* what, ulyxRange_t* ranges);

/* heads is a positive multiple of kvHeads and headRange lies in [0, heads): the caller has checked. */
ulyxRange_t ulyxPartitionKvHeads(int64_t heads, int64_t kvHeads, ulyxRange_t headRange);

#endif /* ULYX_RUNTIME_PARTITION_H_ */
