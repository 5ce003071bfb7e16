// SPDX-License-Identifier: MIT
//
// What an accepted shape means, from its fields and the header's words alone: who owns what, and where each element of
// each tensor lies. Loops in place of closed forms, 128 bits in place of overflow checks.
#ifndef ULYX_TESTS_FUZZ_SHAPE_ORACLE_H_
#define ULYX_TESTS_FUZZ_SHAPE_ORACLE_H_

#include <cstdint>
#include <vector>

#include "ulyx.h"

namespace ulyx_fuzz {

using Wide = __int128;

enum Role { kQ, kK, kV, kO, kRoles };
enum Side { kSeq, kHeads, kSides };

// One role's tensor on one side of one rank. Strides and offset in bytes; a packed role has its part's offset.
struct Tensor {
  int buffer;  // of the operation's tensors
  Wide offset, batchStride, tokenStride, headStride;
  int64_t batch, rows, heads, headBytes;
  Wide span;  // bytes to the end of the last element of this role

  Wide At(int64_t b, int64_t row, int64_t head) const {
    return offset + b * batchStride + row * tokenStride + head * headStride;
  }
};

class ShapeOracle {
 public:
  ShapeOracle(const ulyxShape_t& shape, int nRanks, int64_t elementBytes);

  const std::vector<ulyxRange_t>& TokenRanges() const { return tokens_; }
  const std::vector<ulyxRange_t>& HeadRanges(Role role) const { return role == kK || role == kV ? kvHeads_ : heads_; }
  Tensor TensorOf(Side side, Role role, int rank) const;

  int64_t Tokens() const { return tokens_.back().stop; }
  int64_t ReplicatedTokens() const { return shape_.replicatedTokens; }
  // The first row of the replicated tokens, and of the others.
  int64_t ReplicatedRow(Side side, int rank) const;
  int64_t SplitRow() const { return shape_.replicatedPlace == ulyxReplicatedFirst ? shape_.replicatedTokens : 0; }

  // Bytes that an operation moves from one rank to another.
  Wide PairBytes(ulyxOp_t op, int src, int dst) const;
  // What ulyxShapeGetBytes says of one tensor.
  Wide SpanBytes(Side side, Role role, int rank) const;
  // A bound of what listing all copies of an operation costs.
  Wide Work(ulyxOp_t op) const;

 private:
  bool Packed(Side side, Role role) const;
  int64_t HeadCount(Side side, Role role, int rank) const;
  int64_t RowCount(Side side, int rank) const;

  const ulyxShape_t shape_;
  const int nRanks_;
  const int64_t elementBytes_, allKvHeads_, valueDim_, batch_;
  std::vector<ulyxRange_t> tokens_, heads_, kvHeads_;
};

}  // namespace ulyx_fuzz

#endif  // ULYX_TESTS_FUZZ_SHAPE_ORACLE_H_
