// SPDX-License-Identifier: MIT
//
// Row collectives on every world, against what global row numbers say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "support/exchange_check.h"
#include "support/floats.h"
#include "support/oracle.h"
#include "support/rng.h"
#include "support/row_tensor.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

using Counts = std::vector<int64_t>;

int64_t Sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// One collective of the whole world. Rank-independent; Shape says what each rank tells ulyx.
struct RowsCase {
  int op = ulyxRowsAllGather;
  int type = ulyxFloat32;
  int64_t elementBytes = 4;
  int64_t rowElements = 1;
  bool balanced = false;
  Counts counts;  // rows each rank owns; balanced ones too
  bool targeted = false;
  Span target = {0, 0};
  std::vector<Counts> matrix;     // all-to-all: [from][to]
  int64_t inPad = 0, outPad = 0;  // elements between rows
  uint64_t seed = 0;
  bool integers = false;  // reduce-scatter: small integers, whose sums are exact

  int NRanks() const { return int(op == ulyxRowsAllToAll ? matrix.size() : counts.size()); }
  int64_t RowBytes() const { return rowElements * elementBytes; }
  int64_t InPitch() const { return (rowElements + inPad) * elementBytes; }
  int64_t OutPitch() const { return (rowElements + outPad) * elementBytes; }
};

std::string Describe(const RowsCase& c) {
  std::ostringstream text;
  text << "op " << c.op << " on " << c.NRanks() << " ranks, type " << c.type << " of " << c.elementBytes << " bytes, "
       << c.rowElements << " a row, pads " << c.inPad << " " << c.outPad << (c.balanced ? ", balanced" : "")
       << ", counts";
  for (int64_t count : c.counts) text << " " << count;
  if (c.targeted) text << ", target [" << c.target.first << ", " << c.target.end << ")";
  for (const Counts& row : c.matrix) {
    text << " [";
    for (int64_t count : row) text << " " << count;
    text << " ]";
  }
  return text.str();
}

// What a rank passes to ulyx; owns the arrays.
struct RankShape {
  RankShape(const RowsCase& c, int rank) : counts(c.counts) {
    shape.op = c.op;
    shape.type = c.type;
    shape.elementBytes = c.type == ulyxOpaque || c.seed % 2 == 0 ? int(c.elementBytes) : 0;
    shape.rowElements = c.rowElements;
    shape.inStride = c.inPad > 0 || c.seed % 3 == 0 ? c.rowElements + c.inPad : 0;
    shape.outStride = c.outPad > 0 || c.seed % 5 == 0 ? c.rowElements + c.outPad : 0;
    if (c.op == ulyxRowsAllToAll) {
      for (int other = 0; other < c.NRanks(); other++) {
        sent.push_back(c.matrix[rank][other]);
        received.push_back(c.matrix[other][rank]);
      }
      shape.sendCounts = sent.data();
      shape.recvCounts = received.data();
      return;
    }
    if (c.balanced || c.seed % 2 == 0) shape.total = Sum(counts);
    if (!c.balanced) shape.counts = counts.data();
    shape.targeted = c.targeted ? 1 : 0;
    shape.target = {c.target.first, c.target.end};
  }
  RankShape(const RankShape&) = delete;
  RankShape& operator=(const RankShape&) = delete;

  ulyxRowsShape_t shape = ULYX_ROWS_SHAPE_INITIALIZER;
  Counts counts, sent, received;
};

// The row that coordinates name: bytes nobody else's row has.
void AppendRow(const RowsCase& c, uint64_t a, uint64_t b, uint64_t row, Bytes* bytes) {
  uint64_t hash = Mix(c.seed);
  for (uint64_t coordinate : {a, b, row}) hash = Mix(hash * 31 + coordinate);
  Rng rng(hash);
  for (int64_t i = 0; i < c.RowBytes(); i++) bytes->push_back(uint8_t(rng.Next() >> 24));
}

// Partial sums: element `element` of global row `row` on one rank.
uint32_t PartialBits(const RowsCase& c, int rank, int64_t row, int64_t element) {
  uint64_t hash = Mix(c.seed + 7);
  for (uint64_t coordinate : {uint64_t(row), uint64_t(element)}) hash = Mix(hash * 31 + coordinate);
  if (c.integers) return SmallIntegerBits(c.type, hash + uint64_t(rank));
  // Most elements are of one kind on all ranks, so that not every sum holds a NaN.
  const uint64_t kind = hash % 8, own = Mix(hash + 13 * uint64_t(rank)) / 8 * 8;
  return AnyBits(c.type, own + (kind == 0 ? uint64_t(rank) % 8 : kind));
}

Span OwnedBy(const RowsCase& c, int rank) {
  const int64_t first = Sum(Counts(c.counts.begin(), c.counts.begin() + rank));
  return {first, first + c.counts[rank]};
}

Span Gathered(const RowsCase& c) {
  return c.targeted ? c.target : Span{0, Sum(c.counts)};
}

Bytes InputOf(const RowsCase& c, int rank) {
  Bytes bytes;
  if (c.op == ulyxRowsAllGather) {
    const Span owned = OwnedBy(c, rank), target = Gathered(c);
    for (int64_t row = owned.first; row < owned.end; row++) {
      if (row >= target.first && row < target.end) AppendRow(c, 0, 0, uint64_t(row), &bytes);
    }
  } else if (c.op == ulyxRowsAllToAll) {
    for (int to = 0; to < c.NRanks(); to++) {
      for (int64_t row = 0; row < c.matrix[rank][to]; row++) {
        AppendRow(c, uint64_t(rank), uint64_t(to), uint64_t(row), &bytes);
      }
    }
  } else {
    bytes.resize(size_t(Sum(c.counts) * c.RowBytes()));
    for (int64_t i = 0; i < int64_t(bytes.size()) / c.elementBytes; i++) {
      StoreBits(c.type, PartialBits(c, rank, i / c.rowElements, i % c.rowElements), &bytes[size_t(i * c.elementBytes)]);
    }
  }
  return bytes;
}

Bytes OutputOf(const RowsCase& c, int rank) {
  Bytes bytes;
  if (c.op == ulyxRowsAllGather) {
    const Span target = Gathered(c);
    for (int64_t row = target.first; row < target.end; row++) AppendRow(c, 0, 0, uint64_t(row), &bytes);
  } else if (c.op == ulyxRowsAllToAll) {
    for (int from = 0; from < c.NRanks(); from++) {
      for (int64_t row = 0; row < c.matrix[from][rank]; row++) {
        AppendRow(c, uint64_t(from), uint64_t(rank), uint64_t(row), &bytes);
      }
    }
  } else {
    const Span owned = OwnedBy(c, rank);
    for (int64_t row = owned.first; row < owned.end; row++) {
      for (int64_t element = 0; element < c.rowElements; element++) {
        float sum = ValueOf(c.type, PartialBits(c, 0, row, element));
        for (int from = 1; from < c.NRanks(); from++) sum += ValueOf(c.type, PartialBits(c, from, row, element));
        bytes.resize(bytes.size() + size_t(c.elementBytes));
        StoreBits(c.type, BitsOf(c.type, sum), &bytes[bytes.size() - size_t(c.elementBytes)]);
      }
    }
  }
  return bytes;
}

ulyxResult_t Call(int op, ulyxPlan_t plan, const ulyxTensor_t* in, const ulyxTensor_t* out, ulyxStream_t stream) {
  switch (op) {
    case ulyxRowsAllGather:
      return ulyxAllGatherRows(plan, in, out, stream);
    case ulyxRowsReduceScatter:
      return ulyxReduceScatterRows(plan, in, out, stream);
    default:
      return ulyxAllToAllRows(plan, in, out, stream);
  }
}

ulyxPlan_t MakeRowsPlan(const Session& session, const RowsCase& c, int rank) {
  const RankShape own(c, rank);
  return PlanWith(session, rank, [&own](ulyxRuntime_t runtime, ulyxPlan_t* plan) {
    return ulyxRowsPlanCreate(runtime, &own.shape, plan);
  });
}

using Spots = std::function<Spot(int rank, bool input)>;

Spot Aligned(int, bool) {
  return {};
}

// Runs the collective `times` times; every byte of input and output is as it must be each time.
void Check(const Session& session, const RowsCase& c, const Spots& spots, int times = 1) {
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakeRowsPlan(session, c, rank);
    const Bytes input = InputOf(c, rank), output = OutputOf(c, rank);
    {
      RowTensor in(session, rank, "in", int64_t(input.size()) / c.RowBytes(), c.rowElements, c.type, c.elementBytes,
                   c.InPitch(), spots(rank, true), c.seed + 1);
      RowTensor out(session, rank, "out", int64_t(output.size()) / c.RowBytes(), c.rowElements, c.type, c.elementBytes,
                    c.OutPitch(), spots(rank, false), c.seed + 2);
      in.Put(input);
      for (int i = 0; i < times; i++) {
        out.Poison();
        const ulyxTensor_t from = in.Tensor(), to = out.Tensor();
        MUST(Call(c.op, plan, &from, &to, session.Stream(rank)));
        session.Synchronize(rank);
        in.ExpectUntouched();
        out.Expect(output);
      }
    }
    MUST(ulyxPlanDestroy(plan));
  });
}

// Counts with zeros, sometimes nothing but zeros.
Counts RaggedCounts(Rng* rng, int nRanks, int64_t most) {
  Counts counts(nRanks, 0);
  if (rng->OneIn(12)) return counts;
  for (int64_t& count : counts) count = rng->OneIn(3) ? 0 : rng->Between(0, most);
  return counts;
}

void RandomElement(Rng* rng, RowsCase* c) {
  c->type = ulyxOpaque;
  c->elementBytes = rng->Between(1, 17);
  if (c->op == ulyxRowsReduceScatter || rng->OneIn(2)) {
    const int types[] = {ulyxFloat16, ulyxBfloat16, ulyxFloat32, ulyxInt8, ulyxUint64, ulyxFloat8e5m2, ulyxBool};
    c->type = types[rng->Between(0, c->op == ulyxRowsReduceScatter ? 2 : 6)];
    c->elementBytes = TypeBytes(c->type);
  }
  // Half of the rows are multiples of 16 bytes, for the widest accesses.
  c->rowElements = rng->OneIn(2) ? 16 * rng->Between(1, 6) : rng->Between(1, 40);
  if (rng->OneIn(2)) c->inPad = rng->OneIn(2) ? 16 : rng->Between(1, 9);
  if (rng->OneIn(2)) c->outPad = rng->OneIn(2) ? 16 : rng->Between(1, 9);
}

RowsCase RandomCase(int op, int nRanks, uint64_t seed) {
  Rng rng(seed);
  RowsCase c;
  c.op = op;
  c.seed = rng.Next();
  RandomElement(&rng, &c);
  if (op == ulyxRowsAllToAll) {
    for (int from = 0; from < nRanks; from++) c.matrix.push_back(RaggedCounts(&rng, nRanks, 6));
    if (rng.OneIn(3)) {  // a rank that neither sends nor receives
      const int64_t idle = rng.Between(0, nRanks - 1);
      for (int other = 0; other < nRanks; other++) c.matrix[idle][other] = c.matrix[other][idle] = 0;
    }
    return c;
  }
  c.counts = RaggedCounts(&rng, nRanks, 9);
  if (rng.OneIn(3)) {
    c.balanced = true;
    const int64_t total = rng.Between(nRanks, 5 * nRanks);
    for (int rank = 0; rank < nRanks; rank++) c.counts[rank] = total / nRanks + (rank < total % nRanks ? 1 : 0);
  }
  if (op == ulyxRowsAllGather && rng.OneIn(2)) {
    const int64_t total = Sum(c.counts);
    c.targeted = true;
    c.target.first = rng.Between(0, total);
    c.target.end = rng.OneIn(5) ? c.target.first : rng.Between(c.target.first, total);
  }
  c.integers = rng.OneIn(4);
  return c;
}

class Rows : public ::testing::TestWithParam<const World*> {
 protected:
  const Session& On(int nRanks) { return sessions_.On(*GetParam(), nRanks); }
  int Ranks(int wanted) const { return std::min(GetParam()->MaxRanks(), wanted); }

  void CheckRandom(int op, int cases, int most) {
    const uint64_t seed = TestSeed();
    std::printf("%d cases from ULYX_TEST_SEED=%llu\n", cases, static_cast<unsigned long long>(seed));
    for (int i = 0; i < cases; i++) {
      const uint64_t own = seed + uint64_t(i);
      const int nRanks = int(Rng(own ^ 0xfeed).Between(1, Ranks(most)));
      const RowsCase c = RandomCase(op, nRanks, own);
      // A sum's elements lie where its type may lie; what is only moved may lie anywhere.
      const int64_t unit = op == ulyxRowsReduceScatter ? c.elementBytes : 1;
      try {
        const bool alike = GetParam()->OutputsLieAlike();
        Check(On(nRanks), c, [own, unit, alike](int rank, bool input) {
          return AnySpot(own + input, alike && !input ? 0 : rank, unit);
        });
      } catch (const std::exception& error) {
        FAIL() << error.what() << Describe(c) << "\nreplay with ULYX_TEST_SHAPES=1 ULYX_TEST_SEED=" << own;
      }
    }
  }

 private:
  Sessions sessions_;
};

ULYX_ON_EVERY_WORLD(Rows);

RowsCase Gather(Counts counts) {
  RowsCase c;
  c.counts = std::move(counts);
  c.rowElements = 5;
  c.seed = TestSeed();
  return c;
}

RowsCase Targeted(Counts counts, int64_t first, int64_t end) {
  RowsCase c = Gather(std::move(counts));
  c.targeted = true;
  c.target = {first, end};
  return c;
}

RowsCase Scatter(int type, Counts counts) {
  RowsCase c = Gather(std::move(counts));
  c.op = ulyxRowsReduceScatter;
  c.type = type;
  c.elementBytes = TypeBytes(type);
  return c;
}

RowsCase Shuffle(std::vector<Counts> matrix) {
  RowsCase c;
  c.op = ulyxRowsAllToAll;
  c.matrix = std::move(matrix);
  c.rowElements = 3;
  c.seed = TestSeed();
  return c;
}

// Makes the plan on every rank, expects `words` from each, and then that an ordinary gather works.
void ExpectRefused(const Session& session, ulyxResult_t expected, std::initializer_list<std::string> words,
                   const std::function<void(int rank, ulyxRowsShape_t* shape)>& describe) {
  session.Run([&](int rank) {
    MUST(ulyxRuntimeReserve(session.Runtime(rank), 1 << 20));
    ulyxRowsShape_t shape = ULYX_ROWS_SHAPE_INITIALIZER;
    shape.type = ulyxFloat32;
    shape.rowElements = 4;
    shape.total = 3 * session.NRanks();
    describe(rank, &shape);
    ulyxPlan_t plan = nullptr;
    EXPECT_TRUE(Refused(ulyxRowsPlanCreate(session.Runtime(rank), &shape, &plan), expected, words)) << "rank " << rank;
    EXPECT_EQ(plan, nullptr);
    if (plan != nullptr) MUST(ulyxPlanDestroy(plan));
  });
  Check(session, Gather(Counts(session.NRanks(), 2)), Aligned);
}

}  // namespace

TEST_P(Rows, OfRandomGathersReachEveryRank) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  CheckRandom(ulyxRowsAllGather, CasesOn(*GetParam(), 120), 9);
}

TEST_P(Rows, OfRandomCountMatricesArriveInRankOrder) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  CheckRandom(ulyxRowsAllToAll, CasesOn(*GetParam(), 120), 9);
}

TEST_P(Rows, OfRandomPartialSumsAddUpToTheBit) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  CheckRandom(ulyxRowsReduceScatter, CasesOn(*GetParam(), 120), 9);
}

TEST_P(Rows, OfSeveralRanksAreGatheredFromBalancedAndRaggedCounts) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = Ranks(4);
  Counts ragged(nRanks, 0), one(nRanks, 0), same(nRanks, 7);
  for (int rank = 0; rank < nRanks; rank++) ragged[rank] = rank % 3 == 1 ? 0 : 3 * rank + 1;
  one.back() = 5;
  for (const Counts& counts : {same, ragged, one, Counts(nRanks, 0)}) Check(On(nRanks), Gather(counts), Aligned, 2);
}

TEST_P(Rows, OfATargetSpanAreGatheredWhereverItLies) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = Ranks(4);
  const Counts counts = [nRanks] {
    Counts some(nRanks, 4);
    if (nRanks > 2) some[1] = 0;
    return some;
  }();
  const int64_t total = Sum(counts);
  Check(On(nRanks), Targeted(counts, 0, 0), Aligned);              // nothing, at the start
  Check(On(nRanks), Targeted(counts, total, total), Aligned);      // and past the end
  Check(On(nRanks), Targeted(counts, 1, 3), Aligned);              // within rank 0
  Check(On(nRanks), Targeted(counts, 4, total), Aligned);          // all but rank 0
  Check(On(nRanks), Targeted(counts, 3, total - 3), Aligned);      // the edges cut
  Check(On(nRanks), Targeted(counts, total - 1, total), Aligned);  // one row
  Check(On(nRanks), Targeted(counts, 0, total), Aligned);          // all of it
}

TEST_P(Rows, OfAnAllToAllMayAllBeOneRanksAndThenNobodys) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = Ranks(4);
  const std::vector<Counts> nothing(nRanks, Counts(nRanks, 0));
  std::vector<Counts> toFirst = nothing, fromLast = nothing, onlyOwn = nothing;
  for (int rank = 0; rank < nRanks; rank++) {
    toFirst[rank][0] = rank + 1;
    fromLast[nRanks - 1][rank] = rank + 2;
    onlyOwn[rank][rank] = rank;
  }
  for (const std::vector<Counts>& matrix : {nothing, toFirst, nothing, fromLast, onlyOwn}) {
    Check(On(nRanks), Shuffle(matrix), Aligned, 2);
  }
}

TEST_P(Rows, OfManyRanksAreExact) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = Ranks(64);
  Counts counts(nRanks);
  std::vector<Counts> matrix(nRanks, Counts(nRanks, 0));
  for (int rank = 0; rank < nRanks; rank++) counts[rank] = rank % 3;
  for (int from = 0; from < nRanks; from++) {
    for (int to = 0; to < nRanks; to++) matrix[from][to] = (from * 7 + to * 3) % 4;
  }
  Check(On(nRanks), Gather(counts), Aligned);
  Check(On(nRanks), Shuffle(matrix), Aligned);
  Check(On(nRanks), Scatter(ulyxBfloat16, counts), Aligned);
}

TEST_P(Rows, AreMovedFromAnyAddressToAny) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  for (int64_t elementBytes : {1, 2, 3, 16}) {
    RowsCase c = Gather(Counts(2, 3));
    c.type = ulyxOpaque;
    c.elementBytes = elementBytes;
    for (int64_t misalign : {1, 2, 8, 15}) {
      Check(On(2), c, [misalign](int rank, bool input) {
        return Spot{true, rank == 0, input ? misalign : 16 - misalign};
      });
    }
  }
}

TEST_P(Rows, AreLargeAndStillWhole) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  if (WatchesThreads()) GTEST_SKIP() << "moves much data";
  if (IsSanitized() && GetParam()->Transport() != ulyxTransportNccl) GTEST_SKIP() << "nccl alone under sanitizers";
  RowsCase c = Gather({700, 500});
  c.rowElements = 2048;  // past what is copied beside the wire
  Check(On(2), c, Aligned);
  c.op = ulyxRowsReduceScatter;
  Check(On(2), c, Aligned);
}

TEST_P(Rows, AreAddedInRankOrderAndRoundedOnce) {
  ULYX_SKIP_BELOW(*GetParam(), 3);
  // Worked by hand: 2^k + 1 + 1 ... differs by order, by fp32 against a narrower sum, and by ties to even.
  struct Worked {
    int type;
    std::array<uint32_t, 3> partials;
    uint32_t sum;
  };
  const Worked worked[] = {
      // 65504 + 16 stays below the tie to infinity in fp32; - 16 takes it back. Rounded early it would not.
      {ulyxFloat16, {0x7bff, 0x4c00, 0xcc00}, 0x7bff},
      {ulyxFloat16, {0x7bff, 0x7bff, 0xfbff}, 0x7bff},   // over the top of float16 and back
      {ulyxFloat16, {0x3c00, 0x1000, 0x0000}, 0x3c00},   // 1 + 2^-11: a tie, to even
      {ulyxFloat16, {0x3c01, 0x1000, 0x0000}, 0x3c02},   // 1 + 2^-10 + 2^-11: a tie, to even, upwards
      {ulyxFloat16, {0x0001, 0x0001, 0x8001}, 0x0001},   // subnormals
      {ulyxFloat16, {0x8000, 0x8000, 0x8000}, 0x8000},   // -0 stays
      {ulyxFloat16, {0x8000, 0x0000, 0x8000}, 0x0000},   // and goes
      {ulyxFloat16, {0x7c00, 0x3c00, 0xfbff}, 0x7c00},   // infinity stays
      {ulyxFloat16, {0x7c00, 0xfc00, 0x3c00}, 0x7fff},   // infinity - infinity
      {ulyxFloat16, {0x3c00, 0xfc01, 0x3c00}, 0x7fff},   // a signalling NaN with a payload
      {ulyxBfloat16, {0x3f80, 0x3b80, 0x3b80}, 0x3f81},  // 1 + 2^-8 + 2^-8: 1 if rounded on the way
      {ulyxBfloat16, {0x3f80, 0x3b80, 0x0000}, 0x3f80},  // a tie, to even
      {ulyxBfloat16, {0x7f7f, 0x7f7f, 0xff7f}, 0x7f80},  // over the top of fp32 as well: infinity
      {ulyxBfloat16, {0x7f7f, 0xff7f, 0x7f7f}, 0x7f7f},  // in this order it is not
      {ulyxBfloat16, {0x0001, 0x8002, 0x0000}, 0x8001},  // subnormals
      {ulyxBfloat16, {0x7f80, 0xff80, 0x0000}, 0x7fff},
      {ulyxBfloat16, {0xffff, 0x0000, 0x0000}, 0x7fff},
      {ulyxFloat32, {0x4b800000, 0x3f800000, 0x3f800000}, 0x4b800000},  // 2^24 + 1 + 1 from the left
      {ulyxFloat32, {0x3f800000, 0x3f800000, 0x4b800000}, 0x4b800001},  // and from the other end
      {ulyxFloat32, {0x7f7fffff, 0x7f7fffff, 0xff7fffff}, 0x7f800000},
      {ulyxFloat32, {0x00000001, 0x80000002, 0x00000000}, 0x80000001},
      {ulyxFloat32, {0x80000000, 0x80000000, 0x80000000}, 0x80000000},
      {ulyxFloat32, {0x7f800000, 0xff800000, 0x00000000}, 0x7fffffff},
      {ulyxFloat32, {0xff800001, 0x00000000, 0x00000000}, 0x7fffffff}};
  const Session& session = On(3);
  for (int type : SummedTypes()) {
    Bytes inputs[3], sums;
    int64_t count = 0;
    const size_t bytes = size_t(TypeBytes(type));
    for (const Worked& w : worked) {
      if (w.type != type) continue;
      count++;
      sums.resize(sums.size() + bytes);
      StoreBits(type, w.sum, &sums[sums.size() - bytes]);
      for (int rank = 0; rank < 3; rank++) {
        inputs[rank].resize(inputs[rank].size() + bytes);
        StoreBits(type, w.partials[rank], &inputs[rank][inputs[rank].size() - bytes]);
      }
    }
    // All rows are one rank's, then another's: the order is the ranks', whoever adds.
    for (int owner = 0; owner < 3; owner++) {
      RowsCase c = Scatter(type, Counts(3, 0));
      c.counts[owner] = count;
      c.rowElements = 1;
      session.Run([&](int rank) {
        const ulyxPlan_t plan = MakeRowsPlan(session, c, rank);
        RowTensor in(session, rank, "in", count, 1, type, int64_t(bytes), int64_t(bytes), {}, c.seed);
        RowTensor out(session, rank, "out", rank == owner ? count : 0, 1, type, int64_t(bytes), int64_t(bytes), {},
                      c.seed + 1);
        in.Put(inputs[rank]);
        const ulyxTensor_t from = in.Tensor(), to = out.Tensor();
        MUST(ulyxReduceScatterRows(plan, &from, &to, session.Stream(rank)));
        session.Synchronize(rank);
        out.Expect(rank == owner ? sums : Bytes());
        MUST(ulyxPlanDestroy(plan));
      });
    }
  }
}

TEST_P(Rows, AddUpToTheSameBitsInEveryRun) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = Ranks(8);
  for (int type : SummedTypes()) {
    RowsCase c = Scatter(type, Counts(nRanks, 3));
    c.rowElements = 64;
    Check(On(nRanks), c, Aligned, 10);
  }
}

TEST_P(Rows, OfOneRankPassThrough) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  for (int op : {ulyxRowsAllGather, ulyxRowsReduceScatter, ulyxRowsAllToAll}) {
    RowsCase c = op == ulyxRowsAllToAll ? Shuffle({{5}}) : Gather({5});
    c.op = op;
    Check(On(1), c, Aligned);
    c.inPad = 3;
    Check(On(1), c, Aligned);
  }
}

TEST_P(Rows, OfOneRankMayBeReadAndWrittenInTheVerySamePlace) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  const Session& session = On(1);
  for (int op : {ulyxRowsAllGather, ulyxRowsReduceScatter, ulyxRowsAllToAll}) {
    RowsCase c = op == ulyxRowsAllToAll ? Shuffle({{5}}) : Gather({5});
    c.op = op;
    session.Run([&](int rank) {
      const ulyxPlan_t plan = MakeRowsPlan(session, c, rank);
      RowTensor both(session, rank, "both", 5, c.rowElements, c.type, 4, c.InPitch(), {}, c.seed);
      const ulyxTensor_t tensor = both.Tensor();
      MUST(Call(op, plan, &tensor, &tensor, session.Stream(rank)));
      session.Synchronize(rank);
      both.ExpectUntouched();
      MUST(ulyxPlanDestroy(plan));
    });
  }
}

TEST_P(Rows, OfOneRankThatOverlapOtherwiseAreRefused) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  const Session& session = On(1);
  session.Run([&](int rank) {
    const RowsCase c = Gather({5});
    const ulyxPlan_t plan = MakeRowsPlan(session, c, rank);
    RowTensor both(session, rank, "both", 6, c.rowElements, c.type, 4, c.InPitch(), {}, c.seed);
    ulyxTensor_t in = both.Tensor();
    in.extents[1] = 5;
    ulyxTensor_t out = in;
    out.data = static_cast<char*>(in.data) + c.RowBytes();
    EXPECT_TRUE(Refused(ulyxAllGatherRows(plan, &in, &out, session.Stream(rank)), ulyxInvalidArgument,
                        {"in", "out", "overlap"}));
    both.ExpectUntouched();
    MUST(ulyxPlanDestroy(plan));
  });
}

TEST_P(Rows, AreDescribedByThePlan) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session& session = On(2);
  RowsCase c = Targeted({4, 3}, 2, 5);
  c.inPad = 2;
  c.outPad = 1;
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakeRowsPlan(session, c, rank);
    ulyxTensor_t in = ULYX_TENSOR_INITIALIZER, out = ULYX_TENSOR_INITIALIZER;
    MUST(ulyxPlanGetRows(plan, &in, &out));
    MUST(ulyxPlanGetRows(plan, nullptr, nullptr));
    EXPECT_EQ(in.data, nullptr);
    EXPECT_EQ(Counts(in.extents, in.extents + 4), (Counts{1, rank == 0 ? 2 : 1, 1, 5}));
    EXPECT_EQ(Counts(out.extents, out.extents + 4), (Counts{1, 3, 1, 5}));
    EXPECT_EQ(in.strides[1], 7);
    EXPECT_EQ(out.strides[1], 6);
    EXPECT_EQ(in.strides[3], 1);
    EXPECT_EQ(in.type, ulyxFloat32);
    EXPECT_EQ(in.elementBytes, 4);
    MUST(ulyxPlanDestroy(plan));
  });
}

TEST_P(Rows, OfTwoPlansInFlightDoNotMeet) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = Ranks(4);
  const Session& session = On(nRanks);
  RowsCase gather = Gather(Counts(nRanks, 6)), scatter = Scatter(ulyxFloat16, Counts(nRanks, 5));
  gather.rowElements = scatter.rowElements = 160;
  session.Run([&](int rank) {
    const ulyxPlan_t gatherPlan = MakeRowsPlan(session, gather, rank);
    const ulyxPlan_t scatterPlan = MakeRowsPlan(session, scatter, rank);
    std::vector<std::unique_ptr<RowTensor>> ins, outs;
    for (int i = 0; i < 12; i++) {
      const RowsCase& c = i % 2 == 0 ? gather : scatter;
      const Bytes input = InputOf(c, rank), output = OutputOf(c, rank);
      ins.push_back(std::make_unique<RowTensor>(session, rank, "in", int64_t(input.size()) / c.RowBytes(), 160, c.type,
                                                c.elementBytes, c.InPitch(), Spot{}, c.seed));
      outs.push_back(std::make_unique<RowTensor>(session, rank, "out", int64_t(output.size()) / c.RowBytes(), 160,
                                                 c.type, c.elementBytes, c.OutPitch(), Spot{}, c.seed));
      ins.back()->Put(input);
    }
    for (int i = 0; i < 12; i++) {
      const ulyxTensor_t from = ins[i]->Tensor(), to = outs[i]->Tensor();
      MUST(Call(i % 2 == 0 ? gather.op : scatter.op, i % 2 == 0 ? gatherPlan : scatterPlan, &from, &to,
                session.Stream(rank)));
    }
    MUST(ulyxPlanDestroy(gatherPlan));  // what is in flight keeps working
    MUST(ulyxPlanDestroy(scatterPlan));
    session.Synchronize(rank);
    for (int i = 0; i < 12; i++) outs[i]->Expect(OutputOf(i % 2 == 0 ? gather : scatter, rank));
  });
}

TEST_P(Rows, SentOneAgainstTwoExpectedAreAMismatchOnEveryRank) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = Ranks(3);
  const auto oneAgainstTwo = [&](int rank, ulyxRowsShape_t* shape) {
    static const Counts none(64, 0);
    static const Counts one = {0, 1, 0, 0}, two = {2, 0, 0, 0};
    shape->op = ulyxRowsAllToAll;
    shape->total = 0;
    shape->sendCounts = rank == 0 ? one.data() : none.data();
    shape->recvCounts = rank == 1 ? two.data() : none.data();
  };
  ExpectRefused(On(nRanks), ulyxMismatch, {"rank 0 sends 1 rows to rank 1, which expects 2"}, oneAgainstTwo);
  Check(On(nRanks), Shuffle(std::vector<Counts>(nRanks, Counts(nRanks, 1))), Aligned);
}

TEST_P(Rows, ThatTheRanksCountDifferentlyAreAMismatchOnEveryRank) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session& session = On(2);
  for (int op : {ulyxRowsAllGather, ulyxRowsReduceScatter}) {
    ExpectRefused(session, ulyxMismatch, {"rows.total", "7 on rank 0", "8 on rank 1"},
                  [op](int rank, ulyxRowsShape_t* shape) {
                    shape->op = op;
                    shape->total = 7 + rank;
                  });
    ExpectRefused(session, ulyxMismatch, {"rank 0 gives rank 0 4 rows, rank 1 gives it 3"},
                  [op](int rank, ulyxRowsShape_t* shape) {
                    static const Counts mine[] = {{4, 3}, {3, 4}};
                    shape->op = op;
                    shape->total = 7;
                    shape->counts = mine[rank].data();
                  });
  }
}

TEST_P(Rows, OfDifferentWidthsTypesStridesOrTargetsAreAMismatchOnEveryRank) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = Ranks(4), last = nRanks - 1;
  const std::string onLast = " on rank " + std::to_string(last);
  const Session& session = On(nRanks);
  ExpectRefused(session, ulyxMismatch, {"rows.rowElements", "4 on rank 0", "3" + onLast},
                [last](int rank, ulyxRowsShape_t* shape) { shape->rowElements = rank == last ? 3 : 4; });
  ExpectRefused(session, ulyxMismatch, {"rows.type", "7 on rank 0", "2" + onLast},
                [last](int rank, ulyxRowsShape_t* shape) { shape->type = rank == last ? ulyxInt32 : ulyxFloat32; });
  ExpectRefused(session, ulyxMismatch, {"rows.elementBytes", "4 on rank 0", "6" + onLast},
                [last](int rank, ulyxRowsShape_t* shape) {
                  shape->type = ulyxOpaque;
                  shape->elementBytes = rank == last ? 6 : 4;
                });
  ExpectRefused(session, ulyxMismatch, {"row of the input", "16 on rank 0", "20" + onLast},
                [last](int rank, ulyxRowsShape_t* shape) { shape->inStride = rank == last ? 5 : 0; });
  ExpectRefused(session, ulyxMismatch, {"row of the output", "24 on rank 0", "16" + onLast},
                [last](int rank, ulyxRowsShape_t* shape) { shape->outStride = rank == last ? 0 : 6; });
  ExpectRefused(session, ulyxMismatch, {"rows.target.stop", "5 on rank 0", "4" + onLast},
                [last](int rank, ulyxRowsShape_t* shape) {
                  shape->targeted = 1;
                  shape->target = {1, rank == last ? 4 : 5};
                });
  ExpectRefused(session, ulyxMismatch, {"rank 0 plans all_gath", "rank " + std::to_string(last) + " reduce_s"},
                [last](int rank, ulyxRowsShape_t* shape) {
                  shape->op = rank == last ? ulyxRowsReduceScatter : ulyxRowsAllGather;
                });
}

TEST_P(Rows, ThatOneRankRefusesAreRefusedByAll) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session& session = On(2);
  session.Run([&](int rank) {
    MUST(ulyxRuntimeReserve(session.Runtime(rank), 1 << 20));
    ulyxRowsShape_t shape = ULYX_ROWS_SHAPE_INITIALIZER;
    shape.rowElements = rank == 1 ? 0 : 4;
    shape.total = 6;
    ulyxPlan_t plan = nullptr;
    const ulyxResult_t result = ulyxRowsPlanCreate(session.Runtime(rank), &shape, &plan);
    if (rank == 1) {
      EXPECT_TRUE(Refused(result, ulyxInvalidArgument, {"rows.rowElements is 0, expected 1 or more"}));
    } else {
      EXPECT_TRUE(Refused(result, ulyxMismatch, {"rank 1 refused", "rank 0"}));
    }
    EXPECT_EQ(plan, nullptr);
  });
  Check(session, Gather({2, 2}), Aligned);
}

TEST_P(Rows, ThatCanNeverBeRightAreRefusedWithBothNumbers) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session& session = On(2);
  static const Counts negative = {3, -1}, four = {2, 2}, one = {1, 1}, most = {INT64_MAX, 1};
  struct Case {
    std::vector<std::string> words;
    std::function<void(int, ulyxRowsShape_t*)> describe;
  };
  const std::vector<Case> cases = {
      {{"rows.op is 3", "0 to 2"}, [](int, ulyxRowsShape_t* s) { s->op = 3; }},
      {{"rows.op is -1", "0 to 2"}, [](int, ulyxRowsShape_t* s) { s->op = -1; }},
      {{"rows.rowElements is -2", "1"}, [](int, ulyxRowsShape_t* s) { s->rowElements = -2; }},
      {{"rows.total is -6", "0"}, [](int, ulyxRowsShape_t* s) { s->total = -6; }},
      {{"1", "rows", "2"}, [](int, ulyxRowsShape_t* s) { s->total = 1; }},
      {{"count 1", "-1"}, [](int, ulyxRowsShape_t* s) { s->total = 0, s->counts = negative.data(); }},
      {{"rows.total is 6", "4"}, [](int, ulyxRowsShape_t* s) { s->counts = four.data(); }},
      {{"rows"}, [](int, ulyxRowsShape_t* s) { s->total = 0, s->counts = most.data(); }},
      {{"rows.targeted is 2"}, [](int, ulyxRowsShape_t* s) { s->targeted = 2; }},
      {{"rows.targeted is 1", "all-gather"},
       [](int, ulyxRowsShape_t* s) { s->op = ulyxRowsReduceScatter, s->targeted = 1; }},
      {{"rows.target is [2, 7)", "[0, 6)"},
       [](int, ulyxRowsShape_t* s) {
         s->targeted = 1, s->target = {2, 7};
       }},
      {{"rows.target is [-1, 3)", "[0, 6)"},
       [](int, ulyxRowsShape_t* s) {
         s->targeted = 1, s->target = {-1, 3};
       }},
      {{"rows.target is [4, 3)", "[0, 6)"},
       [](int, ulyxRowsShape_t* s) {
         s->targeted = 1, s->target = {4, 3};
       }},
      {{"rows.inStride is 3", "rowElements = 4"}, [](int, ulyxRowsShape_t* s) { s->inStride = 3; }},
      {{"rows.outStride is -1", "rowElements = 4"}, [](int, ulyxRowsShape_t* s) { s->outStride = -1; }},
      {{"2^60"}, [](int, ulyxRowsShape_t* s) { s->rowElements = INT64_MAX / 2; }},
      {{"2^60"}, [](int, ulyxRowsShape_t* s) { s->inStride = int64_t{1} << 57; }},
      {{"rows.type is 55"}, [](int, ulyxRowsShape_t* s) { s->type = 55; }},
      {{"elementBytes is 2", "float32", "4"}, [](int, ulyxRowsShape_t* s) { s->elementBytes = 2; }},
      {{"elementBytes is 0", "ulyxOpaque"}, [](int, ulyxRowsShape_t* s) { s->type = ulyxOpaque; }},
      {{"rows.sendCounts is NULL"},
       [](int, ulyxRowsShape_t* s) { s->op = ulyxRowsAllToAll, s->recvCounts = one.data(); }},
      {{"rows.recvCounts is NULL"},
       [](int, ulyxRowsShape_t* s) { s->op = ulyxRowsAllToAll, s->sendCounts = one.data(); }},
      {{"itself 2 rows and expects 1"},
       [](int, ulyxRowsShape_t* s) {
         s->op = ulyxRowsAllToAll, s->sendCounts = four.data(), s->recvCounts = one.data();
       }},
      {{"count 1", "-1"},
       [](int, ulyxRowsShape_t* s) {
         static const Counts same[] = {{3, -1}, {-1, -1}};
         s->op = ulyxRowsAllToAll, s->sendCounts = s->recvCounts = same[0].data();
       }},
  };
  for (const Case& c : cases) {
    session.Run([&](int rank) {
      ulyxRowsShape_t shape = ULYX_ROWS_SHAPE_INITIALIZER;
      shape.type = ulyxFloat32;
      shape.rowElements = 4;
      shape.total = 6;
      c.describe(rank, &shape);
      ulyxPlan_t plan = nullptr;
      const ulyxResult_t result = ulyxRowsPlanCreate(session.Runtime(rank), &shape, &plan);
      EXPECT_TRUE(Refused(result, ulyxInvalidArgument, {"r"})) << c.words.front();
      for (const std::string& word : c.words) {
        EXPECT_NE(std::string(ulyxGetLastError(nullptr)).find(word), std::string::npos)
            << "no '" << word << "' in: " << ulyxGetLastError(nullptr);
      }
      EXPECT_EQ(plan, nullptr);
    });
  }
  Check(session, Gather({2, 2}), Aligned);
}

TEST_P(Rows, OfTypesThatAreNoFloatsAreNotSummed) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  const Session& session = On(1);
  const std::map<int, std::string> names = {
      {ulyxInt8, "int8"},    {ulyxUint8, "uint8"},   {ulyxInt32, "int32"},     {ulyxUint32, "uint32"},
      {ulyxInt64, "int64"},  {ulyxUint64, "uint64"}, {ulyxFloat64, "float64"}, {ulyxFloat8e4m3, "float8e4m3"},
      {ulyxBool, "bool"},    {ulyxInt16, "int16"},   {ulyxUint16, "uint16"},   {ulyxFloat8e5m2, "float8e5m2"},
      {ulyxOpaque, "opaque"}};
  for (const auto& [type, name] : names) {
    ulyxRowsShape_t shape = ULYX_ROWS_SHAPE_INITIALIZER;
    shape.op = ulyxRowsReduceScatter;
    shape.type = type;
    shape.elementBytes = type == ulyxOpaque ? 2 : 0;
    shape.rowElements = 4;
    shape.total = 6;
    ulyxPlan_t plan = nullptr;
    EXPECT_TRUE(Refused(ulyxRowsPlanCreate(session.Runtime(0), &shape, &plan), ulyxInvalidArgument,
                        {"rows.type is " + name + ":", "float16, bfloat16 and float32"}));
    EXPECT_EQ(plan, nullptr);
  }
}

TEST_P(Rows, ThatATensorHasNotAreRefusedAndTheNextCallWorks) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session& session = On(2);
  const RowsCase c = Gather({3, 2});
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakeRowsPlan(session, c, rank);
    {
      RowTensor in(session, rank, "in", c.counts[rank], c.rowElements, c.type, 4, c.InPitch(), {}, c.seed);
      RowTensor out(session, rank, "out", 5, c.rowElements, c.type, 4, c.OutPitch(), {}, c.seed);
      in.Put(InputOf(c, rank));
      const ulyxTensor_t goodIn = in.Tensor(), goodOut = out.Tensor();
      const auto refuse = [&](const ulyxTensor_t& from, const ulyxTensor_t& to, ulyxResult_t result,
                              std::initializer_list<std::string> words) {
        EXPECT_TRUE(Refused(ulyxAllGatherRows(plan, &from, &to, session.Stream(rank)), result, words));
      };
      ulyxTensor_t bad = goodIn;
      bad.extents[1]++;
      refuse(bad, goodOut, ulyxMismatch,
             {"in: extents are [1, " + std::to_string(bad.extents[1]) + ", 1, 5]",
              "[1, " + std::to_string(goodIn.extents[1]) + ", 1, 5]"});
      bad = goodOut;
      bad.extents[3] = 4;
      refuse(goodIn, bad, ulyxMismatch, {"out: extents are [1, 5, 1, 4]", "[1, 5, 1, 5]"});
      bad = goodIn;
      bad.strides[1] = 6;
      bad.strides[3] = 1;
      refuse(bad, goodOut, ulyxMismatch, {"in", "6", "5"});
      bad = goodIn;
      bad.type = ulyxInt32;
      refuse(bad, goodOut, ulyxMismatch, {"in", "type is 2", "7"});
      bad = goodOut;
      bad.data = nullptr;
      refuse(goodIn, bad, ulyxInvalidArgument, {"out", "NULL"});
      refuse(goodIn,
             [&] {
               ulyxTensor_t same = goodOut;
               same.data = goodIn.data;
               return same;
             }(),
             ulyxInvalidArgument, {"overlap"});
      EXPECT_TRUE(Refused(ulyxAllGatherRows(plan, nullptr, &goodOut, nullptr), ulyxInvalidArgument, {"in"}));
      EXPECT_TRUE(Refused(ulyxAllGatherRows(nullptr, &goodIn, &goodOut, nullptr), ulyxInvalidArgument, {"plan"}));
      out.ExpectUntouched();
      MUST(ulyxAllGatherRows(plan, &goodIn, &goodOut, session.Stream(rank)));
      session.Synchronize(rank);
      out.Expect(OutputOf(c, rank));
    }
    MUST(ulyxPlanDestroy(plan));
  });
}

TEST_P(Rows, ToBeSummedThatLieBetweenElementsAreRefused) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session& session = On(2);
  for (int type : SummedTypes()) {
    const RowsCase c = Scatter(type, {3, 2});
    session.Run([&](int rank) {
      const ulyxPlan_t plan = MakeRowsPlan(session, c, rank);
      RowTensor in(session, rank, "in", 6, c.rowElements, type, c.elementBytes, c.InPitch(), {}, c.seed);
      RowTensor out(session, rank, "out", 4, c.rowElements, type, c.elementBytes, c.OutPitch(), {}, c.seed);
      ulyxTensor_t from = in.Tensor(), to = out.Tensor();
      from.extents[1] = 5;
      to.extents[1] = c.counts[rank];
      ulyxTensor_t odd = from;
      odd.data = static_cast<char*>(from.data) + 1;
      EXPECT_TRUE(Refused(ulyxReduceScatterRows(plan, &odd, &to, session.Stream(rank)), ulyxInvalidArgument,
                          {"in", std::to_string(c.elementBytes)}));
      odd = to;
      odd.data = static_cast<char*>(to.data) + c.elementBytes / 2;
      EXPECT_TRUE(Refused(ulyxReduceScatterRows(plan, &from, &odd, session.Stream(rank)), ulyxInvalidArgument,
                          {"out", std::to_string(c.elementBytes)}));
      out.ExpectUntouched();
      MUST(ulyxPlanDestroy(plan));
    });
  }
}

TEST_P(Rows, AskForTheirOwnPlan) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session& session = On(2);
  const Shape exchange(4, 2, 2);
  session.Run([&](int rank) {
    const ulyxPlan_t exchanges = MakePlan(session, exchange.c, rank);
    std::vector<ulyxPlan_t> plans;
    plans.push_back(MakeRowsPlan(session, Gather({3, 2}), rank));
    plans.push_back(MakeRowsPlan(session, Scatter(ulyxFloat32, {3, 2}), rank));
    plans.push_back(MakeRowsPlan(session, Shuffle({{1, 2}, {3, 4}}), rank));
    const char* const names[] = {"all-gather", "reduce-scatter", "all-to-all"};
    ulyxTensor_t in = ULYX_TENSOR_INITIALIZER, out = ULYX_TENSOR_INITIALIZER;
    for (int op = 0; op < 3; op++) {
      EXPECT_TRUE(
          Refused(Call(op, exchanges, &in, &out, nullptr), ulyxInvalidUsage, {"an exchange", "a row collective"}));
      for (int planned = 0; planned < 3; planned++) {
        if (planned == op) continue;
        EXPECT_TRUE(
            Refused(Call(op, plans[planned], &in, &out, nullptr), ulyxInvalidUsage, {names[planned], names[op]}));
      }
      EXPECT_TRUE(Refused(ulyxHeadsToSeq(plans[op], &in, &out, nullptr), ulyxInvalidUsage,
                          {"a row collective", "an exchange"}));
      EXPECT_TRUE(Refused(ulyxConvHalo(plans[op], &in, &out, nullptr), ulyxInvalidUsage, {"a row collective", "halo"}));
      ulyxStates_t states = {};
      EXPECT_TRUE(
          Refused(ulyxStateChain(plans[op], &states, nullptr), ulyxInvalidUsage, {"a row collective", "chain"}));
    }
    EXPECT_TRUE(Refused(ulyxPlanGetRows(exchanges, &in, &out), ulyxInvalidUsage, {"an exchange"}));
    for (ulyxPlan_t plan : plans) MUST(ulyxPlanDestroy(plan));
    MUST(ulyxPlanDestroy(exchanges));
  });
  Check(session, Gather({2, 2}), Aligned);
}

}  // namespace ulyx_test
