// SPDX-License-Identifier: MIT
//
// Ranks that write each other's memory and do not mean the same, or do not come: what the device finds reaches every
// rank as an error once, says who and what, and leaves the world usable or lost, as documented.
#include <gtest/gtest.h>

#include <algorithm>
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

TEST_P(Meetings, OfDifferentExchangesAreAMismatchOnEveryRankOnceAndRanksStayInStep) {
  ULYX_SKIP_UNLESS_RANKS_MEET(*GetParam(), 2);
  const int nRanks = Ranks(*GetParam()), last = nRanks - 1;
  const Session session(*GetParam(), nRanks);
  const Shape shape(9, 6, 16);
  const Oracle oracle(shape.c, nRanks, TestSeed());
  int exchange = 0;
  for (const Placement& placement : {Placement(Ordinary), Placement(Symmetric)}) {
    const std::string number = "exchange " + std::to_string(exchange + 1) + ":";
    session.Run([&](int rank) {
      const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
      {
        const RankTensors tensors(session, oracle, rank, placement);
        const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
        const ulyxTensor_t outputIn = tensors.OutputIn(plan), outputOut = tensors.OutputOut(plan);
        if (rank == last) {
          MUST(ulyxHeadsToSeq(plan, &outputIn, &outputOut, session.Stream(rank)));
        } else {
          MUST(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)));
        }
        session.Synchronize(rank);
        if (GetParam()->Transport() == ulyxTransportDirect) tensors.ExpectUntouched();
        tensors.Fill();
        if (rank == 0) {  // one asks, the others find out
          ulyxResult_t error = ulyxSuccess;
          MUST(ulyxRuntimeGetAsyncError(session.Runtime(rank), &error));
          EXPECT_EQ(error, ulyxMismatch);
          const std::string said = ulyxGetLastError(session.Runtime(rank));
          EXPECT_NE(said.find("rank " + std::to_string(last)), std::string::npos) << said;
          MUST(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)));
        } else {  // by a call that is made all the same
          EXPECT_TRUE(Refused(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)), ulyxMismatch,
                              {"rank " + std::to_string(rank == last ? 0 : last), number, "same calls"}));
        }
        MUST(ulyxHeadsToSeq(plan, &outputIn, &outputOut, session.Stream(rank)));
        session.Synchronize(rank);
        tensors.ExpectWritten();
        ulyxResult_t again = ulyxTimeout;
        MUST(ulyxRuntimeGetAsyncError(session.Runtime(rank), &again));
        EXPECT_EQ(again, ulyxSuccess);
      }
      MUST(ulyxPlanDestroy(plan));
    });
    exchange += 3;
  }
}

// Counts that only a pair knows are in no signature; and an all-to-all is direct where other rows go by engine.
TEST_P(Meetings, OfRowsThatDoNotMatchAreAMismatchAndNothingIsWritten) {
  ULYX_SKIP_UNLESS_RANKS_MEET(*GetParam(), 2);
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.agreePlans = 0;
  config.arenaBytes = 1 << 20;
  const Session session(*GetParam(), 2, &config);
  session.Run([&](int rank) {
    const int64_t expected = 1, sent = 3;  // by rank 0 of rank 1, and by rank 1
    int64_t toRank0 = rank == 0 ? expected : sent;
    const int64_t send[2] = {rank == 0 ? 0 : toRank0, 0}, receive[2] = {0, rank == 0 ? toRank0 : 0};
    ulyxRowsShape_t shape = ULYX_ROWS_SHAPE_INITIALIZER;
    shape.op = ulyxRowsAllToAll;
    shape.rowElements = 8;
    shape.sendCounts = send;
    shape.recvCounts = receive;
    ulyxPlan_t plan = nullptr, gather = nullptr;
    MUST(ulyxRowsPlanCreate(session.Runtime(rank), &shape, &plan));
    ulyxRowsShape_t all = ULYX_ROWS_SHAPE_INITIALIZER;
    all.rowElements = 8;
    all.total = 2;
    MUST(ulyxRowsPlanCreate(session.Runtime(rank), &all, &gather));
    void* memory = nullptr;
    MUST(ulyxMemAlloc(session.Runtime(rank), 4096, &memory));
    const std::vector<uint8_t> poison(4096, 0x5a);
    GetParam()->Upload(rank, memory, poison.data(), poison.size());
    ulyxTensor_t in, out;
    MUST(ulyxPlanGetRows(plan, &in, &out));
    in.data = static_cast<char*>(memory) + 2048;
    out.data = memory;
    const auto expectMismatch = [&] {
      session.Synchronize(rank);
      ulyxResult_t error = ulyxSuccess;
      MUST(ulyxRuntimeGetAsyncError(session.Runtime(rank), &error));
      EXPECT_EQ(error, ulyxMismatch) << ulyxGetErrorString(error);
      std::vector<uint8_t> found(4096);
      GetParam()->Download(rank, found.data(), memory, found.size());
      EXPECT_EQ(found, poison);
    };
    MUST(ulyxAllToAllRows(plan, &in, &out, session.Stream(rank)));
    expectMismatch();
    // A gather on one rank against the all-to-all on the other: also where one goes by engine.
    ulyxTensor_t mine, whole;
    MUST(ulyxPlanGetRows(gather, &mine, &whole));
    mine.data = static_cast<char*>(memory) + 2048;
    whole.data = memory;
    if (rank == 0) {
      MUST(ulyxAllToAllRows(plan, &in, &out, session.Stream(rank)));
    } else {
      MUST(ulyxAllGatherRows(gather, &mine, &whole, session.Stream(rank)));
    }
    session.Synchronize(rank);
    ulyxResult_t error = ulyxSuccess;
    MUST(ulyxRuntimeGetAsyncError(session.Runtime(rank), &error));
    EXPECT_EQ(error, ulyxMismatch) << ulyxGetErrorString(error);
    MUST(ulyxAllGatherRows(gather, &mine, &whole, session.Stream(rank)));
    session.Synchronize(rank);
    MUST(ulyxRuntimeGetAsyncError(session.Runtime(rank), &error));
    EXPECT_EQ(error, ulyxSuccess) << ulyxGetErrorString(error);
    MUST(ulyxMemFree(session.Runtime(rank), memory));
    MUST(ulyxPlanDestroy(gather));
    MUST(ulyxPlanDestroy(plan));
  });
}

TEST_P(Meetings, OfTwoRanksThatDisagreeAboutEachOtherReachTheThird) {
  ULYX_SKIP_UNLESS_RANKS_MEET(*GetParam(), 3);
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.agreePlans = 0;
  config.arenaBytes = 1 << 20;
  const Session session(*GetParam(), 3, &config);
  session.Run([&](int rank) {
    ulyxPlan_t plans[2] = {};  // one that two ranks disagree about, and one that all mean
    for (const int64_t sent : {3, 1}) {
      // Every pair exchanges one row, but rank 1 would send rank 0 `sent`.
      const int64_t send[3] = {rank == 0 ? 0 : rank == 1 ? sent : 1, rank == 1 ? 0 : 1, rank == 2 ? 0 : 1};
      const int64_t receive[3] = {rank == 0 ? 0 : 1, rank == 1 ? 0 : 1, rank == 2 ? 0 : 1};
      ulyxRowsShape_t shape = ULYX_ROWS_SHAPE_INITIALIZER;
      shape.op = ulyxRowsAllToAll;
      shape.rowElements = 8;
      shape.sendCounts = send;
      shape.recvCounts = receive;
      MUST(ulyxRowsPlanCreate(session.Runtime(rank), &shape, &plans[sent == 1]));
    }
    void* memory = nullptr;
    MUST(ulyxMemAlloc(session.Runtime(rank), 4096, &memory));
    for (int i = 0; i < 4; i++) {
      ulyxTensor_t in, out;
      MUST(ulyxPlanGetRows(plans[i % 2], &in, &out));
      in.data = static_cast<char*>(memory) + 2048;
      out.data = memory;
      MUST(ulyxAllToAllRows(plans[i % 2], &in, &out, session.Stream(rank)));
      session.Synchronize(rank);
      ulyxResult_t error = ulyxSuccess;
      MUST(ulyxRuntimeGetAsyncError(session.Runtime(rank), &error));
      EXPECT_EQ(error, i % 2 == 0 ? ulyxMismatch : ulyxSuccess) << ulyxGetErrorString(error);
      const std::string said = ulyxGetLastError(session.Runtime(rank));
      EXPECT_EQ(i % 2 == 0 && rank == 2, i % 2 == 0 && said.find("third rank") != std::string::npos) << said;
    }
    MUST(ulyxMemFree(session.Runtime(rank), memory));
    for (const ulyxPlan_t plan : plans) MUST(ulyxPlanDestroy(plan));
  });
}

TEST_P(Meetings, WithARankThatDoesNotComeEndAtTheDeadlineAndSayWho) {
  ULYX_SKIP_UNLESS_RANKS_MEET(*GetParam(), 2);
  const int nRanks = Ranks(*GetParam());
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.timeoutMs = 1000;
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
    if (!GetParam()->KeepsOneSession()) {  // ranks that share a GPU also wait for each other on the host
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(3500));
    }
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
