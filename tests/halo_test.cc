// SPDX-License-Identifier: MIT
//
// The halo of a causal convolution on every world: rows that precede a shard, and their gradients back, against
// every token's sequence and owner (support/contexts.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "support/contexts.h"
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

struct HaloCase {
  std::vector<int64_t> cuSeqlens;
  int nRanks = 1;
  int split = ulyxSplitBalanced;
  int convKernel = 4;
  int type = ulyxBfloat16;
  int64_t elementBytes = 2;
  int64_t rowElements = 3;
  int64_t pad = 0;  // elements between local rows
  uint64_t seed = 0;
  bool integers = false;

  int64_t RowBytes() const { return rowElements * elementBytes; }
};

std::string Describe(const HaloCase& c) {
  std::ostringstream text;
  text << c.nRanks << " ranks, split " << c.split << ", kernel " << c.convKernel << ", type " << c.type << " of "
       << c.elementBytes << " bytes, " << c.rowElements << " a row, pad " << c.pad << ", cu_seqlens";
  for (int64_t bound : c.cuSeqlens) text << " " << bound;
  return text.str();
}

// Tokens that a rank holds, and those of its first sequence just before.
struct Shard {
  Span tokens;
  Span halo;
};

std::vector<Shard> ShardsOf(const HaloCase& c) {
  const TokenWorld tokens(c.cuSeqlens, c.nRanks, c.split);
  std::vector<Shard> shards;
  for (int rank = 0; rank < c.nRanks; rank++) {
    const ExpectedContext expected = tokens.Expect(rank, c.convKernel);
    shards.push_back({{expected.tokenRange.start, expected.tokenRange.stop},
                      {expected.tokenRange.start - expected.haloTokens, expected.tokenRange.start}});
  }
  return shards;
}

// A row of `from`'s: its own token (from = -1 stands for whoever owns it) or its gradient for somebody else's.
uint32_t ElementBits(const HaloCase& c, int from, int64_t token, int64_t element) {
  uint64_t hash = Mix(c.seed + 3);
  for (uint64_t coordinate : {uint64_t(token), uint64_t(element)}) hash = Mix(hash * 31 + coordinate);
  if (c.integers) return SmallIntegerBits(c.type, hash + uint64_t(from + 1));
  return AnyBits(c.type, Mix(hash + 17 * uint64_t(from + 1)) / 8 * 8 + hash % 8);
}

bool IsSummed(int type) {
  return std::count(SummedTypes().begin(), SummedTypes().end(), type) > 0;
}

Bytes RowOf(const HaloCase& c, int from, int64_t token) {
  Bytes row(size_t(c.RowBytes()));
  Rng rng(Mix(c.seed + uint64_t(token)) + uint64_t(from + 1));
  for (uint8_t& byte : row) byte = uint8_t(rng.Next() >> 24);
  if (!IsSummed(c.type)) return row;
  for (int64_t i = 0; i < c.rowElements; i++)
    StoreBits(c.type, ElementBits(c, from, token, i), &row[i * c.elementBytes]);
  return row;
}

Bytes RowsOf(const HaloCase& c, int from, Span tokens) {
  Bytes rows;
  for (int64_t token = tokens.first; token < tokens.end; token++) {
    const Bytes row = RowOf(c, from, token);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

// An own row once every gradient has been added, those of rank 0 first; untouched where there is none.
Bytes RowWithGradients(const HaloCase& c, const std::vector<Shard>& shards, int64_t token) {
  Bytes row = RowOf(c, -1, token);
  bool touched = false;
  std::vector<float> sums;
  for (int64_t i = 0; i < c.rowElements; i++) sums.push_back(ValueOf(c.type, ElementBits(c, -1, token, i)));
  for (int rank = 0; rank < c.nRanks; rank++) {
    if (token < shards[rank].halo.first || token >= shards[rank].halo.end) continue;
    touched = true;
    for (int64_t i = 0; i < c.rowElements; i++) sums[i] += ValueOf(c.type, ElementBits(c, rank, token, i));
  }
  for (int64_t i = 0; touched && i < c.rowElements; i++) {
    StoreBits(c.type, BitsOf(c.type, sums[i]), &row[i * c.elementBytes]);
  }
  return row;
}

// A rank's plan of the case; the context is gone once it is made.
ulyxPlan_t MakeHaloPlan(const Session& session, const HaloCase& c, int rank) {
  const ulyxContext_t context = MakeContext(c.cuSeqlens, c.nRanks, rank, c.split, c.convKernel);
  ulyxHaloShape_t shape = ULYX_HALO_SHAPE_INITIALIZER;
  shape.context = context;
  shape.rowElements = c.rowElements;
  shape.localStride = c.pad > 0 || c.seed % 2 == 0 ? c.rowElements + c.pad : 0;
  shape.type = c.type;
  shape.elementBytes = c.type == ulyxOpaque ? int(c.elementBytes) : 0;
  const ulyxPlan_t plan = PlanWith(session, rank, [&shape](ulyxRuntime_t runtime, ulyxPlan_t* made) {
    return ulyxHaloPlanCreate(runtime, &shape, made);
  });
  MUST(ulyxContextDestroy(context));
  return plan;
}

// Forward, and backward where the type is summed; `times` times, every byte compared.
void Check(const Session& session, const HaloCase& c, bool scattered, int times = 1) {
  const std::vector<Shard> shards = ShardsOf(c);
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakeHaloPlan(session, c, rank);
    const Shard& own = shards[rank];
    Bytes summed;
    for (int64_t token = own.tokens.first; IsSummed(c.type) && token < own.tokens.end; token++) {
      const Bytes row = RowWithGradients(c, shards, token);
      summed.insert(summed.end(), row.begin(), row.end());
    }
    {
      const auto spot = [&](int which) {
        const int64_t unit = IsSummed(c.type) ? c.elementBytes : 1;
        return scattered ? AnySpot(c.seed + uint64_t(which), session.GetWorld().OutputsLieAlike() ? 0 : rank, unit)
                         : Spot{};
      };
      const int64_t pitch = (c.rowElements + c.pad) * c.elementBytes;
      RowTensor local(session, rank, "local", own.tokens.Count(), c.rowElements, c.type, c.elementBytes, pitch, spot(0),
                      c.seed);
      RowTensor halo(session, rank, "halo", own.halo.Count(), c.rowElements, c.type, c.elementBytes, c.RowBytes(),
                     spot(1), c.seed + 1);
      const ulyxTensor_t localTensor = local.Tensor(), haloTensor = halo.Tensor();
      for (int i = 0; i < times; i++) {
        local.Put(RowsOf(c, -1, own.tokens));
        halo.Poison();
        MUST(ulyxConvHalo(plan, &localTensor, &haloTensor, session.Stream(rank)));
        session.Synchronize(rank);
        halo.Expect(RowsOf(c, -1, own.halo));
        local.ExpectUntouched();
        if (!IsSummed(c.type)) continue;
        halo.Put(RowsOf(c, rank, own.halo));
        MUST(ulyxConvHaloBackward(plan, &haloTensor, &localTensor, session.Stream(rank)));
        session.Synchronize(rank);
        local.Expect(summed);
        halo.ExpectUntouched();
      }
    }
    MUST(ulyxPlanDestroy(plan));
  });
}

bool CutsSequence(const HaloCase& c) {
  return TokenWorld(c.cuSeqlens, c.nRanks, c.split).Expect(0, c.convKernel).cutsSequence;
}

// Any case whose context may drive a halo.
HaloCase RandomCase(int nRanks, uint64_t seed) {
  Rng rng(seed);
  HaloCase c;
  c.nRanks = nRanks;
  c.seed = rng.Next();
  c.type = SummedTypes()[rng.Between(0, 2)];
  c.elementBytes = TypeBytes(c.type);
  if (rng.OneIn(4)) {
    c.type = ulyxOpaque;
    c.elementBytes = rng.Between(1, 17);
  }
  c.rowElements = rng.OneIn(2) ? 16 : rng.Between(1, 20);
  c.pad = rng.OneIn(2) ? 0 : rng.Between(1, 9);
  c.integers = rng.OneIn(3);
  // Kernels up to several shards, shards of one or two tokens among them.
  const int64_t perRank = rng.OneIn(3) ? 1 : rng.Between(1, 6);
  c.convKernel = int(rng.OneIn(6) ? rng.Between(0, 2) : rng.Between(2, 4 * perRank + 3));
  do {
    c.split = int(rng.Between(0, 2));
    c.cuSeqlens = rng.OneIn(3) ? std::vector<int64_t>{0, rng.Between(0, perRank * nRanks + 2)}
                               : RandomCuSeqlens(rng, 6, std::max<int64_t>(perRank * nRanks / 2, 1));
  } while (TokenWorld::Refuses(c.cuSeqlens.back(), nRanks, c.split) || CutsSequence(c));
  return c;
}

class Halo : public ::testing::TestWithParam<const World*> {
 protected:
  const Session& On(int nRanks) { return sessions_.On(*GetParam(), nRanks); }
  int Ranks(int wanted) const { return std::min(GetParam()->MaxRanks(), wanted); }

 private:
  Sessions sessions_;
};

ULYX_ON_EVERY_WORLD(Halo);

HaloCase Case(std::vector<int64_t> cuSeqlens, int nRanks, int convKernel) {
  HaloCase c;
  c.cuSeqlens = std::move(cuSeqlens);
  c.nRanks = nRanks;
  c.convKernel = convKernel;
  c.seed = TestSeed();
  return c;
}

}  // namespace

TEST_P(Halo, OfRandomSequencesIsExactBothWays) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  const uint64_t seed = TestSeed();
  const int cases = CasesOn(*GetParam(), 200);
  std::printf("%d cases from ULYX_TEST_SEED=%llu\n", cases, static_cast<unsigned long long>(seed));
  for (int i = 0; i < cases; i++) {
    const uint64_t own = seed + uint64_t(i);
    const HaloCase c = RandomCase(int(Rng(own ^ 0xfeed).Between(1, Ranks(8))), own);
    try {
      Check(On(c.nRanks), c, true);
    } catch (const std::exception& error) {
      FAIL() << error.what() << Describe(c) << "\nreplay with ULYX_TEST_SHAPES=1 ULYX_TEST_SEED=" << own;
    }
  }
}

TEST_P(Halo, OfOneSequenceComesFromAsManyRanksAsItTakes) {
  ULYX_SKIP_BELOW(*GetParam(), 4);
  const Session& session = On(4);
  for (int type : SummedTypes()) {
    for (int64_t total : {4, 5, 6, 7, 8, 3, 2, 1, 0}) {  // shards of one or two tokens, then empty ones
      for (int kernel : {4, 3, 2, 1, 0, 9, 100}) {
        HaloCase c = Case({0, total}, 4, kernel);
        c.type = type;
        c.elementBytes = TypeBytes(type);
        Check(session, c, false);
      }
    }
  }
}

TEST_P(Halo, StopsWhereItsSequenceStarts) {
  ULYX_SKIP_BELOW(*GetParam(), 4);
  // Tokens 0 1 | 2 3 | 4 5 | 6 7: a sequence begins in the middle of rank 0, another at rank 2's first token.
  Check(On(4), Case({0, 1, 4, 8}, 4, 6), false);
  Check(On(4), Case({0, 1, 1, 4, 4, 4, 8}, 4, 6), false);  // the same with empty sequences between
}

TEST_P(Halo, OfTenTokensOverThreeRanksLosesNone) {
  ULYX_SKIP_BELOW(*GetParam(), 3);
  for (int kernel : {2, 4, 8}) Check(On(3), Case({0, 10}, 3, kernel), false);
  ulyxSequences_t sequences = nullptr;
  ulyxContext_t context = nullptr;
  const int64_t ten[] = {0, 10};
  MUST(ulyxSequencesCreate(ten, 2, ulyxInt64, &sequences));
  EXPECT_TRUE(
      Refused(ulyxContextCreate(sequences, 3, 0, ulyxSplitEqual, 4, &context), ulyxInvalidArgument, {"10", "3"}));
  MUST(ulyxSequencesDestroy(sequences));
}

TEST_P(Halo, GradientsOfIntegersAreExactAndComeBackTheSameEveryTime) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = Ranks(8);
  for (int type : SummedTypes()) {
    HaloCase c = Case({0, nRanks + 1}, nRanks, 6);
    c.type = type;
    c.elementBytes = TypeBytes(type);
    c.rowElements = 16;
    c.integers = true;
    Check(On(nRanks), c, false, 10);
  }
}

TEST_P(Halo, OfOneRankIsNothing) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  Check(On(1), Case({0, 3, 3, 9}, 1, 4), false);
  Check(On(1), Case({0}, 1, 4), false);
}

TEST_P(Halo, IsDescribedByThePlan) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session& session = On(2);
  HaloCase c = Case({0, 7}, 2, 3);
  c.pad = 4;
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakeHaloPlan(session, c, rank);
    ulyxTensor_t local = ULYX_TENSOR_INITIALIZER, halo = ULYX_TENSOR_INITIALIZER;
    MUST(ulyxPlanGetHalo(plan, &local, &halo));
    MUST(ulyxPlanGetHalo(plan, nullptr, nullptr));
    EXPECT_EQ(local.extents[1], rank == 0 ? 4 : 3);
    EXPECT_EQ(local.extents[3], 3);
    EXPECT_EQ(local.strides[1], 7);
    EXPECT_EQ(halo.extents[1], rank == 0 ? 0 : 2);
    EXPECT_EQ(halo.strides[1], 3);
    EXPECT_EQ(halo.data, nullptr);
    MUST(ulyxPlanDestroy(plan));
  });
}

TEST_P(Halo, OfASequenceCutByTruncationIsRefusedOnEveryRank) {
  ULYX_SKIP_BELOW(*GetParam(), 3);
  const Session& session = On(3);
  session.Run([&](int rank) {
    // 10 tokens over 3 ranks: token 9 is on no rank, and it is sequence 1's.
    const ulyxContext_t context = MakeContext({0, 4, 10}, 3, rank, ulyxSplitTruncate, 4);
    ulyxHaloShape_t shape = ULYX_HALO_SHAPE_INITIALIZER;
    shape.context = context;
    shape.rowElements = 4;
    ulyxPlan_t plan = nullptr;
    EXPECT_TRUE(Refused(ulyxHaloPlanCreate(session.Runtime(rank), &shape, &plan), ulyxInvalidUsage,
                        {"sequence 1", "[4, 10)", "3 ranks", "token 9"}));
    EXPECT_EQ(plan, nullptr);
    MUST(ulyxContextDestroy(context));
  });
  HaloCase whole = Case({0, 4, 9, 10}, 3, 4);  // the tail is a sequence of its own
  whole.split = ulyxSplitTruncate;
  Check(session, whole, false);
}

TEST_P(Halo, OfAContextOfAnotherRankOrWorldIsRefused) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session& session = On(2);
  session.Run([&](int rank) {
    const auto refuse = [&](ulyxContext_t context, std::initializer_list<std::string> words) {
      ulyxHaloShape_t shape = ULYX_HALO_SHAPE_INITIALIZER;
      shape.context = context;
      shape.rowElements = 4;
      ulyxPlan_t plan = nullptr;
      EXPECT_TRUE(Refused(ulyxHaloPlanCreate(session.Runtime(rank), &shape, &plan), ulyxInvalidArgument, words));
      EXPECT_EQ(plan, nullptr);
    };
    const ulyxContext_t others = MakeContext({0, 8}, 2, 1 - rank, ulyxSplitBalanced, 4);
    const ulyxContext_t three = MakeContext({0, 8}, 3, rank, ulyxSplitBalanced, 4);
    const std::string own = std::to_string(rank), other = std::to_string(1 - rank);
    refuse(others, {"rank " + other + "'s of 2", "rank " + own + "'s of 2"});
    refuse(three, {"rank " + own + "'s of 3", "rank " + own + "'s of 2"});
    refuse(nullptr, {"context", "NULL"});
    MUST(ulyxContextDestroy(others));
    MUST(ulyxContextDestroy(three));
  });
  Check(session, Case({0, 8}, 2, 4), false);
}

TEST_P(Halo, ThatTheRanksSeeDifferentlyIsAMismatchOnEveryRank) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session& session = On(2);
  struct View {
    std::initializer_list<std::string> words;
    std::vector<int64_t> cuSeqlens;  // of rank 1
    int kernel;
    int64_t rowElements, stride;
    int type;
  };
  const View views[] = {{{"rank 0 gives rank 0 4 tokens, rank 1 gives it 5"}, {0, 9}, 4, 4, 0, ulyxFloat32},
                        {{"rank 0 gives rank 1 3 halo tokens, rank 1 gives it 2"}, {0, 8}, 3, 4, 0, ulyxFloat32},
                        {{"rank 0 gives rank 1 3 halo tokens, rank 1 gives it 1"}, {0, 3, 8}, 4, 4, 0, ulyxFloat32},
                        {{"halo.rowElements", "4 on rank 0", "5 on rank 1"}, {0, 8}, 4, 5, 0, ulyxFloat32},
                        {{"halo.type", "7 on rank 0", "6 on rank 1"}, {0, 8}, 4, 4, 0, ulyxFloat16},
                        {{"local tensor", "16 on rank 0", "24 on rank 1"}, {0, 8}, 4, 4, 6, ulyxFloat32}};
  for (const View& c : views) {
    session.Run([&](int rank) {
      MUST(ulyxRuntimeReserve(session.Runtime(rank), 1 << 16));
      const ulyxContext_t context = rank == 0 ? MakeContext({0, 8}, 2, rank, ulyxSplitBalanced, 4)
                                              : MakeContext(c.cuSeqlens, 2, rank, ulyxSplitBalanced, c.kernel);
      ulyxHaloShape_t shape = ULYX_HALO_SHAPE_INITIALIZER;
      shape.context = context;
      shape.rowElements = rank == 0 ? 4 : c.rowElements;
      shape.localStride = rank == 0 ? 0 : c.stride;
      shape.type = rank == 0 ? int(ulyxFloat32) : c.type;
      ulyxPlan_t plan = nullptr;
      EXPECT_TRUE(Refused(ulyxHaloPlanCreate(session.Runtime(rank), &shape, &plan), ulyxMismatch, c.words));
      EXPECT_EQ(plan, nullptr);
      MUST(ulyxContextDestroy(context));
    });
  }
  Check(session, Case({0, 8}, 2, 4), false);
}

TEST_P(Halo, OfWrongRowsIsRefusedWithBothNumbers) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session& session = On(2);
  session.Run([&](int rank) {
    const auto refuse = [&](int64_t rowElements, int64_t stride, int type, int elementBytes,
                            std::initializer_list<std::string> words) {
      const ulyxContext_t context = MakeContext({0, 8}, 2, rank, ulyxSplitBalanced, 4);
      ulyxHaloShape_t shape = ULYX_HALO_SHAPE_INITIALIZER;
      shape.context = context;
      shape.rowElements = rowElements;
      shape.localStride = stride;
      shape.type = type;
      shape.elementBytes = elementBytes;
      ulyxPlan_t plan = nullptr;
      EXPECT_TRUE(Refused(ulyxHaloPlanCreate(session.Runtime(rank), &shape, &plan), ulyxInvalidArgument, words));
      EXPECT_EQ(plan, nullptr);
      MUST(ulyxContextDestroy(context));
    };
    refuse(0, 0, ulyxFloat32, 0, {"halo.rowElements is 0", "1 or more"});
    refuse(4, 3, ulyxFloat32, 0, {"halo.localStride is 3", "rowElements = 4"});
    refuse(4, 0, 77, 0, {"halo.type is 77"});
    refuse(4, 0, ulyxFloat32, 2, {"halo.elementBytes is 2", "4"});
    refuse(int64_t{1} << 60, 0, ulyxFloat32, 0, {"2^60"});
  });
}

TEST_P(Halo, GradientsOfOtherTypesAreRefusedByName) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session& session = On(2);
  HaloCase c = Case({0, 8}, 2, 4);
  c.type = ulyxInt16;
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakeHaloPlan(session, c, rank);
    ulyxTensor_t local = ULYX_TENSOR_INITIALIZER, halo = ULYX_TENSOR_INITIALIZER;
    MUST(ulyxPlanGetHalo(plan, &local, &halo));
    EXPECT_TRUE(Refused(ulyxConvHaloBackward(plan, &halo, &local, session.Stream(rank)), ulyxInvalidArgument,
                        {"int16", "float16, bfloat16 and float32"}));
    MUST(ulyxPlanDestroy(plan));
  });
  Check(session, c, false);  // forward it is as good as any
}

TEST_P(Halo, OfTensorsThatDoNotFitIsRefusedAndTheNextCallWorks) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session& session = On(2);
  const HaloCase c = Case({0, 8}, 2, 3);
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakeHaloPlan(session, c, rank);
    RowTensor memory(session, rank, "memory", 8, 3, c.type, 2, 6, {}, c.seed);
    ulyxTensor_t local = ULYX_TENSOR_INITIALIZER, halo = ULYX_TENSOR_INITIALIZER;
    MUST(ulyxPlanGetHalo(plan, &local, &halo));
    local.data = memory.Tensor().data;
    halo.data = static_cast<char*>(local.data) + 24;
    ulyxTensor_t bad = local;
    bad.extents[1] = 5;
    EXPECT_TRUE(Refused(ulyxConvHalo(plan, &bad, &halo, session.Stream(rank)), ulyxMismatch,
                        {"local: extents are [1, 5, 1, 3]", "[1, 4, 1, 3]"}));
    bad = halo;
    bad.extents[1] += 1;
    EXPECT_TRUE(
        Refused(ulyxConvHaloBackward(plan, &bad, &local, session.Stream(rank)), ulyxMismatch, {"halo: extents"}));
    if (rank == 1) {
      bad = halo;
      bad.data = static_cast<char*>(local.data) + 18;
      EXPECT_TRUE(Refused(ulyxConvHalo(plan, &local, &bad, session.Stream(rank)), ulyxInvalidArgument, {"overlap"}));
    }
    ulyxStates_t states = {};
    EXPECT_TRUE(Refused(ulyxStateChain(plan, &states, nullptr), ulyxInvalidUsage, {"halo", "chain"}));
    EXPECT_TRUE(Refused(ulyxAllGatherRows(plan, &local, &halo, nullptr), ulyxInvalidUsage, {"halo", "row collective"}));
    memory.ExpectUntouched();
    MUST(ulyxPlanDestroy(plan));
  });
  Check(session, c, false);
}

}  // namespace ulyx_test
