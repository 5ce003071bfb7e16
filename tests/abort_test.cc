// SPDX-License-Identifier: MIT
//
// A runtime that is aborted from another thread: whoever waits wakes up long before the deadline, learns why, and
// every later call says the same until the runtime is destroyed.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "support/exchange_check.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTimeoutMs = 20000;
constexpr auto kSoon = std::chrono::seconds(5);  // a busy machine, and NCCL's own leave

class Aborts : public ::testing::TestWithParam<const World*> {
 protected:
  static ulyxConfig_t Patient() {
    ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
    config.timeoutMs = kTimeoutMs;
    return config;
  }
  static int Ranks() { return std::min(GetParam()->MaxRanks(), 3); }
};
ULYX_ON_EVERY_WORLD(Aborts);

void ExchangeAndCheck(const Session& session, ulyxPlan_t plan, const RankTensors& tensors, int rank) {
  tensors.Fill();
  Exchange(session, plan, tensors, rank);
  session.Synchronize(rank);
  tensors.ExpectWritten();
}

std::thread AbortSoon(ulyxRuntime_t runtime) {
  return std::thread([runtime] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    MUST(ulyxRuntimeAbort(runtime));
  });
}

// Rank 0 was aborted; the others may hear it from one another.
void ExpectLost(ulyxRuntime_t runtime, ulyxResult_t result, int rank) {
  EXPECT_TRUE(Refused(result, ulyxRemoteError, {rank == 0 ? "rank 0 was aborted" : "rank "}));
  EXPECT_STREQ(ulyxGetLastError(runtime), ulyxGetLastError(nullptr));
}

}  // namespace

TEST_P(Aborts, WakeARankThatWaitsForTheOthersOnTheHost) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const ulyxConfig_t config = Patient();
  const Session session(*GetParam(), Ranks(), &config);
  const Shape shape(9, 6, 8);
  session.Run([&](int rank) {
    if (rank != 0) return;  // they do not come
    std::thread aborter = AbortSoon(session.Runtime(0));
    const Clock::time_point start = Clock::now();
    ulyxPlan_t plan = nullptr;
    const ulyxResult_t result = ulyxPlanCreate(session.Runtime(0), &shape.c, &plan);
    EXPECT_LT(Clock::now() - start, kSoon);
    ExpectLost(session.Runtime(0), result, 0);
    EXPECT_EQ(plan, nullptr);
    aborter.join();
    void* memory = nullptr;
    ExpectLost(session.Runtime(0), ulyxMemAlloc(session.Runtime(0), 100, &memory), 0);
    ExpectLost(session.Runtime(0), ulyxPlanCreate(session.Runtime(0), &shape.c, &plan), 0);
  });
}

TEST_P(Aborts, WakeARankThatWaitsInAnExchangeAndTellTheOthers) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  if (GetParam()->KeepsOneSession()) GTEST_SKIP() << "ranks that share a GPU launch together";
  const ulyxConfig_t config = Patient();
  const Session session(*GetParam(), Ranks(), &config);
  const Shape shape(9, 6, 8);
  const Oracle oracle(shape.c, session.NRanks(), TestSeed());
  const bool toldByMemory = GetParam()->Transport() != ulyxTransportNccl;
  std::atomic<bool> aborted{false};
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
    const Clock::time_point start = Clock::now();
    if (rank == 0) { /* the others come late */
      std::thread aborter = AbortSoon(session.Runtime(0));
      const ulyxResult_t enqueued = ulyxSeqToHeads(plan, &in, &out, session.Stream(0));
      if (GetParam()->Transport() != ulyxTransportNccl) session.Synchronize(0);
      aborter.join();
      aborted = true;
      EXPECT_LT(Clock::now() - start, kSoon);
      ulyxResult_t found = enqueued;
      if (enqueued == ulyxSuccess) MUST(ulyxRuntimeGetAsyncError(session.Runtime(0), &found));
      ExpectLost(session.Runtime(0), found, 0);
    } else if (toldByMemory) {
      while (!aborted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const ulyxResult_t enqueued = ulyxSeqToHeads(plan, &in, &out, session.Stream(rank));
      if (GetParam()->Transport() != ulyxTransportLoopback) session.Synchronize(rank);
      EXPECT_LT(Clock::now() - start, kSoon);
      ulyxResult_t found = enqueued;
      if (enqueued == ulyxSuccess) MUST(ulyxRuntimeGetAsyncError(session.Runtime(rank), &found));
      ExpectLost(session.Runtime(rank), found, rank);
    }
    if (rank == 0 || toldByMemory) {
      const ulyxResult_t again = ulyxSeqToHeads(plan, &in, &out, session.Stream(rank));
      ExpectLost(session.Runtime(rank), again, rank);
    }
  });
}

TEST_P(Aborts, OfAWorldThatRestsAreFoundByTheNextCallAndANewWorldWorks) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const ulyxConfig_t config = Patient();
  const Shape shape(9, 6, 8);
  {
    Session session(*GetParam(), Ranks(), &config);
    const Oracle oracle(shape.c, session.NRanks(), TestSeed());
    session.Run([&](int rank) {
      const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
      const RankTensors tensors(session, oracle, rank, Ordinary);
      ExchangeAndCheck(session, plan, tensors, rank);
      (void)MakePlan(session, shape.c, rank);  // every rank's exchanges have ended
      for (int i = 0; i < 2; i++) MUST(ulyxRuntimeAbort(session.Runtime(rank)));
      const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
      EXPECT_EQ(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)), ulyxRemoteError);
      ulyxResult_t found = ulyxSuccess;
      MUST(ulyxRuntimeGetAsyncError(session.Runtime(rank), &found));
      EXPECT_EQ(found, ulyxRemoteError);
      MUST(ulyxRuntimeClose(session.Runtime(rank)));
      EXPECT_EQ(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)), ulyxClosed);
    });
    const Clock::time_point start = Clock::now();
    session.Destroy();
    EXPECT_LT(Clock::now() - start, kSoon);
  }
  const Session session(*GetParam(), Ranks(), &config);
  const Oracle oracle(shape.c, session.NRanks(), TestSeed());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    ExchangeAndCheck(session, plan, tensors, rank);
  });
}

}  // namespace ulyx_test
