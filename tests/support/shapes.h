// SPDX-License-Identifier: MIT
//
// Shapes for tests: fixed ones in a line, and random ragged ones that are always legal.
#ifndef ULYX_TESTS_SUPPORT_SHAPES_H_
#define ULYX_TESTS_SUPPORT_SHAPES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ulyx.h"

namespace ulyx_test {

// A shape and the counts it points to.
class Shape {
 public:
  Shape(int64_t tokens, int64_t heads, int64_t headDim);
  Shape(const Shape& other);
  Shape& operator=(const Shape& other) = delete;

  Shape& TokenCounts(std::vector<int64_t> counts);
  Shape& HeadCounts(std::vector<int64_t> counts);
  Shape& KvHeads(int64_t kvHeads);
  Shape& Replicated(int64_t tokens, int place);
  Shape& Type(int type);

  ulyxShape_t c = ULYX_SHAPE_INITIALIZER;

 private:
  std::vector<int64_t> tokenCounts_;
  std::vector<int64_t> headCounts_;
};

// Any legal shape over nRanks ranks: balanced or explicit counts with zeros, shared key/value heads, values of
// another dim, replicated tokens, both orders, packed sides, dense, padded and permuted strides, every element size to
// 17 bytes.
Shape RandomShape(int nRanks, uint64_t seed);

// For failure messages.
std::string Describe(const ulyxShape_t& shape, int nRanks);

// ULYX_TEST_SEED, or a fixed seed; ULYX_TEST_SHAPES, or `fallback`.
uint64_t TestSeed();
int TestShapes(int fallback);

}  // namespace ulyx_test

#endif  // ULYX_TESTS_SUPPORT_SHAPES_H_
