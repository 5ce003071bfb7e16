// SPDX-License-Identifier: MIT
//
// Ranks that disagree: every rank gets an error that says who and how much, nothing is made, and the next call
// works.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "support/exchange_check.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

class Agreement : public ::testing::TestWithParam<const World*> {
 protected:
  int NRanks() const { return std::min(GetParam()->MaxRanks(), 4); }
};
ULYX_ON_EVERY_WORLD(Agreement);

Shape Agreed(int nRanks) {
  return Shape(4 * nRanks, 2 * nRanks, 8);
}

struct Difference {
  std::function<void(Shape*)> spoil;
  std::vector<std::string> words;
};

// What the last rank does differently, and what every rank's error must then say.
std::vector<Difference> Differences(int nRanks) {
  const int64_t tokens = 4 * nRanks, heads = 2 * nRanks;
  std::vector<int64_t> movedTokens(nRanks, 4), movedHeads(nRanks, 2);
  movedTokens.front()++;
  movedTokens.back()--;
  movedHeads.front()--;
  movedHeads.back()++;
  const auto both = [](const std::string& field, int64_t here, int64_t there) {
    return std::vector<std::string>{field, std::to_string(here), std::to_string(there)};
  };
  return {
      {[](Shape* s) { s->c.tokens++; }, both("tokens", tokens, tokens + 1)},
      {[](Shape* s) { s->c.heads++; }, both("heads", heads, heads + 1)},
      {[](Shape* s) { s->c.kvHeads = s->c.heads / 2; }, both("kvHeads", heads, heads / 2)},
      {[](Shape* s) { s->c.headDim = 7; }, both("headDim", 8, 7)},
      {[](Shape* s) { s->c.valueDim = 9; }, both("valueDim", 8, 9)},
      {[](Shape* s) { s->c.batch = 2; }, both("batch", 1, 2)},
      {[](Shape* s) { s->c.type = ulyxFloat16; }, both("type", ulyxBfloat16, ulyxFloat16)},
      {[](Shape* s) { s->c.seqOrder = ulyxSeqFirst; }, both("seqOrder", 0, 1)},
      {[](Shape* s) { s->c.headsOrder = ulyxSeqFirst; }, both("headsOrder", 0, 1)},
      {[](Shape* s) { s->c.packedIn = 1; }, both("packedIn", 0, 1)},
      {[](Shape* s) { s->c.packedOut = 1; }, both("packedOut", 0, 1)},
      {[](Shape* s) { s->Replicated(3, ulyxReplicatedFirst); }, both("replicatedTokens", 0, 3)},
      {[](Shape* s) { s->Replicated(0, ulyxReplicatedLast); }, both("replicatedPlace", 0, 1)},
      {[](Shape* s) { s->c.kOut.token = 600; }, both("kOut", 0, 600)},
      {[](Shape* s) { s->c.oIn.head = 11; }, both("oIn", 0, 11)},
      {[=](Shape* s) { s->TokenCounts(movedTokens); }, both("tokens", 4, 5)},
      {[=](Shape* s) { s->HeadCounts(movedHeads); }, both("heads", 2, 1)},
  };
}

}  // namespace

TEST_P(Agreement, EveryDifferenceIsAMismatchThatNamesTheFieldAndBothNumbersOnEveryRank) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = NRanks();
  const Session session(*GetParam(), nRanks);
  session.Run([&](int rank) { MUST(ulyxRuntimeReserve(session.Runtime(rank), 1 << 20)); });
  for (const Difference& difference : Differences(nRanks)) {
    session.Run([&](int rank) {
      Shape shape = Agreed(nRanks);
      if (rank == nRanks - 1) difference.spoil(&shape);
      ulyxPlan_t plan = nullptr;
      const ulyxResult_t result = ulyxPlanCreate(session.Runtime(rank), &shape.c, &plan);
      EXPECT_TRUE(Refused(result, ulyxMismatch, {"rank 0", "rank " + std::to_string(nRanks - 1)}));
      for (const std::string& word : difference.words) EXPECT_TRUE(Refused(result, ulyxMismatch, {word}));
      EXPECT_EQ(plan, nullptr);
    });
  }
  CheckExchanges(session, Agreed(nRanks).c, TestSeed());
}

TEST_P(Agreement, OneRanksImpossibleShapeFailsAllRanksAndTheNextCallWorks) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = NRanks();
  const Session session(*GetParam(), nRanks);
  session.Run([&](int rank) { MUST(ulyxRuntimeReserve(session.Runtime(rank), 1 << 20)); });
  for (int culprit : {0, nRanks - 1}) {
    session.Run([&](int rank) {
      Shape shape = Agreed(nRanks);
      if (rank == culprit) shape.c.headDim = -5;
      ulyxPlan_t plan = nullptr;
      const ulyxResult_t result = ulyxPlanCreate(session.Runtime(rank), &shape.c, &plan);
      if (rank == culprit) {
        EXPECT_TRUE(Refused(result, ulyxInvalidArgument, {"headDim", "-5"}));
      } else {
        EXPECT_TRUE(Refused(result, ulyxMismatch, {"rank " + std::to_string(culprit) + " refused"}));
      }
      EXPECT_EQ(plan, nullptr);
    });
  }
  session.Run([&](int rank) {
    const Shape shape = Agreed(nRanks);
    ulyxPlan_t plan = nullptr;
    EXPECT_NE(ulyxPlanCreate(session.Runtime(rank), rank == 1 ? nullptr : &shape.c, &plan), ulyxSuccess);
    EXPECT_EQ(plan, nullptr);
  });
  CheckExchanges(session, Agreed(nRanks).c, TestSeed());
}

TEST_P(Agreement, ShapesThatMeanTheSameAgree) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = NRanks();
  const Session session(*GetParam(), nRanks);
  std::vector<uint64_t> signatures(nRanks);
  session.Run([&](int rank) {
    Shape shape = Agreed(nRanks);
    if (rank == 1) {
      shape.c.kvHeads = shape.c.heads;
      shape.c.valueDim = shape.c.headDim;
      shape.c.batch = 1;
      shape.c.elementBytes = 2;
      shape.TokenCounts(std::vector<int64_t>(nRanks, 4));
      shape.c.tokens = 0;
      shape.HeadCounts(std::vector<int64_t>(nRanks, 2));
    }
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
    MUST(ulyxPlanGetInfo(plan, &info));
    signatures[rank] = info.signature;
    MUST(ulyxPlanDestroy(plan));
  });
  EXPECT_EQ(signatures, std::vector<uint64_t>(nRanks, signatures[0]));
}

TEST_P(Agreement, AnArenaTooSmallOnAnyRankFailsAllAndNamesTheBytesToReserve) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = NRanks();
  const Session session(*GetParam(), nRanks);
  Shape shape(1000 * nRanks, 8 * nRanks, 64);
  shape.c.batch = 2;
  std::vector<int64_t> needed(nRanks);
  for (int rank = 0; rank < nRanks; rank++) {
    ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
    MUST(ulyxShapeGetBytes(&shape.c, nRanks, rank, &bytes));
    needed[rank] = bytes.arena;
  }
  session.Run([&](int rank) {
    ulyxPlan_t plan = nullptr;
    if (GetParam()->Transport() == ulyxTransportLoopback) {  // stages nothing
      MUST(ulyxPlanCreate(session.Runtime(rank), &shape.c, &plan));
      MUST(ulyxPlanDestroy(plan));
    } else {
      // What is enough for any transport is what nccl takes here.
      const bool exact = GetParam()->Transport() == ulyxTransportNccl;
      EXPECT_TRUE(Refused(ulyxPlanCreate(session.Runtime(rank), &shape.c, &plan), ulyxArenaTooSmall,
                          {exact ? std::to_string(needed[0]) : "the plan stages", "ulyxRuntimeReserve"}));
      EXPECT_EQ(plan, nullptr);
    }
    // One rank asks, all get it.
    MUST(ulyxRuntimeReserve(session.Runtime(rank), rank == 1 ? *std::max_element(needed.begin(), needed.end()) : 0));
    MUST(ulyxPlanCreate(session.Runtime(rank), &shape.c, &plan));
    ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
    MUST(ulyxPlanGetInfo(plan, &info));
    EXPECT_LE(info.arenaBytes, needed[rank]);
    MUST(ulyxPlanDestroy(plan));
  });
}

TEST_P(Agreement, AnArenaTooSmallForOthersFailsARankThatNeedsNone) {
  ULYX_SKIP_BELOW(*GetParam(), 3);
  const Session session(*GetParam(), 3);
  const Shape shape = Shape(0, 8, 64).TokenCounts({500, 500, 0}).HeadCounts({4, 4, 0});
  const bool stages = GetParam()->Transport() != ulyxTransportLoopback;
  session.Run([&](int rank) {
    ulyxPlan_t plan = nullptr;
    const ulyxResult_t result = ulyxPlanCreate(session.Runtime(rank), &shape.c, &plan);
    EXPECT_EQ(result, stages ? ulyxArenaTooSmall : ulyxSuccess);
    EXPECT_EQ(plan == nullptr, stages);
  });
  CheckExchanges(session, shape.c, TestSeed());
}

TEST_P(Agreement, WithoutItPlansAreMadeByEachRankAlone) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = NRanks();
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.agreePlans = 0;
  config.arenaBytes = 1 << 20;
  const Session session(*GetParam(), nRanks, &config);
  const Shape shape = Agreed(nRanks);
  std::vector<ulyxPlan_t> plans(nRanks);
  for (int rank = nRanks - 1; rank >= 0; rank--) MUST(ulyxPlanCreate(session.Runtime(rank), &shape.c, &plans[rank]));
  const Oracle oracle(shape.c, nRanks, TestSeed());
  session.Run([&](int rank) {
    const RankTensors tensors(session, oracle, rank, Ordinary);
    Exchange(session, plans[rank], tensors, rank);
    session.Synchronize(rank);
    tensors.ExpectWritten();
  });
  for (ulyxPlan_t plan : plans) MUST(ulyxPlanDestroy(plan));
}

}  // namespace ulyx_test
