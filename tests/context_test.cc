// SPDX-License-Identifier: MIT
//
// Contexts against an oracle that looks at every token's sequence and owner.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "support/contexts.h"
#include "support/rng.h"
#include "support/status.h"
#include "ulyx.h"

extern "C" {
#include "context.h"
}

namespace ulyx_test {

namespace {

constexpr int kSplits[] = {ulyxSplitBalanced, ulyxSplitEqual, ulyxSplitTruncate};

class OwnedSequences {
 public:
  explicit OwnedSequences(const std::vector<int64_t>& cuSeqlens) {
    MUST(ulyxSequencesCreate(cuSeqlens.data(), int64_t(cuSeqlens.size()), ulyxInt64, &sequences_));
  }
  ~OwnedSequences() { ulyxSequencesDestroy(sequences_); }
  ulyxSequences_t Get() const { return sequences_; }

 private:
  ulyxSequences_t sequences_ = nullptr;
};

void ExpectEveryRank(const std::vector<int64_t>& cuSeqlens, int nRanks, int split, int convKernel) {
  const OwnedSequences sequences(cuSeqlens);
  ulyxContext_t context = nullptr;
  if (TokenWorld::Refuses(cuSeqlens.back(), nRanks, split)) {
    EXPECT_TRUE(Refused(ulyxContextCreate(sequences.Get(), nRanks, 0, split, convKernel, &context), ulyxInvalidArgument,
                        {std::to_string(cuSeqlens.back()), std::to_string(nRanks)}));
    EXPECT_EQ(context, nullptr);
    return;
  }
  const TokenWorld world(cuSeqlens, nRanks, split);
  for (int rank = 0; rank < nRanks; rank++) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    MUST(ulyxContextCreate(sequences.Get(), nRanks, rank, split, convKernel, &context));
    ExpectContext(context, world.Expect(rank, convKernel), nRanks, rank, split, convKernel);
    MUST(ulyxContextDestroy(context));
  }
}

}  // namespace

TEST(Context, MatchesTheOracleForRandomSequencesUnderEverySplit) {
  Rng rng(40);
  for (int round = 0; round < 1500; round++) {
    const std::vector<int64_t> cuSeqlens = RandomCuSeqlens(rng, 10, rng.OneIn(4) ? 40 : 5);
    const int nRanks = int(rng.Between(1, 9)), convKernel = int(rng.Between(0, 6));
    for (const int split : kSplits) {
      SCOPED_TRACE("round " + std::to_string(round) + ", split " + std::to_string(split));
      ExpectEveryRank(cuSeqlens, nRanks, split, convKernel);
    }
  }
}

TEST(Context, SplitsTenTokensOverThreeRanksWithoutLosingOne) {
  const int64_t expected[][2] = {{0, 4}, {4, 7}, {7, 10}};
  for (int rank = 0; rank < 3; rank++) {
    ulyxContext_t context = MakeContext({0, 10}, 3, rank, ulyxSplitBalanced, 4);
    const ulyxContextInfo_t info = InfoOf(context);
    EXPECT_EQ(info.tokenRange.start, expected[rank][0]);
    EXPECT_EQ(info.tokenRange.stop, expected[rank][1]);
    EXPECT_EQ(info.haloTokens, rank == 0 ? 0 : 3);
    EXPECT_EQ(info.droppedTokens, 0);
    MUST(ulyxContextDestroy(context));
  }
  ulyxContext_t context = nullptr;
  const OwnedSequences sequences({0, 10});
  EXPECT_TRUE(Refused(ulyxContextCreate(sequences.Get(), 3, 1, ulyxSplitEqual, 4, &context), ulyxInvalidArgument,
                      {"10 tokens", "3 ranks"}));
}

TEST(Context, LeavesTheLastRanksEmptyWhereTokensAreFewerThanRanks) {
  for (int rank = 2; rank < 5; rank++) {
    ulyxContext_t context = MakeContext({0, 0, 2, 2}, 5, rank, ulyxSplitBalanced, 4);
    const ulyxContextInfo_t info = InfoOf(context);
    EXPECT_EQ(info.tokenRange.start, 2);
    EXPECT_EQ(info.tokenRange.stop, 2);
    EXPECT_EQ(info.numSequences, 0);
    EXPECT_EQ(info.localCuSeqlens[0], 0);
    EXPECT_EQ(info.isFirstRank, 1);
    EXPECT_EQ(info.isLastRank, 1);
    EXPECT_EQ(info.preNumRanks, 0);
    EXPECT_EQ(info.postNumRanks, 0);
    EXPECT_EQ(info.haloTokens, 0);
    MUST(ulyxContextDestroy(context));
  }
}

TEST(Context, NamesTheGlobalIndexOfItsSequencesPastThoseWithoutTokens) {
  ulyxContext_t context = MakeContext({0, 0, 3, 3, 3, 5, 5, 9, 9}, 2, 1, ulyxSplitBalanced, 0);  // tokens [5, 9)
  ulyxContextInfo_t info = InfoOf(context);
  ASSERT_EQ(info.numSequences, 1);
  EXPECT_EQ(info.sequenceIndices[0], 6);
  MUST(ulyxContextDestroy(context));
  context = MakeContext({0, 0, 3, 3, 3, 5, 5, 9, 9}, 2, 0, ulyxSplitBalanced, 0);
  info = InfoOf(context);
  ASSERT_EQ(info.numSequences, 2);
  EXPECT_EQ(info.sequenceIndices[0], 1);
  EXPECT_EQ(info.sequenceIndices[1], 4);
  MUST(ulyxContextDestroy(context));
}

TEST(Context, LivesOnWithoutItsSequencesAndItsCopyWithoutIt) {
  const std::vector<int64_t> cuSeqlens = {0, 5, 5, 20, 31};
  const ExpectedContext expected = TokenWorld(cuSeqlens, 3, ulyxSplitBalanced).Expect(1, 4);
  ulyxContext_t context = MakeContext(cuSeqlens, 3, 1, ulyxSplitBalanced, 4);  // its sequences are destroyed
  ulyxContext_t copy = nullptr;
  MUST(ulyxContextCopy(context, &copy));
  EXPECT_NE(copy, context);
  EXPECT_NE(InfoOf(copy).localCuSeqlens, InfoOf(context).localCuSeqlens);
  EXPECT_NE(InfoOf(copy).sequenceIndices, InfoOf(context).sequenceIndices);
  MUST(ulyxContextDestroy(context));
  ExpectContext(copy, expected, 3, 1, ulyxSplitBalanced, 4);
  EXPECT_EQ(ulyxContextSequenceStart(copy, 21), 20);
  MUST(ulyxContextDestroy(copy));
}

TEST(Context, CanViewEveryRankAlike) {
  Rng rng(41);
  for (int round = 0; round < 200; round++) {
    const std::vector<int64_t> cuSeqlens = RandomCuSeqlens(rng, 10, 12);
    const int nRanks = int(rng.Between(1, 9));
    const TokenWorld world(cuSeqlens, nRanks, ulyxSplitBalanced);
    ulyxContext_t context = MakeContext(cuSeqlens, nRanks, nRanks - 1, ulyxSplitBalanced, 4);
    std::vector<ulyxRange_t> ranges(nRanks);
    ulyxContextTokenRanges(context, ranges.data());
    for (int rank = 0; rank < nRanks; rank++) {
      const ExpectedContext expected = world.Expect(rank, 4);
      const ulyxShardView view = ulyxContextViewRank(context, rank);
      EXPECT_EQ(view.tokens.start, expected.tokenRange.start);
      EXPECT_EQ(view.tokens.stop, expected.tokenRange.stop);
      EXPECT_EQ(ranges[rank].start, expected.tokenRange.start);
      EXPECT_EQ(ranges[rank].stop, expected.tokenRange.stop);
      EXPECT_EQ(view.preNumConvTokens, expected.preNumConvTokens);
      EXPECT_EQ(view.haloTokens, expected.haloTokens);
      EXPECT_EQ(view.preNumRanks, expected.preNumRanks);
      EXPECT_EQ(view.postNumRanks, expected.postNumRanks);
      if (expected.sequenceIndices.empty()) continue;
      EXPECT_EQ(view.firstSequence, expected.sequenceIndices.front());
      EXPECT_EQ(view.lastSequence, expected.sequenceIndices.back());
    }
    MUST(ulyxContextDestroy(context));
  }
}

TEST(Context, WhoseTailIsCutOffInsideASequenceMustDriveNoChainOnAnyRank) {
  for (int rank = 0; rank < 4; rank++) {
    ulyxContext_t context = MakeContext({0, 3, 7}, 4, rank, ulyxSplitTruncate, 4);  // ends at token 4
    EXPECT_EQ(InfoOf(context).cutsSequence, 1);
    EXPECT_EQ(InfoOf(context).droppedTokens, 3);
    EXPECT_TRUE(
        Refused(ulyxContextCheckChain(context), ulyxInvalidUsage, {"sequence 1", "[3, 7)", "4 ranks", "token 4"}));
    MUST(ulyxContextDestroy(context));
    context = MakeContext({0, 4, 4, 7}, 4, rank, ulyxSplitTruncate, 4);  // the tail is a sequence of its own
    EXPECT_EQ(InfoOf(context).cutsSequence, 0);
    EXPECT_EQ(InfoOf(context).droppedTokens, 3);
    MUST(ulyxContextCheckChain(context));
    MUST(ulyxContextDestroy(context));
  }
}

TEST(Context, PastInt32IsRefusedByItsLocalIndex) {
  const int64_t limit = INT32_MAX;
  ulyxContext_t context = nullptr;
  const OwnedSequences sequences({0, 10, 10, limit, limit + 1, limit + 90});
  EXPECT_TRUE(Refused(ulyxContextCreate(sequences.Get(), 1, 0, ulyxSplitBalanced, 0, &context), ulyxInvalidArgument,
                      {"cu_seqlens[3]", std::to_string(limit + 1), std::to_string(limit)}));
  EXPECT_EQ(context, nullptr);
  for (const int rank : {0, 1}) {  // two ranks share what one cannot count
    MUST(ulyxContextCreate(sequences.Get(), 2, rank, ulyxSplitBalanced, 0, &context));
    const ulyxContextInfo_t info = InfoOf(context);
    EXPECT_EQ(info.localCuSeqlens[info.numSequences], info.tokenRange.stop - info.tokenRange.start);
    MUST(ulyxContextDestroy(context));
  }
  context = MakeContext({0, limit}, 1, 0, ulyxSplitBalanced, 0);
  EXPECT_EQ(InfoOf(context).localCuSeqlens[1], limit);
  MUST(ulyxContextDestroy(context));
}

TEST(Context, HoldsTheLargestWorlds) {
  ulyxContext_t context = MakeContext({0, 5}, INT32_MAX, INT32_MAX - 1, ulyxSplitBalanced, INT32_MAX);
  EXPECT_EQ(InfoOf(context).tokenRange.start, 5);
  EXPECT_EQ(InfoOf(context).numSequences, 0);
  MUST(ulyxContextDestroy(context));
  const OwnedSequences sequences({0, int64_t{INT32_MAX} * 2 - 1});
  context = nullptr;
  EXPECT_TRUE(Refused(ulyxContextCreate(sequences.Get(), INT32_MAX, 0, ulyxSplitTruncate, 0, &context),
                      ulyxInvalidArgument, {std::to_string(int64_t{INT32_MAX} * 2 - 2)}));
  EXPECT_EQ(context, nullptr);
}

TEST(Context, OfImpossibleNumbersIsRefusedAndNothingIsWritten) {
  const OwnedSequences owned({0, 8});
  ulyxSequences_t const sequences = owned.Get();
  ulyxContext_t context = nullptr;
  const auto create = [&](int nRanks, int rank, int split, int convKernel) {
    return ulyxContextCreate(sequences, nRanks, rank, split, convKernel, &context);
  };
  EXPECT_TRUE(Refused(create(0, 0, 0, 0), ulyxInvalidArgument, {"nRanks", "0"}));
  EXPECT_TRUE(Refused(create(-2, 0, 0, 0), ulyxInvalidArgument, {"nRanks", "-2"}));
  EXPECT_TRUE(Refused(create(4, 4, 0, 0), ulyxInvalidArgument, {"rank is 4", "0 to 3"}));
  EXPECT_TRUE(Refused(create(4, -1, 0, 0), ulyxInvalidArgument, {"rank is -1", "0 to 3"}));
  EXPECT_TRUE(Refused(create(4, 0, 3, 0), ulyxInvalidArgument, {"split", "3"}));
  EXPECT_TRUE(Refused(create(4, 0, -1, 0), ulyxInvalidArgument, {"split", "-1"}));
  EXPECT_TRUE(Refused(create(4, 0, 0, -5), ulyxInvalidArgument, {"convKernel", "-5"}));
  EXPECT_TRUE(Refused(create(3, 0, ulyxSplitEqual, 0), ulyxInvalidArgument, {"8 tokens", "3 ranks"}));
  EXPECT_TRUE(Refused(create(9, 0, ulyxSplitEqual, 0), ulyxInvalidArgument, {"8 tokens", "9 ranks"}));
  EXPECT_TRUE(Refused(create(9, 0, ulyxSplitTruncate, 0), ulyxInvalidArgument, {"8 tokens", "9 ranks"}));
  EXPECT_EQ(context, nullptr);
}

TEST(Context, OfNullsIsRefusedByName) {
  const OwnedSequences sequences({0, 8});
  ulyxContext_t context = nullptr;
  EXPECT_TRUE(Refused(ulyxContextCreate(nullptr, 1, 0, 0, 0, &context), ulyxInvalidArgument, {"sequences"}));
  EXPECT_TRUE(Refused(ulyxContextCreate(sequences.Get(), 1, 0, 0, 0, nullptr), ulyxInvalidArgument, {"context"}));
  EXPECT_TRUE(Refused(ulyxContextCopy(nullptr, &context), ulyxInvalidArgument, {"context"}));
  ulyxContextInfo_t info = ULYX_CONTEXT_INFO_INITIALIZER;
  EXPECT_TRUE(Refused(ulyxContextGetInfo(nullptr, &info), ulyxInvalidArgument, {"context"}));
  EXPECT_EQ(context, nullptr);
  context = MakeContext({0, 8}, 1, 0, 0, 0);
  EXPECT_TRUE(Refused(ulyxContextCopy(context, nullptr), ulyxInvalidArgument, {"copy"}));
  EXPECT_TRUE(Refused(ulyxContextGetInfo(context, nullptr), ulyxInvalidArgument, {"info"}));
  MUST(ulyxContextDestroy(context));
  MUST(ulyxContextDestroy(nullptr));
}

TEST(Context, InfoHasNoTailPaddingAndIsVersioned) {
  static_assert(offsetof(ulyxContextInfo_t, sequenceIndices) + sizeof(void*) == sizeof(ulyxContextInfo_t), "tail");
  struct Longer {
    ulyxContextInfo_t info = ULYX_CONTEXT_INFO_INITIALIZER;
    int64_t unknown = 0;
  } longer;
  longer.info.size = sizeof longer;
  ulyxContext_t context = MakeContext({0, 8}, 2, 1, 0, 4);
  MUST(ulyxContextGetInfo(context, &longer.info));
  EXPECT_EQ(longer.info.size, sizeof longer);
  EXPECT_EQ(longer.info.tokenRange.start, 4);
  longer.unknown = 1;
  longer.info.rank = -9;
  EXPECT_TRUE(Refused(ulyxContextGetInfo(context, &longer.info), ulyxInvalidArgument, {"info"}));
  EXPECT_EQ(longer.info.rank, -9);
  ulyxContextInfo_t unset = ULYX_CONTEXT_INFO_INITIALIZER;
  unset.magic = 0;
  EXPECT_TRUE(Refused(ulyxContextGetInfo(context, &unset), ulyxInvalidArgument, {"magic"}));
  MUST(ulyxContextDestroy(context));
}

TEST(Context, OfAMillionSequencesIsValidatedAndBuiltWithinTenMilliseconds) {
  if (!TimeCounts()) GTEST_SKIP() << "time means nothing under a sanitizer or without optimization";
  constexpr int64_t kSequences = 1000000;
  std::vector<int32_t> cuSeqlens(kSequences + 1);
  for (int64_t i = 0; i <= kSequences; i++) cuSeqlens[i] = int32_t(i * 3);
  double best = 1e9;
  for (int round = 0; round < 10 || (round < 60 && best >= 10); round++) {
    const double start = ThreadSeconds();
    ulyxSequences_t sequences = nullptr;
    ulyxContext_t context = nullptr;
    MUST(ulyxSequencesCreate(cuSeqlens.data(), kSequences + 1, ulyxInt32, &sequences));
    MUST(ulyxContextCreate(sequences, 1, 0, ulyxSplitBalanced, 4, &context));
    best = std::min(best, (ThreadSeconds() - start) * 1e3);
    EXPECT_EQ(InfoOf(context).numSequences, kSequences);
    MUST(ulyxContextDestroy(context));
    MUST(ulyxSequencesDestroy(sequences));
  }
  RecordProperty("milliseconds", std::to_string(best));
  EXPECT_LT(best, 10.0);
}

}  // namespace ulyx_test
