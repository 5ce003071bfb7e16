// SPDX-License-Identifier: MIT
#include "shape_oracle.h"

#include <algorithm>

namespace ulyx_fuzz {

namespace {

std::vector<ulyxRange_t> Ranges(int64_t total, const int64_t* counts, int nRanks) {
  std::vector<ulyxRange_t> ranges;
  int64_t start = 0;
  for (int rank = 0; rank < nRanks; rank++) {
    const int64_t count = counts != nullptr ? counts[rank] : total / nRanks + (rank < total % nRanks ? 1 : 0);
    ranges.push_back({start, start + count});
    start += count;
  }
  return ranges;
}

int64_t Length(ulyxRange_t range) {
  return range.stop - range.start;
}

}  // namespace

ShapeOracle::ShapeOracle(const ulyxShape_t& shape, int nRanks, int64_t elementBytes)
    : shape_(shape),
      nRanks_(nRanks),
      elementBytes_(elementBytes),
      allKvHeads_(shape.kvHeads != 0 ? shape.kvHeads : shape.heads),
      valueDim_(shape.valueDim != 0 ? shape.valueDim : shape.headDim),
      batch_(shape.batch != 0 ? shape.batch : 1),
      tokens_(Ranges(shape.tokens, shape.tokenCounts, nRanks)),
      heads_(Ranges(shape.heads, shape.headCounts, nRanks)) {
  const int64_t group = shape.heads / allKvHeads_;
  for (const ulyxRange_t& own : heads_) {
    const int64_t first = own.start / group;
    kvHeads_.push_back({first, own.start == own.stop ? first : (own.stop - 1) / group + 1});
  }
}

bool ShapeOracle::Packed(Side side, Role role) const {
  return role != kO && (side == kSeq ? shape_.packedIn : shape_.packedOut) == 1;
}

int64_t ShapeOracle::HeadCount(Side side, Role role, int rank) const {
  if (side == kHeads) return Length(HeadRanges(role)[rank]);
  return role == kK || role == kV ? allKvHeads_ : shape_.heads;
}

int64_t ShapeOracle::RowCount(Side side, int rank) const {
  return (side == kSeq ? Length(tokens_[rank]) : Tokens()) + shape_.replicatedTokens;
}

int64_t ShapeOracle::ReplicatedRow(Side side, int rank) const {
  return shape_.replicatedPlace == ulyxReplicatedFirst ? 0 : RowCount(side, rank) - shape_.replicatedTokens;
}

Tensor ShapeOracle::TensorOf(Side side, Role role, int rank) const {
  static const ulyxStrides_t ulyxShape_t::*const given[kSides][kRoles] = {
      {&ulyxShape_t::qIn, &ulyxShape_t::kIn, &ulyxShape_t::vIn, &ulyxShape_t::oOut},
      {&ulyxShape_t::qOut, &ulyxShape_t::kOut, &ulyxShape_t::vOut, &ulyxShape_t::oIn}};
  const bool packed = Packed(side, role);
  const ulyxStrides_t strides = shape_.*given[side][packed ? kQ : role];
  const Wide queries = HeadCount(side, kQ, rank), keys = HeadCount(side, kK, rank);
  const Wide elements = elementBytes_;
  const int64_t dim = role == kQ || role == kK ? shape_.headDim : valueDim_;
  const Wide packedRow = queries * shape_.headDim + keys * (shape_.headDim + valueDim_);

  Tensor tensor = {};
  tensor.buffer = packed || role == kO ? 0 : role;
  tensor.batch = batch_;
  tensor.rows = RowCount(side, rank);
  tensor.heads = HeadCount(side, role, rank);
  tensor.headBytes = dim * elementBytes_;
  tensor.headStride = !packed && strides.head != 0 ? strides.head * elements : Wide(tensor.headBytes);
  if (packed && role != kQ) tensor.offset = queries * shape_.headDim * elements;
  if (packed && role == kV) tensor.offset += keys * shape_.headDim * elements;
  const Wide row = packed ? packedRow * elements : tensor.heads * tensor.headStride;
  if ((side == kSeq ? shape_.seqOrder : shape_.headsOrder) == ulyxBatchFirst) {
    tensor.tokenStride = strides.token != 0 ? strides.token * elements : row;
    tensor.batchStride = strides.batch != 0 ? strides.batch * elements : tensor.rows * tensor.tokenStride;
  } else {
    tensor.batchStride = strides.batch != 0 ? strides.batch * elements : row;
    tensor.tokenStride = strides.token != 0 ? strides.token * elements : tensor.batch * tensor.batchStride;
  }
  const bool any = tensor.rows > 0 && tensor.heads > 0;
  tensor.span = any ? tensor.At(tensor.batch - 1, tensor.rows - 1, tensor.heads - 1) + tensor.headBytes : 0;
  return tensor;
}

Wide ShapeOracle::SpanBytes(Side side, Role role, int rank) const {
  if (!Packed(side, role)) return TensorOf(side, role, rank).span;
  if (role != kQ) return 0;
  Wide span = 0;
  for (const Role part : {kQ, kK, kV}) span = std::max(span, TensorOf(side, part, rank).span);
  return span;
}

Wide ShapeOracle::PairBytes(ulyxOp_t op, int src, int dst) const {
  Wide bytes = 0;
  if (op == ulyxOpHeadsToSeq) {
    const Wide rows = Length(tokens_[dst]) + shape_.replicatedTokens;
    return rows * Length(heads_[src]) * batch_ * valueDim_ * elementBytes_;
  }
  const Wide rows = Wide(Length(tokens_[src])) + (src == dst ? shape_.replicatedTokens : 0);
  for (const Role role : {kQ, kK, kV}) {
    bytes += rows * Length(HeadRanges(role)[dst]) * batch_ * TensorOf(kSeq, role, src).headBytes;
  }
  return bytes;
}

Wide ShapeOracle::Work(ulyxOp_t op) const {
  Wide work = 0;
  for (int src = 0; src < nRanks_; src++) {
    for (int dst = 0; dst < nRanks_; dst++) {
      for (const Role role : {kQ, kK, kV, kO}) {
        if ((role == kO) != (op == ulyxOpHeadsToSeq)) continue;
        const Tensor from = TensorOf(op == ulyxOpHeadsToSeq ? kHeads : kSeq, role, src);
        const Tensor to = TensorOf(op == ulyxOpHeadsToSeq ? kSeq : kHeads, role, dst);
        const bool whole = from.headStride == from.headBytes && to.headStride == to.headBytes;
        const Wide heads = whole ? 1 : std::min(from.heads, to.heads), rows = std::min(from.rows, to.rows);
        work += 2 + 2 * (heads * rows * batch_ / std::max(std::max(heads, rows), std::max(Wide(batch_), Wide(1))));
      }
    }
  }
  return work;
}

}  // namespace ulyx_fuzz
