// SPDX-License-Identifier: MIT
//
// Cases that broke other libraries, on every world. Each stands for its whole kind.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "support/exchange_check.h"
#include "support/row_tensor.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

class Cases : public ::testing::TestWithParam<const World*> {};
ULYX_ON_EVERY_WORLD(Cases);

void ExpectHeads(ulyxPlan_t plan, const std::vector<int64_t>& counts) {
  ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
  MUST(ulyxPlanGetInfo(plan, &info));
  ASSERT_EQ(info.nRanks, int(counts.size()));
  EXPECT_EQ(std::vector<int64_t>(info.headCounts, info.headCounts + info.nRanks), counts);
}

void ExpectHeadsPlanned(const World& world, int64_t heads, int nRanks, const std::vector<int64_t>& counts) {
  const Session session(world, nRanks);
  const Shape shape(nRanks, heads, 8);
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    ExpectHeads(plan, counts);
    MUST(ulyxPlanDestroy(plan));
  });
  CheckExchanges(session, shape.c, TestSeed());
}

}  // namespace

TEST_P(Cases, ARankWithNothingToSendTakesPartAThousandTimes) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session session(*GetParam(), 2);
  CheckExchanges(session, Shape(1, 24, 128).TokenCounts({1, 0}).c, TestSeed(), Ordinary, 1000);
}

TEST_P(Cases, AnExchangeOfNothingLeavesCanariesAndTheNextIsExact) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session session(*GetParam(), 2);
  CheckExchanges(session, Shape(0, 24, 128).TokenCounts({0, 0}).c, TestSeed());
  CheckExchanges(session, Shape(5, 24, 128).c, TestSeed());
}

TEST_P(Cases, OneTokenPlannedAgainstTwoIsAMismatchThatNamesBothAndDoesNotStick) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session session(*GetParam(), 2);
  session.Run([&](int rank) {
    const Shape shape = Shape(0, 24, 128).TokenCounts({rank == 0 ? 1 : 2, 0});
    ulyxPlan_t plan = nullptr;
    MUST(ulyxRuntimeReserve(session.Runtime(rank), 1 << 20));
    EXPECT_TRUE(Refused(ulyxPlanCreate(session.Runtime(rank), &shape.c, &plan), ulyxMismatch,
                        {"is 1 on rank 0", "2 on rank 1"}));
    EXPECT_EQ(plan, nullptr);
  });
  // The same sum, dealt differently.
  session.Run([&](int rank) {
    const Shape shape = Shape(0, 24, 128).TokenCounts({rank == 0 ? 1 : 2, rank == 0 ? 2 : 1});
    ulyxPlan_t plan = nullptr;
    EXPECT_TRUE(Refused(ulyxPlanCreate(session.Runtime(rank), &shape.c, &plan), ulyxMismatch,
                        {"rank 0", "1 tokens", "rank 1", "2"}));
    EXPECT_EQ(plan, nullptr);
  });
  CheckExchanges(session, Shape(0, 24, 128).TokenCounts({1, 2}).c, TestSeed());
}

TEST_P(Cases, OneRanksOtherHeadDimIsAMismatchOnEveryRank) {
  ULYX_SKIP_BELOW(*GetParam(), 4);
  const Session session(*GetParam(), 4);
  session.Run([&](int rank) {
    const Shape shape(8, 8, rank == 3 ? 3 : 4);
    ulyxPlan_t plan = nullptr;
    MUST(ulyxRuntimeReserve(session.Runtime(rank), 1 << 20));
    EXPECT_TRUE(Refused(ulyxPlanCreate(session.Runtime(rank), &shape.c, &plan), ulyxMismatch,
                        {"headDim", "4 on rank 0", "3 on rank 3"}));
    EXPECT_EQ(plan, nullptr);
  });
}

TEST_P(Cases, NineTokensInFiveAndFourComeBackBitForBit) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session session(*GetParam(), 2);
  const Shape shape(9, 6, 16);
  const Oracle oracle(shape.c, 2, TestSeed());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
    MUST(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)));
    ulyxTensor_t back = tensors.OutputIn(plan);
    back.data = out.q.data;
    const ulyxTensor_t end = tensors.OutputOut(plan);
    MUST(ulyxHeadsToSeq(plan, &back, &end, session.Stream(rank)));
    session.Synchronize(rank);
    EXPECT_EQ(end.extents[1], rank == 0 ? 5 : 4);
    std::vector<uint8_t> sent(end.extents[1] * 6 * 16 * 2), returned(sent.size());
    GetParam()->Download(rank, sent.data(), in.q.data, sent.size());
    GetParam()->Download(rank, returned.data(), end.data, returned.size());
    EXPECT_EQ(sent, returned);
    MUST(ulyxPlanDestroy(plan));
  });
}

TEST_P(Cases, SevenHeadsOverFourRanksAreTwoTwoTwoOne) {
  ULYX_SKIP_BELOW(*GetParam(), 4);
  ExpectHeadsPlanned(*GetParam(), 7, 4, {2, 2, 2, 1});
}

TEST_P(Cases, TwentyHeadsOverEightRanksAreThreesThenTwos) {
  ULYX_SKIP_BELOW(*GetParam(), 8);
  ExpectHeadsPlanned(*GetParam(), 20, 8, {3, 3, 3, 3, 2, 2, 2, 2});
}

TEST_P(Cases, TwoRuntimesOfOneProcessNeverMixTheirHeads) {
  ULYX_SKIP_BELOW(*GetParam(), 4);
  const Session five(*GetParam(), 4), twelve(*GetParam(), 4);
  const Shape ofFive(8, 5, 16), ofTwelve(8, 12, 16);
  const Oracle fiveOracle(ofFive.c, 4, TestSeed()), twelveOracle(ofTwelve.c, 4, TestSeed() + 1);
  five.Run([&](int rank) {
    const ulyxPlan_t fivePlan = MakePlan(five, ofFive.c, rank);
    const ulyxPlan_t twelvePlan = MakePlan(twelve, ofTwelve.c, rank);
    const RankTensors fiveTensors(five, fiveOracle, rank, Ordinary);
    const RankTensors twelveTensors(twelve, twelveOracle, rank, Ordinary);
    for (int i = 0; i < 20; i++) {
      fiveTensors.Fill();
      twelveTensors.Fill();
      Exchange(five, fivePlan, fiveTensors, rank);
      five.Synchronize(rank);
      Exchange(twelve, twelvePlan, twelveTensors, rank);
      twelve.Synchronize(rank);
      ExpectHeads(fivePlan, {2, 1, 1, 1});
      ExpectHeads(twelvePlan, {3, 3, 3, 3});
      fiveTensors.ExpectWritten();
      twelveTensors.ExpectWritten();
    }
    MUST(ulyxPlanDestroy(fivePlan));
    MUST(ulyxPlanDestroy(twelvePlan));
  });
}

TEST_P(Cases, TwoKeyValueHeadsReachEveryRankWhoseQueryHeadsUseThem) {
  ULYX_SKIP_BELOW(*GetParam(), 4);
  const Session session(*GetParam(), 4);
  const Shape shape = Shape(9, 8, 16).KvHeads(2);
  std::vector<ulyxRange_t> kvHeads(4);
  MUST(ulyxShapeGetRanges(&shape.c, 4, nullptr, nullptr, kvHeads.data()));
  for (int rank = 0; rank < 4; rank++) {
    EXPECT_EQ(kvHeads[rank].start, rank / 2);
    EXPECT_EQ(kvHeads[rank].stop, rank / 2 + 1);
  }
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
    MUST(ulyxPlanGetInfo(plan, &info));
    EXPECT_EQ(info.kvHeadRange.start, rank / 2);
    ASSERT_EQ(info.headCount, 2);
    EXPECT_EQ(info.kvHeadCount, 1);
    for (int head = 0; head < 2; head++) EXPECT_EQ(info.kvHeadOfHead[head], 0);
    MUST(ulyxPlanDestroy(plan));
  });
  CheckExchanges(session, shape.c, TestSeed());
}

// Text is held by every rank, the image is split. Tokens are told apart by their content, one number a head.
TEST_P(Cases, TextThatEveryRankHoldsIsOnceInTheResultOnEveryRank) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = std::min(GetParam()->MaxRanks(), 4);
  const Session session(*GetParam(), nRanks);
  constexpr int64_t kImage = 9, kText = 5, kHeads = 6, kTokens = kText + kImage;
  for (int place : {ulyxReplicatedFirst, ulyxReplicatedLast}) {
    const Shape shape = Shape(kImage, kHeads, 1).Replicated(kText, place).Type(ulyxInt32);
    const bool first = place == ulyxReplicatedFirst;
    // Text is tokens 0 to 4, the image 100 and on.
    const auto tokenAt = [&](int64_t row, int64_t image, int64_t imageStart) {
      const int64_t text = first ? row : row - image;
      return text >= 0 && text < kText ? text : 100 + imageStart + row - (first ? kText : 0);
    };
    const auto numbers = [&](int64_t image, int64_t imageStart, int64_t headStart, int64_t heads) {
      std::vector<int32_t> all;
      for (int64_t row = 0; row < kText + image; row++) {
        for (int64_t head = 0; head < heads; head++) {
          all.push_back(int32_t(1000 * (headStart + head) + tokenAt(row, image, imageStart)));
        }
      }
      Bytes bytes(all.size() * sizeof(int32_t));
      std::memcpy(bytes.data(), all.data(), bytes.size());
      return bytes;
    };
    session.Run([&](int rank) {
      const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
      ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
      MUST(ulyxPlanGetInfo(plan, &info));
      const int64_t own = info.tokenCount, heads = info.headCount;
      {
        const auto make = [&](const char* name, int64_t rows, int64_t elements) {
          return std::make_unique<RowTensor>(session, rank, name, rows, elements, ulyxInt32, 4, 4 * elements, Spot(),
                                             TestSeed());
        };
        const auto seq = make("own tokens", kText + own, kHeads), back = make("result", kText + own, kHeads);
        const std::unique_ptr<RowTensor> outs[] = {make("q", kTokens, heads), make("k", kTokens, heads),
                                                   make("v", kTokens, heads)};
        seq->Put(numbers(own, info.tokenRange.start, 0, kHeads));
        ulyxQkv_t in = ULYX_QKV_INITIALIZER, out = ULYX_QKV_INITIALIZER;
        MUST(ulyxPlanGetQkv(plan, &in, &out));
        in.q.data = in.k.data = in.v.data = seq->Tensor().data;
        out.q.data = outs[0]->Tensor().data;
        out.k.data = outs[1]->Tensor().data;
        out.v.data = outs[2]->Tensor().data;
        MUST(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)));
        session.Synchronize(rank);
        for (const auto& tensor : outs) tensor->Expect(numbers(kImage, 0, info.headRange.start, heads));

        ulyxTensor_t outputIn = ULYX_TENSOR_INITIALIZER, outputOut = ULYX_TENSOR_INITIALIZER;
        MUST(ulyxPlanGetOutput(plan, &outputIn, &outputOut));
        outputIn.data = out.q.data;
        outputOut.data = back->Tensor().data;
        MUST(ulyxHeadsToSeq(plan, &outputIn, &outputOut, session.Stream(rank)));
        session.Synchronize(rank);
        back->Expect(numbers(own, info.tokenRange.start, 0, kHeads));
      }
      // To a peer go the image tokens, and no text.
      for (int peer = 0; peer < nRanks; peer++) {
        const int64_t rows = own + (peer == rank ? kText : 0);
        EXPECT_EQ(info.seqToHeadsSendBytes[peer], rows * info.headCounts[peer] * 3 * 4);
      }
      MUST(ulyxPlanDestroy(plan));
    });
  }
}

TEST_P(Cases, TensorsTwoBytesOffAlignmentAreExact) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session session(*GetParam(), 2);
  const Shape shape(9, 4, 46);
  for (bool symmetric : {false, true}) {
    CheckExchanges(session, shape.c, TestSeed(), [symmetric](int, Slot) { return Place{symmetric, 2}; });
  }
}

TEST_P(Cases, EveryBitPatternOfBoolInt16AndFp8Survives) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session session(*GetParam(), 2);
  for (int type : {ulyxBool, ulyxInt16, ulyxFloat8e4m3, ulyxFloat8e5m2, ulyxFloat16, ulyxBfloat16}) {
    // 2 ranks x 8 tokens x 4 heads x 64: enough that every byte value, NaN payloads too, occurs.
    const Shape shape = Shape(16, 4, 64).Type(type);
    CheckExchanges(session, shape.c, TestSeed());
  }
}

}  // namespace ulyx_test
