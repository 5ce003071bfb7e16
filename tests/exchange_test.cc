// SPDX-License-Identifier: MIT
//
// Every byte of both exchanges against the oracle, on every world.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/exchange_check.h"
#include "support/rng.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

class Exchanges : public ::testing::TestWithParam<const World*> {
 protected:
  // Sessions are made once a number of ranks: shapes of all kinds follow one another on a runtime.
  const Session& On(int nRanks) { return sessions_.On(*GetParam(), nRanks); }

  // On as many of the ranks as the world has room for.
  void Check(const Shape& shape, int nRanks, const Placement& placement = Ordinary) {
    SCOPED_TRACE(Describe(shape.c, nRanks));
    CheckExchanges(On(nRanks), shape.c, TestSeed(), placement);
  }

 private:
  Sessions sessions_;
};

ULYX_ON_EVERY_WORLD(Exchanges);

// Random shapes a run, and most ranks of them; sanitizers and GPUs are slow at different things.
constexpr int kShapes = 80;
constexpr int kMostRanks = 16;

}  // namespace

TEST_P(Exchanges, MoveEveryByteOfRandomRaggedShapes) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  const uint64_t seed = TestSeed();
  const int shapes = CasesOn(*GetParam(), kShapes);
  const int mostRanks = std::min(GetParam()->MaxRanks(), kMostRanks);
  std::printf("%d shapes from ULYX_TEST_SEED=%llu\n", shapes, static_cast<unsigned long long>(seed));
  for (int i = 0; i < shapes; i++) {
    const uint64_t own = seed + uint64_t(i);
    const int nRanks = int(Rng(own).Between(1, mostRanks));
    const Shape shape = RandomShape(nRanks, own);
    try {
      CheckExchanges(On(nRanks), shape.c, own, Scattered(own));
    } catch (const std::exception& error) {
      FAIL() << error.what() << Describe(shape.c, nRanks) << "\nreplay with ULYX_TEST_SHAPES=1 ULYX_TEST_SEED=" << own;
    }
  }
}

TEST_P(Exchanges, OfTheSameShapesAreExactInSymmetricMemoryAndInOrdinary) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const uint64_t seed = TestSeed() ^ 0x5eed;
  const int shapes = std::max(CasesOn(*GetParam(), kShapes) / 8, 1);
  for (int i = 0; i < shapes; i++) {
    const int nRanks = int(Rng(seed + uint64_t(i)).Between(2, std::min(GetParam()->MaxRanks(), 4)));
    const Shape shape = RandomShape(nRanks, seed + uint64_t(i));
    Check(shape, nRanks, Symmetric);
    Check(shape, nRanks, Ordinary);
  }
}

TEST_P(Exchanges, MoveTwoRanksOfEqualParts) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  Check(Shape(64, 8, 64), 2);
}

TEST_P(Exchanges, MoveSharedKeyValueHeadsToEveryRankThatUsesThem) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  Check(Shape(9, 6, 4).KvHeads(1), 2);
  Check(Shape(9, 12, 4).KvHeads(4).HeadCounts({5, 7}), 2);
}

TEST_P(Exchanges, MoveBatchItemsThatARanksTokensDoNotFill) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  // One narrow head a rank: a rank's tokens of the items lie 32 bytes apart and are 24 bytes long.
  Shape shape(4, 2, 4);
  shape.TokenCounts({3, 1});
  shape.c.batch = 2;
  Check(shape, 2);
  Check(shape, 2, Symmetric);
  shape.c.headsOrder = shape.c.seqOrder = ulyxSeqFirst;
  Check(shape, 2, Symmetric);
  // And with spare bytes between the items of an output.
  shape.c.headsOrder = shape.c.seqOrder = ulyxBatchFirst;
  shape.c.oIn.token = 5;
  shape.c.oOut = {16, 4, 32};
  Check(shape, 2, Symmetric);
}

TEST_P(Exchanges, MoveLargeRowsWhole) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  if (WatchesThreads() || IsThrifty(*GetParam())) GTEST_SKIP() << "the first world, and without the thread sanitizer";
  // Past the bytes from which a pair's q, k and v may go as three messages, dense where they arrive.
  Shape shape = Shape(0, 8, 1024).TokenCounts({400, 0}).HeadCounts({1, 7});
  shape.c.type = ulyxFloat32;
  Check(shape, 2, Symmetric);
  Check(shape, 2, Ordinary);
}

TEST_P(Exchanges, MoveJointTokensInMoreCopiesThanOneLaunchHolds) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  // Nothing continues anything: of 12 items, 20 heads and 12 tokens to a rank only the longest becomes rows. A rank
  // sends itself and its peer 3 x 144 copies each, and itself 3 x 60 of the text.
  Shape shape = Shape(24, 40, 2).Type(ulyxInt8).Replicated(5, ulyxReplicatedFirst);
  shape.c.batch = 12;
  for (ulyxStrides_t* strides : {&shape.c.qIn, &shape.c.kIn, &shape.c.vIn, &shape.c.oOut}) *strides = {2600, 130, 3};
  for (ulyxStrides_t* strides : {&shape.c.qOut, &shape.c.kOut, &shape.c.vOut, &shape.c.oIn}) *strides = {3, 40, 1200};
  Check(shape, 2);
  Check(shape, 2, Symmetric);
  shape.c.replicatedPlace = ulyxReplicatedLast;
  Check(shape, 2);
}

TEST_P(Exchanges, WriteViewsIntoOneFusedBuffer) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  // q, k and v of the heads side are interleaved views of rows [q | k | v | 5 spare elements].
  const Session& session = On(2);
  Shape shape(7, 4, 6);
  const int64_t row = 3 * 2 * 6 + 5;
  shape.c.qOut = shape.c.kOut = shape.c.vOut = {0, row, 6};
  Shape separate(7, 4, 6);
  const Oracle oracle(separate.c, 2, TestSeed());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    const World& world = session.GetWorld();
    std::vector<uint8_t> fused(7 * row * 2, 0xee);
    auto* const memory = static_cast<uint8_t*>(world.Alloc(rank, fused.size()));
    world.Upload(rank, memory, fused.data(), fused.size());
    const ulyxQkv_t in = tensors.In(plan);
    ulyxQkv_t out = ULYX_QKV_INITIALIZER;
    MUST(ulyxPlanGetQkv(plan, nullptr, &out));
    out.q.data = memory;
    out.k.data = memory + 2 * 6 * 2;
    out.v.data = memory + 2 * 2 * 6 * 2;
    MUST(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)));
    session.Synchronize(rank);
    world.Download(rank, fused.data(), memory, fused.size());
    world.Free(rank, memory);
    const Slot slots[] = {kQOut, kKOut, kVOut};
    for (int i = 0; i < 3; i++) {
      const std::vector<uint8_t> expected = oracle.Written(rank, slots[i], 0);
      for (int64_t token = 0; token < 7; token++) {
        const uint8_t* const found = fused.data() + token * row * 2 + i * 24;
        EXPECT_TRUE(std::equal(found, found + 24, expected.data() + kCanary + token * 24)) << SlotName(slots[i]);
      }
    }
    for (int64_t token = 0; token < 7; token++) {
      for (int64_t byte = 72; byte < row * 2; byte++) EXPECT_EQ(fused[token * row * 2 + byte], 0xee);
    }
    MUST(ulyxPlanDestroy(plan));
  });
}

TEST_P(Exchanges, FollowOneAnotherWithoutWaiting) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = std::min(GetParam()->MaxRanks(), 4);
  const Session& session = On(nRanks);
  const Shape shape = Shape(37, 10, 24).KvHeads(5);
  constexpr int kInFlight = 12;
  std::vector<Oracle> oracles;
  for (int i = 0; i < kInFlight; i++) oracles.emplace_back(shape.c, nRanks, TestSeed() + uint64_t(i));
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    std::vector<std::unique_ptr<RankTensors>> tensors;
    for (int i = 0; i < kInFlight; i++) {
      tensors.push_back(std::make_unique<RankTensors>(session, oracles[i], rank, i % 2 == 0 ? Ordinary : Symmetric));
    }
    for (int i = 0; i < kInFlight; i++) Exchange(session, plan, *tensors[i], rank);
    MUST(ulyxPlanDestroy(plan));  // exchanges in flight keep working
    session.Synchronize(rank);
    for (int i = 0; i < kInFlight; i++) tensors[i]->ExpectWritten();
  });
}

TEST_P(Exchanges, OfTwoPlansAlternate) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session& session = On(2);
  const Shape wide(11, 7, 16);
  const Shape narrow = Shape(5, 2, 3).Type(ulyxInt8);
  const Oracle wideOracle(wide.c, 2, TestSeed()), narrowOracle(narrow.c, 2, TestSeed() + 1);
  session.Run([&](int rank) {
    const ulyxPlan_t widePlan = MakePlan(session, wide.c, rank);
    const ulyxPlan_t narrowPlan = MakePlan(session, narrow.c, rank);
    const RankTensors wideTensors(session, wideOracle, rank, Ordinary);
    const RankTensors narrowTensors(session, narrowOracle, rank, Symmetric);
    for (int i = 0; i < 5; i++) {
      wideTensors.Fill();
      narrowTensors.Fill();
      Exchange(session, widePlan, wideTensors, rank);
      Exchange(session, narrowPlan, narrowTensors, rank);
      session.Synchronize(rank);
      wideTensors.ExpectWritten();
      narrowTensors.ExpectWritten();
    }
    MUST(ulyxPlanDestroy(widePlan));
    MUST(ulyxPlanDestroy(narrowPlan));
  });
}

TEST_P(Exchanges, LetARankReuseItsInputsOnceItsOwnHaveRun) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  // Rank 0 owns no heads: it has nothing to wait for but that rank 1 has read its tokens.
  const Session& session = On(2);
  const Shape shape = Shape(0, 8, 128).TokenCounts({2000, 1}).HeadCounts({0, 8});
  const Oracle oracle(shape.c, 2, TestSeed());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    const std::vector<uint8_t> noise(oracle.LayoutOf(0, kVIn).bytes, 0xa5);
    for (int i = 0; i < (WatchesThreads() ? 3 : 10); i++) {
      const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
      MUST(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)));
      const ulyxTensor_t outputIn = tensors.OutputIn(plan), outputOut = tensors.OutputOut(plan);
      if (rank == 0) {
        session.Synchronize(rank);
        for (void* data : {in.v.data, in.k.data, in.q.data}) GetParam()->Upload(rank, data, noise.data(), noise.size());
        tensors.Fill();
      }
      MUST(ulyxHeadsToSeq(plan, &outputIn, &outputOut, session.Stream(rank)));
      session.Synchronize(rank);
      tensors.ExpectWritten();
    }
    MUST(ulyxPlanDestroy(plan));
  });
}

TEST_P(Exchanges, RunOnTheDefaultStream) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  if (GetParam()->KeepsOneSession() && GetParam()->Transport() != ulyxTransportNccl) {
    GTEST_SKIP() << "ranks that share a GPU share its default stream, and would wait for one another in it";
  }
  const Session& session = On(2);
  const Shape shape(12, 4, 8);
  const Oracle oracle(shape.c, 2, TestSeed());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
    const ulyxTensor_t outputIn = tensors.OutputIn(plan), outputOut = tensors.OutputOut(plan);
    MUST(ulyxSeqToHeads(plan, &in, &out, nullptr));
    MUST(ulyxHeadsToSeq(plan, &outputIn, &outputOut, nullptr));
    GetParam()->Synchronize(rank, nullptr);
    tensors.ExpectWritten();
    MUST(ulyxPlanDestroy(plan));
  });
}

TEST_P(Exchanges, LeaveTheCallersDeviceCurrent) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session& session = On(2);
  const Shape shape(12, 4, 8);
  const Oracle oracle(shape.c, 2, TestSeed());
  // Each thread sits on the other rank's device; memory made there afterwards must still work there.
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    const int before = GetParam()->Current();
    GetParam()->Use(1 - rank);
    const int other = GetParam()->Current();
    Exchange(session, plan, tensors, rank);
    EXPECT_EQ(GetParam()->Current(), other);
    GetParam()->Use(rank);
    EXPECT_EQ(GetParam()->Current(), before);
    session.Synchronize(rank);
    tensors.ExpectWritten();
    MUST(ulyxPlanDestroy(plan));
  });
}

TEST_P(Exchanges, OfOneRankMayReadAndWriteTheVerySameTensors) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  const Session& session = On(1);
  const Shape shape = Shape(6, 4, 8).KvHeads(2);
  const Oracle oracle(shape.c, 1, TestSeed());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    const ulyxQkv_t in = tensors.In(plan);
    MUST(ulyxSeqToHeads(plan, &in, &in, session.Stream(rank)));
    const ulyxTensor_t output = tensors.OutputIn(plan);
    MUST(ulyxHeadsToSeq(plan, &output, &output, session.Stream(rank)));
    session.Synchronize(rank);
    tensors.ExpectUntouched();
    MUST(ulyxPlanDestroy(plan));
  });
}

// More streams than peers, fewer, one a peer: each peer's copies end with what tells it, wherever they run.
TEST_P(Exchanges, ByEnginesAreExactOnAnyNumberOfStreams) {
  if (GetParam()->Transport() != ulyxTransportCopyEngine) GTEST_SKIP() << "no engines";
  if (GetParam()->KeepsOneSession()) GTEST_SKIP() << "ranks that share a GPU share its queues";
  const int nRanks = std::min(GetParam()->MaxRanks(), 4);
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Shape shape = Shape(40 * nRanks + 3, 3 * nRanks - 1, 16);
  for (const int streams : {0, 2, 9}) {
    SCOPED_TRACE(std::to_string(streams) + " streams");
    ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
    config.copyStreams = streams;
    config.undisturbed = 1;  // else stores would carry all of so few bytes
    const Session session(*GetParam(), nRanks, &config);
    CheckExchanges(session, shape.c, TestSeed(), Symmetric);
  }
}

TEST_P(Exchanges, OfAsManyRanksAsFitAreExact) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = std::min(GetParam()->MaxRanks(), 64);
  CheckExchanges(On(nRanks), Shape(100, 70, 5).c, TestSeed(), Scattered(TestSeed()));
  std::vector<int64_t> few(nRanks, 0);
  few.front() = 5;
  few.back() = 2;
  CheckExchanges(On(nRanks), Shape(7, 70, 5).TokenCounts(few).c, TestSeed());
}

}  // namespace ulyx_test
