// SPDX-License-Identifier: MIT
//
// Ranks that write each other's memory and do not mean the same, or do not come: what the device finds reaches every
// rank as an error once, says who and what, and leaves the world usable or lost, as documented.
#include <gtest/gtest.h>

#include <algorithm>
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

bool Meets(const World& world) {
  return world.Transport() == ulyxTransportDirect || world.Transport() == ulyxTransportCopyEngine;
}

int Ranks(const World& world) {
  return std::min(world.MaxRanks(), 3);
}

// Leaves a test as skipped in worlds without records.
#define ULYX_SKIP_UNLESS_RANKS_MEET(world, nRanks) \
  ULYX_SKIP_BELOW(world, nRanks);                  \
  if (!Meets(world)) GTEST_SKIP() << (world).Name() << " has no records to meet by"

class Meetings : public ::testing::TestWithParam<const World*> {};
ULYX_ON_EVERY_WORLD(Meetings);

void Exchange2(const Session& session, ulyxPlan_t plan, const RankTensors& tensors, int rank) {
  tensors.Fill();
  Exchange(session, plan, tensors, rank);
  session.Synchronize(rank);
  tensors.ExpectWritten();
}

}  // namespace

TEST_P(Meetings, OfDifferentExchangesAreAMismatchOnEveryRankOnceAndPass) {
  ULYX_SKIP_UNLESS_RANKS_MEET(*GetParam(), 2);
  const int nRanks = Ranks(*GetParam()), last = nRanks - 1;
  const Session session(*GetParam(), nRanks);
  const Shape shape(9, 6, 16);
  const Oracle oracle(shape.c, nRanks, TestSeed());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    {
      const RankTensors tensors(session, oracle, rank, Symmetric);
      const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
      const ulyxTensor_t outputIn = tensors.OutputIn(plan), outputOut = tensors.OutputOut(plan);
      if (rank == last) {
        MUST(ulyxHeadsToSeq(plan, &outputIn, &outputOut, session.Stream(rank)));
      } else {
        MUST(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)));
      }
      session.Synchronize(rank);
      if (GetParam()->Transport() == ulyxTransportDirect) tensors.ExpectUntouched();
      if (rank == 0) {  // one asks, the others find out
        ulyxResult_t error = ulyxSuccess;
        MUST(ulyxRuntimeGetAsyncError(session.Runtime(rank), &error));
        EXPECT_EQ(error, ulyxMismatch);
        EXPECT_NE(std::string(ulyxGetLastError(session.Runtime(rank))).find("rank " + std::to_string(last)), std::string::npos);
      } else {
        EXPECT_TRUE(Refused(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)), ulyxMismatch,
                            {"rank " + std::to_string(rank == last ? 0 : last), "exchange 1", "same calls"}));
      }
      ulyxResult_t again = ulyxTimeout;
      MUST(ulyxRuntimeGetAsyncError(session.Runtime(rank), &again));
      EXPECT_EQ(again, ulyxSuccess);
      Exchange2(session, plan, tensors, rank);
    }
    MUST(ulyxPlanDestroy(plan));
  });
}

TEST_P(Meetings, WithARankThatDoesNotComeEndAtTheDeadlineAndSayWho) {
  ULYX_SKIP_UNLESS_RANKS_MEET(*GetParam(), 2);
  const int nRanks = Ranks(*GetParam());
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.timeoutMs = 400;
  const Session session(*GetParam(), nRanks, &config);
  const Shape shape(9, 6, 16);
  const Oracle oracle(shape.c, nRanks, TestSeed());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(4000));
    const auto start = std::chrono::steady_clock::now();
    MUST(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)));
    session.Synchronize(rank);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(3500));
    for (int i = 0; i < 2; i++) {  // it stays
      const ulyxResult_t result = ulyxSeqToHeads(plan, &in, &out, session.Stream(rank));
      EXPECT_TRUE(result == ulyxTimeout || result == ulyxRemoteError) << ulyxGetErrorString(result);
      const std::string said = ulyxGetLastError(session.Runtime(rank));
      EXPECT_NE(said.find("exchange 1"), std::string::npos) << said;
      EXPECT_NE(said.find("destroy the runtime"), std::string::npos) << said;
      EXPECT_EQ(result == ulyxTimeout, said.find("rank 1 did not reach") != std::string::npos) << said;
    }
  });
}

TEST_P(Meetings, OfOutputsThatLieElsewhereAreRefusedByCopyEnginesAlone) {
  ULYX_SKIP_UNLESS_RANKS_MEET(*GetParam(), 2);
  const bool engines = GetParam()->Transport() == ulyxTransportCopyEngine;
  const Session session(*GetParam(), 2);
  const Shape shape(8, 6, 16);
  const Oracle oracle(shape.c, 2, TestSeed());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    void* memory = nullptr;
    MUST(ulyxMemAlloc(session.Runtime(rank), 1 << 20, &memory));
    {
      const RankTensors tensors(session, oracle, rank, Ordinary);
      const ulyxTensor_t in = tensors.OutputIn(plan);
      ulyxTensor_t out = tensors.OutputOut(plan);
      out.data = static_cast<char*>(memory) + (rank == 0 ? 0 : 4096);
      MUST(ulyxHeadsToSeq(plan, &in, &out, session.Stream(rank)));
      session.Synchronize(rank);
      ulyxResult_t error = ulyxSuccess;
      MUST(ulyxRuntimeGetAsyncError(session.Runtime(rank), &error));
      EXPECT_EQ(error, engines ? ulyxMismatch : ulyxSuccess);
      if (engines) {
        const std::string said = ulyxGetLastError(session.Runtime(rank));
        EXPECT_NE(said.find("same offset"), std::string::npos) << said;
        EXPECT_NE(said.find("transport direct"), std::string::npos) << said;
      }
      Exchange2(session, plan, tensors, rank);
    }
    MUST(ulyxMemFree(session.Runtime(rank), memory));
    MUST(ulyxPlanDestroy(plan));
  });
}

// Two orders of exchanges on the same GPUs, in opposite order on two ranks: kernels that wait leave room for each
// other within their caps.
TEST_P(Meetings, OfTwoRuntimesInOppositeOrderFinishWithinTheirCaps) {
  ULYX_SKIP_UNLESS_RANKS_MEET(*GetParam(), 2);
  const std::string name = GetParam()->Name();
  if (name != "direct" && name != "copy_engine") GTEST_SKIP() << "needs kernels of two runtimes to run side by side";
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.maxCtas = 64;
  const Session one(*GetParam(), 2, &config), other(*GetParam(), 2, &config);
  const Shape shape(4096, 8, 64);
  const Oracle oracle(shape.c, 2, TestSeed());
  one.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(one, shape.c, rank), otherPlan = MakePlan(other, shape.c, rank);
    {
      const RankTensors tensors(one, oracle, rank, Symmetric), otherTensors(other, oracle, rank, Symmetric);
      for (int i = 0; i < 20; i++) {
        if (rank == 0) Exchange(one, plan, tensors, rank);
        Exchange(other, otherPlan, otherTensors, rank);
        if (rank == 1) Exchange(one, plan, tensors, rank);
      }
      one.Synchronize(rank);
      other.Synchronize(rank);
      tensors.ExpectWritten();
      otherTensors.ExpectWritten();
    }
    MUST(ulyxPlanDestroy(plan));
    MUST(ulyxPlanDestroy(otherPlan));
  });
}

}  // namespace ulyx_test
