// SPDX-License-Identifier: MIT
//
// What the nccl transport does on the fakes, counted: what crosses the wire, what a steady exchange costs, and how
// it ends when parts of the machine are missing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "fake.h"
#include "support/exchange_check.h"
#include "support/rng.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

constexpr int64_t kLabelBytes = 64;  // before the messages of a pair in an operation

const World& Sim() {
  return *Worlds().front();
}

// Plans, then calls body(tensors, plan, rank) with the counters started afresh.
template <class Body>
void AfterSetUp(const Session& session, const ulyxShape_t& shape, const Placement& placement, const Body& body) {
  const int nRanks = session.NRanks();
  const Oracle oracle(shape, nRanks, TestSeed());
  std::vector<ulyxPlan_t> plans(nRanks);
  std::vector<std::unique_ptr<RankTensors>> tensors(nRanks);
  session.Run([&](int rank) {
    plans[rank] = MakePlan(session, shape, rank);
    tensors[rank] = std::make_unique<RankTensors>(session, oracle, rank, placement);
    Exchange(session, plans[rank], *tensors[rank], rank);
  });
  body(plans, tensors);
  session.Run([&](int rank) {
    tensors[rank].reset();
    MUST(ulyxPlanDestroy(plans[rank]));
  });
}

// Ends the process, with 0 if all went well.
void DestroyAfterCudaHasGone() {
  Session session(Sim(), 2);
  CheckExchanges(session, Shape(5, 4, 8).c, TestSeed());
  session.Run([&](int rank) { (void)MakePlan(session, Shape(6, 4, 8).c, rank); });
  fakeSetCudaGone(1);
  bool quiet = true;
  for (int rank = 0; rank < 2; rank++) {
    quiet = quiet && ulyxRuntimeDestroy(session.RuntimePtr(rank)) == ulyxSuccess && session.Runtime(rank) == nullptr;
  }
  _exit(quiet && fakeGet().violations == 0 ? 0 : 1);
}

}  // namespace

TEST(NcclTraffic, IsEveryRemoteByteALabelAPairAndLittleElse) {
  for (int i = 0; i < 30; i++) {
    const uint64_t own = TestSeed() + uint64_t(i);
    const int nRanks = int(Rng(own).Between(2, 8));
    const Shape shape = RandomShape(nRanks, own);
    SCOPED_TRACE(Describe(shape.c, nRanks));
    const Session session(Sim(), nRanks);
    const Oracle oracle(shape.c, nRanks, TestSeed());
    AfterSetUp(session, shape.c, Ordinary, [&](const auto& plans, const auto& tensors) {
      std::vector<int64_t> before(nRanks * nRanks);
      for (int pair = 0; pair < nRanks * nRanks; pair++) before[pair] = fakeSentBytes(pair / nRanks, pair % nRanks);
      session.Run([&](int rank) { Exchange(session, plans[rank], *tensors[rank], rank); });
      for (int src = 0; src < nRanks; src++) {
        for (int dst = 0; dst < nRanks; dst++) {
          const int64_t sent = fakeSentBytes(src, dst) - before[src * nRanks + dst];
          const int64_t there = src == dst ? 0 : oracle.SeqToHeadsBytes(src, dst);
          const int64_t back = src == dst ? 0 : oracle.HeadsToSeqBytes(src, dst);
          const int64_t labels = kLabelBytes * ((there > 0 ? 1 : 0) + (back > 0 ? 1 : 0));
          EXPECT_GE(sent, there + back + labels);
          // At most 15 bytes before each dense piece: a permuted view can have one a token, head or batch item.
          EXPECT_LE(sent, 16 * (there + back) + labels);
        }
      }
    });
  }
}

TEST(NcclTraffic, OfDenseShapesIsTheRemoteBytesTwoLabelsAndPaddingBetweenThreeTensors) {
  const Session session(Sim(), 4);
  const Shape shape = Shape(103, 20, 46).KvHeads(4);
  const Oracle oracle(shape.c, 4, TestSeed());
  AfterSetUp(session, shape.c, Ordinary, [&](const auto& plans, const auto& tensors) {
    const int64_t before = fakeSentBytes(1, 2);
    session.Run([&](int rank) { Exchange(session, plans[rank], *tensors[rank], rank); });
    const int64_t needed = oracle.SeqToHeadsBytes(1, 2) + oracle.HeadsToSeqBytes(1, 2) + 2 * kLabelBytes;
    EXPECT_GE(fakeSentBytes(1, 2) - before, needed);
    EXPECT_LE(fakeSentBytes(1, 2) - before, needed + 2 * 15);
  });
}

TEST(NcclTraffic, OfASteadyExchangeIsTwoGroupsTwoLaunchesALabelAPeerAndNothingAllocated) {
  const int nRanks = 4;
  const Session session(Sim(), nRanks);
  const Shape shape = Shape(64, 8, 32).KvHeads(4);
  AfterSetUp(session, shape.c, Ordinary, [&](const auto& plans, const auto& tensors) {
    const fakeCounters before = fakeGet();
    constexpr int kTimes = 10;
    session.Run([&](int rank) {
      for (int i = 0; i < kTimes; i++) Exchange(session, plans[rank], *tensors[rank], rank);
    });
    const fakeCounters after = fakeGet();
    const int64_t exchanges = int64_t{2} * kTimes * nRanks;
    EXPECT_EQ(after.groups - before.groups, 2 * exchanges);
    EXPECT_EQ(after.sends - before.sends, 2 * exchanges * (nRanks - 1));
    EXPECT_EQ(after.receives - before.receives, 2 * exchanges * (nRanks - 1));
    EXPECT_EQ(after.labels - before.labels, exchanges);
    EXPECT_LE(after.launches - before.launches, 2 * exchanges);
    EXPECT_EQ(after.collectives, before.collectives);
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(after.hostAllocations, before.hostAllocations);
    EXPECT_EQ(after.ncclAllocations, before.ncclAllocations);
    EXPECT_EQ(after.streams, before.streams);
    EXPECT_EQ(after.events, before.events);
    EXPECT_EQ(after.windows, before.windows);
  });
}

TEST(NcclTraffic, HasNoLabelsWherePlansDoNotAgree) {
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.agreePlans = 0;
  const Session session(Sim(), 2, &config);
  const Shape shape(64, 4, 32);
  const Oracle oracle(shape.c, 2, TestSeed());
  AfterSetUp(session, shape.c, Ordinary, [&](const auto& plans, const auto& tensors) {
    const fakeCounters before = fakeGet();
    const int64_t sentBefore = fakeSentBytes(0, 1);
    session.Run([&](int rank) { Exchange(session, plans[rank], *tensors[rank], rank); });
    EXPECT_EQ(fakeSentBytes(0, 1) - sentBefore, oracle.SeqToHeadsBytes(0, 1) + oracle.HeadsToSeqBytes(0, 1));
    EXPECT_EQ(fakeGet().sends - before.sends, 4);
    EXPECT_EQ(fakeGet().labels, 0);
  });
}

TEST(NcclTraffic, OfOneRankIsNone) {
  const Session session(Sim(), 1);
  const Shape shape(9, 4, 8);
  const int64_t before = fakeGet().sends;
  CheckExchanges(session, shape.c, TestSeed());
  EXPECT_EQ(fakeGet().sends, before);
}

TEST(NcclTraffic, IsExactWhereWindowsCannotBeMapped) {
  fakeSetWindowSupport(0);
  const Session session(Sim(), 3);
  for (int i = 0; i < 10; i++) {
    const Shape shape = RandomShape(3, TestSeed() + uint64_t(i));
    CheckExchanges(session, shape.c, TestSeed(), Scattered(TestSeed() + uint64_t(i)));
  }
}

TEST(NcclTraffic, IsStagedUnlessTheTensorIsSymmetricAndHoldsTheMessage) {
  // All of o from rank 1 to rank 0, dense at both ends.
  const Shape shape = Shape(0, 4, 16).TokenCounts({30, 0}).HeadCounts({0, 4});
  const Session session(Sim(), 2);
  const auto launches = [&](const Placement& placement) {
    int64_t counted = 0;
    AfterSetUp(session, shape.c, placement, [&](const auto& plans, const auto& tensors) {
      const int64_t before = fakeGet().launches;
      session.Run([&](int rank) {
        const ulyxTensor_t in = tensors[rank]->OutputIn(plans[rank]), out = tensors[rank]->OutputOut(plans[rank]);
        MUST(ulyxHeadsToSeq(plans[rank], &in, &out, session.Stream(rank)));
        session.Synchronize(rank);
      });
      counted = fakeGet().launches - before;
    });
    return counted;
  };
  EXPECT_EQ(launches(Ordinary), 2);   // pack, unpack
  EXPECT_EQ(launches(Symmetric), 0);  // straight from tensor to tensor
  EXPECT_EQ(launches([](int rank, Slot) { return Place{rank == 0, 0}; }), 1);
}

TEST(NcclTraffic, WindowsHaveOneSizeOnEveryRank) {
  const Session session(Sim(), 4);
  session.Run([&](int rank) {
    void* memory = nullptr;
    MUST(ulyxMemAlloc(session.Runtime(rank), 1000 * rank, &memory));
  });
  EXPECT_GT(fakeGet().windows, 0);
  EXPECT_EQ(fakeGet().windows % 4, 0);
}

// In a process of its own: what CUDA took with it is not freed by anyone, and leak checkers say so.
TEST(NcclExitDeathTest, ARuntimeIsDestroyedQuietlyAfterCudaHasGone) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(DestroyAfterCudaHasGone(), ::testing::ExitedWithCode(0), "");
}

}  // namespace ulyx_test
