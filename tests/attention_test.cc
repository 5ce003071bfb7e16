// SPDX-License-Identifier: MIT
//
// Attention between the two exchanges, as callers have it: every rank attends over all tokens with its own heads, and
// what comes back must be, bit for bit, what one rank computes over the whole. Each head's arithmetic is the same on
// both ways, so nothing is allowed to differ.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/exchange_check.h"
#include "support/oracle.h"
#include "support/rng.h"
#include "support/row_tensor.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

// Where element (batch item, row, head, 0) of a tensor or of a part of a packed one lies, in floats.
struct View {
  int64_t offset = 0, batch = 0, row = 0, head = 0;
  int64_t At(int64_t b, int64_t r, int64_t h) const { return offset + b * batch + r * row + h * head; }
};

View Whole(const ulyxTensor_t& tensor) {
  return {0, tensor.strides[0], tensor.strides[1], tensor.strides[2]};
}

struct QkvViews {
  View q, k, v;
};

QkvViews ViewsOf(const ulyxQkv_t& qkv, bool packed, int64_t heads, int64_t kvHeads, const ulyxPlanInfo_t& info) {
  if (!packed) return {Whole(qkv.q), Whole(qkv.k), Whole(qkv.v)};
  const int64_t batch = qkv.q.strides[0], row = qkv.q.strides[1];
  const int64_t keys = heads * info.headDim, values = keys + kvHeads * info.headDim;
  return {{0, batch, row, info.headDim}, {keys, batch, row, info.headDim}, {values, batch, row, info.valueDim}};
}

// Some number between -1 and 1 for every element of the whole tensors.
float Value(char tensor, int64_t batch, int64_t token, int64_t head, int64_t i) {
  uint64_t hash = Mix(uint64_t(tensor));
  for (int64_t coordinate : {batch, token, head, i}) hash = Mix(hash * 31 + uint64_t(coordinate));
  return float(int64_t(hash >> 40)) / float(1 << 23) - 1;
}

// Attention of one query head, within each sequence: out[row] = softmax(q[row] k' / sqrt(dim)) v. With `causal` a token
// sees none behind it.
struct Head {
  const float *q, *k, *v;
  float* out;
  View qView, kView, vView, outView;
  int64_t batch, head, kvHead, outHead, headDim, valueDim;
};

void Attend(const Head& h, const std::vector<int32_t>& cuSeqlens, bool causal) {
  std::vector<double> weights;
  for (size_t i = 0; i + 1 < cuSeqlens.size(); i++) {
    for (int64_t row = cuSeqlens[i]; row < cuSeqlens[i + 1]; row++) {
      const int64_t stop = causal ? row + 1 : cuSeqlens[i + 1];
      const float* const q = h.q + h.qView.At(h.batch, row, h.head);
      weights.clear();
      for (int64_t other = cuSeqlens[i]; other < stop; other++) {
        const float* const k = h.k + h.kView.At(h.batch, other, h.kvHead);
        weights.push_back(std::inner_product(q, q + h.headDim, k, 0.0) / std::sqrt(double(h.headDim)));
      }
      const double most = *std::max_element(weights.begin(), weights.end());
      double sum = 0;
      for (double& weight : weights) sum += weight = std::exp(weight - most);
      std::vector<double> mean(size_t(h.valueDim), 0.0);
      for (size_t j = 0; j < weights.size(); j++) {
        const float* const v = h.v + h.vView.At(h.batch, cuSeqlens[i] + int64_t(j), h.kvHead);
        for (int64_t d = 0; d < h.valueDim; d++) mean[size_t(d)] += weights[j] * double(v[d]);
      }
      float* const out = h.out + h.outView.At(h.batch, row, h.outHead);
      for (int64_t d = 0; d < h.valueDim; d++) out[d] = float(mean[size_t(d)] / sum);
    }
  }
}

// A case: what is exchanged, and what attention then does.
struct Case {
  Shape shape;
  bool causal = false;
  std::vector<int32_t> cuSeqlens = {};  // of all rows of the heads side; empty: one sequence, and the plan is not told
};

// What one rank computes: dense [batch, rows, heads, dim] in the order of the heads side.
class Reference {
 public:
  Reference(const Case& c, int nRanks)
      : oracle_(c.shape.c, nRanks, 0),
        batch_(std::max<int64_t>(c.shape.c.batch, 1)),
        rows_(oracle_.TokenTotal() + oracle_.Replicated()),
        heads_(c.shape.c.heads),
        kvHeads_(c.shape.c.kvHeads != 0 ? c.shape.c.kvHeads : heads_),
        headDim_(c.shape.c.headDim),
        valueDim_(c.shape.c.valueDim != 0 ? c.shape.c.valueDim : headDim_),
        last_(c.shape.c.replicatedPlace == ulyxReplicatedLast) {
    const std::vector<float> q = All('q', heads_, headDim_), k = All('k', kvHeads_, headDim_),
                             v = All('v', kvHeads_, valueDim_);
    out_.resize(size_t(batch_ * rows_ * heads_ * valueDim_));
    for (int64_t b = 0; b < batch_; b++) {
      for (int64_t head = 0; head < heads_; head++) {
        Attend({q.data(), k.data(), v.data(), out_.data(), Dense(heads_, headDim_), Dense(kvHeads_, headDim_),
                Dense(kvHeads_, valueDim_), Dense(heads_, valueDim_), b, head, head / (heads_ / kvHeads_), head,
                headDim_, valueDim_},
               CuSeqlens(c), c.causal);
      }
    }
  }

  int64_t Batch() const { return batch_; }
  int64_t Rows() const { return rows_; }
  int64_t Dim(char tensor) const { return tensor == 'v' || tensor == 'o' ? valueDim_ : headDim_; }
  int64_t KvHeads() const { return kvHeads_; }
  const Oracle& Spans() const { return oracle_; }
  std::vector<int32_t> CuSeqlens(const Case& c) const {
    return c.cuSeqlens.empty() ? std::vector<int32_t>{0, int32_t(rows_)} : c.cuSeqlens;
  }

  float At(char tensor, int64_t batch, int64_t row, int64_t head, int64_t i) const {
    if (tensor != 'o') return Value(tensor, batch, row, head, i);
    return out_[size_t(Dense(heads_, valueDim_).At(batch, row, head) + i)];
  }

  // The rows of the whole that a rank's rows of the sequence side are.
  std::vector<int64_t> RowsOfRank(int rank) const {
    const int64_t replicated = oracle_.Replicated(), text = last_ ? oracle_.TokenTotal() : 0;
    const int64_t first = last_ ? 0 : replicated;
    std::vector<int64_t> own, all;
    for (int64_t i = oracle_.Tokens(rank).first; i < oracle_.Tokens(rank).end; i++) own.push_back(first + i);
    if (last_) all = own;
    for (int64_t i = 0; i < replicated; i++) all.push_back(text + i);
    if (!last_) all.insert(all.end(), own.begin(), own.end());
    return all;
  }
  std::vector<int64_t> AllRows() const {
    std::vector<int64_t> all(size_t(rows_), 0);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

 private:
  View Dense(int64_t heads, int64_t dim) const { return {0, rows_ * heads * dim, heads * dim, dim}; }
  std::vector<float> All(char tensor, int64_t heads, int64_t dim) const {
    std::vector<float> all;
    for (int64_t b = 0; b < batch_; b++) {
      for (int64_t row = 0; row < rows_; row++) {
        for (int64_t head = 0; head < heads; head++) {
          for (int64_t i = 0; i < dim; i++) all.push_back(Value(tensor, b, row, head, i));
        }
      }
    }
    return all;
  }

  const Oracle oracle_;
  const int64_t batch_, rows_, heads_, kvHeads_, headDim_, valueDim_;
  const bool last_;
  std::vector<float> out_;
};

// One of a rank's tensors, with canaries round it.
class Tensor {
 public:
  Tensor(const Session& session, int rank, const char* name, int64_t bytes)
      : floats_(size_t(bytes / 4)), memory_(session, rank, name, 1, bytes / 4, ulyxFloat32, 4, bytes, {}, TestSeed()) {
    Load();  // the noise between elements
  }

  std::vector<float>& Floats() { return floats_; }
  void* Data() const { return memory_.Tensor().data; }
  // To the device and from it.
  void Store() { memory_.Put(Image()); }
  void Load() {
    const Bytes image = memory_.Rows();
    if (!image.empty()) std::memcpy(floats_.data(), image.data(), image.size());
  }
  // Throws unless the memory is as Floats, and nothing round it has changed.
  void Expect() const { memory_.Expect(Image()); }

 private:
  Bytes Image() const {
    Bytes image(floats_.size() * 4);
    if (!image.empty()) std::memcpy(image.data(), floats_.data(), image.size());
    return image;
  }

  std::vector<float> floats_;
  RowTensor memory_;
};

// Fills heads [heads) of the given rows of the whole.
void Fill(const Reference& reference, char name, const View& view, const std::vector<int64_t>& rows, Span heads,
          std::vector<float>* floats) {
  for (int64_t b = 0; b < reference.Batch(); b++) {
    for (size_t row = 0; row < rows.size(); row++) {
      for (int64_t head = 0; head < heads.Count(); head++) {
        for (int64_t i = 0; i < reference.Dim(name); i++) {
          (*floats)[size_t(view.At(b, int64_t(row), head) + i)] =
              reference.At(name, b, rows[row], heads.first + head, i);
        }
      }
    }
  }
}

// A side's q, k and v.
class Side {
 public:
  Side(const Session& session, int rank, bool packed, int64_t q, int64_t k, int64_t v)
      : packed_(packed), q_(session, rank, "q", q), k_(session, rank, "k", k), v_(session, rank, "v", v) {}

  void GiveData(ulyxQkv_t* qkv) const {
    qkv->q.data = q_.Data();
    qkv->k.data = k_.Data();
    qkv->v.data = v_.Data();
  }
  std::vector<float>& Q() { return q_.Floats(); }
  std::vector<float>& K() { return packed_ ? q_.Floats() : k_.Floats(); }
  std::vector<float>& V() { return packed_ ? q_.Floats() : v_.Floats(); }
  void FillAll(const Reference& reference, const QkvViews& views, const std::vector<int64_t>& rows, Span heads,
               Span kvHeads) {
    Fill(reference, 'q', views.q, rows, heads, &Q());
    Fill(reference, 'k', views.k, rows, kvHeads, &K());
    Fill(reference, 'v', views.v, rows, kvHeads, &V());
  }
  void Store() {
    for (Tensor* tensor : {&q_, &k_, &v_}) tensor->Store();
  }
  void Load() {
    for (Tensor* tensor : {&q_, &k_, &v_}) tensor->Load();
  }
  void Expect() const {
    for (const Tensor* tensor : {&q_, &k_, &v_}) tensor->Expect();
  }

 private:
  const bool packed_;
  Tensor q_, k_, v_;
};

// The bounds as attention on the device would read them.
std::vector<int32_t> StoredCuSeqlens(const Session& session, int rank, ulyxPlan_t plan, int64_t sequences) {
  RowTensor stored(session, rank, "cu_seqlens", sequences + 1, 1, ulyxInt32, 4, 4, {}, TestSeed());
  MUST(ulyxPlanStoreCuSeqlens(plan, static_cast<int32_t*>(stored.Tensor().data), session.Stream(rank)));
  session.Synchronize(rank);
  const Bytes bytes = stored.Rows();
  stored.Expect(bytes);
  std::vector<int32_t> bounds(size_t(sequences) + 1);
  std::memcpy(bounds.data(), bytes.data(), bytes.size());
  return bounds;
}

void RunRank(const Session& session, const Case& c, const ulyxShape_t& shape, const Reference& reference, int rank) {
  const ulyxPlan_t plan = MakePlan(session, shape, rank);
  ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
  MUST(ulyxPlanGetInfo(plan, &info));
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  MUST(ulyxShapeGetBytes(&shape, session.NRanks(), rank, &bytes));
  ulyxQkv_t in = ULYX_QKV_INITIALIZER, out = ULYX_QKV_INITIALIZER;
  MUST(ulyxPlanGetQkv(plan, &in, &out));
  ulyxTensor_t mean = ULYX_TENSOR_INITIALIZER, end = ULYX_TENSOR_INITIALIZER;
  MUST(ulyxPlanGetOutput(plan, &mean, &end));
  const std::vector<int64_t> ownRows = reference.RowsOfRank(rank), allRows = reference.AllRows();
  const Span allHeads = {0, shape.heads}, allKvHeads = {0, reference.KvHeads()};
  const Span heads = reference.Spans().Heads(rank), kvHeads = reference.Spans().KvHeads(rank);
  {
    Side given(session, rank, shape.packedIn != 0, bytes.qIn, bytes.kIn, bytes.vIn);
    Side got(session, rank, shape.packedOut != 0, bytes.qOut, bytes.kOut, bytes.vOut);
    Tensor attended(session, rank, "attention's output", bytes.oIn), result(session, rank, "result", bytes.oOut);
    given.GiveData(&in);
    got.GiveData(&out);
    mean.data = attended.Data();
    end.data = result.Data();

    const QkvViews from = ViewsOf(in, shape.packedIn != 0, shape.heads, reference.KvHeads(), info);
    given.FillAll(reference, from, ownRows, allHeads, allKvHeads);
    given.Store();
    MUST(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)));
    const std::vector<int32_t> cuSeqlens =
        c.cuSeqlens.empty() ? reference.CuSeqlens(c) : StoredCuSeqlens(session, rank, plan, info.sequenceCount);
    session.Synchronize(rank);
    const QkvViews to = ViewsOf(out, shape.packedOut != 0, info.headCount, info.kvHeadCount, info);
    got.FillAll(reference, to, allRows, heads, kvHeads);
    got.Expect();

    got.Load();
    for (int64_t b = 0; b < info.batch; b++) {
      for (int64_t head = 0; head < info.headCount; head++) {
        Attend({got.Q().data(), got.K().data(), got.V().data(), attended.Floats().data(), to.q, to.k, to.v, Whole(mean),
                b, head, info.kvHeadOfHead[head], head, info.headDim, info.valueDim},
               cuSeqlens, c.causal);
      }
    }
    attended.Store();
    MUST(ulyxHeadsToSeq(plan, &mean, &end, session.Stream(rank)));
    session.Synchronize(rank);
    Fill(reference, 'o', Whole(end), ownRows, allHeads, &result.Floats());
    result.Expect();
    given.Expect();
  }
  MUST(ulyxPlanDestroy(plan));
}

class Attention : public ::testing::TestWithParam<const World*> {
 protected:
  // As many ranks as fit, where a case stands for its kind on any number.
  int Fit(int most) const { return std::min(GetParam()->MaxRanks(), most); }

  void Check(const Case& c, int nRanks) {
    SCOPED_TRACE(Describe(c.shape.c, nRanks));
    const Session& session = sessions_.On(*GetParam(), nRanks);
    Shape shape = c.shape;
    shape.Type(ulyxFloat32);
    if (!c.cuSeqlens.empty()) {
      MUST(ulyxSequencesCreate(c.cuSeqlens.data(), int64_t(c.cuSeqlens.size()), ulyxInt32, &shape.c.sequences));
    }
    try {
      const Reference reference({shape, c.causal, c.cuSeqlens}, nRanks);
      session.Run([&](int rank) { RunRank(session, c, shape.c, reference, rank); });
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    MUST(ulyxSequencesDestroy(shape.c.sequences));
  }

 private:
  Sessions sessions_;
};

ULYX_ON_EVERY_WORLD(Attention);

// `total` items dealt unevenly, none for every third rank.
std::vector<int64_t> Weighted(int64_t total, int nRanks) {
  std::vector<int64_t> counts(nRanks, 0);
  for (int64_t i = 0; i < total; i++) {
    int64_t rank = i * i % nRanks;
    while (rank % 3 == 1) rank = (rank + 1) % nRanks;
    counts[rank]++;
  }
  return counts;
}

}  // namespace

TEST_P(Attention, OfRaggedTokensAndHeadsIsThatOfOneRank) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  Check({Shape(24, 4, 8)}, 2);
  Check({Shape(25, 7, 6)}, Fit(5));
  Check({Shape(25, 7, 6), true}, Fit(5));
}

TEST_P(Attention, OfTwentyEightHeadsOverFourOnEightRanksIsThatOfOneRank) {
  ULYX_SKIP_BELOW(*GetParam(), 8);
  Check({Shape(21, 28, 4).KvHeads(4), true}, 8);
}

TEST_P(Attention, OfFortyHeadsOverEightOnThreeRanksIsThatOfOneRank) {
  ULYX_SKIP_BELOW(*GetParam(), 3);
  Check({Shape(17, 40, 4).KvHeads(8), true}, 3);
}

TEST_P(Attention, OfEightHeadsOverTwoOnFourRanksIsThatOfOneRank) {
  ULYX_SKIP_BELOW(*GetParam(), 4);
  Check({Shape(19, 8, 8).KvHeads(2), true}, 4);
}

TEST_P(Attention, OfFewKeyValueHeadsIsThatOfOneRank) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  Check({Shape(19, 9, 8).KvHeads(1), true}, Fit(4));
  Check({Shape(19, 9, 8).KvHeads(3), true}, Fit(4));
  Check({Shape(19, 12, 8).KvHeads(4).HeadCounts({5, 7})}, 2);
}

TEST_P(Attention, OfJointTokensIsThatOfOneRank) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = Fit(3);
  for (int place : {ulyxReplicatedFirst, ulyxReplicatedLast}) {
    Check({Shape(17, 6, 8).Replicated(5, place), true}, nRanks);
    Check({Shape(17, 6, 8).KvHeads(2).Replicated(5, place)}, nRanks);
    Shape packed = Shape(17, 6, 8).Replicated(5, place);
    packed.c.packedIn = packed.c.packedOut = 1;
    packed.c.batch = 2;
    packed.c.seqOrder = ulyxSeqFirst;
    Check({packed}, nRanks);
    Check({Shape(0, 6, 8).TokenCounts(std::vector<int64_t>(size_t(nRanks), 0)).Replicated(5, place)}, nRanks);
  }
}

TEST_P(Attention, OfBatchItemsInBothOrdersIsThatOfOneRank) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  for (int orders = 0; orders < 4; orders++) {
    Shape shape = Shape(13, 5, 4);
    shape.c.batch = 3;
    shape.c.seqOrder = orders % 2;
    shape.c.headsOrder = orders / 2;
    Check({shape, true}, Fit(3));
  }
}

TEST_P(Attention, OfPackedTensorsIsThatOfOneRank) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  for (int packed = 1; packed < 4; packed++) {
    Shape shape = Shape(19, 10, 4).KvHeads(5);
    shape.c.packedIn = packed % 2;
    shape.c.packedOut = packed / 2;
    Check({shape, true}, Fit(4));
    shape.c.valueDim = 7;
    Check({shape}, Fit(4));
  }
}

TEST_P(Attention, OfValuesOfAnotherDimIsThatOfOneRank) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  for (int64_t valueDim : {3, 12}) {
    Shape shape = Shape(19, 6, 8).KvHeads(3);
    shape.c.valueDim = valueDim;
    Check({shape, true}, Fit(4));
  }
}

TEST_P(Attention, OfStridedTensorsIsThatOfOneRank) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  Shape shape = Shape(19, 6, 4).Replicated(3, ulyxReplicatedLast);
  shape.c.qIn = shape.c.kIn = shape.c.vIn = {0, 6 * 3 * 4, 3 * 4};  // [tokens, heads, q | k | v, dim]
  shape.c.qOut = {0, 4, 23 * 4};                                    // [heads, tokens, dim]
  shape.c.vOut = {0, 8, 23 * 8};
  shape.c.oIn = {0, 4, 22 * 4};
  shape.c.oOut.token = 31;
  Check({shape, true}, Fit(4));
}

TEST_P(Attention, OfSequencesOfAnyLengthIsThatOfOneRankWithinEach) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const std::vector<int32_t> cuSeqlens = {0, 0, 3, 4, 4, 17, 23, 23};
  for (bool causal : {false, true}) Check({Shape(23, 6, 4).KvHeads(2), causal, cuSeqlens}, Fit(4));
  // Sequences count the text as well.
  Check({Shape(19, 6, 4).Replicated(4, ulyxReplicatedFirst), true, cuSeqlens}, Fit(4));
  Check({Shape(19, 6, 4).Replicated(4, ulyxReplicatedLast), true, cuSeqlens}, Fit(4));
  Shape packed = Shape(23, 6, 4).KvHeads(3);
  packed.c.packedIn = 1;
  Check({packed, true, cuSeqlens}, Fit(4));
  std::vector<int32_t> ones(24, 0);
  std::iota(ones.begin(), ones.end(), 0);
  Check({Shape(23, 6, 4), false, ones}, Fit(4));
}

TEST_P(Attention, OfRanksWithoutTokensOrHeadsIsThatOfOneRank) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = Fit(5);
  Check({Shape(0, 10, 4).KvHeads(5).TokenCounts(Weighted(19, nRanks)), true}, nRanks);
  Check({Shape(19, 10, 4).KvHeads(5).HeadCounts(Weighted(10, nRanks)), true}, nRanks);
  Check({Shape(0, 10, 4)
             .KvHeads(2)
             .TokenCounts(Weighted(19, nRanks))
             .HeadCounts(Weighted(10, nRanks))
             .Replicated(3, ulyxReplicatedFirst),
         true,
         {0, 9, 9, 22}},
        nRanks);
}

}  // namespace ulyx_test
