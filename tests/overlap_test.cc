// SPDX-License-Identifier: MIT
//
// An exchange that begins while another of its runtime is inside, as graphs replayed on two streams do: over the
// fakes, where the other is a word in memory. The kernels' part is meeting_kernel_test.cc's.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "fake.h"
#include "support/epochs.h"
#include "support/exchange_check.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

class Overlaps : public ::testing::TestWithParam<const World*> {};
ULYX_ON_EVERY_WORLD(Overlaps);

}  // namespace

TEST_P(Overlaps, LoseTheWorldWithWordsOnEveryRankAndANewOneWorks) {
  const int transport = GetParam()->Transport();
  if (transport == ulyxTransportLoopback) GTEST_SKIP() << "no device looks";
  const Shape shape(10, 6, 8);
  const Oracle oracle(shape.c, 3, TestSeed());
  {
    const Session session(*GetParam(), 3);
    session.Run([&](int rank) {
      const ulyxRuntime_t runtime = session.Runtime(rank);
      const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
      const RankTensors tensors(session, oracle, rank, Symmetric);
      for (int i = 0; i < 2; i++) {  // one after the other is right
        tensors.Fill();
        Exchange(session, plan, tensors, rank);
        session.Synchronize(rank);
        tensors.ExpectWritten();
      }
      MUST(ulyxRuntimeReserve(runtime, 0));  // every rank is between the same exchanges
      EXPECT_TRUE(rank != 1 || ulyxTestBeginExchange(runtime));
      const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
      (void)ulyxSeqToHeads(plan, &in, &out, session.Stream(rank));
      session.Synchronize(rank);
      // By nccl the peers hear of it as of one that does not come: by the deadline of their next exchange.
      const bool told = rank == 1 || transport != ulyxTransportNccl;
      const ulyxResult_t expected = told ? ulyxRemoteError : ulyxSuccess;
      ulyxResult_t found = ulyxSuccess;
      MUST(ulyxRuntimeGetAsyncError(runtime, &found));
      EXPECT_EQ(found, expected);
      if (!told) return;
      EXPECT_TRUE(rank == 1 ? Refused(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)), expected,
                                      {"exchange 5", "of this runtime (rank 1)", "order them by events"})
                            : Refused(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)), expected, {"gave up"}));
    });
  }
  const Session next(*GetParam(), 3);
  CheckExchanges(next, shape.c, TestSeed(), Symmetric);
}

// The caller may be waiting for its streams, where graphs of NCCL hold each other.
TEST(Overlap, OfGraphsByNcclAbortsTheCommunicatorThoughNobodyCalls) {
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.timeoutMs = 2000;
  const Shape shape(10, 6, 8);
  const Oracle oracle(shape.c, 2, TestSeed());
  const Session session(*Worlds()[1], 2, &config);
  const int64_t aborts = fakeGet().aborts;
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
    fakeSetCapturing(session.Stream(rank), 1);
    MUST(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)));
    EXPECT_TRUE(rank != 1 || ulyxTestBeginExchange(session.Runtime(rank)));
    MUST(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)));
    fakeSetCapturing(session.Stream(rank), 0);
  });
  const auto start = std::chrono::steady_clock::now();
  while (fakeGet().aborts == aborts && std::chrono::steady_clock::now() - start < std::chrono::seconds(5)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(fakeGet().aborts, aborts + 1);
}

}  // namespace ulyx_test
