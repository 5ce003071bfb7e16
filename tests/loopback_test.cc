// SPDX-License-Identifier: MIT
//
// What only loopback can promise: ranks that do not come are named in time, and a second thread in a runtime is
// told so.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support/exchange_check.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

using Clock = std::chrono::steady_clock;

ulyxConfig_t WithTimeout(int timeoutMs) {
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.timeoutMs = timeoutMs;
  return config;
}

const World& Loopback() {
  return *Worlds().front();
}

const Shape kShape(9, 6, 8);

// Every rank but `absent` calls; each must learn within a second of the deadline who did not come.
template <class Call>
void ExpectTimeout(int nRanks, int absent, const Call& call) {
  constexpr int kTimeoutMs = 1000;
  const ulyxConfig_t config = WithTimeout(kTimeoutMs);
  const Session session(Loopback(), nRanks, &config);
  const Oracle oracle(kShape.c, nRanks, TestSeed());
  std::vector<Clock::time_point> starts(nRanks, Clock::time_point::max()), ends(nRanks, Clock::time_point::max());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, kShape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    if (rank == absent) return;
    starts[rank] = Clock::now();
    const ulyxResult_t result = call(session, plan, tensors, rank);
    ends[rank] = Clock::now();
    EXPECT_TRUE(Refused(result, ulyxTimeout, {"rank " + std::to_string(absent), std::to_string(kTimeoutMs)}));
    EXPECT_LE(ends[rank] - starts[rank], std::chrono::milliseconds(kTimeoutMs + 1000));
    tensors.ExpectUntouched();
  });
  // the deadline of whoever came first ends the wait of all
  EXPECT_GE(*std::min_element(ends.begin(), ends.end()) - *std::min_element(starts.begin(), starts.end()),
            std::chrono::milliseconds(kTimeoutMs - 50));
}

ulyxResult_t SeqToHeads(const Session&, ulyxPlan_t plan, const RankTensors& tensors, int) {
  const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
  return ulyxSeqToHeads(plan, &in, &out, nullptr);
}

ulyxResult_t HeadsToSeq(const Session&, ulyxPlan_t plan, const RankTensors& tensors, int) {
  const ulyxTensor_t in = tensors.OutputIn(plan), out = tensors.OutputOut(plan);
  return ulyxHeadsToSeq(plan, &in, &out, nullptr);
}

ulyxResult_t Plan(const Session& session, ulyxPlan_t, const RankTensors&, int rank) {
  ulyxPlan_t another = nullptr;
  const ulyxResult_t result = ulyxPlanCreate(session.Runtime(rank), &kShape.c, &another);
  EXPECT_EQ(another, nullptr);
  return result;
}

ulyxResult_t Allocate(const Session& session, ulyxPlan_t, const RankTensors&, int rank) {
  void* memory = nullptr;
  const ulyxResult_t result = ulyxMemAlloc(session.Runtime(rank), 100, &memory);
  EXPECT_EQ(memory, nullptr);
  return result;
}

}  // namespace

TEST(Loopback, NamesTheRankThatDoesNotComeToSeqToHeads) {
  ExpectTimeout(3, 1, SeqToHeads);
}

TEST(Loopback, NamesTheRankThatDoesNotComeToHeadsToSeq) {
  ExpectTimeout(4, 0, HeadsToSeq);
}

TEST(Loopback, NamesTheRankThatDoesNotComeToAPlan) {
  ExpectTimeout(2, 1, Plan);
}

TEST(Loopback, NamesTheRankThatDoesNotComeForMemory) {
  ExpectTimeout(3, 2, Allocate);
}

TEST(Loopback, SaysThatARankWasDestroyedWithoutWaitingForTheDeadline) {
  const ulyxConfig_t config = WithTimeout(60000);
  Session session(Loopback(), 3, &config);
  const Oracle oracle(kShape.c, 3, TestSeed());
  const Clock::time_point start = Clock::now();
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, kShape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    if (rank == 2) {
      MUST(ulyxRuntimeDestroy(session.RuntimePtr(rank)));
    } else {
      EXPECT_TRUE(Refused(SeqToHeads(session, plan, tensors, rank), ulyxRemoteError, {"rank 2", "destroyed"}));
      tensors.ExpectUntouched();
    }
  });
  EXPECT_LE(Clock::now() - start, std::chrono::seconds(20));
}

TEST(Loopback, WaitsForEverWhenToldTo) {
  const ulyxConfig_t config = WithTimeout(0);
  const Session session(Loopback(), 2, &config);
  const Oracle oracle(kShape.c, 2, TestSeed());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, kShape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    Exchange(session, plan, tensors, rank);
    tensors.ExpectWritten();
  });
}

TEST(Loopback, TellsASecondThreadThatTheRuntimeIsTaken) {
  const ulyxConfig_t config = WithTimeout(2000);
  const Session session(Loopback(), 2, &config);
  const Oracle oracle(kShape.c, 2, TestSeed());
  std::atomic<bool> ready{false};
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, kShape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
    if (rank == 0) {
      // Waits inside the exchange until rank 1 comes, which comes once it was refused here.
      ready = true;
      ulyxResult_t result = ulyxInvalidUsage;
      while (result == ulyxInvalidUsage) result = ulyxSeqToHeads(plan, &in, &out, nullptr);
      EXPECT_EQ(result, ulyxSuccess);
      return;
    }
    while (!ready) std::this_thread::yield();
    ulyxRuntimeInfo_t info = ULYX_RUNTIME_INFO_INITIALIZER;
    ulyxResult_t result = ulyxSuccess;
    while (result == ulyxSuccess) result = ulyxRuntimeGetInfo(session.Runtime(0), &info);
    EXPECT_TRUE(Refused(result, ulyxInvalidUsage, {"thread"}));
    EXPECT_EQ(ulyxSeqToHeads(plan, &in, &out, nullptr), ulyxSuccess);
  });
}

TEST(Loopback, GivesRanksAtDifferentCallsAnErrorRatherThanAHangOrACrash) {
  const ulyxConfig_t config = WithTimeout(2000);
  const Session session(Loopback(), 2, &config);
  const Oracle oracle(kShape.c, 2, TestSeed());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, kShape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    const ulyxResult_t result =
        rank == 0 ? Plan(session, plan, tensors, rank) : SeqToHeads(session, plan, tensors, rank);
    EXPECT_NE(result, ulyxSuccess);
    EXPECT_STRNE(ulyxGetLastError(nullptr), "");
    tensors.ExpectUntouched();
  });
}

TEST(Loopback, GivesRanksAtPlansAndMemoryAnErrorRatherThanAHangOrACrash) {
  const ulyxConfig_t config = WithTimeout(2000);
  const Session session(Loopback(), 2, &config);
  const Oracle oracle(kShape.c, 2, TestSeed());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, kShape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    const ulyxResult_t result = rank == 0 ? Plan(session, plan, tensors, rank) : Allocate(session, plan, tensors, rank);
    EXPECT_NE(result, ulyxSuccess);
  });
}

TEST(Loopback, SeesPlansThatWereNotComparedDifferBeforeAnythingMoves) {
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.agreePlans = 0;
  const Session session(Loopback(), 3, &config);
  session.Run([&](int rank) {
    Shape shape(12, 6, rank == 2 ? 16 : 8);
    const Oracle oracle(shape.c, 3, TestSeed());
    ulyxPlan_t plan = nullptr;
    MUST(ulyxPlanCreate(session.Runtime(rank), &shape.c, &plan));
    {
      const RankTensors tensors(session, oracle, rank, Ordinary);
      const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
      EXPECT_TRUE(Refused(ulyxSeqToHeads(plan, &in, &out, nullptr), ulyxMismatch, {"rank 0", "rank 2"}));
      tensors.ExpectUntouched();
    }
    MUST(ulyxPlanDestroy(plan));
  });
  CheckExchanges(session, Shape(12, 6, 8).c, TestSeed());
}

TEST(Loopback, SeesRanksInDifferentExchanges) {
  const Session session(Loopback(), 2);
  const Shape shape(4, 2, 8);
  const Oracle oracle(shape.c, 2, TestSeed());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    {
      const RankTensors tensors(session, oracle, rank, Ordinary);
      const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
      const ulyxTensor_t outputIn = tensors.OutputIn(plan), outputOut = tensors.OutputOut(plan);
      const ulyxResult_t result =
          rank == 0 ? ulyxSeqToHeads(plan, &in, &out, nullptr) : ulyxHeadsToSeq(plan, &outputIn, &outputOut, nullptr);
      EXPECT_TRUE(Refused(result, ulyxMismatch, {"seq_to_heads", "heads_to_seq"}));
      tensors.ExpectUntouched();
    }
    MUST(ulyxPlanDestroy(plan));
  });
}

}  // namespace ulyx_test
