/* SPDX-License-Identifier: MIT
 *
 * What a reduction adds up, and what must come out: an addend is a hash of its rank, row and element and of a seed, so
 * any rank can say what any sum is without having seen the others' addends. With odd seeds addends are integers, so
 * small that every sum is exact in the type, whatever the order. With even seeds they are of any sign and of magnitudes
 * from 2^-8 to 2^8, and the sum is ulyx.h's: in fp32, in rank order, rounded once. The same code runs on the host and
 * on the device. */
#ifndef PERF_ADDENDS_H_
#define PERF_ADDENDS_H_

#include <stdint.h>
#include <string.h>

#include "pattern.h"
#include "ulyx.h"

/* Dense rows of addends of one rank, or of sums over all ranks. */
typedef struct perfAddends {
  int32_t type; /* ulyxFloat16, ulyxBfloat16 or ulyxFloat32 */
  int32_t rank; /* unused by sums */
  int32_t nRanks;
  int64_t firstRow; /* of the whole */
  int64_t rows;
  int64_t rowElements;
} perfAddends_t;

static inline PERF_HOST_DEVICE int perfAddendBytes(int32_t type) {
  return type == ulyxFloat32 ? 4 : 2;
}

static inline PERF_HOST_DEVICE uint32_t perfBitsOfFloat(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

static inline PERF_HOST_DEVICE float perfFloatOfBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

/* Integers up to this many are exact in the type. */
static inline PERF_HOST_DEVICE int32_t perfExactIntegers(int32_t type) {
  return type == ulyxBfloat16 ? 256 : 2048;
}

/* Exact in the type. */
static inline PERF_HOST_DEVICE float perfAddend(const perfAddends_t* a, uint64_t seed, int32_t rank, int64_t row,
                                                int64_t element) {
  const uint64_t hash = perfPatternWord(perfPatternKey(seed, perfTensorAddends, rank, row, 0), element);
  if (seed % 2 == 1) {
    const int32_t share = perfExactIntegers(a->type) / a->nRanks;
    const int32_t most = share > 1 ? share : 1;
    return (float)((int32_t)(hash % (uint64_t)(2 * most + 1)) - most);
  }
  const uint32_t sign = (uint32_t)(hash >> 63) << 31;
  const uint32_t exponent = 127 - 8 + (uint32_t)(hash >> 32) % 16;
  const uint32_t kept = a->type == ulyxBfloat16 ? 7 : a->type == ulyxFloat16 ? 10 : 23; /* bits of the mantissa */
  const uint32_t mantissa = ((uint32_t)hash & 0x7fffffu) >> (23 - kept) << (23 - kept);
  return perfFloatOfBits(sign | exponent << 23 | mantissa);
}

/* To nearest, ties to even. value is no NaN. */
static inline PERF_HOST_DEVICE uint32_t perfBfloat16OfFloat(float value) {
  const uint32_t bits = perfBitsOfFloat(value);
  const uint32_t rest = bits & 0xffffu;
  const uint32_t kept = bits >> 16;
  return kept + (rest > 0x8000u || (rest == 0x8000u && kept % 2 == 1) ? 1u : 0u);
}

static inline PERF_HOST_DEVICE uint32_t perfFloat16OfFloat(float value) {
  const uint32_t bits = perfBitsOfFloat(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const int exponent = (int)(bits >> 23 & 0xffu) - 127;
  const uint32_t mantissa = (bits & 0x7fffffu) | 0x800000u;
  if (exponent > 15) return sign | 0x7c00u;
  if (exponent < -25) return sign;
  const int shift = exponent >= -14 ? 13 : -1 - exponent; /* of what the type drops; more for its subnormals */
  const uint32_t rest = mantissa & ((1u << shift) - 1);
  const uint32_t half = 1u << (shift - 1);
  uint32_t kept = mantissa >> shift;
  if (rest > half || (rest == half && kept % 2 == 1)) kept++;
  /* The leading one, where it is kept, adds to the exponent, and so does what rounding up carries. */
  return sign | (kept + (exponent >= -14 ? (uint32_t)(exponent + 14) << 10 : 0u));
}

/* The type's bits in the lowest ones. */
static inline PERF_HOST_DEVICE uint32_t perfBitsInType(int32_t type, float value) {
  if (type == ulyxFloat32) return perfBitsOfFloat(value);
  return type == ulyxFloat16 ? perfFloat16OfFloat(value) : perfBfloat16OfFloat(value);
}

static inline PERF_HOST_DEVICE uint32_t perfAddendBits(const perfAddends_t* a, uint64_t seed, int64_t row,
                                                       int64_t element) {
  return perfBitsInType(a->type, perfAddend(a, seed, a->rank, row, element));
}

static inline PERF_HOST_DEVICE uint32_t perfSumBits(const perfAddends_t* a, uint64_t seed, int64_t row,
                                                    int64_t element) {
  float sum = perfAddend(a, seed, 0, row, element);
  for (int32_t rank = 1; rank < a->nRanks; rank++) sum += perfAddend(a, seed, rank, row, element);
  return perfBitsInType(a->type, sum);
}

#endif /* PERF_ADDENDS_H_ */
