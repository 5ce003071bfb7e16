// SPDX-License-Identifier: MIT
//
// Corners of the nccl transport that were once wrong, on the fakes: plans made while an exchange is being
// captured, and reserving what is there already.
#include <gtest/gtest.h>

#include <string>

#include "fake.h"
#include "support/exchange_check.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/traveller.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

// Own bytes of 4 MiB and more run on a stream that the capture takes in; a plan must not need that stream.
TEST(NcclEdges, APlanIsMadeWhileAnExchangeWithLargeOwnCopiesIsBeingCaptured) {
  const Shape shape(8192, 16, 64);
  Session session(*Worlds().front(), 2);
  const Oracle oracle(shape.c, 2, TestSeed());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
    fakeSetCapturing(session.Stream(rank), 1);
    MUST(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)));
    ulyxPlan_t other = nullptr;
    EXPECT_EQ(ulyxPlanCreate(session.Runtime(rank), &shape.c, &other), ulyxSuccess) << ulyxGetLastError(nullptr);
    fakeSetCapturing(session.Stream(rank), 0);
  });
  EXPECT_EQ(fakeGet().violations, 0);
}

TEST(NcclEdges, ARuntimeOutlivesTheGraphsThatHoldItsExchanges) {
  for (const World* world : Worlds()) {
    SCOPED_TRACE(world->Name());
    Session session(*world, 2);
    const Shape shape(9, 6, 8);
    const Oracle oracle(shape.c, 2, TestSeed());
    session.Run([&](int rank) {
      const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
      const RankTensors tensors(session, oracle, rank, Ordinary);
      fakeSetCapturing(session.Stream(rank), 1);  // its graph is there as long as the capture lasts
      Exchange(session, plan, tensors, rank);
      const std::string own = "rank " + std::to_string(rank);
      EXPECT_TRUE(
          Refused(ulyxRuntimeDestroy(session.RuntimePtr(rank)), ulyxInvalidUsage, {"2 exchanges", own.c_str()}));
      EXPECT_NE(session.Runtime(rank), nullptr);
      fakeSetCapturing(session.Stream(rank), 0);
      tensors.Fill();
      Exchange(session, plan, tensors, rank);  // as if nothing had been asked
      session.Synchronize(rank);
      tensors.ExpectWritten();
    });
    session.Destroy();
  }
}

// Rank 1's graph alone has the address of its arena; nobody's may move.
TEST(NcclEdges, TheArenaDoesNotGrowUnderAGraphOfAnyRank) {
  for (const World* world : Worlds()) {
    SCOPED_TRACE(world->Name());
    Session session(*world, 2);
    const Shape shape(9, 6, 8);
    const Oracle oracle(shape.c, 2, TestSeed());
    session.Run([&](int rank) {
      const ulyxRuntime_t runtime = session.Runtime(rank);
      const Traveller traveller(session, oracle, shape, rank);
      ulyxRuntimeInfo_t before = ULYX_RUNTIME_INFO_INITIALIZER, after = ULYX_RUNTIME_INFO_INITIALIZER;
      MUST(ulyxRuntimeGetInfo(runtime, &before));
      if (rank == 1) fakeSetCapturing(session.Stream(rank), 1);  // its graph is there as long as the capture lasts
      MUST(traveller.GoTheOtherWay());
      MUST(traveller.Go());
      EXPECT_TRUE(Refused(ulyxRuntimeReserve(runtime, 64 << 20), ulyxInvalidUsage,
                          {"cannot grow", "2 exchanges of rank 1", "reserve before capturing"}));
      MUST(ulyxRuntimeReserve(runtime, before.arenaBytes));
      MUST(ulyxRuntimeGetInfo(runtime, &after));
      EXPECT_EQ(after.arenaBytes, before.arenaBytes);
      if (rank == 1) fakeSetCapturing(session.Stream(rank), 0);
      MUST(ulyxRuntimeReserve(runtime, 64 << 20));
    });
    session.Destroy();
  }
}

// As many bytes a pair by either plan: NCCL moves them whoever's they are.
TEST(NcclEdges, ADifferentOrderOfExchangesIsToldToBothRanksByTheirNextCallNamingBothPlans) {
  for (const bool captured : {false, true}) {
    Session session(*Worlds().front(), 2);
    const Shape wide(8, 4, 16), narrow(8, 8, 8);
    const Oracle wideOracle(wide.c, 2, TestSeed()), narrowOracle(narrow.c, 2, TestSeed());
    session.Run([&](int rank) {
      const Traveller travellers[] = {{session, wideOracle, wide, rank}, {session, narrowOracle, narrow, rank}};
      if (captured) fakeSetCapturing(session.Stream(rank), 1);
      MUST(travellers[rank].GoTheOtherWay());
      const std::string mine = "seq_to_heads of plan " + SignatureOf(travellers[rank].Plan()) + " here";
      const std::string theirs = "rank " + std::to_string(1 - rank) + " sent exchange 1, seq_to_heads of plan " +
                                 SignatureOf(travellers[1 - rank].Plan());
      EXPECT_TRUE(Refused(Found(session.Runtime(rank)), ulyxMismatch,
                          {"exchange 1 by nccl", mine.c_str(), theirs.c_str(), "void"}));
      // The call that tells is made all the same.
      MUST(travellers[1 - rank].GoTheOtherWay());
      EXPECT_TRUE(Refused(travellers[0].GoTheOtherWay(), ulyxMismatch, {"exchange 2 by nccl", "rank"}));
      for (const Traveller& traveller : travellers) MUST(traveller.GoTheOtherWay());
      ulyxResult_t last = ulyxSuccess;
      MUST(ulyxRuntimeGetAsyncError(session.Runtime(rank), &last));
      EXPECT_EQ(last, ulyxSuccess);
      if (captured) fakeSetCapturing(session.Stream(rank), 0);
    });
  }
}

// What has sent nothing may be made again; what has sent labels may not, since they would be taken for data, and what
// has sent all may not, since the others have got it. Of a capture that failed nothing ever runs.
TEST(NcclEdges, ARankThatFailsBeforeItSendsMakesTheExchangeAgainAndOneThatFailsFromThereOnIsOutOfStep) {
  const struct {
    const char* function;
    int nth;
    bool again, captured;
  } faults[] = {{"ulyxLaunchLabelWrite", 1, true, false}, {"ulyxLaunchCopies", 1, true, false},
                {"ncclGroupStart", 1, false, false},      {"ncclGroupStart", 2, false, false},
                {"ulyxLaunchCopies", 2, false, false},    {"ulyxLaunchLabelCompare", 1, false, false},
                {"ulyxLaunchLabelWrite", 1, true, true},  {"ulyxLaunchCopies", 1, true, true},
                {"ncclGroupStart", 1, true, true}};
  for (const auto& fault : faults) {
    SCOPED_TRACE(std::string(fault.function) + " " + std::to_string(fault.nth) + (fault.captured ? " captured" : ""));
    ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
    config.timeoutMs = 1000;
    Session session(*Worlds().front(), 2, &config);
    const Shape shape(4, 4, 8);  // as many bytes a pair as a label has
    const Oracle oracle(shape.c, 2, TestSeed());
    session.Run([&](int rank) {
      const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
      const RankTensors tensors(session, oracle, rank, Ordinary);
      const auto go = [&] {
        const ulyxTensor_t in = tensors.OutputIn(plan), out = tensors.OutputOut(plan);
        return ulyxHeadsToSeq(plan, &in, &out, session.Stream(rank));
      };
      if (rank == 1) {
        if (fault.captured) fakeSetCapturing(session.Stream(rank), 1);
        fakeFailNthHere(fault.function, fault.nth);
        EXPECT_NE(go(), ulyxSuccess);
        fakeFailNthHere(nullptr, 0);
        if (fault.captured) fakeSetCapturing(session.Stream(rank), 0);
      }
      if (fault.again) {
        MUST(go());
      } else if (rank == 1) {
        EXPECT_TRUE(Refused(go(), ulyxRemoteError, {"half-way", "destroy the runtime"}));
      } else {  // nobody sends it anything, now or next
        EXPECT_TRUE(go() != ulyxSuccess || go() != ulyxSuccess);
      }
    });
    session.Destroy();
  }
}

TEST(NcclEdges, ReservingWhatIsThereAlreadyAllocatesNothing) {
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.arenaBytes = 1 << 20;
  Session session(*Worlds().front(), 2, &config);
  const int64_t before = fakeGet().ncclAllocations;
  session.Run([&](int rank) { MUST(ulyxRuntimeReserve(session.Runtime(rank), rank == 0 ? 1000 : 1 << 20)); });
  EXPECT_EQ(fakeGet().ncclAllocations, before);
  fakeFailNth("ncclMemAlloc", 1);
  session.Run([&](int rank) { MUST(ulyxRuntimeReserve(session.Runtime(rank), 1000)); });
  fakeFailNth(nullptr, 0);
}

}  // namespace ulyx_test
