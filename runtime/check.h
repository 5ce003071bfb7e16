/* SPDX-License-Identifier: MIT
 *
 * 64-bit sums and products that report overflow. Offsets are computed once, with these, when a shape is
 * resolved; everything later lies inside what was checked there. */
#ifndef ULYX_RUNTIME_CHECK_H_
#define ULYX_RUNTIME_CHECK_H_

#include <stdbool.h>
#include <stdint.h>

/* The most bytes that all tensors of all ranks together may have: far enough below 2^63 that sums of offsets and
 * paddings cannot pass it. */
#define ULYX_MAX_TOTAL_BYTES (INT64_C(1) << 60)

static inline bool ulyxAddFits(int64_t a, int64_t b, int64_t* sum) {
  return !__builtin_add_overflow(a, b, sum);
}

static inline bool ulyxMulFits(int64_t a, int64_t b, int64_t* product) {
  return !__builtin_mul_overflow(a, b, product);
}

static inline int64_t ulyxMax64(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static inline int64_t ulyxMin64(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* The next multiple of a power of two; value is far from overflow. */
static inline int64_t ulyxAlignUp(int64_t value, int64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

#endif /* ULYX_RUNTIME_CHECK_H_ */
