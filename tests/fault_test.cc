// SPDX-License-Identifier: MIT
//
// Every CUDA and NCCL call of a runtime's life fails once, in turn, on one rank or another: each time an error
// comes back, nobody hangs, and in the end nothing is held.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fake.h"
#include "support/oracle.h"
#include "support/ranks.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

constexpr int kRanks = 2;

// What a program does with one rank, up to the first error.
ulyxResult_t Live(ulyxRuntime_t runtime, int rank, const ulyxShape_t& shape, const void* in, void* out) {
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  ulyxResult_t result = ulyxShapeGetBytes(&shape, kRanks, rank, &bytes);
  if (result == ulyxSuccess) result = ulyxRuntimeReserve(runtime, bytes.arena);
  void* memory = nullptr;
  if (result == ulyxSuccess) result = ulyxMemAlloc(runtime, bytes.oOut, &memory);
  ulyxPlan_t plan = nullptr;
  if (result == ulyxSuccess) result = ulyxPlanCreate(runtime, &shape, &plan);
  ulyxTensor_t from = ULYX_TENSOR_INITIALIZER, to = ULYX_TENSOR_INITIALIZER;
  if (result == ulyxSuccess) result = ulyxPlanGetOutput(plan, &from, &to);
  from.data = const_cast<void*>(in);
  to.data = out;
  for (int i = 0; i < 2 && result == ulyxSuccess; i++) result = ulyxHeadsToSeq(plan, &from, &to, nullptr);
  to.data = memory;
  if (result == ulyxSuccess) result = ulyxHeadsToSeq(plan, &from, &to, nullptr);
  if (result == ulyxSuccess) result = ulyxMemFree(runtime, memory);
  if (result != ulyxSuccess) {
    EXPECT_STRNE(ulyxGetLastError(runtime), "");
  }
  return result;
}

struct Life {
  std::vector<ulyxResult_t> results;  // of creation, the ranks' lives, and destruction
  bool Clean() const {
    return std::all_of(results.begin(), results.end(), [](ulyxResult_t result) { return result == ulyxSuccess; });
  }
};

Life LiveAndDie(const World& world, int transport, int timeoutMs, const ulyxShape_t& shape,
                const std::vector<void*>& in, const std::vector<void*>& out) {
  Life life;
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.transport = transport;
  config.timeoutMs = timeoutMs;
  std::vector<ulyxRuntime_t> runtimes(kRanks);
  const std::vector<int> devices = world.Devices(kRanks);
  life.results.push_back(ulyxRuntimeCreateLocal(&config, kRanks, devices.data(), runtimes.data()));
  if (life.results.back() != ulyxSuccess) {
    EXPECT_STRNE(ulyxGetLastError(nullptr), "");
    for (ulyxRuntime_t runtime : runtimes) EXPECT_EQ(runtime, nullptr);
    return life;
  }
  std::vector<ulyxResult_t> lives(kRanks);
  RunRanks(kRanks, [&](int rank) { lives[rank] = Live(runtimes[rank], rank, shape, in[rank], out[rank]); });
  life.results.insert(life.results.end(), lives.begin(), lives.end());
  for (ulyxRuntime_t& runtime : runtimes) {
    life.results.push_back(ulyxRuntimeDestroy(&runtime));
    EXPECT_EQ(runtime, nullptr);
  }
  return life;
}

// A transport and a call that fails under it.
struct Failing {
  int transport;
  const char* function;
};

void PrintTo(const Failing& failing, std::ostream* out) {
  *out << failing.function;
}

class Fault : public ::testing::TestWithParam<Failing> {};

std::vector<Failing> With(int transport, const std::vector<const char*>& functions) {
  std::vector<Failing> failing;
  for (const char* function : functions) failing.push_back({transport, function});
  return failing;
}

std::string NameOf(const ::testing::TestParamInfo<Failing>& param) {
  return param.param.function;
}

INSTANTIATE_TEST_SUITE_P(In, Fault,
                         ::testing::ValuesIn(With(ulyxTransportNccl, {"cudaDeviceGetAttribute",
                                                                      "cudaDeviceGetStreamPriorityRange",
                                                                      "cudaDeviceSynchronize",
                                                                      "cudaEventCreateWithFlags",
                                                                      "cudaEventDestroy",
                                                                      "cudaEventRecord",
                                                                      "cudaFree",
                                                                      "cudaFreeHost",
                                                                      "cudaGetDevice",
                                                                      "cudaGetDeviceCount",
                                                                      "cudaMalloc",
                                                                      "cudaMallocHost",
                                                                      "cudaMemcpyAsync",
                                                                      "cudaPointerGetAttributes",
                                                                      "cudaSetDevice",
                                                                      "cudaStreamCreateWithFlags",
                                                                      "cudaStreamCreateWithPriority",
                                                                      "cudaStreamDestroy",
                                                                      "cudaStreamIsCapturing",
                                                                      "cudaStreamQuery",
                                                                      "cudaStreamWaitEvent",
                                                                      "ncclAllGather",
                                                                      "ncclCommCount",
                                                                      "ncclCommCuDevice",
                                                                      "ncclCommDestroy",
                                                                      "ncclCommFinalize",
                                                                      "ncclCommInitRankConfig",
                                                                      "ncclCommSplit",
                                                                      "ncclCommUserRank",
                                                                      "ncclCommWindowDeregister",
                                                                      "ncclCommWindowRegister",
                                                                      "ncclGetUniqueId",
                                                                      "ncclGetVersion",
                                                                      "ncclGroupEnd",
                                                                      "ncclGroupStart",
                                                                      "ncclMemAlloc",
                                                                      "ncclMemFree",
                                                                      "ncclRecv",
                                                                      "ncclSend",
                                                                      "ulyxLaunchCopies",
                                                                      "ulyxLoadChain",
                                                                      "ulyxLoadCopies",
                                                                      "ulyxLoadExchange",
                                                                      "ulyxLoadStore",
                                                                      "ulyxLoadSum"})),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(InDirect, Fault,
                         ::testing::ValuesIn(With(ulyxTransportDirect,
                                                  {"cudaDeviceGetP2PAttribute", "cudaFree", "cudaFreeHost",
                                                   "cudaMalloc", "cudaMallocHost", "cudaMemcpy", "cudaMemset",
                                                   "ncclCommWindowRegister", "ncclMemAlloc", "ulyxLaunchCopies",
                                                   "ulyxLaunchExchange", "ulyxWindowReadPeers"})),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(InCopyEngine, Fault,
                         ::testing::ValuesIn(With(ulyxTransportCopyEngine,
                                                  {"cudaEventRecord", "cudaMemcpy2DAsync", "cudaMemcpyAsync",
                                                   "cudaStreamCreateWithPriority", "cudaStreamWaitEvent",
                                                   "ulyxLaunchExchange"})),
                         NameOf);

// A failure of these may pass unseen: the first asks whether CUDA is still there, the second puts back a device
// that was current before.
bool MayPass(const std::string& function) {
  return function == "cudaDeviceSynchronize" || function == "cudaSetDevice";
}

void ExpectSame(const fakeCounters& after, const fakeCounters& before) {
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.hostAllocations, before.hostAllocations);
  EXPECT_EQ(after.streams, before.streams);
  EXPECT_EQ(after.events, before.events);
  EXPECT_EQ(after.comms, before.comms);
  EXPECT_EQ(after.ncclAllocations, before.ncclAllocations);
  EXPECT_EQ(after.windows, before.windows);
  EXPECT_EQ(after.openGroups, before.openGroups);
  EXPECT_EQ(after.violations, before.violations);
}

}  // namespace

TEST_P(Fault, EndsInAnErrorAndLeavesNothingBehind) {
  const World& world = *Worlds().front();
  const Shape shape(6, 4, 8);
  const int transport = GetParam().transport;
  const std::string function = GetParam().function;
  const Oracle oracle(shape.c, kRanks, 0);
  std::vector<void*> in, out;
  for (int rank = 0; rank < kRanks; rank++) {
    in.push_back(world.Alloc(rank, oracle.LayoutOf(rank, kOIn).bytes));
    out.push_back(world.Alloc(rank, oracle.LayoutOf(rank, kOOut).bytes));
  }
  const fakeCounters before = fakeGet();
  fakeSetDeadlineMs(50);  // how long the other rank waits for the one that stopped
  bool reached = true;
  int call = 1;
  for (; reached && !HasFailure(); call++) {
    SCOPED_TRACE("call " + std::to_string(call));
    Life life;
    // A busy machine can end a life before it comes to the call: that one does not count.
    for (int tries = 0; tries < 20; tries++) {
      const int64_t faults = fakeGet().faults;
      fakeFailNth(function.c_str(), call);
      life = LiveAndDie(world, transport, 200, shape.c, in, out);  // a meeting waits so long for the other
      reached = fakeGet().faults > faults;
      if (reached || life.Clean()) break;
    }
    fakeFailNth(nullptr, 0);
    EXPECT_FALSE(life.Clean() && reached && !MayPass(function));
    ExpectSame(fakeGet(), before);
  }
  EXPECT_GT(call, 2) << "never called: take it off the list";
  fakeSetDeadlineMs(20000);
  EXPECT_TRUE(LiveAndDie(world, transport, 20000, shape.c, in, out).Clean());
  for (int rank = 0; rank < kRanks; rank++) {
    world.Free(rank, in[rank]);
    world.Free(rank, out[rank]);
  }
}

TEST(FaultOfOneRank, ThatHasNoMemoryIsToldToAllAndTheNextCallWorks) {
  const Session session(*Worlds().front(), 3);
  session.Run([&](int rank) {
    void* memory = nullptr;
    if (rank == 1) fakeFailNthHere("ncclMemAlloc", 1);
    const ulyxResult_t result = ulyxMemAlloc(session.Runtime(rank), 5000, &memory);
    EXPECT_NE(result, ulyxSuccess);
    EXPECT_TRUE(Refused(result, result, {"rank 1", "memory"}));
    EXPECT_EQ(memory, nullptr);
    MUST(ulyxMemAlloc(session.Runtime(rank), 5000, &memory));
    MUST(ulyxMemFree(session.Runtime(rank), memory));
  });
}

}  // namespace ulyx_test
