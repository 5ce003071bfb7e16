// SPDX-License-Identifier: MIT
//
// Threads: worlds side by side, runtimes that pass from thread to thread, two threads that drive one runtime with no
// order between them, and one thread that enqueues on two streams.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "fake.h"
#include "support/exchange_check.h"
#include "support/kinds.h"
#include "support/ranks.h"
#include "support/rng.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

class SeveralThreads : public ::testing::TestWithParam<const World*> {
 protected:
  static ulyxConfig_t Config() {
    ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
    config.arenaBytes = kKindsArenaBytes;
    return config;
  }
};
ULYX_ON_EVERY_WORLD(SeveralThreads);

}  // namespace

TEST_P(SeveralThreads, MakeUseAndDestroyWorldsSideBySide) {
  SCOPED_TRACE("seed " + std::to_string(TestSeed()));
  constexpr int kWorlds = 3;
  RunRanks(kWorlds, [&](int world) {  // a thread a world, and one a rank within
    Rng rng(TestSeed() + uint64_t(world));
    for (int life = 0; life < 3; life++) {
      const Session session(*GetParam(), 2 + world % 2);
      const int64_t tokens = rng.Between(4, 40);
      CheckExchanges(session, Shape(tokens, 4, 8).c, TestSeed(), Scattered(rng.Between(0, 1 << 20)), 2);
    }
  });
}

// Every call of a rank comes from another thread, each after the one before.
TEST_P(SeveralThreads, DriveARankOneAfterAnother) {
  const ulyxConfig_t config = Config();
  const Session session(*GetParam(), 2, &config);
  const Shape shape(11, 4, 8);
  const Oracle oracle(shape.c, 2, TestSeed());
  ulyxPlan_t plans[2] = {};
  std::unique_ptr<RankTensors> tensors[2];
  session.Run([&](int rank) { plans[rank] = MakePlan(session, shape.c, rank); });
  session.Run([&](int rank) { tensors[rank] = std::make_unique<RankTensors>(session, oracle, rank, Symmetric); });
  for (int i = 0; i < 4; i++) session.Run([&](int rank) { Exchange(session, plans[rank], *tensors[rank], rank); });
  session.Run([&](int rank) {
    session.Synchronize(rank);
    tensors[rank]->ExpectWritten();
    tensors[rank].reset();
  });
  session.Run([&](int rank) { MUST(ulyxPlanDestroy(plans[rank])); });
}

// Of a world of one rank, where no call waits for another's: what one of the two is refused is the order alone.
TEST_P(SeveralThreads, InsideOneRuntimeAreEachServedOrToldThatItIsTaken) {
  SCOPED_TRACE("seed " + std::to_string(TestSeed()));
  constexpr int kThreads = 2;
  const int calls = IsSanitized() ? 4000 : 40000;
  const ulyxConfig_t config = Config();
  const Session session(*GetParam(), 1, &config);
  const ulyxRuntime_t runtime = session.Runtime(0);
  const Kinds kinds(*GetParam(), 1, 0);
  ulyxPlan_t shared = nullptr;
  MUST(kinds.Make(runtime, Kind::kExchange, &shared));
  std::atomic<int64_t> served{0};
  RunRanks(kThreads, [&](int thread) {
    GetParam()->Use(0);
    Rng rng(TestSeed() + uint64_t(thread));
    ulyxPlan_t own = nullptr;
    for (int i = 0; i < calls; i++) {
      ulyxResult_t result = ulyxSuccess;
      ulyxRuntimeInfo_t info = ULYX_RUNTIME_INFO_INITIALIZER;
      ulyxContext_t context = nullptr;
      const int64_t bounds[] = {0, rng.Between(1, 9)};
      switch (rng.Between(0, 5)) {
        case 0:
          result = kinds.Call(Kind::kExchange, shared, rng.OneIn(2), nullptr);
          break;
        case 1:
          if (own == nullptr) {
            result = kinds.Make(runtime, kKinds[i % int(std::size(kKinds))], &own);
          } else if ((result = ulyxPlanDestroy(own)) == ulyxSuccess) {
            own = nullptr;
          }
          break;
        case 2:
          result = ulyxRuntimeGetInfo(runtime, &info);
          break;
        case 3:  // beside any other call
          MUST(ulyxRuntimeGetContext(runtime, bounds, 2, ulyxInt64, 0, 0, &context));
          MUST(ulyxContextDestroy(context));
          break;
        case 4:
          result = ulyxRuntimeGetAsyncError(runtime, &result);
          break;
        default:
          result = ulyxRuntimeReserve(runtime, 0);
          break;
      }
      served += result == ulyxSuccess;
      if (result != ulyxSuccess) {
        ASSERT_TRUE(Refused(result, ulyxInvalidUsage, {"another thread is inside this runtime"}));
      }
    }
  });
  EXPECT_GT(served, calls / 2);
  MUST(kinds.Call(Kind::kExchange, shared, false, nullptr));
}

// They share an arena, records and the order of the peers: the second waits on its stream for the first.
TEST_P(SeveralThreads, AreNotNeededForTwoStreamsWhoseExchangesFollowEachOther) {
  const bool onCpu = GetParam()->Transport() == ulyxTransportLoopback;
  const ulyxConfig_t config = Config();
  const Session session(*GetParam(), 2, &config);
  const Shape shape(11, 4, 8);
  const Oracle oracle(shape.c, 2, TestSeed());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    const ulyxStream_t second = GetParam()->NewStream(rank);
    {
      const RankTensors tensors(session, oracle, rank, Symmetric);
      const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
      const ulyxTensor_t outputIn = tensors.OutputIn(plan), outputOut = tensors.OutputOut(plan);
      for (int i = 0; i < 3; i++) {
        tensors.Fill();
        MUST(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)));
        if (!onCpu && rank == 0) {  // so it is what the second needs first
          fakeFailNthHere("cudaStreamWaitEvent", 1);
          EXPECT_TRUE(Refused(ulyxHeadsToSeq(plan, &outputIn, &outputOut, second), ulyxUnhandledCudaError,
                              {"cudaStreamWaitEvent(exchange->stream"}));
        }
        MUST(ulyxHeadsToSeq(plan, &outputIn, &outputOut, second));
        session.Synchronize(rank);
        GetParam()->Synchronize(rank, second);
        tensors.ExpectWritten();
      }
    }
    GetParam()->FreeStream(rank, second);
    MUST(ulyxPlanDestroy(plan));
  });
}

}  // namespace ulyx_test
