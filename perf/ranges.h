/* SPDX-License-Identifier: MIT
 *
 * Ranges of rows or tokens, from ulyx.h's text about partitions: the perf programs' own arithmetic, so that a
 * check compares ulyx with what it promises. */
#ifndef PERF_RANGES_H_
#define PERF_RANGES_H_

#include <stdint.h>

#include "ulyx.h"

static inline int64_t perfRangeLength(ulyxRange_t range) {
  return range.stop - range.start;
}

/* Part `part` of `total` items: the first `total mod parts` parts are one item longer. With fewer items than parts
 * the last ones are empty. */
static inline ulyxRange_t perfBalancedRange(int64_t total, int parts, int part) {
  const int64_t base = total / parts;
  const int64_t longer = total % parts;
  const int64_t start = part * base + (part < longer ? part : longer);
  return (ulyxRange_t){start, start + base + (part < longer ? 1 : 0)};
}

/* What lies in both; empty at the start of `a` if nothing does. */
static inline ulyxRange_t perfRangeCommon(ulyxRange_t a, ulyxRange_t b) {
  const int64_t start = a.start > b.start ? a.start : b.start;
  const int64_t stop = a.stop < b.stop ? a.stop : b.stop;
  return start < stop ? (ulyxRange_t){start, stop} : (ulyxRange_t){a.start, a.start};
}

#endif /* PERF_RANGES_H_ */
