// SPDX-License-Identifier: MIT
//
// Runtimes from creation to destruction, on every world.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "support/exchange_check.h"
#include "support/ranks.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

class Runtimes : public ::testing::TestWithParam<const World*> {
 protected:
  ulyxResult_t Create(const ulyxConfig_t* config, int nRanks, ulyxRuntime_t* runtimes) const {
    const std::vector<int> devices = GetParam()->Devices(std::max(nRanks, 1));
    return ulyxRuntimeCreateLocal(config, nRanks, devices.empty() ? nullptr : devices.data(), runtimes);
  }

  ulyxRuntimeInfo_t Info(ulyxRuntime_t runtime) const {
    ulyxRuntimeInfo_t info = ULYX_RUNTIME_INFO_INITIALIZER;
    MUST(ulyxRuntimeGetInfo(runtime, &info));
    return info;
  }
};
ULYX_ON_EVERY_WORLD(Runtimes);

}  // namespace

TEST_P(Runtimes, KnowTheirRankWorldAndTransport) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session session(*GetParam(), 2);
  for (int rank = 0; rank < 2; rank++) {
    const ulyxRuntimeInfo_t info = Info(session.Runtime(rank));
    EXPECT_EQ(info.rank, rank);
    EXPECT_EQ(info.nRanks, 2);
    EXPECT_EQ(info.transport, GetParam()->Transport());
    const std::vector<int> devices = GetParam()->Devices(2);
    EXPECT_EQ(info.device, devices.empty() ? -1 : devices[rank]);
    EXPECT_EQ(info.closed, 0);
    ASSERT_NE(info.transportReason, nullptr);
    EXPECT_STRNE(info.transportReason, "");
    if (GetParam()->Transport() == ulyxTransportLoopback) {
      EXPECT_EQ(info.ncclVersion, 0);
      EXPECT_EQ(info.arenaBytes, 0);
    } else {
      EXPECT_GE(info.ncclVersion, 21900);
    }
  }
}

TEST_P(Runtimes, AreRefusedForImpossibleWorldsAndNothingIsWritten) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  const ulyxRuntime_t poison = reinterpret_cast<ulyxRuntime_t>(this);
  std::vector<ulyxRuntime_t> runtimes(65, poison);
  for (int nRanks : {0, -1}) {
    EXPECT_TRUE(
        Refused(Create(nullptr, nRanks, runtimes.data()), ulyxInvalidArgument, {"nRanks", std::to_string(nRanks)}));
  }
  if (GetParam()->Transport() == ulyxTransportLoopback) {
    EXPECT_TRUE(Refused(Create(nullptr, 65, runtimes.data()), ulyxInvalidArgument, {"nRanks", "65", "64"}));
  }
  EXPECT_TRUE(Refused(Create(nullptr, 1, nullptr), ulyxInvalidArgument, {"rts", "NULL"}));
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.size--;
  EXPECT_TRUE(Refused(Create(&config, 1, runtimes.data()), ulyxInvalidArgument, {"config", "size"}));
  EXPECT_EQ(runtimes, std::vector<ulyxRuntime_t>(65, poison));
}

TEST_P(Runtimes, OfATransportThatTheirMemoryCannotHaveAreRefused) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  const bool onCpu = GetParam()->Transport() == ulyxTransportLoopback;
  config.transport = onCpu ? ulyxTransportNccl : ulyxTransportLoopback;
  ulyxRuntime_t runtime = nullptr;
  EXPECT_TRUE(Refused(Create(&config, 1, &runtime), ulyxInvalidArgument, {onCpu ? "needs devices" : "loopback"}));
  EXPECT_EQ(runtime, nullptr);
  config.transport = GetParam()->Transport();
  MUST(Create(&config, 1, &runtime));
  MUST(ulyxRuntimeDestroy(&runtime));
}

TEST_P(Runtimes, DestroyedAreNullAndDestroyingNullDoesNothing) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  ulyxRuntime_t runtime = nullptr;
  MUST(Create(nullptr, 1, &runtime));
  ASSERT_NE(runtime, nullptr);
  MUST(ulyxRuntimeDestroy(&runtime));
  EXPECT_EQ(runtime, nullptr);
  MUST(ulyxRuntimeDestroy(&runtime));
  EXPECT_TRUE(Refused(ulyxRuntimeDestroy(nullptr), ulyxInvalidArgument, {"NULL"}));
}

TEST_P(Runtimes, FreeThePlansAndTheMemoryLeftOver) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  Session session(*GetParam(), 2);
  session.Run([&](int rank) {
    for (int i = 0; i < 3; i++) {
      void* memory = nullptr;
      MUST(ulyxMemAlloc(session.Runtime(rank), 1000 + i, &memory));
      (void)MakePlan(session, Shape(4 + i, 2, 8).c, rank);
    }
  });
  session.Destroy();  // a leak is for the sanitizers and the fakes to see
}

TEST_P(Runtimes, CanBeDestroyedByTheirOwnThreads) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  Session session(*GetParam(), 2);
  CheckExchanges(session, Shape(4, 2, 8).c, TestSeed());
  session.Run([&](int rank) { MUST(ulyxRuntimeDestroy(session.RuntimePtr(rank))); });
}

TEST_P(Runtimes, WaitForTheirExchangesWhenDestroyed) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  Session session(*GetParam(), 2);
  const Shape shape(3000, 16, 64);
  const Oracle oracle(shape.c, 2, TestSeed());
  std::vector<std::unique_ptr<RankTensors>> tensors(2);
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    tensors[rank] = std::make_unique<RankTensors>(session, oracle, rank, Ordinary);
    Exchange(session, plan, *tensors[rank], rank);
  });
  session.Destroy();
  for (int rank = 0; rank < 2; rank++) tensors[rank]->ExpectWritten();
}

TEST_P(Runtimes, RefuseForeignInfoStructs) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  const Session session(*GetParam(), 1);
  struct {
    ulyxRuntimeInfo_t info = ULYX_RUNTIME_INFO_INITIALIZER;
    int64_t later[2] = {0, 0};
  } more;
  more.info.size = sizeof more;
  MUST(ulyxRuntimeGetInfo(session.Runtime(0), &more.info));
  EXPECT_EQ(more.info.nRanks, 1);
  ulyxRuntimeInfo_t info = ULYX_RUNTIME_INFO_INITIALIZER;
  info.magic = ULYX_PLAN_INFO_MAGIC;
  EXPECT_TRUE(Refused(ulyxRuntimeGetInfo(session.Runtime(0), &info), ulyxInvalidArgument, {"info", "magic"}));
  info = ULYX_RUNTIME_INFO_INITIALIZER;
  info.version = 0;
  EXPECT_TRUE(Refused(ulyxRuntimeGetInfo(session.Runtime(0), &info), ulyxInvalidArgument, {"info", "version"}));
  info = ULYX_RUNTIME_INFO_INITIALIZER;
  info.size -= 8;
  EXPECT_TRUE(Refused(ulyxRuntimeGetInfo(session.Runtime(0), &info), ulyxInvalidArgument, {"info", "size"}));
  EXPECT_EQ(info.nRanks, 0);
  EXPECT_TRUE(Refused(ulyxRuntimeGetInfo(nullptr, &info), ulyxInvalidArgument, {"NULL"}));
}

TEST_P(Runtimes, ClosedRefuseAllButWhatEndsThem) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  Session session(*GetParam(), 2);
  const Shape shape(4, 2, 8);
  const Oracle oracle(shape.c, 2, TestSeed());
  session.Run([&](int rank) {
    const ulyxRuntime_t runtime = session.Runtime(rank);
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    void* memory = nullptr;
    MUST(ulyxMemAlloc(runtime, 100, &memory));
    const RankTensors tensors(session, oracle, rank, Ordinary);
    const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
    const ulyxTensor_t outputIn = tensors.OutputIn(plan), outputOut = tensors.OutputOut(plan);

    MUST(ulyxRuntimeClose(runtime));
    MUST(ulyxRuntimeClose(runtime));
    EXPECT_EQ(Info(runtime).closed, 1);
    EXPECT_EQ(ulyxSeqToHeads(plan, &in, &out, nullptr), ulyxClosed);
    EXPECT_NE(std::strstr(ulyxGetLastError(runtime), "closed"), nullptr);
    EXPECT_EQ(ulyxHeadsToSeq(plan, &outputIn, &outputOut, nullptr), ulyxClosed);
    ulyxPlan_t another = nullptr;
    EXPECT_EQ(ulyxPlanCreate(runtime, &shape.c, &another), ulyxClosed);
    EXPECT_EQ(another, nullptr);
    ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
    EXPECT_EQ(ulyxPlanGetInfo(plan, &info), ulyxClosed);
    ulyxQkv_t qkv = ULYX_QKV_INITIALIZER;
    EXPECT_EQ(ulyxPlanGetQkv(plan, &qkv, nullptr), ulyxClosed);
    ulyxTensor_t tensor = ULYX_TENSOR_INITIALIZER;
    EXPECT_EQ(ulyxPlanGetOutput(plan, &tensor, nullptr), ulyxClosed);
    EXPECT_EQ(ulyxRuntimeReserve(runtime, 1), ulyxClosed);
    void* more = nullptr;
    EXPECT_EQ(ulyxMemAlloc(runtime, 1, &more), ulyxClosed);
    EXPECT_EQ(more, nullptr);
    tensors.ExpectUntouched();

    MUST(ulyxPlanDestroy(plan));
    MUST(ulyxMemFree(runtime, memory));
  });
  session.Destroy();
}

TEST_P(Runtimes, ReserveForAllWhatAnyAskedFor) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session session(*GetParam(), 2);
  session.Run([&](int rank) {
    const ulyxRuntime_t runtime = session.Runtime(rank);
    MUST(ulyxRuntimeReserve(runtime, rank == 0 ? 0 : 5000));
    const int64_t grown = Info(runtime).arenaBytes;
    EXPECT_GE(grown, GetParam()->Transport() == ulyxTransportLoopback ? 0 : 5000);
    MUST(ulyxRuntimeReserve(runtime, 10));
    EXPECT_EQ(Info(runtime).arenaBytes, grown);
  });
  EXPECT_TRUE(Refused(ulyxRuntimeReserve(nullptr, 1), ulyxInvalidArgument, {"NULL"}));
  session.Run([&](int rank) {
    EXPECT_TRUE(Refused(ulyxRuntimeReserve(session.Runtime(rank), -7), ulyxInvalidArgument, {"arenaBytes", "-7"}));
  });
  CheckExchanges(session, Shape(9, 4, 8).c, TestSeed());
}

TEST_P(Runtimes, StartWithTheArenaThatTheirConfigAsksFor) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.arenaBytes = 12345;
  const Session session(*GetParam(), 2, &config);
  const int64_t least = GetParam()->Transport() == ulyxTransportLoopback ? 0 : 12345;
  for (int rank = 0; rank < 2; rank++) EXPECT_GE(Info(session.Runtime(rank)).arenaBytes, least);
}

TEST_P(Runtimes, GiveEveryRankTheLargestMemoryAskedForAligned) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session session(*GetParam(), 2);
  session.Run([&](int rank) {
    const ulyxRuntime_t runtime = session.Runtime(rank);
    std::vector<void*> blocks(4, nullptr);
    for (int i = 0; i < 4; i++) {
      MUST(ulyxMemAlloc(runtime, (rank + i) % 2 == 0 ? 0 : 3001 + i, &blocks[i]));
      ASSERT_NE(blocks[i], nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks[i]) % 256, 0u);
    }
    // All of it is there, and no two overlap.
    for (int i = 0; i < 4; i++) {
      const std::vector<uint8_t> content(3001 + i, uint8_t(i + 1));
      GetParam()->Upload(rank, blocks[i], content.data(), content.size());
    }
    for (int i = 0; i < 4; i++) {
      std::vector<uint8_t> found(3001 + i);
      GetParam()->Download(rank, found.data(), blocks[i], found.size());
      EXPECT_EQ(found, std::vector<uint8_t>(3001 + i, uint8_t(i + 1)));
    }
    for (int i : {2, 0, 3, 1}) MUST(ulyxMemFree(runtime, blocks[i]));
    MUST(ulyxMemFree(runtime, nullptr));
  });
}

TEST_P(Runtimes, GiveNoMemoryOfNegativeSizeAndTakeNoneThatIsNotTheirs) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  const Session session(*GetParam(), 1);
  const ulyxRuntime_t runtime = session.Runtime(0);
  void* memory = this;
  EXPECT_TRUE(Refused(ulyxMemAlloc(runtime, -1, &memory), ulyxInvalidArgument, {"bytes", "-1"}));
  EXPECT_EQ(memory, this);
  EXPECT_TRUE(Refused(ulyxMemAlloc(runtime, 1, nullptr), ulyxInvalidArgument, {"ptr", "NULL"}));
  EXPECT_TRUE(Refused(ulyxMemAlloc(nullptr, 1, &memory), ulyxInvalidArgument, {"NULL"}));
  MUST(ulyxMemAlloc(runtime, 64, &memory));
  EXPECT_TRUE(Refused(ulyxMemFree(runtime, static_cast<char*>(memory) + 1), ulyxInvalidArgument, {"ulyxMemAlloc"}));
  MUST(ulyxMemFree(runtime, memory));
}

TEST_P(Runtimes, OfTheSameWorldDoNotShareMemoryOrErrors) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session one(*GetParam(), 2), other(*GetParam(), 2);
  one.Run([&](int rank) {
    void* memory = nullptr;
    MUST(ulyxMemAlloc(one.Runtime(rank), 64, &memory));
    EXPECT_EQ(ulyxMemFree(other.Runtime(rank), memory), ulyxInvalidArgument);
    EXPECT_STREQ(ulyxGetLastError(one.Runtime(rank)), "");
    MUST(ulyxMemFree(one.Runtime(rank), memory));
  });
}

TEST_P(Runtimes, OfManyWorldsInARowWork) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  for (int i = 0; i < 5; i++) {
    const Session session(*GetParam(), 2);
    CheckExchanges(session, Shape(5 + i, 3, 8).c, TestSeed());
  }
}

TEST_P(Runtimes, FromAUniqueIdAreOneRankEach) {
  if (GetParam()->Transport() == ulyxTransportLoopback) {  // makes all its ranks at once
    ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
    config.transport = ulyxTransportLoopback;
    ulyxRuntime_t runtime = nullptr;
    EXPECT_TRUE(Refused(ulyxRuntimeCreate(&config, 1, ulyxUniqueId_t{}, 0, &runtime), ulyxUnsupported,
                        {"ulyxRuntimeCreateLocal"}));
    EXPECT_EQ(runtime, nullptr);
    return;
  }
  ULYX_SKIP_BELOW(*GetParam(), 2);
  ulyxUniqueId_t id;
  MUST(ulyxGetUniqueId(&id));
  std::vector<ulyxRuntime_t> runtimes(2);
  RunRanks(2, [&](int rank) {
    GetParam()->Use(rank);
    MUST(ulyxRuntimeCreate(nullptr, 2, id, rank, &runtimes[rank]));
    EXPECT_EQ(Info(runtimes[rank]).rank, rank);
    EXPECT_EQ(Info(runtimes[rank]).nRanks, 2);
    ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
    const Shape shape(6, 4, 8);
    MUST(ulyxShapeGetBytes(&shape.c, 2, rank, &bytes));
    MUST(ulyxRuntimeReserve(runtimes[rank], bytes.arena));
    ulyxPlan_t plan = nullptr;
    MUST(ulyxPlanCreate(runtimes[rank], &shape.c, &plan));
    MUST(ulyxRuntimeDestroy(&runtimes[rank]));
  });
}

TEST_P(Runtimes, FromAUniqueIdRefuseImpossibleRanks) {
  const ulyxUniqueId_t id = {};
  ulyxRuntime_t runtime = nullptr;
  EXPECT_TRUE(Refused(ulyxRuntimeCreate(nullptr, 2, id, 2, &runtime), ulyxInvalidArgument, {"rank", "2"}));
  EXPECT_TRUE(Refused(ulyxRuntimeCreate(nullptr, 2, id, -1, &runtime), ulyxInvalidArgument, {"rank", "-1"}));
  EXPECT_TRUE(Refused(ulyxRuntimeCreate(nullptr, 0, id, 0, &runtime), ulyxInvalidArgument, {"nRanks", "0"}));
  EXPECT_TRUE(Refused(ulyxRuntimeCreate(nullptr, 1, id, 0, nullptr), ulyxInvalidArgument, {"rt", "NULL"}));
  EXPECT_TRUE(Refused(ulyxGetUniqueId(nullptr), ulyxInvalidArgument, {"id", "NULL"}));
  EXPECT_EQ(runtime, nullptr);
}

#ifndef ULYX_HAVE_CUDA
TEST(Build, WithoutNcclSaysSoWhenAskedForIt) {
  ulyxUniqueId_t id;
  ulyxRuntime_t runtime = nullptr;
  const int device = 0;
  EXPECT_TRUE(Refused(ulyxGetUniqueId(&id), ulyxUnsupported, {"NCCL"}));
  EXPECT_TRUE(Refused(ulyxRuntimeCreate(nullptr, 1, ulyxUniqueId_t{}, 0, &runtime), ulyxUnsupported, {"NCCL"}));
  EXPECT_TRUE(Refused(ulyxRuntimeCreateLocal(nullptr, 1, &device, &runtime), ulyxUnsupported, {"NCCL"}));
  EXPECT_TRUE(Refused(ulyxRuntimeCreateFromComm(nullptr, nullptr, &runtime), ulyxInvalidArgument, {"comm", "NULL"}));
  EXPECT_EQ(runtime, nullptr);
}
#endif

}  // namespace ulyx_test
