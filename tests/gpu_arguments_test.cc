// SPDX-License-Identifier: MIT
//
// Memory and streams that an exchange between GPUs cannot use are refused before anything moves.
#include <gtest/gtest.h>

#include <vector>

#include "support/exchange_check.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

const World& Gpus() {
  return *Worlds().back();
}

bool OneDevice() {
  return Gpus().Devices(2)[0] == Gpus().Devices(2)[1];
}

// Calls body(plan, tensors, rank) on two ranks; then an exchange must still be exact.
template <class Body>
void WithTwoRanks(const Body& body) {
  const Session session(Gpus(), 2);
  const Shape shape(12, 4, 8);
  const Oracle oracle(shape.c, 2, TestSeed());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    {
      const RankTensors tensors(session, oracle, rank, Ordinary);
      body(session, plan, tensors, rank);
      tensors.ExpectUntouched();
    }
    MUST(ulyxPlanDestroy(plan));
  });
  CheckExchanges(session, shape.c, TestSeed());
}

}  // namespace

TEST(GpuArguments, InHostMemoryAreRefusedByName) {
  ULYX_SKIP_BELOW(Gpus(), 2);
  WithTwoRanks([](const Session& session, ulyxPlan_t plan, const RankTensors& tensors, int rank) {
    std::vector<uint8_t> host(4096);
    const ulyxQkv_t in = tensors.In(plan);
    ulyxQkv_t out = tensors.Out(plan);
    out.v.data = host.data();
    EXPECT_TRUE(
        Refused(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)), ulyxInvalidArgument, {"out.v", "host memory"}));
  });
}

TEST(GpuArguments, InAnotherDevicesMemoryAreRefusedByBothDevices) {
  ULYX_SKIP_BELOW(Gpus(), 2);
  if (OneDevice()) GTEST_SKIP() << "there is one device only";
  WithTwoRanks([](const Session& session, ulyxPlan_t plan, const RankTensors& tensors, int rank) {
    void* const foreign = Gpus().Alloc(1 - rank, 4096);
    ulyxTensor_t in = tensors.OutputIn(plan);
    const ulyxTensor_t out = tensors.OutputOut(plan);
    in.data = foreign;
    EXPECT_TRUE(Refused(ulyxHeadsToSeq(plan, &in, &out, session.Stream(rank)), ulyxInvalidArgument,
                        {"in", "device 0", "device 1"}));
    Gpus().Free(1 - rank, foreign);
  });
}

TEST(GpuArguments, AStreamOfAnotherDeviceIsRefusedByBothDevices) {
  ULYX_SKIP_BELOW(Gpus(), 2);
  if (OneDevice()) GTEST_SKIP() << "there is one device only";
  WithTwoRanks([](const Session& session, ulyxPlan_t plan, const RankTensors& tensors, int rank) {
    const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
    EXPECT_TRUE(Refused(ulyxSeqToHeads(plan, &in, &out, session.Stream(1 - rank)), ulyxInvalidArgument,
                        {"stream", "device " + std::to_string(1 - rank), "runtime on " + std::to_string(rank)}));
  });
}

TEST(GpuArguments, OfDevicesThatDoNotExistAreRefusedByNumber) {
  ULYX_SKIP_BELOW(Gpus(), 1);
  ulyxRuntime_t runtime = nullptr;
  for (int device : {-1, 1000}) {
    EXPECT_TRUE(Refused(ulyxRuntimeCreateLocal(nullptr, 1, &device, &runtime), ulyxInvalidArgument,
                        {"devices[0]", std::to_string(device)}));
  }
  EXPECT_EQ(runtime, nullptr);
}

}  // namespace ulyx_test
