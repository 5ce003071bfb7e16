// SPDX-License-Identifier: MIT
//
// float16, bfloat16 and float32 by their definition: sign, exponent and fraction taken apart with ldexp and put
// together again, one rounding to nearest even. Slow, and nothing of the library's.
#ifndef ULYX_TESTS_SUPPORT_FLOATS_H_
#define ULYX_TESTS_SUPPORT_FLOATS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ulyx_test {

// The types that ulyx adds.
const std::vector<int>& SummedTypes();

// The value of an element's bits, exactly.
float ValueOf(int type, uint32_t bits);
// The bits nearest to a value, ties to even; of a NaN, the type's quiet NaN without sign and payload.
uint32_t BitsOf(int type, float value);

uint32_t LoadBits(int type, const uint8_t* element);
void StoreBits(int type, uint32_t bits, uint8_t* element);

// Bits of a type for a test: any pattern, or one of the awkward ones, or a small integer, by the hash.
uint32_t AnyBits(int type, uint64_t hash);
uint32_t SmallIntegerBits(int type, uint64_t hash);

}  // namespace ulyx_test

#endif  // ULYX_TESTS_SUPPORT_FLOATS_H_
