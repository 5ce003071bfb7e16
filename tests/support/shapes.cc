// SPDX-License-Identifier: MIT
#include "support/shapes.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "support/oracle.h"
#include "support/rng.h"

namespace ulyx_test {

Shape::Shape(int64_t tokens, int64_t heads, int64_t headDim) {
  c.tokens = tokens;
  c.heads = heads;
  c.headDim = headDim;
}

Shape::Shape(const Shape& other) : c(other.c), tokenCounts_(other.tokenCounts_), headCounts_(other.headCounts_) {
  if (c.tokenCounts != nullptr) c.tokenCounts = tokenCounts_.data();
  if (c.headCounts != nullptr) c.headCounts = headCounts_.data();
}

Shape& Shape::TokenCounts(std::vector<int64_t> counts) {
  tokenCounts_ = std::move(counts);
  c.tokenCounts = tokenCounts_.data();
  return *this;
}

Shape& Shape::HeadCounts(std::vector<int64_t> counts) {
  headCounts_ = std::move(counts);
  c.headCounts = headCounts_.data();
  return *this;
}

Shape& Shape::KvHeads(int64_t kvHeads) {
  c.kvHeads = kvHeads;
  return *this;
}

Shape& Shape::Replicated(int64_t tokens, int place) {
  c.replicatedTokens = tokens;
  c.replicatedPlace = place;
  return *this;
}

Shape& Shape::Type(int type) {
  c.type = type;
  return *this;
}

namespace {

// `total` items dealt to parts at random.
std::vector<int64_t> RandomCounts(Rng* rng, int64_t total, int parts) {
  std::vector<int64_t> counts(parts, 0);
  // Dealing to a few parts only leaves others empty even when there are many items.
  const int64_t reached = rng->OneIn(2) ? parts : rng->Between(1, parts);
  for (int64_t i = 0; i < total; i++) counts[rng->Between(0, reached - 1)]++;
  for (int i = parts - 1; i > 0; i--) std::swap(counts[i], counts[rng->Between(0, i)]);
  return counts;
}

// Strides that keep elements of the largest rank's [batch, tokens, heads, dim] apart: the dimensions in any
// order, each padded or not.
ulyxStrides_t RandomStrides(Rng* rng, int64_t batch, int64_t tokens, int64_t heads, int64_t dim, bool packed) {
  ulyxStrides_t strides = {0, 0, 0};
  struct Dimension {
    int64_t* stride;
    int64_t extent;
  };
  std::array<Dimension, 3> dims = {{{&strides.head, heads}, {&strides.token, tokens}, {&strides.batch, batch}}};
  // A packed row stays together: only its tokens and batch items move.
  const int fixed = packed ? 1 : 0;
  if (!packed && rng->OneIn(2)) std::swap(dims[0], dims[rng->Between(0, 2)]);
  if (rng->OneIn(2)) std::swap(dims[1], dims[2]);
  int64_t span = packed ? heads * dim : dim;
  for (int i = fixed; i < 3; i++) {
    const int64_t padding = rng->OneIn(2) ? 0 : rng->Between(1, 9);
    *dims[i].stride = span + padding;
    span = *dims[i].stride * std::max<int64_t>(dims[i].extent, 1);
  }
  return strides;
}

}  // namespace

Shape RandomShape(int nRanks, uint64_t seed) {
  Rng rng(Mix(seed));  // callers draw nRanks from Rng(seed): the same numbers would tie every kind of shape to a world
  const bool balancedTokens = rng.OneIn(2);
  const bool balancedHeads = rng.OneIn(2);
  const int64_t group = rng.Between(1, 4);
  const int64_t fewestKv = balancedHeads ? (nRanks + group - 1) / group : 1;
  const int64_t kvHeads = rng.Between(fewestKv, fewestKv + 5);
  const int64_t heads = kvHeads * group;
  const int64_t tokens = balancedTokens ? rng.Between(nRanks, 4 * nRanks) : rng.Between(0, 4 * nRanks);
  Shape shape(tokens, heads, rng.OneIn(3) ? 16 * rng.Between(1, 4) : rng.Between(1, 21));
  ulyxShape_t* const c = &shape.c;
  if (!balancedTokens) {
    shape.TokenCounts(RandomCounts(&rng, tokens, nRanks));
    if (rng.OneIn(2)) c->tokens = 0;
  }
  if (!balancedHeads) shape.HeadCounts(RandomCounts(&rng, heads, nRanks));
  c->kvHeads = group == 1 && rng.OneIn(2) ? 0 : kvHeads;
  c->valueDim = rng.OneIn(2) ? 0 : rng.Between(1, 21);
  c->batch = rng.Between(0, 3);
  if (rng.OneIn(3)) {
    c->replicatedTokens = rng.Between(1, 5);
    c->replicatedPlace = int(rng.Between(0, 1));
  }
  if (rng.OneIn(2)) {
    c->type = ulyxOpaque;
    c->elementBytes = int(rng.Between(1, 17));
  } else {
    const int types[] = {ulyxInt8,       ulyxUint8,      ulyxInt32,   ulyxUint32,  ulyxInt64,
                         ulyxUint64,     ulyxFloat16,    ulyxFloat32, ulyxFloat64, ulyxBfloat16,
                         ulyxFloat8e4m3, ulyxFloat8e5m2, ulyxBool,    ulyxInt16,   ulyxUint16};
    c->type = types[rng.Between(0, int64_t(std::size(types)) - 1)];
    c->elementBytes = rng.OneIn(2) ? 0 : int(TypeBytes(c->type));
  }
  c->seqOrder = int(rng.Between(0, 1));
  c->headsOrder = int(rng.Between(0, 1));
  c->packedIn = int(rng.Between(0, 1));
  c->packedOut = int(rng.Between(0, 1));

  const Oracle oracle(*c, nRanks, 0);
  Span widest = {0, 0}, widestKv = {0, 0};
  int64_t longest = 0;
  for (int rank = 0; rank < nRanks; rank++) {
    if (oracle.Heads(rank).Count() > widest.Count()) widest = oracle.Heads(rank);
    if (oracle.KvHeads(rank).Count() > widestKv.Count()) widestKv = oracle.KvHeads(rank);
    longest = std::max(longest, oracle.Tokens(rank).Count() + c->replicatedTokens);
  }
  const int64_t batch = std::max<int64_t>(c->batch, 1);
  const int64_t valueDim = c->valueDim != 0 ? c->valueDim : c->headDim;
  const int64_t total = oracle.TokenTotal() + c->replicatedTokens;
  const int64_t seqRow = heads * c->headDim + kvHeads * (c->headDim + valueDim);
  const int64_t headsRow = widest.Count() * c->headDim + widestKv.Count() * (c->headDim + valueDim);
  struct Tensor {
    ulyxStrides_t* strides;
    int64_t tokens, heads, dim;
    bool packed;
  };
  const Tensor tensors[] = {
      {&c->qIn, longest, c->packedIn ? 1 : heads, c->packedIn ? seqRow : c->headDim, c->packedIn != 0},
      {&c->kIn, longest, kvHeads, c->headDim, false},
      {&c->vIn, longest, kvHeads, valueDim, false},
      {&c->qOut, total, c->packedOut ? 1 : widest.Count(), c->packedOut ? headsRow : c->headDim, c->packedOut != 0},
      {&c->kOut, total, widestKv.Count(), c->headDim, false},
      {&c->vOut, total, widestKv.Count(), valueDim, false},
      {&c->oIn, total, widest.Count(), valueDim, false},
      {&c->oOut, longest, heads, valueDim, false}};
  for (const Tensor& tensor : tensors) {
    if (rng.OneIn(2)) {
      *tensor.strides = RandomStrides(&rng, batch, tensor.tokens, tensor.heads, tensor.dim, tensor.packed);
    } else if (!tensor.packed && rng.OneIn(4)) {
      tensor.strides->head = tensor.dim + rng.Between(1, 5);  // the others dense round it
    }
  }
  return shape;
}

std::string Describe(const ulyxShape_t& shape, int nRanks) {
  std::ostringstream text;
  const auto list = [&text, nRanks](const char* name, const int64_t* counts) {
    if (counts == nullptr) return;
    text << " " << name << " [";
    for (int i = 0; i < nRanks; i++) text << (i > 0 ? "," : "") << counts[i];
    text << "]";
  };
  const auto strides = [&text](const char* name, const ulyxStrides_t& s) {
    if (s.batch != 0 || s.token != 0 || s.head != 0) {
      text << " " << name << " (" << s.batch << "," << s.token << "," << s.head << ")";
    }
  };
  text << nRanks << " ranks, tokens " << shape.tokens << " heads " << shape.heads << " kvHeads " << shape.kvHeads
       << " headDim " << shape.headDim << " valueDim " << shape.valueDim << " batch " << shape.batch << " type "
       << shape.type << " elementBytes " << shape.elementBytes << " seqOrder " << shape.seqOrder << " headsOrder "
       << shape.headsOrder << " replicated " << shape.replicatedTokens
       << (shape.replicatedPlace == 0 ? " first" : " last") << " packedIn " << shape.packedIn << " packedOut "
       << shape.packedOut;
  list("tokenCounts", shape.tokenCounts);
  list("headCounts", shape.headCounts);
  strides("qIn", shape.qIn);
  strides("kIn", shape.kIn);
  strides("vIn", shape.vIn);
  strides("qOut", shape.qOut);
  strides("kOut", shape.kOut);
  strides("vOut", shape.vOut);
  strides("oIn", shape.oIn);
  strides("oOut", shape.oOut);
  return text.str();
}

uint64_t TestSeed() {
  const char* const given = std::getenv("ULYX_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : 20240607;
}

int TestShapes(int fallback) {
  const char* const given = std::getenv("ULYX_TEST_SHAPES");
  return given != nullptr ? std::atoi(given) : fallback;
}

}  // namespace ulyx_test
