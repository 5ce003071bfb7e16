// SPDX-License-Identifier: MIT
//
// What row collectives, halos and chains put on the wire and launch, as the fakes count it; and every kernel launch
// of theirs failing once.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fake.h"
#include "support/contexts.h"
#include "support/row_tensor.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

using Traffic = std::vector<std::vector<int64_t>>;  // [from][to] bytes

constexpr int64_t kElements = 3;
constexpr int64_t kRowBytes = kElements * 4;

Traffic SentSince(int nRanks, const std::function<void()>& work) {
  fakeReset();
  work();
  Traffic sent(nRanks, std::vector<int64_t>(nRanks, 0));
  for (int from = 0; from < nRanks; from++) {
    for (int to = 0; to < nRanks; to++) sent[from][to] = fakeSentBytes(from, to);
  }
  return sent;
}

Traffic InRows(Traffic rows) {
  for (auto& row : rows) {
    for (int64_t& bytes : row) bytes *= kRowBytes;
  }
  return rows;
}

// A plan's one call with memory for each rank.
struct OneCall {
  ulyxPlan_t plan = nullptr;
  std::vector<std::unique_ptr<RowTensor>> memory;
  ulyxTensor_t in = ULYX_TENSOR_INITIALIZER, out = ULYX_TENSOR_INITIALIZER;

  void Take(const Session& session, int rank, ulyxTensor_t* tensor) {
    const int64_t rows = tensor->extents[1];
    memory.push_back(std::make_unique<RowTensor>(session, rank, "memory", rows, kElements, int(ulyxFloat32), 4,
                                                 kRowBytes, Spot{}, 1));
    tensor->data = memory.back()->Tensor().data;
  }
};

std::vector<OneCall> RowsCalls(const Session& session, const std::function<void(int, ulyxRowsShape_t*)>& describe) {
  std::vector<OneCall> calls(session.NRanks());
  session.Run([&](int rank) {
    OneCall& call = calls[rank];
    ulyxRowsShape_t shape = ULYX_ROWS_SHAPE_INITIALIZER;
    shape.type = ulyxFloat32;
    shape.rowElements = kElements;
    describe(rank, &shape);
    call.plan = PlanWith(session, rank, [&](ulyxRuntime_t runtime, ulyxPlan_t* plan) {
      return ulyxRowsPlanCreate(runtime, &shape, plan);
    });
    MUST(ulyxPlanGetRows(call.plan, &call.in, &call.out));
    call.Take(session, rank, &call.in);
    call.Take(session, rank, &call.out);
  });
  return calls;
}

std::vector<OneCall> HaloCalls(const Session& session, const std::vector<int64_t>& cuSeqlens, int kernel) {
  std::vector<OneCall> calls(session.NRanks());
  session.Run([&](int rank) {
    OneCall& call = calls[rank];
    ulyxHaloShape_t shape = ULYX_HALO_SHAPE_INITIALIZER;
    shape.context = MakeContext(cuSeqlens, session.NRanks(), rank, ulyxSplitBalanced, kernel);
    shape.type = ulyxFloat32;
    shape.rowElements = kElements;
    call.plan = PlanWith(session, rank, [&](ulyxRuntime_t runtime, ulyxPlan_t* plan) {
      return ulyxHaloPlanCreate(runtime, &shape, plan);
    });
    MUST(ulyxContextDestroy(shape.context));
    MUST(ulyxPlanGetHalo(call.plan, &call.in, &call.out));
    call.Take(session, rank, &call.in);
    call.Take(session, rank, &call.out);
  });
  return calls;
}

struct ChainCall {
  ulyxPlan_t plan = nullptr;
  std::vector<std::unique_ptr<RowTensor>> memory;
  ulyxStates_t states = {};
};

std::vector<ChainCall> ChainCalls(const Session& session, const std::vector<int64_t>& cuSeqlens, bool hasInitial) {
  std::vector<ChainCall> calls(session.NRanks());
  session.Run([&](int rank) {
    ChainCall& call = calls[rank];
    ulyxStateShape_t shape = ULYX_STATE_SHAPE_INITIALIZER;
    shape.context = MakeContext(cuSeqlens, session.NRanks(), rank, ulyxSplitBalanced, 0);
    shape.heads = 1;
    shape.keyDim = shape.valueDim = 2;  // pieces of 16 bytes: a message has no padding
    shape.hasInitial = hasInitial ? 1 : 0;
    call.plan = PlanWith(session, rank, [&](ulyxRuntime_t runtime, ulyxPlan_t* plan) {
      return ulyxStatePlanCreate(runtime, &shape, plan);
    });
    MUST(ulyxContextDestroy(shape.context));
    MUST(ulyxPlanGetStates(call.plan, &call.states));
    ulyxTensor_t* const tensors[] = {&call.states.state, &call.states.transition, &call.states.initial,
                                     &call.states.received};
    for (ulyxTensor_t* tensor : tensors) {
      call.memory.push_back(
          std::make_unique<RowTensor>(session, rank, "state", 1, 4, int(ulyxFloat32), 4, 16, Spot{}, 1));
      call.memory.back()->Put(Bytes(16));
      tensor->data = call.memory.back()->Tensor().data;
    }
  });
  return calls;
}

template <class Calls, class Body>
void RunAll(const Session& session, const Calls& calls, const Body& body) {
  session.Run([&](int rank) {
    MUST(body(calls[rank], session.Stream(rank)));
    session.Synchronize(rank);
  });
}

// Without labels: what crosses the wire is rows alone.
ulyxConfig_t Unlabelled() {
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.agreePlans = 0;
  return config;
}

class RowsTraffic : public ::testing::Test {
 private:
  const ulyxConfig_t config_ = Unlabelled();

 protected:
  Session session_{*Worlds().front(), 3, &config_};
};

}  // namespace

TEST_F(RowsTraffic, OfAGatherIsOwnRowsToEveryOther) {
  static const std::vector<int64_t> counts = {4, 0, 2};
  const auto calls = RowsCalls(session_, [](int, ulyxRowsShape_t* shape) { shape->counts = counts.data(); });
  const Traffic sent = SentSince(3, [&] {
    RunAll(session_, calls, [](const OneCall& call, ulyxStream_t stream) {
      return ulyxAllGatherRows(call.plan, &call.in, &call.out, stream);
    });
  });
  EXPECT_EQ(sent, InRows({{0, 4, 4}, {0, 0, 0}, {2, 2, 0}}));
  EXPECT_EQ(fakeGet().zeroByteMessages, 0);
}

TEST_F(RowsTraffic, OfATargetIsItsRowsAlone) {
  static const std::vector<int64_t> counts = {4, 1, 2};
  const auto calls = RowsCalls(session_, [](int, ulyxRowsShape_t* shape) {
    shape->counts = counts.data();
    shape->targeted = 1;
    shape->target = {3, 5};
  });
  const Traffic sent = SentSince(3, [&] {
    RunAll(session_, calls, [](const OneCall& call, ulyxStream_t stream) {
      return ulyxAllGatherRows(call.plan, &call.in, &call.out, stream);
    });
  });
  EXPECT_EQ(sent, InRows({{0, 1, 1}, {1, 0, 1}, {0, 0, 0}}));
}

TEST_F(RowsTraffic, OfAReduceScatterIsEachOwnersRows) {
  static const std::vector<int64_t> counts = {4, 0, 2};
  const auto calls = RowsCalls(session_, [](int, ulyxRowsShape_t* shape) {
    shape->op = ulyxRowsReduceScatter;
    shape->counts = counts.data();
  });
  const Traffic sent = SentSince(3, [&] {
    RunAll(session_, calls, [](const OneCall& call, ulyxStream_t stream) {
      return ulyxReduceScatterRows(call.plan, &call.in, &call.out, stream);
    });
  });
  EXPECT_EQ(sent, InRows({{0, 0, 2}, {4, 0, 2}, {4, 0, 0}}));
  EXPECT_EQ(fakeGet().sums, 2);  // none where there are no rows
}

TEST_F(RowsTraffic, OfAnAllToAllIsTheMatrix) {
  static const std::vector<int64_t> rows[] = {{5, 1, 0}, {0, 0, 0}, {3, 2, 1}};
  static const std::vector<int64_t> columns[] = {{5, 0, 3}, {1, 0, 2}, {0, 0, 1}};
  const auto calls = RowsCalls(session_, [](int rank, ulyxRowsShape_t* shape) {
    shape->op = ulyxRowsAllToAll;
    shape->sendCounts = rows[rank].data();
    shape->recvCounts = columns[rank].data();
  });
  const Traffic sent = SentSince(3, [&] {
    RunAll(session_, calls, [](const OneCall& call, ulyxStream_t stream) {
      return ulyxAllToAllRows(call.plan, &call.in, &call.out, stream);
    });
  });
  EXPECT_EQ(sent, InRows({{0, 1, 0}, {0, 0, 0}, {3, 2, 0}}));
}

TEST_F(RowsTraffic, OfAHaloIsTheRowsNeededAndTheirGradients) {
  // Tokens 0 1 | 2 3 | 4 5; the second sequence starts at token 1.
  const auto calls = HaloCalls(session_, {0, 1, 6}, 4);
  const Traffic forward = SentSince(3, [&] {
    RunAll(session_, calls, [](const OneCall& call, ulyxStream_t stream) {
      return ulyxConvHalo(call.plan, &call.in, &call.out, stream);
    });
  });
  EXPECT_EQ(forward, InRows({{0, 1, 1}, {0, 0, 2}, {0, 0, 0}}));
  EXPECT_EQ(fakeGet().sums, 0);
  const Traffic backward = SentSince(3, [&] {
    RunAll(session_, calls, [](const OneCall& call, ulyxStream_t stream) {
      return ulyxConvHaloBackward(call.plan, &call.out, &call.in, stream);
    });
  });
  EXPECT_EQ(backward, InRows({{0, 0, 0}, {1, 0, 0}, {1, 2, 0}}));
  EXPECT_EQ(fakeGet().sums, 2);
}

TEST_F(RowsTraffic, OfAHaloThatNobodyNeedsIsNone) {
  const auto calls = HaloCalls(session_, {0, 2, 4, 6}, 4);
  const Traffic sent = SentSince(3, [&] {
    RunAll(session_, calls, [](const OneCall& call, ulyxStream_t stream) {
      return ulyxConvHalo(call.plan, &call.in, &call.out, stream);
    });
  });
  EXPECT_EQ(sent, InRows({{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}));
  EXPECT_EQ(fakeGet().groups, 0);
  EXPECT_EQ(fakeGet().launches, 0);
}

TEST_F(RowsTraffic, OfAChainIsStateAndTransitionToEveryRankOfItAndInitialFromItsStart) {
  const auto calls = ChainCalls(session_, {0, 1, 6}, true);
  const Traffic forward = SentSince(3, [&] {
    RunAll(session_, calls,
           [](const ChainCall& call, ulyxStream_t stream) { return ulyxStateChain(call.plan, &call.states, stream); });
  });
  EXPECT_EQ(forward, (Traffic{{0, 48, 48}, {0, 0, 32}, {0, 0, 0}}));  // S, M and the initial state; S and M
  EXPECT_EQ(fakeGet().chains, 3);
  const Traffic backward = SentSince(3, [&] {
    RunAll(session_, calls, [](const ChainCall& call, ulyxStream_t stream) {
      return ulyxStateChainBackward(call.plan, &call.states, stream);
    });
  });
  // Rank 0 gets both ranks' behind it for its last sequence, and so does rank 1 of its one.
  EXPECT_EQ(backward, (Traffic{{0, 0, 0}, {32, 0, 0}, {48, 48, 0}}));
}

TEST(RowsOfOneRank, InPlaceLaunchNothing) {
  const Session session(*Worlds().front(), 1);
  static const int64_t five = 5;
  for (int op : {ulyxRowsAllGather, ulyxRowsReduceScatter, ulyxRowsAllToAll}) {
    const auto calls = RowsCalls(session, [op](int, ulyxRowsShape_t* shape) {
      shape->op = op;
      shape->total = op == ulyxRowsAllToAll ? 0 : 5;
      shape->sendCounts = shape->recvCounts = &five;
    });
    const auto launched = [](const fakeCounters& c) { return c.launches + c.sums + c.chains; };
    const auto call = [&](const ulyxTensor_t& in, const ulyxTensor_t& out) {
      const ulyxPlan_t plan = calls[0].plan;
      MUST(op == ulyxRowsAllGather       ? ulyxAllGatherRows(plan, &in, &out, session.Stream(0))
           : op == ulyxRowsReduceScatter ? ulyxReduceScatterRows(plan, &in, &out, session.Stream(0))
                                         : ulyxAllToAllRows(plan, &in, &out, session.Stream(0)));
    };
    const int64_t before = launched(fakeGet());
    call(calls[0].in, calls[0].in);
    EXPECT_EQ(launched(fakeGet()), before) << "op " << op;
    call(calls[0].in, calls[0].out);
    EXPECT_EQ(launched(fakeGet()), before + 1) << "op " << op;
  }
}

TEST_F(RowsTraffic, IsRefusedOnceIfAKernelDoesNotLaunchAndGoesOnAfterwards) {
  static const std::vector<int64_t> counts = {4, 0, 2};
  const auto rows = RowsCalls(session_, [](int, ulyxRowsShape_t* shape) {
    shape->op = ulyxRowsReduceScatter;
    shape->counts = counts.data();
  });
  const auto chains = ChainCalls(session_, {0, 6}, false);
  for (const char* function : {"ulyxLaunchSum", "ulyxLaunchChain"}) {
    const bool sum = std::string(function) == "ulyxLaunchSum";
    const auto run = [&](int rank) {
      return sum ? ulyxReduceScatterRows(rows[rank].plan, &rows[rank].in, &rows[rank].out, session_.Stream(rank))
                 : ulyxStateChain(chains[rank].plan, &chains[rank].states, session_.Stream(rank));
    };
    session_.Run([&](int rank) {
      if (rank == 2) fakeFailNthHere(function, 1);
      const ulyxResult_t result = run(rank);
      if (rank == 2) {
        EXPECT_TRUE(Refused(result, ulyxUnhandledCudaError, {"launch of the", sum ? "sum" : "chain"}));
        fakeFailNthHere(nullptr, 0);
      } else {
        MUST(result);
      }
    });
    session_.Run([&](int rank) { MUST(run(rank)); });
  }
}

}  // namespace ulyx_test
