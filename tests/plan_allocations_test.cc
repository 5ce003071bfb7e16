// SPDX-License-Identifier: MIT
//
// Plans of every kind, once they have been as large as they get, are made, run and destroyed without the allocator.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "support/contexts.h"
#include "support/counted.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

class WarmPlans : public PlansAgain {
 protected:
  // Calls body(session, rank) on every rank, or leaves the test as skipped.
  template <class Body>
  void OnRanks(int nRanks, const Body& body) const {
    ULYX_SKIP_BELOW(On(), nRanks);
    ULYX_SKIP_UNCOUNTED();
    const ulyxConfig_t config = Config();
    const Session session(On(), nRanks, &config);
    session.Run([&](int rank) { body(session, rank); });
  }
};
ULYX_ON_EVERY_WORLD(WarmPlans);

// Eight pieces of a rank's memory, each enough for any tensor of the plans below.
class Pieces {
 public:
  static constexpr int64_t kBytes = 4 << 20;
  Pieces(const Session& session, int rank)
      : world_(session.GetWorld()), rank_(rank), memory_(world_.Alloc(rank, 8 * kBytes)) {}
  ~Pieces() { world_.Free(rank_, memory_); }
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;
  void* operator[](int i) const { return static_cast<char*>(memory_) + i * kBytes; }

 private:
  const World& world_;
  const int rank_;
  void* const memory_;
};

// One kind of plan on one rank: how its step-th plan is made, and both directions of it enqueued.
struct Kind {
  std::function<ulyxResult_t(int step, ulyxPlan_t* plan)> make;
  std::function<ulyxResult_t(ulyxPlan_t plan, bool backward)> call;
};

constexpr int kSteps = 12;

// Makes, runs and destroys plans of all steps, the largest of which is step 0; what was allocated from the second time
// round on.
int64_t AllocationsOnceWarm(const Kind& kind, bool calls, int rounds = 4) {
  int64_t allocations = 0;
  for (int round = 0; round < rounds; round++) {
    Counted counted;
    for (int step = 0; step < kSteps; step++) {
      ulyxPlan_t plan = nullptr;
      counted([&] { return kind.make((step + round * 5) % kSteps, &plan); });
      for (bool backward : {false, true}) {
        if (calls) counted([&] { return kind.call(plan, backward); });
      }
      counted([&] { return ulyxPlanDestroy(plan); });
    }
    if (round > 0) {
      allocations += counted.Allocations();
    } else {
      EXPECT_GT(counted.Allocations(), 0) << "then nothing is counted";
    }
  }
  return allocations;
}

// Of an exchange: the length, and with it everything else, changes from step to step.
Shape ShapeOf(int step) {
  Shape shape(step == 0 ? 400 : 8 + 29 * step, 16, 8);
  shape.KvHeads(step % 3 == 0 ? 16 : 8);
  shape.c.packedIn = step % 4 == 1 ? 1 : 0;
  shape.c.packedOut = step % 4 == 2 ? 1 : 0;
  shape.c.replicatedTokens = step % 5 == 3 ? 7 : 0;
  if (step == 0) shape.c.qIn.head = shape.c.kOut.head = shape.c.oOut.head = 9;  // a copy a head
  return shape;
}

Kind ExchangeKind(ulyxRuntime_t runtime, const Pieces& pieces) {
  Kind kind;
  kind.make = [runtime, shapes = [] {
    std::vector<Shape> all;
    for (int step = 0; step < kSteps; step++) all.push_back(ShapeOf(step));
    return all;
  }()](int step, ulyxPlan_t* plan) { return ulyxPlanCreate(runtime, &shapes[step].c, plan); };
  kind.call = [&pieces](ulyxPlan_t plan, bool backward) {
    if (backward) {
      ulyxTensor_t in = ULYX_TENSOR_INITIALIZER, out = ULYX_TENSOR_INITIALIZER;
      MUST(ulyxPlanGetOutput(plan, &in, &out));
      in.data = pieces[6];
      out.data = pieces[7];
      return ulyxHeadsToSeq(plan, &in, &out, nullptr);
    }
    ulyxQkv_t in = ULYX_QKV_INITIALIZER, out = ULYX_QKV_INITIALIZER;
    MUST(ulyxPlanGetQkv(plan, &in, &out));
    in.q.data = pieces[0], in.k.data = pieces[1], in.v.data = pieces[2];
    out.q.data = pieces[3], out.k.data = pieces[4], out.v.data = pieces[5];
    return ulyxSeqToHeads(plan, &in, &out, nullptr);
  };
  return kind;
}

// All three row collectives in turn; each has one direction.
Kind RowsKind(ulyxRuntime_t runtime, const Pieces& pieces, int nRanks) {
  Kind kind;
  const auto op = std::make_shared<int>(0);  // of the plan made last
  kind.make = [=, counts = std::vector<int64_t>(nRanks)](int step, ulyxPlan_t* plan) mutable {
    ulyxRowsShape_t shape = ULYX_ROWS_SHAPE_INITIALIZER;
    shape.op = *op = step % 3;
    shape.type = ulyxFloat32;
    shape.rowElements = step < 3 ? 40 : 4 + step;
    const int64_t rows = step < 3 ? 60 : 1 + 4 * step;
    std::fill(counts.begin(), counts.end(), rows);
    shape.total = shape.op == ulyxRowsAllToAll ? 0 : nRanks * rows;
    shape.sendCounts = shape.recvCounts = shape.op == ulyxRowsAllToAll ? counts.data() : nullptr;
    return ulyxRowsPlanCreate(runtime, &shape, plan);
  };
  kind.call = [&pieces, op](ulyxPlan_t plan, bool backward) {
    if (backward) return ulyxSuccess;
    ulyxTensor_t in = ULYX_TENSOR_INITIALIZER, out = ULYX_TENSOR_INITIALIZER;
    MUST(ulyxPlanGetRows(plan, &in, &out));
    in.data = pieces[0];
    out.data = pieces[1];
    const auto call = *op == ulyxRowsAllGather       ? ulyxAllGatherRows
                      : *op == ulyxRowsReduceScatter ? ulyxReduceScatterRows
                                                     : ulyxAllToAllRows;
    return call(plan, &in, &out, nullptr);
  };
  return kind;
}

// One sequence over all ranks, its length another at every step.
std::vector<ulyxContext_t> ContextsOf(int nRanks, int rank, int convKernel) {
  std::vector<ulyxContext_t> contexts;
  for (int step = 0; step < kSteps; step++) {
    const int64_t tokens = step == 0 ? 50 * nRanks : nRanks * (2 + step) + step;
    contexts.push_back(MakeContext({0, tokens / 3, tokens}, nRanks, rank, ulyxSplitBalanced, convKernel));
  }
  return contexts;
}

void Destroy(const std::vector<ulyxContext_t>& contexts) {
  for (ulyxContext_t context : contexts) MUST(ulyxContextDestroy(context));
}

Kind HaloKind(ulyxRuntime_t runtime, const Pieces& pieces, const std::vector<ulyxContext_t>& contexts) {
  Kind kind;
  kind.make = [runtime, &contexts](int step, ulyxPlan_t* plan) {
    ulyxHaloShape_t shape = ULYX_HALO_SHAPE_INITIALIZER;
    shape.context = contexts[step];
    shape.type = ulyxFloat32;
    shape.rowElements = step == 0 ? 64 : 3 + step;
    return ulyxHaloPlanCreate(runtime, &shape, plan);
  };
  kind.call = [&pieces](ulyxPlan_t plan, bool backward) {
    ulyxTensor_t local = ULYX_TENSOR_INITIALIZER, halo = ULYX_TENSOR_INITIALIZER;
    MUST(ulyxPlanGetHalo(plan, &local, &halo));
    local.data = pieces[0];
    halo.data = pieces[1];
    return backward ? ulyxConvHaloBackward(plan, &halo, &local, nullptr) : ulyxConvHalo(plan, &local, &halo, nullptr);
  };
  return kind;
}

Kind ChainKind(ulyxRuntime_t runtime, const Pieces& pieces, const std::vector<ulyxContext_t>& contexts) {
  Kind kind;
  kind.make = [runtime, &contexts](int step, ulyxPlan_t* plan) {
    ulyxStateShape_t shape = ULYX_STATE_SHAPE_INITIALIZER;
    shape.context = contexts[step];
    shape.heads = step == 0 ? 4 : 1 + step % 4;
    shape.keyDim = shape.valueDim = step == 0 ? 16 : 1 + step;
    shape.hasInitial = shape.wantsFinal = step % 2 == 0 ? 1 : 0;
    return ulyxStatePlanCreate(runtime, &shape, plan);
  };
  kind.call = [&pieces](ulyxPlan_t plan, bool backward) {
    ulyxStates_t states;
    MUST(ulyxPlanGetStates(plan, &states));
    states.state.data = pieces[0];
    states.transition.data = pieces[1];
    states.initial.data = pieces[2];
    states.received.data = pieces[3];
    states.final.data = pieces[4];
    return backward ? ulyxStateChainBackward(plan, &states, nullptr) : ulyxStateChain(plan, &states, nullptr);
  };
  return kind;
}

}  // namespace

TEST_P(WarmPlans, AllocateNothingOnceExchangesHaveBeenAsLong) {
  if (WatchesThreads()) GTEST_SKIP() << "counts allocations";
  OnRanks(8, [&](const Session& session, int rank) {
    const Pieces pieces(session, rank);
    EXPECT_EQ(AllocationsOnceWarm(ExchangeKind(session.Runtime(rank), pieces), OnLoopback()), 0);
  });
}

TEST_P(WarmPlans, AllocateNothingOnceThereWereAsManyRows) {
  if (WatchesThreads()) GTEST_SKIP() << "counts allocations";
  OnRanks(8, [&](const Session& session, int rank) {
    const Pieces pieces(session, rank);
    EXPECT_EQ(AllocationsOnceWarm(RowsKind(session.Runtime(rank), pieces, 8), OnLoopback()), 0);
  });
}

TEST_P(WarmPlans, AllocateNothingOnceHalosHaveBeenAsLarge) {
  if (WatchesThreads()) GTEST_SKIP() << "counts allocations";
  OnRanks(8, [&](const Session& session, int rank) {
    const Pieces pieces(session, rank);
    const std::vector<ulyxContext_t> contexts = ContextsOf(8, rank, 90);
    EXPECT_EQ(AllocationsOnceWarm(HaloKind(session.Runtime(rank), pieces, contexts), OnLoopback()), 0);
    Destroy(contexts);
  });
}

TEST_P(WarmPlans, AllocateNothingOnceChainsHaveBeenAsLarge) {
  if (WatchesThreads()) GTEST_SKIP() << "counts allocations";
  OnRanks(8, [&](const Session& session, int rank) {
    const Pieces pieces(session, rank);
    const std::vector<ulyxContext_t> contexts = ContextsOf(8, rank, 0);
    EXPECT_EQ(AllocationsOnceWarm(ChainKind(session.Runtime(rank), pieces, contexts), OnLoopback()), 0);
    Destroy(contexts);
  });
}

// Plans of all kinds alive together, so that each object has been each kind at the end.
TEST_P(WarmPlans, AllocateNothingWhereEveryPlanHasBeenEveryKind) {
  if (WatchesThreads()) GTEST_SKIP() << "counts allocations";
  OnRanks(3, [&](const Session& session, int rank) {
    const Pieces pieces(session, rank);
    const std::vector<ulyxContext_t> contexts = ContextsOf(3, rank, 30);
    const ulyxRuntime_t runtime = session.Runtime(rank);
    const Kind kinds[] = {ExchangeKind(runtime, pieces), RowsKind(runtime, pieces, 3),
                          HaloKind(runtime, pieces, contexts), ChainKind(runtime, pieces, contexts)};
    const auto liveTogether = [&](int round) {
      Counted counted;
      ulyxPlan_t plans[4] = {};
      for (int step = 0; step < kSteps; step++) {
        for (int i = 0; i < 4; i++) {
          const int kind = (i + round) % 4;  // another order, so other objects
          counted([&] { return kinds[kind].make(step, &plans[i]); });
        }
        for (int i = 0; OnLoopback() && i < 4; i++) {
          for (bool backward : {false, true}) {
            counted([&] { return kinds[(i + round) % 4].call(plans[i], backward); });
          }
        }
        for (int i : {2, 0, 3, 1}) counted([&] { return ulyxPlanDestroy(plans[i]); });
      }
      return counted.Allocations();
    };
    int64_t last = 0;
    for (int round = 0; round < 24; round++) last = liveTogether(round);
    for (int round = 0; round < 4; round++) last += liveTogether(round);
    EXPECT_EQ(last, 0);
    Destroy(contexts);
  });
}

}  // namespace ulyx_test
