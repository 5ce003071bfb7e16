// SPDX-License-Identifier: MIT
//
// Both exchanges captured in a CUDA graph and replayed: each replay moves what the inputs then hold. On real GPUs
// only, from a world of one rank to one of all of them.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/exchange_check.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

void Cuda(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}

const World& Gpus() {
  return *Worlds().back();
}

class Graph : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Of, Graph, ::testing::Values(1, 2, 3, 4, 8), [](const ::testing::TestParamInfo<int>& param) {
  return std::to_string(param.param) + "Ranks";
});

// Captures `body` on a stream and makes it ready to launch.
template <class Body>
cudaGraphExec_t Capture(cudaStream_t stream, const Body& body) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  Cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  body();
  Cuda(cudaStreamEndCapture(stream, &graph));
  Cuda(cudaGraphInstantiate(&ready, graph, 0));
  Cuda(cudaGraphDestroy(graph));
  return ready;
}

}  // namespace

TEST_P(Graph, ReplaysMoveWhatTheInputsThenHold) {
  ULYX_SKIP_BELOW(Gpus(), GetParam());
  const int nRanks = GetParam();
  const Session session(Gpus(), nRanks);
  const Shape shape = Shape(50 * nRanks + 3, 3 * nRanks, 32).KvHeads(nRanks);
  for (const Placement& placement : {Placement(Ordinary), Placement(Symmetric)}) {
    constexpr int kReplays = 5;
    std::vector<Oracle> oracles;
    for (int i = 0; i < kReplays; i++) oracles.emplace_back(shape.c, nRanks, TestSeed() + uint64_t(i));
    session.Run([&](int rank) {
      const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
      RankTensors tensors(session, oracles[0], rank, placement);
      session.GetWorld().Use(rank);
      const cudaStream_t stream = session.Stream(rank);
      const cudaGraphExec_t graph = Capture(stream, [&] { Exchange(session, plan, tensors, rank); });
      tensors.ExpectUntouched();    // capturing moves nothing
      MUST(ulyxPlanDestroy(plan));  // captured graphs keep working, also when their plan's memory is another's
      const ulyxPlan_t other = MakePlan(session, Shape(nRanks, nRanks, 8).c, rank);
      for (int i = 0; i < kReplays; i++) {
        tensors.FillAs(oracles[i]);
        Cuda(cudaGraphLaunch(graph, stream));
        Cuda(cudaStreamSynchronize(stream));
        tensors.ExpectWritten();
      }
      Cuda(cudaGraphExecDestroy(graph));
      MUST(ulyxPlanDestroy(other));
    });
  }
}

TEST_P(Graph, OfManyExchangesReplaysLikeThem) {
  ULYX_SKIP_BELOW(Gpus(), GetParam());
  const int nRanks = GetParam();
  const Session session(Gpus(), nRanks);
  const Shape shape(40 * nRanks, 2 * nRanks, 64);
  const Oracle oracle(shape.c, nRanks, TestSeed());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    session.GetWorld().Use(rank);
    const cudaStream_t stream = session.Stream(rank);
    // Eager exchanges before, between and after replays, ordered by the stream.
    const cudaGraphExec_t graph = Capture(stream, [&] {
      for (int i = 0; i < 20; i++) Exchange(session, plan, tensors, rank);
    });
    Exchange(session, plan, tensors, rank);
    for (int i = 0; i < 3; i++) {
      Cuda(cudaGraphLaunch(graph, stream));
      Exchange(session, plan, tensors, rank);
    }
    Cuda(cudaStreamSynchronize(stream));
    tensors.ExpectWritten();
    Cuda(cudaGraphExecDestroy(graph));
    MUST(ulyxPlanDestroy(plan));
  });
}

TEST_P(Graph, ThatIsAliveKeepsItsRuntimeAndADestroyedOneLetsItGo) {
  ULYX_SKIP_BELOW(Gpus(), GetParam());
  const int nRanks = GetParam();
  for (const World* world : Worlds()) {
    if (world->Transport() == ulyxTransportLoopback) continue;
    SCOPED_TRACE(world->Name());
    Session session(*world, nRanks);
    const Shape shape(40 * nRanks, 2 * nRanks, 64);
    const Oracle oracle(shape.c, nRanks, TestSeed());
    session.Run([&](int rank) {
      const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
      const RankTensors tensors(session, oracle, rank, Ordinary);
      world->Use(rank);
      const cudaStream_t stream = session.Stream(rank);
      const cudaGraphExec_t graph = Capture(stream, [&] { Exchange(session, plan, tensors, rank); });
      const auto start = std::chrono::steady_clock::now();
      EXPECT_TRUE(Refused(ulyxRuntimeDestroy(session.RuntimePtr(rank)), ulyxInvalidUsage, {"captured graphs", "2"}));
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
      tensors.Fill();
      Cuda(cudaGraphLaunch(graph, stream));  // as if nothing had been asked
      Cuda(cudaStreamSynchronize(stream));
      tensors.ExpectWritten();
      Cuda(cudaGraphExecDestroy(graph));
    });
    session.Destroy();
  }
}

// Rank 0's replay on one stream waits for the others; one on a second stream begins meanwhile.
TEST_P(Graph, ReplayedOnTwoStreamsAtOnceIsFoundAndToldToAllRanks) {
  ULYX_SKIP_BELOW(Gpus(), GetParam());
  const int nRanks = GetParam();
  if (nRanks == 1) GTEST_SKIP() << "one rank waits for nobody";
  for (const World* world : Worlds()) {
    if (world->Transport() != ulyxTransportDirect && world->Transport() != ulyxTransportCopyEngine) continue;
    SCOPED_TRACE(world->Name());
    Session session(*world, nRanks);
    const Shape shape(40 * nRanks, 2 * nRanks, 64);
    const Oracle oracle(shape.c, nRanks, TestSeed());
    std::promise<void> found;
    const std::shared_future<void> isFound = found.get_future().share();
    session.Run([&](int rank) {
      const ulyxRuntime_t runtime = session.Runtime(rank);
      const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
      const RankTensors tensors(session, oracle, rank, Symmetric);
      world->Use(rank);
      const cudaStream_t stream = session.Stream(rank);
      cudaStream_t second = nullptr;
      Cuda(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
      const cudaGraphExec_t one = Capture(stream, [&] { Exchange(session, plan, tensors, rank); });
      const cudaGraphExec_t other = Capture(stream, [&] { Exchange(session, plan, tensors, rank); });
      if (rank > 0 && isFound.wait_for(std::chrono::seconds(20)) != std::future_status::ready) return;
      Cuda(cudaGraphLaunch(one, stream));
      if (rank == 0) {
        Cuda(cudaGraphLaunch(other, second));
        Cuda(cudaStreamSynchronize(second));
        found.set_value();
      }
      Cuda(cudaStreamSynchronize(stream));
      ulyxResult_t result = ulyxSuccess;
      MUST(ulyxRuntimeGetAsyncError(runtime, &result));
      EXPECT_EQ(result, ulyxRemoteError) << ulyxGetLastError(runtime);
      const std::string said = ulyxGetLastError(runtime);
      EXPECT_NE(said.find(rank == 0 ? "while another" : "gave up"), std::string::npos)
          << said;  // rank 0 or who heard it
      Cuda(cudaGraphExecDestroy(one));
      Cuda(cudaGraphExecDestroy(other));
      Cuda(cudaStreamDestroy(second));
    });
  }
}

}  // namespace ulyx_test
