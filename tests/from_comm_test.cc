// SPDX-License-Identifier: MIT
//
// Runtimes made from a caller's NCCL communicator: they work on a child of it, and the caller's stays the
// caller's.
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "support/ranks.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

void Nccl(ncclResult_t result) {
  if (result != ncclSuccess) throw std::runtime_error(std::string("NCCL: ") + ncclGetErrorString(result));
}

const World& Gpus() {
  return *Worlds().back();
}

// A communicator a rank, on the rank's thread.
template <class Body>
void WithComms(int nRanks, const Body& body) {
  ncclUniqueId id;
  Nccl(ncclGetUniqueId(&id));
  RunRanks(nRanks, [&](int rank) {
    Gpus().Use(rank);
    ncclComm_t comm = nullptr;
    Nccl(ncclCommInitRank(&comm, nRanks, id, rank));
    body(comm, rank);
    Nccl(ncclCommDestroy(comm));
  });
}

// Moves one token's worth and looks at a byte of it.
void ExpectWorks(ulyxRuntime_t runtime, int nRanks, int rank) {
  const Shape shape = Shape(nRanks, nRanks, 16).Type(ulyxInt8);
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  MUST(ulyxShapeGetBytes(&shape.c, nRanks, rank, &bytes));
  MUST(ulyxRuntimeReserve(runtime, bytes.arena));
  ulyxPlan_t plan = nullptr;
  MUST(ulyxPlanCreate(runtime, &shape.c, &plan));
  ulyxTensor_t in = ULYX_TENSOR_INITIALIZER, out = ULYX_TENSOR_INITIALIZER;
  MUST(ulyxPlanGetOutput(plan, &in, &out));
  in.data = Gpus().Alloc(rank, bytes.oIn);
  out.data = Gpus().Alloc(rank, bytes.oOut);
  const std::vector<uint8_t> sent(bytes.oIn, uint8_t(rank + 1));
  Gpus().Upload(rank, in.data, sent.data(), sent.size());
  const ulyxStream_t stream = Gpus().NewStream(rank);
  MUST(ulyxHeadsToSeq(plan, &in, &out, stream));
  Gpus().Synchronize(rank, stream);
  Gpus().FreeStream(rank, stream);
  std::vector<uint8_t> found(bytes.oOut);
  Gpus().Download(rank, found.data(), out.data, found.size());
  for (int head = 0; head < nRanks; head++) EXPECT_EQ(found[head * 16], head + 1);
  Gpus().Free(rank, in.data);
  Gpus().Free(rank, out.data);
}

}  // namespace

TEST(FromComm, ARuntimeHasTheCommunicatorsRanks) {
  ULYX_SKIP_BELOW(Gpus(), 2);
  const int nRanks = std::min(Gpus().MaxRanks(), 4);
  WithComms(nRanks, [&](ncclComm_t comm, int rank) {
    ulyxRuntime_t runtime = nullptr;
    MUST(ulyxRuntimeCreateFromComm(nullptr, comm, &runtime));
    ulyxRuntimeInfo_t info = ULYX_RUNTIME_INFO_INITIALIZER;
    MUST(ulyxRuntimeGetInfo(runtime, &info));
    EXPECT_EQ(info.rank, rank);
    EXPECT_EQ(info.nRanks, nRanks);
    EXPECT_NE(info.transport, ulyxTransportLoopback);
    ExpectWorks(runtime, nRanks, rank);
    MUST(ulyxRuntimeDestroy(&runtime));
  });
}

TEST(FromComm, ARuntimeOutlivesTheCommunicator) {
  ULYX_SKIP_BELOW(Gpus(), 2);
  std::vector<ulyxRuntime_t> runtimes(2);
  WithComms(2, [&](ncclComm_t comm, int rank) { MUST(ulyxRuntimeCreateFromComm(nullptr, comm, &runtimes[rank])); });
  RunRanks(2, [&](int rank) {
    ExpectWorks(runtimes[rank], 2, rank);
    MUST(ulyxRuntimeDestroy(&runtimes[rank]));
  });
}

TEST(FromComm, TheCommunicatorWorksOnAfterTheRuntime) {
  ULYX_SKIP_BELOW(Gpus(), 2);
  WithComms(2, [&](ncclComm_t comm, int rank) {
    for (int i = 0; i < 2; i++) {
      ulyxRuntime_t runtime = nullptr;
      MUST(ulyxRuntimeCreateFromComm(nullptr, comm, &runtime));
      ExpectWorks(runtime, 2, rank);
      MUST(ulyxRuntimeDestroy(&runtime));
    }
    int count = 0;
    Nccl(ncclCommCount(comm, &count));
    EXPECT_EQ(count, 2);
  });
}

TEST(FromComm, NoCommunicatorAndLoopbackAreRefused) {
  ulyxRuntime_t runtime = nullptr;
  EXPECT_TRUE(Refused(ulyxRuntimeCreateFromComm(nullptr, nullptr, &runtime), ulyxInvalidArgument, {"comm", "NULL"}));
  ULYX_SKIP_BELOW(Gpus(), 1);
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.transport = ulyxTransportLoopback;
  WithComms(1, [&](ncclComm_t comm, int) {
    EXPECT_TRUE(Refused(ulyxRuntimeCreateFromComm(nullptr, comm, nullptr), ulyxInvalidArgument, {"rt", "NULL"}));
    EXPECT_TRUE(Refused(ulyxRuntimeCreateFromComm(&config, comm, &runtime), ulyxUnsupported, {"loopback"}));
  });
  EXPECT_EQ(runtime, nullptr);
}

}  // namespace ulyx_test
