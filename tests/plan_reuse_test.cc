// SPDX-License-Identifier: MIT
//
// A server that sees a new length at every step makes each plan in the memory of one before. It stays exact, whatever
// was planned before and is alive beside it.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "support/contexts.h"
#include "support/counted.h"
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

class ChangingLengths : public PlansAgain {};
ULYX_ON_EVERY_WORLD(ChangingLengths);

// A plan and all that is needed to check its exchanges, on one rank.
struct Alive {
  std::shared_ptr<const Oracle> oracle;
  ulyxPlan_t plan;
};

void ExpectExact(const Session& session, const Oracle& oracle, ulyxPlan_t plan, int rank,
                 const Placement& placement = Ordinary) {
  const RankTensors tensors(session, oracle, rank, placement);
  Exchange(session, plan, tensors, rank);
  session.Synchronize(rank);
  tensors.ExpectWritten();
}

// The rows of rank + 1, 2 (rank + 1), 3 (rank + 1), ...: sums of them are exact.
Bytes Multiples(int64_t factor, Span rows, int64_t rowElements) {
  Bytes bytes(size_t(rows.Count() * rowElements) * 4);
  for (int64_t i = 0; i < rows.Count() * rowElements; i++) {
    StoreBits(ulyxFloat32, BitsOf(ulyxFloat32, float(factor * (rows.first * rowElements + i + 1))),
              &bytes[size_t(4 * i)]);
  }
  return bytes;
}

void ExpectRowsSummedOrGathered(const Session& session, int rank, int op, int64_t rowsEach, int64_t rowElements) {
  const int nRanks = session.NRanks();
  ulyxRowsShape_t shape = ULYX_ROWS_SHAPE_INITIALIZER;
  shape.op = op;
  shape.type = ulyxFloat32;
  shape.rowElements = rowElements;
  shape.total = rowsEach * nRanks;
  const Span all = {0, shape.total}, own = {rank * rowsEach, (rank + 1) * rowsEach};
  const bool gathers = op == ulyxRowsAllGather;
  const ulyxPlan_t plan = PlanWith(session, rank, [&shape](ulyxRuntime_t runtime, ulyxPlan_t* made) {
    return ulyxRowsPlanCreate(runtime, &shape, made);
  });
  {
    const int64_t pitch = 4 * rowElements;
    RowTensor in(session, rank, "in", gathers ? rowsEach : shape.total, rowElements, ulyxFloat32, 4, pitch, Spot(), 1);
    RowTensor out(session, rank, "out", gathers ? shape.total : rowsEach, rowElements, ulyxFloat32, 4, pitch, Spot(),
                  2);
    in.Put(gathers ? Multiples(1, own, rowElements) : Multiples(rank + 1, all, rowElements));
    const ulyxTensor_t from = in.Tensor(), to = out.Tensor();
    MUST(gathers ? ulyxAllGatherRows(plan, &from, &to, session.Stream(rank))
                 : ulyxReduceScatterRows(plan, &from, &to, session.Stream(rank)));
    session.Synchronize(rank);
    out.Expect(gathers ? Multiples(1, all, rowElements) : Multiples(nRanks * (nRanks + 1) / 2, own, rowElements));
  }
  MUST(ulyxPlanDestroy(plan));
}

}  // namespace

TEST_P(ChangingLengths, TenThousandInARowStayExactAndLeaveNothingBehind) {
  constexpr int kRanks = 3;
  ULYX_SKIP_BELOW(On(), kRanks);
  const int lengths = OnLoopback() ? (TimeCounts() ? 10000 : 2000) : 300;
  const ulyxConfig_t config = Config();
  const Session session(On(), kRanks, &config);
  session.Run([&](int rank) {
    Counted counted;
    int64_t warm = 0;
    Rng rng(TestSeed());
    for (int step = 0; step < lengths; step++) {
      // The longest first; then any, so dealt that ranks may be without tokens.
      const int64_t most = 24;
      std::vector<int64_t> tokens;
      for (int r = 0; r < kRanks; r++) tokens.push_back(step == 0 ? most : rng.Between(0, most));
      Shape shape = Shape(0, 4, 4).KvHeads(step % 2 == 0 ? 4 : 2).TokenCounts(tokens).HeadCounts({1, 1, 2});
      shape.c.replicatedTokens = step == 0 ? 3 : rng.Between(0, 3);
      const Oracle oracle(shape.c, kRanks, TestSeed() + uint64_t(step));
      const RankTensors tensors(session, oracle, rank, Ordinary);
      ulyxPlan_t plan = nullptr;
      counted([&] { return ulyxPlanCreate(session.Runtime(rank), &shape.c, &plan); });
      const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
      const ulyxTensor_t outputIn = tensors.OutputIn(plan), outputOut = tensors.OutputOut(plan);
      const auto exchange = [&] {
        const ulyxResult_t there = ulyxSeqToHeads(plan, &in, &out, session.Stream(rank));
        return there != ulyxSuccess ? there : ulyxHeadsToSeq(plan, &outputIn, &outputOut, session.Stream(rank));
      };
      if (OnLoopback()) {
        counted(exchange);
      } else {
        MUST(exchange());
      }
      // The exchanges may still be in flight when another plan is built where theirs was.
      counted([&] { return ulyxPlanDestroy(plan); });
      shape.TokenCounts({tokens[2], tokens[0] + 1, tokens[1]});
      counted([&] { return ulyxPlanCreate(session.Runtime(rank), &shape.c, &plan); });
      session.Synchronize(rank);
      tensors.ExpectWritten();
      counted([&] { return ulyxPlanDestroy(plan); });
      if (step == 0) warm = counted.Allocations();
    }
    EXPECT_EQ(counted.Allocations(), warm) << "0 where nothing is counted";
  });
}

TEST_P(ChangingLengths, LeaveNoRowsOfALargerPlanInASmallerOne) {
  ULYX_SKIP_BELOW(On(), 2);
  const ulyxConfig_t config = Config();
  const Session session(On(), 2, &config);
  Shape large(60, 8, 8);  // every layout that costs many copies
  large.c.batch = 3;
  large.c.qIn.head = large.c.kIn.head = large.c.vOut.head = large.c.oOut.head = 11;
  const Shape small(3, 2, 8);
  const Shape empty = Shape(0, 2, 8).TokenCounts({0, 0});
  for (const Shape& shape : {large, small, large, empty, small, large}) {
    CheckExchanges(session, shape.c, TestSeed());
  }
}

TEST_P(ChangingLengths, LeaveNoSumInAPlanThatAddsNothing) {
  ULYX_SKIP_BELOW(On(), 3);
  Session session(On(), 3);
  session.Run([&](int rank) {
    for (int64_t rows : {9, 2, 5}) {
      ExpectRowsSummedOrGathered(session, rank, ulyxRowsReduceScatter, rows, 6);
      ExpectRowsSummedOrGathered(session, rank, ulyxRowsAllGather, rows + 1, 3);
      const Shape shape(rows + 1, 5, 8);
      const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
      ExpectExact(session, Oracle(shape.c, 3, TestSeed()), plan, rank);
      MUST(ulyxPlanDestroy(plan));
    }
  });
}

TEST_P(ChangingLengths, KeepPlansAliveTogetherApartInWhateverOrderTheyAreDestroyed) {
  constexpr int kRanks = 3;
  ULYX_SKIP_BELOW(On(), kRanks);
  const ulyxConfig_t config = Config();
  const Session session(On(), kRanks, &config);
  const int steps = CasesOn(On(), 240);
  session.Run([&](int rank) {
    Rng rng(TestSeed());  // the same choices on every rank
    std::vector<Alive> alive;
    for (int step = 0; step < steps; step++) {
      const bool makes = alive.empty() || (alive.size() < 6 && rng.OneIn(2));
      if (makes) {
        const uint64_t seed = rng.Next();
        const Shape shape = RandomShape(kRanks, seed);
        ulyxPlan_t plan = nullptr;
        MUST(ulyxPlanCreate(session.Runtime(rank), &shape.c, &plan));
        for (const Alive& other : alive) EXPECT_NE(plan, other.plan);
        alive.push_back({std::make_shared<Oracle>(shape.c, kRanks, seed), plan});
      }
      const size_t which = size_t(rng.Next() % alive.size());
      ExpectExact(session, *alive[which].oracle, alive[which].plan, rank);
      if (rng.OneIn(2)) continue;
      MUST(ulyxPlanDestroy(alive[which].plan));
      alive.erase(alive.begin() + int64_t(which));
    }
  });
}

TEST_P(ChangingLengths, GoOnAfterAShapeThatWasRefused) {
  ULYX_SKIP_BELOW(On(), 2);
  ulyxConfig_t config = Config();
  config.agreePlans = 1;
  const Session session(On(), 2, &config);
  const Shape good(9, 4, 8);
  const Oracle oracle(good.c, 2, TestSeed());
  session.Run([&](int rank) {
    const auto expectGood = [&] {
      ulyxPlan_t plan = nullptr;
      MUST(ulyxPlanCreate(session.Runtime(rank), &good.c, &plan));
      ExpectExact(session, oracle, plan, rank);
      MUST(ulyxPlanDestroy(plan));
    };
    expectGood();
    Shape numbers(40, 6, 8);
    numbers.c.kvHeads = 4;
    Shape shared(40, 6, 8);  // refused behind the ranges
    shared.c.vOut.token = 1;
    const Shape unequal(40 + rank, 6, 8);
    Shape none = good;
    none.c.magic = 0;
    for (int round = 0; round < 3; round++) {
      ulyxPlan_t plan = nullptr;
      EXPECT_TRUE(Refused(ulyxPlanCreate(session.Runtime(rank), &numbers.c, &plan), ulyxInvalidArgument, {"kvHeads"}));
      expectGood();
      EXPECT_TRUE(Refused(ulyxPlanCreate(session.Runtime(rank), &shared.c, &plan), ulyxInvalidArgument, {"vOut"}));
      EXPECT_TRUE(Refused(ulyxPlanCreate(session.Runtime(rank), &none.c, &plan), ulyxInvalidArgument, {"magic"}));
      expectGood();
      EXPECT_TRUE(Refused(ulyxPlanCreate(session.Runtime(rank), &unequal.c, &plan), ulyxMismatch, {"40", "41"}));
      EXPECT_TRUE(Refused(ulyxPlanCreate(session.Runtime(rank), &good.c, nullptr), ulyxInvalidArgument, {"plan"}));
      expectGood();
      EXPECT_EQ(plan, nullptr);
    }
  });
}

TEST_P(ChangingLengths, CatchAPlanUsedAfterItWasDestroyed) {
  ULYX_SKIP_BELOW(On(), 1);
  ulyxConfig_t config = Config();
  const Session session(On(), 1, &config);
  const Shape shape(4, 2, 8);
  ulyxPlan_t plan = nullptr;
  ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
  MUST(ulyxPlanCreate(session.Runtime(0), &shape.c, &plan));
  MUST(ulyxPlanDestroy(plan));
  EXPECT_TRUE(Refused(ulyxPlanDestroy(plan), ulyxInvalidArgument, {"destroyed"}));
  EXPECT_TRUE(Refused(ulyxPlanGetInfo(plan, &info), ulyxInvalidArgument, {"destroyed"}));
}

TEST_P(ChangingLengths, GiveTheSequencesBackWithThePlan) {
  ULYX_SKIP_BELOW(On(), 1);
  ULYX_SKIP_UNCOUNTED();
  const ulyxConfig_t config = Config();
  const Session session(On(), 1, &config);
  const int64_t cuSeqlens[] = {0, 3, 8};
  Shape shape(8, 2, 8);
  ulyxPlan_t plan = nullptr;
  for (int round = 0; round < 3; round++) {
    MUST(ulyxSequencesCreate(cuSeqlens, 3, ulyxInt64, &shape.c.sequences));
    MUST(ulyxPlanCreate(session.Runtime(0), &shape.c, &plan));
    const int64_t before = ulyxTestFrees();
    MUST(ulyxSequencesDestroy(shape.c.sequences));
    EXPECT_EQ(ulyxTestFrees(), before) << "the plan has them still";
    MUST(ulyxPlanDestroy(plan));
    EXPECT_GT(ulyxTestFrees(), before) << "and the spare has not";
  }
}

}  // namespace ulyx_test
