// SPDX-License-Identifier: MIT
#include "shape_input.h"

#include <algorithm>

namespace ulyx_fuzz {

namespace {

constexpr int kMostRanks = 300;  // what resolving alone may meet; more would only take time

int NRanksFrom(Input* input) {
  const int kind = input->Byte();
  if (kind < 248) return 1 + kind % 8;
  if (kind < 254) return 1 + input->Byte() % 60;
  return int(std::min<int64_t>(std::max<int64_t>(input->Number(255), -3), kMostRanks));
}

int TypeFrom(Input* input) {
  static const int types[] = {ulyxInt8,    ulyxUint8,   ulyxInt32,   ulyxUint32,   ulyxInt64,      ulyxUint64,
                              ulyxFloat16, ulyxFloat32, ulyxFloat64, ulyxBfloat16, ulyxFloat8e4m3, ulyxFloat8e5m2,
                              ulyxBool,    ulyxInt16,   ulyxUint16,  ulyxOpaque,   ulyxOpaque,     ulyxOpaque};
  constexpr int count = int(sizeof types / sizeof types[0]);
  const int kind = input->Byte();
  return kind < 252 ? types[kind % count] : int(input->Number(110));
}

int Flag(Input* input) {
  const int kind = input->Byte();
  return kind < 252 ? kind % 2 : int(input->Number(4));
}

int64_t Wrapped(int64_t a, int64_t b) {
  return int64_t(uint64_t(a) * uint64_t(b));
}
int64_t WrappedSum(int64_t a, int64_t b) {
  return int64_t(uint64_t(a) + uint64_t(b));
}

// Zeros, anything, or what leaves gaps between batch items, tokens and heads in any order of the three.
ulyxStrides_t StridesFrom(Input* input, int64_t batch, int64_t tokens, int64_t heads, int64_t dim) {
  ulyxStrides_t strides = {0, 0, 0};
  const int kind = input->Byte();
  if (kind < 176) return strides;
  if (kind < 192) {
    strides.batch = input->Number(200);
    strides.token = input->Number(200);
    strides.head = input->Number(20);
    return strides;
  }
  struct Dimension {
    int64_t* stride;
    int64_t extent;
  } dims[] = {{&strides.head, heads}, {&strides.token, tokens}, {&strides.batch, batch}};
  for (int turns = kind % 6; turns > 0; turns--)
    std::next_permutation(dims, dims + 3, [](auto& a, auto& b) { return a.stride < b.stride; });
  int64_t span = dim;
  for (const Dimension& dimension : dims) {
    *dimension.stride = WrappedSum(span, input->Number(3));
    span = WrappedSum(span, Wrapped(WrappedSum(dimension.extent, -1), *dimension.stride));
  }
  if (kind % 4 == 0) strides.head = 0;
  return strides;
}

}  // namespace

void ShapeInput::FillCounts(Input* input, ulyxShape_t* shape) {
  if (nRanks_ < 1) return;
  const int kind = input->Byte();
  if (kind & 1) {
    tokenCounts_ = std::make_unique<int64_t[]>(size_t(nRanks_));
    for (int rank = 0; rank < nRanks_; rank++) tokenCounts_[rank] = input->Number(9);
    shape->tokenCounts = tokenCounts_.get();
    if (kind & 64) shape->tokens = 0;
  }
  if (kind & 2) {
    int64_t sum = 0;
    headCounts_ = std::make_unique<int64_t[]>(size_t(nRanks_));
    for (int rank = 0; rank < nRanks_; rank++) sum = WrappedSum(sum, headCounts_[rank] = input->Number(5));
    shape->headCounts = headCounts_.get();
    if ((kind & 12) != 0) shape->heads = sum; /* mostly what they add up to */
  }
}

void ShapeInput::FillStrides(Input* input, ulyxShape_t* shape) const {
  const int64_t batch = shape->batch != 0 ? shape->batch : 1;
  const int64_t tokens = WrappedSum(shape->tokens, shape->replicatedTokens);
  const int64_t kvHeads = shape->kvHeads != 0 ? shape->kvHeads : shape->heads;
  const int64_t valueDim = shape->valueDim != 0 ? shape->valueDim : shape->headDim;
  const int64_t row =
      WrappedSum(Wrapped(shape->heads, shape->headDim), Wrapped(kvHeads, WrappedSum(shape->headDim, valueDim)));
  const auto q = [&](int packed) {
    return packed != 0 ? StridesFrom(input, batch, tokens, 1, row)
                       : StridesFrom(input, batch, tokens, shape->heads, shape->headDim);
  };
  shape->qIn = q(shape->packedIn);
  shape->kIn = StridesFrom(input, batch, tokens, kvHeads, shape->headDim);
  shape->vIn = StridesFrom(input, batch, tokens, kvHeads, valueDim);
  shape->qOut = q(shape->packedOut);
  shape->kOut = StridesFrom(input, batch, tokens, kvHeads, shape->headDim);
  shape->vOut = StridesFrom(input, batch, tokens, kvHeads, valueDim);
  shape->oIn = StridesFrom(input, batch, tokens, shape->heads, valueDim);
  shape->oOut = StridesFrom(input, batch, tokens, shape->heads, valueDim);
}

// A few that cover the tokens of the heads side, or nearly.
void ShapeInput::FillSequences(Input* input, ulyxShape_t* shape) {
  if (!input->Chance(24)) return;
  int64_t tokens = shape->tokens;
  for (int rank = 0; tokenCounts_ != nullptr && tokens == 0 && rank < nRanks_; rank++) {
    tokens = WrappedSum(tokens, tokenCounts_[rank]);
  }
  const int64_t total = WrappedSum(WrappedSum(tokens, shape->replicatedTokens), input->Chance(16) ? 1 : 0);
  std::vector<int64_t> bounds = {0};
  for (int i = input->Byte() % 5; i > 0; i--) bounds.push_back(std::min(total, bounds.back() + input->Byte() % 8));
  bounds.push_back(total);
  if (ulyxSequencesCreate(bounds.data(), int64_t(bounds.size()), ulyxInt64, &sequences_) == ulyxSuccess) {
    shape->sequences = sequences_;
  }
}

void ShapeInput::Store(Input* input, const ulyxShape_t& shape) {
  size_t size = sizeof shape;
  ulyxShape_t header = shape;
  if (input->Chance(4)) header.magic = unsigned(input->Number(255));
  if (input->Chance(4)) header.version = unsigned(input->Number(3));
  if (input->Chance(8)) {
    header.size = size_t(input->Number(255)) + (input->Chance(128) ? sizeof shape : 0);
    size = std::min<size_t>(std::max(header.size, sizeof shape), 4096);
  }
  memory_ = std::make_unique<uint8_t[]>(size); /* zeros */
  std::memcpy(memory_.get(), &header, sizeof header);
  if (size > sizeof shape && input->Chance(64)) memory_[size - 1] = 1;
}

ShapeInput::ShapeInput(Input* input) {
  ulyxShape_t shape = ULYX_SHAPE_INITIALIZER;
  nRanks_ = NRanksFrom(input);
  shape.tokens = input->Number(40);
  shape.heads = input->Number(12);
  const int kvKind = input->Byte();
  shape.kvHeads = kvKind < 96 ? 0 : kvKind < 160 && shape.heads % 2 == 0 ? shape.heads / 2 : input->Number(12);
  shape.headDim = input->Number(5);
  shape.valueDim = input->Chance(96) ? input->Number(5) : 0;
  shape.batch = input->Chance(96) ? input->Number(3) : 0;
  shape.replicatedTokens = input->Chance(96) ? input->Number(5) : 0;
  shape.type = TypeFrom(input);
  shape.elementBytes = shape.type == ulyxOpaque || input->Chance(8) ? int(input->Number(17)) : 0;
  shape.seqOrder = Flag(input);
  shape.headsOrder = Flag(input);
  shape.packedIn = Flag(input);
  shape.packedOut = Flag(input);
  shape.replicatedPlace = Flag(input);
  shape.reserved = input->Chance(4) ? int(input->Number(2)) : 0;
  FillCounts(input, &shape);
  FillStrides(input, &shape);
  FillSequences(input, &shape);
  Store(input, shape);
}

ShapeInput::~ShapeInput() {
  (void)ulyxSequencesDestroy(sequences_);
}

}  // namespace ulyx_fuzz
