// SPDX-License-Identifier: MIT
//
// Worlds whose ranks cannot write each other's memory, on the fakes: auto falls back to nccl and says why, what was
// asked for by name is refused with the same words, and exchanges are exact.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "fake.h"
#include "support/exchange_check.h"
#include "support/ranks.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

// A world of three ranks as `config` asks for it.
void ExpectFallback(const std::string& why) {
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.transport = ulyxTransportAuto;
  {
    const Session session(*Worlds().front(), 3, &config);
    for (int rank = 0; rank < 3; rank++) {
      ulyxRuntimeInfo_t info = ULYX_RUNTIME_INFO_INITIALIZER;
      MUST(ulyxRuntimeGetInfo(session.Runtime(rank), &info));
      EXPECT_EQ(info.transport, ulyxTransportNccl);
      EXPECT_NE(std::string(info.transportReason).find(why), std::string::npos) << info.transportReason;
    }
    CheckExchanges(session, Shape(10, 7, 8).c, TestSeed());
  }
  for (const int asked : {ulyxTransportDirect, ulyxTransportCopyEngine}) {
    config.transport = asked;
    std::vector<ulyxRuntime_t> runtimes(3);
    const std::vector<int> devices = Worlds().front()->Devices(3);
    EXPECT_TRUE(
        Refused(ulyxRuntimeCreateLocal(&config, 3, devices.data(), runtimes.data()), ulyxUnsupported, {why, "NVLink"}));
  }
  EXPECT_EQ(fakeGet().violations, 0);
}

}  // namespace

TEST(Fallback, WithoutNvlinkIsNccl) {
  fakeSetNvlink(0);
  ExpectFallback("no NVLink joins the GPUs of ranks 0 and 1");
  fakeSetNvlink(1);
}

TEST(Fallback, WithoutWindowsIsNccl) {
  fakeSetWindowSupport(0);
  ExpectFallback("does not see rank");
  fakeSetWindowSupport(1);
}

TEST(Fallback, WithNvlinkEachPlanHasItsOwnTransport) {
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.transport = ulyxTransportAuto;
  config.agreePlans = 0;
  config.arenaBytes = INT64_C(1) << 20;
  const Session session(*Worlds().front(), 2, &config);
  ulyxRuntimeInfo_t info = ULYX_RUNTIME_INFO_INITIALIZER;
  MUST(ulyxRuntimeGetInfo(session.Runtime(0), &info));
  EXPECT_EQ(info.transport, ulyxTransportAuto);
  EXPECT_STREQ(info.transportReason, "NVLink reaches every peer");
  const Shape shape(64, 8, 16);
  ulyxPlan_t plan = nullptr;
  MUST(ulyxPlanCreate(session.Runtime(0), &shape.c, &plan));
  ulyxPlanInfo_t planned = ULYX_PLAN_INFO_INITIALIZER;
  MUST(ulyxPlanGetInfo(plan, &planned));
  EXPECT_EQ(planned.seqToHeads.transport, ulyxTransportDirect);
  EXPECT_GT(planned.seqToHeads.predictedUs, planned.headsToSeq.predictedUs);
  ulyxChoice_t choice;
  MUST(ulyxPlanGetChoice(plan, 1, &choice));
  EXPECT_EQ(choice.predictedUs, planned.headsToSeq.predictedUs);
  EXPECT_TRUE(Refused(ulyxPlanGetChoice(plan, 2, &choice), ulyxInvalidArgument, {"backward is 2", "0 to 1"}));
  EXPECT_TRUE(Refused(ulyxPlanGetChoice(plan, 0, nullptr), ulyxInvalidArgument, {"choice"}));
  MUST(ulyxPlanDestroy(plan));
}

// A rank that fails half-way is out of step for good: it says so, and tells the others.
TEST(Broken, ExchangesLeaveNoRankWithTheNextOnesData) {
  const std::vector<std::pair<int, const char*>> faults = {{ulyxTransportDirect, "ulyxLaunchExchange"},
                                                           {ulyxTransportCopyEngine, "cudaEventRecord"},
                                                           {ulyxTransportCopyEngine, "cudaMemcpy2DAsync"}};
  for (const auto& [transport, function] : faults) {
    SCOPED_TRACE(function);
    ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
    config.transport = transport;
    config.timeoutMs = 20000;
    const Session session(*Worlds().front(), 2, &config);
    const Shape shape(6000, 32, 16);  // too much for the head of stores
    const Oracle oracle(shape.c, 2, TestSeed());
    const char* const struck = function;
    session.Run([&](int rank) {
      const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
      const RankTensors tensors(session, oracle, rank, Ordinary);
      const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
      if (rank == 0) fakeFailNthHere(struck, 1);
      const ulyxResult_t first = ulyxSeqToHeads(plan, &in, &out, session.Stream(rank));
      fakeFailNthHere(nullptr, 0);
      EXPECT_EQ(first == ulyxSuccess, rank == 1) << ulyxGetErrorString(first);
      for (int i = 0; i < 2; i++) {
        const ulyxResult_t later = ulyxSeqToHeads(plan, &in, &out, session.Stream(rank));
        EXPECT_TRUE(Refused(later, ulyxRemoteError, {rank == 0 ? "half-way" : "rank 0 gave up"}));
        EXPECT_NE(std::string(ulyxGetLastError(session.Runtime(rank))).find("destroy the runtime"), std::string::npos);
      }
    });
  }
}

namespace {

// Of two ranks, as each configures itself.
template <class Configure>
void ExpectNoRuntime(const Configure& configure, std::initializer_list<std::string> words) {
  ulyxUniqueId_t id;
  MUST(ulyxGetUniqueId(&id));
  RunRanks(2, [&](int rank) {
    Worlds().front()->Use(rank);
    ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
    configure(rank, &config);
    ulyxRuntime_t runtime = nullptr;
    EXPECT_TRUE(Refused(ulyxRuntimeCreate(&config, 2, id, rank, &runtime), ulyxMismatch, words));
    EXPECT_EQ(runtime, nullptr);
  });
}

}  // namespace

TEST(Broken, SettingsThatDifferAreRefusedOnEveryRankWithBothValues) {
  ExpectNoRuntime(
      [](int rank, ulyxConfig_t* config) { config->transport = rank == 0 ? ulyxTransportNccl : ulyxTransportAuto; },
      {"nccl", "auto", "alike"});
  // One rank's labels would be the other's first bytes.
  ExpectNoRuntime(
      [](int rank, ulyxConfig_t* config) {
        config->transport = ulyxTransportNccl;
        config->agreePlans = rank;
      },
      {"agreePlans 0", "rank 1", "and 1", "configure them alike"});
}

}  // namespace ulyx_test
