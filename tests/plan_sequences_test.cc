// SPDX-License-Identifier: MIT
//
// The sequences of a plan, on every world: what is refused, what ranks must agree on, and the cu_seqlens that a plan
// stores in the memory of its device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "support/exchange_check.h"
#include "support/row_tensor.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

class PlanSequences : public ::testing::TestWithParam<const World*> {
 protected:
  int NRanks() const { return std::min(GetParam()->MaxRanks(), 3); }
};
ULYX_ON_EVERY_WORLD(PlanSequences);

struct Destroy {
  void operator()(ulyxSequences_t sequences) const { EXPECT_EQ(ulyxSequencesDestroy(sequences), ulyxSuccess); }
};
using Sequences = std::unique_ptr<ulyxSequences, Destroy>;

Sequences Make(const std::vector<int64_t>& cuSeqlens) {
  ulyxSequences_t sequences = nullptr;
  MUST(ulyxSequencesCreate(cuSeqlens.data(), int64_t(cuSeqlens.size()), ulyxInt64, &sequences));
  return Sequences(sequences);
}

Shape With(const Sequences& sequences, Shape shape) {
  shape.c.sequences = sequences.get();
  return shape;
}

// `count` sequences of 0, 1, 2, 0, 1, 2, ... tokens.
std::vector<int64_t> Some(int64_t count) {
  std::vector<int64_t> cuSeqlens = {0};
  for (int64_t i = 0; i < count; i++) cuSeqlens.push_back(cuSeqlens.back() + i % 3);
  return cuSeqlens;
}

Bytes Narrow(const std::vector<int64_t>& cuSeqlens) {
  const std::vector<int32_t> narrow(cuSeqlens.begin(), cuSeqlens.end());
  Bytes bytes(narrow.size() * sizeof(int32_t));
  std::memcpy(bytes.data(), narrow.data(), bytes.size());
  return bytes;
}

// Plans that one thread can make by itself.
ulyxConfig_t Alone() {
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.agreePlans = 0;
  config.arenaBytes = 1 << 20;
  return config;
}

// Every getter and every rank's own plan refuses the shape and writes nothing.
void ExpectRefused(const Session& session, const Shape& shape, std::initializer_list<std::string> words) {
  const int nRanks = session.NRanks();
  std::vector<ulyxRange_t> ranges(nRanks, {-5, -6});
  EXPECT_TRUE(
      Refused(ulyxShapeGetRanges(&shape.c, nRanks, ranges.data(), nullptr, nullptr), ulyxInvalidArgument, words));
  for (const ulyxRange_t& range : ranges) EXPECT_EQ(range.start, -5);
  std::vector<int64_t> traffic(nRanks * nRanks, -7);
  EXPECT_TRUE(
      Refused(ulyxShapeGetTraffic(&shape.c, nRanks, ulyxOpSeqToHeads, traffic.data()), ulyxInvalidArgument, words));
  EXPECT_EQ(traffic, std::vector<int64_t>(nRanks * nRanks, -7));
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  bytes.qIn = bytes.arena = -8;
  EXPECT_TRUE(Refused(ulyxShapeGetBytes(&shape.c, nRanks, 0, &bytes), ulyxInvalidArgument, words));
  EXPECT_EQ(bytes.qIn, -8);
  EXPECT_EQ(bytes.arena, -8);
  for (int rank = 0; rank < nRanks; rank++) {
    ulyxPlan_t plan = nullptr;
    EXPECT_TRUE(Refused(ulyxPlanCreate(session.Runtime(rank), &shape.c, &plan), ulyxInvalidArgument, words));
    EXPECT_EQ(plan, nullptr);
  }
}

}  // namespace

TEST_P(PlanSequences, OfAnotherNumberOfTokensAreRefusedWithBothNumbers) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  const ulyxConfig_t config = Alone();
  const Session session(*GetParam(), std::min(GetParam()->MaxRanks(), 2), &config);
  const Sequences sequences = Make({0, 7, 12});
  ExpectRefused(session, With(sequences, Shape(11, 4, 8)), {"sequences", "12 tokens", "the shape 11"});
  ExpectRefused(session, With(sequences, Shape(12, 4, 8).Replicated(3, ulyxReplicatedLast)),
                {"sequences", "12 tokens", "the shape 15", "12 split", "3 replicated"});
  const Sequences none = Make({0});
  ExpectRefused(session, With(none, Shape(4, 4, 8)), {"sequences", "0 tokens", "the shape 4"});
}

TEST_P(PlanSequences, WithBatchItemsAreRefusedWithBothNumbers) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  const ulyxConfig_t config = Alone();
  const Session session(*GetParam(), std::min(GetParam()->MaxRanks(), 2), &config);
  const Sequences sequences = Make({0, 12});
  Shape shape = With(sequences, Shape(12, 4, 8));
  shape.c.batch = 2;
  ExpectRefused(session, shape, {"batch is 2", "expected 1"});
}

TEST_P(PlanSequences, PastThirtyTwoBitsAreRefusedWithBothNumbers) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  const ulyxConfig_t config = Alone();
  const Session session(*GetParam(), std::min(GetParam()->MaxRanks(), 2), &config);
  const int64_t most = INT32_MAX;
  const Sequences sequences = Make({0, 12, most + 1});
  ExpectRefused(session, With(sequences, Shape(most + 1, 4, 8)), {"2147483648 tokens", "at most 2147483647"});
  ExpectRefused(session, With(sequences, Shape(most, 4, 8).Replicated(1, ulyxReplicatedFirst)),
                {"2147483648 tokens", "at most 2147483647"});
  // As many as fit are taken.
  const Sequences fit = Make({0, 12, most});
  const Shape shape = With(fit, Shape(most, 4, 1).Type(ulyxInt8));
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  MUST(ulyxShapeGetBytes(&shape.c, 2, 0, &bytes));
  EXPECT_EQ(bytes.qOut, 2 * most);
}

// Memory that never held sequences looks like memory that no longer does, and may be read.
TEST_P(PlanSequences, ThatAreNoneAreRefused) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  const ulyxConfig_t config = Alone();
  const Session session(*GetParam(), std::min(GetParam()->MaxRanks(), 2), &config);
  alignas(16) unsigned char never[128] = {};
  Shape shape(12, 4, 8);
  shape.c.sequences = reinterpret_cast<ulyxSequences_t>(never);
  ExpectRefused(session, shape, {"no sequences", "destroyed or never made"});
  EXPECT_EQ(std::count(std::begin(never), std::end(never), 0), int64_t(sizeof never));
}

TEST_P(PlanSequences, ThatRanksDisagreeOnAreAMismatchOnEveryRankAndTheNextPlanWorks) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = NRanks();
  const Session session(*GetParam(), nRanks);
  session.Run([&](int rank) { MUST(ulyxRuntimeReserve(session.Runtime(rank), 1 << 20)); });
  const std::string last = "rank " + std::to_string(nRanks - 1);
  const Sequences usual = Make({0, 7, 12}), more = Make({0, 7, 7, 12}), moved = Make({0, 6, 12});
  const Sequences longer = Make({0, 7, 13});
  const auto expectMismatch = [&](const Sequences& other, std::initializer_list<std::string> words) {
    session.Run([&](int rank) {
      const Shape shape = With(rank == nRanks - 1 ? other : usual, Shape(12, 4, 8));
      ulyxPlan_t plan = nullptr;
      EXPECT_TRUE(Refused(ulyxPlanCreate(session.Runtime(rank), &shape.c, &plan), ulyxMismatch, words));
      EXPECT_EQ(plan, nullptr);
    });
  };
  expectMismatch(Sequences(), {"number of shape.sequences", "is 2 on rank 0", "0 on " + last});
  expectMismatch(more, {"number of shape.sequences", "is 2 on rank 0", "3 on " + last});
  expectMismatch(moved, {"hash of shape.sequences", "on rank 0", "on " + last});
  // One rank's sequences do not even fit its own shape.
  session.Run([&](int rank) {
    const Shape shape = With(rank == nRanks - 1 ? longer : usual, Shape(12, 4, 8));
    ulyxPlan_t plan = nullptr;
    const ulyxResult_t result = ulyxPlanCreate(session.Runtime(rank), &shape.c, &plan);
    if (rank == nRanks - 1) {
      EXPECT_TRUE(Refused(result, ulyxInvalidArgument, {"13 tokens", "the shape 12"}));
    } else {
      EXPECT_TRUE(Refused(result, ulyxMismatch, {last + " refused"}));
    }
    EXPECT_EQ(plan, nullptr);
  });
  // Equal ones of different objects and types agree.
  session.Run([&](int rank) {
    const int32_t narrow[] = {0, 7, 12};
    ulyxSequences_t own = nullptr;
    MUST(ulyxSequencesCreate(narrow, 3, ulyxInt32, &own));
    const Sequences kept(own);
    MUST(ulyxPlanDestroy(MakePlan(session, With(kept, Shape(12, 4, 8)).c, rank)));
  });
  CheckExchanges(session, With(usual, Shape(12, 4, 8)).c, TestSeed());
}

TEST_P(PlanSequences, AreCountedAndMeasured) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = NRanks();
  const Session session(*GetParam(), nRanks);
  const Sequences sequences = Make({0, 0, 7, 8, 8, 12}), none = Make({0});
  session.Run([&](int rank) {
    struct {
      Shape shape;
      int64_t count, longest;
    } cases[] = {{With(sequences, Shape(9, 4, 8).Replicated(3, ulyxReplicatedFirst)), 5, 7},
                 {With(none, Shape(0, 4, 8).TokenCounts(std::vector<int64_t>(nRanks, 0))), 0, 0},
                 {Shape(9, 4, 8), 0, 0}};
    for (const auto& c : cases) {
      const ulyxPlan_t plan = MakePlan(session, c.shape.c, rank);
      ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
      MUST(ulyxPlanGetInfo(plan, &info));
      EXPECT_EQ(info.sequenceCount, c.count);
      EXPECT_EQ(info.longestSequence, c.longest);
      MUST(ulyxPlanDestroy(plan));
    }
  });
}

// The caller's array and handle are gone before the plan is used.
TEST_P(PlanSequences, AreStoredExactlyAfterTheirHandleIsDestroyedAndNothingElseIsWritten) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = NRanks();
  const Session session(*GetParam(), nRanks);
  // Around a piece of what is stored at a time, and several of them.
  for (int64_t count : {0, 1, 2, 3, 510, 511, 512, 513, 1023, 1024, 2049, 5000}) {
    const std::vector<int64_t> cuSeqlens = Some(count);
    Sequences sequences = Make(cuSeqlens);
    const int64_t text = std::min<int64_t>(cuSeqlens.back(), 4);
    Shape shape = With(sequences, Shape(0, 4, 1).Type(ulyxInt8).Replicated(text, ulyxReplicatedLast));
    std::vector<int64_t> tokens(nRanks, 0);
    tokens.back() = cuSeqlens.back() - text;
    shape.TokenCounts(tokens);
    std::vector<ulyxPlan_t> plans(nRanks);
    session.Run([&](int rank) { plans[rank] = MakePlan(session, shape.c, rank); });
    sequences.reset();
    session.Run([&](int rank) {
      for (int64_t misalign : {0, 4, 12}) {
        RowTensor stored(session, rank, "cu_seqlens of " + std::to_string(count), count + 1, 1, ulyxInt32, 4, 4,
                         {false, false, misalign}, uint64_t(count));
        MUST(ulyxPlanStoreCuSeqlens(plans[rank], static_cast<int32_t*>(stored.Tensor().data), session.Stream(rank)));
        if (misalign == 12) MUST(ulyxPlanDestroy(plans[rank]));  // read during the call only
        session.Synchronize(rank);
        stored.Expect(Narrow(cuSeqlens));
      }
    });
  }
}

TEST_P(PlanSequences, LastAsLongAsTheLastPlanOfThem) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  const ulyxConfig_t config = Alone();
  const Session session(*GetParam(), 1, &config);
  const std::vector<int64_t> cuSeqlens = {0, 5, 12};
  Sequences sequences = Make(cuSeqlens);
  const Shape shape = With(sequences, Shape(12, 4, 8));
  ulyxPlan_t plans[3];
  for (ulyxPlan_t& plan : plans) MUST(ulyxPlanCreate(session.Runtime(0), &shape.c, &plan));
  // Getters and refusals keep nothing.
  Shape wrong = shape;
  wrong.c.kOut.token = 1;
  ulyxPlan_t none = nullptr;
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  MUST(ulyxShapeGetBytes(&shape.c, 1, 0, &bytes));
  EXPECT_TRUE(Refused(ulyxPlanCreate(session.Runtime(0), &wrong.c, &none), ulyxInvalidArgument, {"kOut"}));
  sequences.reset();
  RowTensor stored(session, 0, "cu_seqlens", 3, 1, ulyxInt32, 4, 4, {}, 1);
  for (ulyxPlan_t plan : plans) {
    stored.Poison();
    MUST(ulyxPlanStoreCuSeqlens(plan, static_cast<int32_t*>(stored.Tensor().data), session.Stream(0)));
    session.Synchronize(0);
    stored.Expect(Narrow(cuSeqlens));
    MUST(ulyxPlanDestroy(plan));
  }
}

TEST_P(PlanSequences, AreNotStoredWhereTheyCannotBe) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  const ulyxConfig_t config = Alone();
  const Session session(*GetParam(), 1, &config);
  const Sequences sequences = Make({0, 5, 12});
  const Shape told = With(sequences, Shape(12, 4, 8)), untold = Shape(12, 4, 8);
  ulyxPlan_t plan = nullptr, without = nullptr;
  MUST(ulyxPlanCreate(session.Runtime(0), &told.c, &plan));
  MUST(ulyxPlanCreate(session.Runtime(0), &untold.c, &without));
  RowTensor stored(session, 0, "cu_seqlens", 8, 1, ulyxInt32, 4, 4, {}, 1);
  auto* const data = static_cast<int32_t*>(stored.Tensor().data);
  const ulyxStream_t stream = session.Stream(0);
  EXPECT_TRUE(Refused(ulyxPlanStoreCuSeqlens(without, data, stream), ulyxInvalidUsage, {"without shape.sequences"}));
  EXPECT_TRUE(Refused(ulyxPlanStoreCuSeqlens(nullptr, data, stream), ulyxInvalidArgument, {"plan", "NULL"}));
  EXPECT_TRUE(Refused(ulyxPlanStoreCuSeqlens(plan, nullptr, stream), ulyxInvalidArgument, {"cuSeqlens is NULL"}));
  for (int off : {1, 2, 3}) {
    auto* const crooked = reinterpret_cast<int32_t*>(reinterpret_cast<char*>(data) + off);
    EXPECT_TRUE(Refused(ulyxPlanStoreCuSeqlens(plan, crooked, stream), ulyxInvalidArgument,
                        {"cuSeqlens is", "a multiple of 4"}));
  }
  if (GetParam()->Transport() != ulyxTransportLoopback) {
    int32_t host[3] = {-1, -1, -1};
    EXPECT_TRUE(Refused(ulyxPlanStoreCuSeqlens(plan, host, stream), ulyxInvalidArgument, {"cuSeqlens", "host memory"}));
    EXPECT_EQ(std::count(host, host + 3, -1), 3);
  }
  // Plans of other operations have none.
  ulyxRowsShape_t rows = ULYX_ROWS_SHAPE_INITIALIZER;
  rows.total = 4;
  rows.rowElements = 8;
  ulyxPlan_t rowsPlan = nullptr;
  MUST(ulyxRowsPlanCreate(session.Runtime(0), &rows, &rowsPlan));
  EXPECT_NE(ulyxPlanStoreCuSeqlens(rowsPlan, data, stream), ulyxSuccess);
  session.Synchronize(0);
  stored.ExpectUntouched();
  MUST(ulyxRuntimeClose(session.Runtime(0)));
  EXPECT_TRUE(Refused(ulyxPlanStoreCuSeqlens(plan, data, stream), ulyxClosed, {"closed"}));
  stored.ExpectUntouched();
}

}  // namespace ulyx_test
