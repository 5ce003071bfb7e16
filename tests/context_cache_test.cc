// SPDX-License-Identifier: MIT
//
// The cache: by content, in full, bounded, from many threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "support/contexts.h"
#include "support/ranks.h"
#include "support/rng.h"
#include "support/status.h"
#include "ulyx.h"

extern "C" {
#include "context_cache.h"
}

namespace ulyx_test {

namespace {

class ContextCache : public ::testing::Test {
 protected:
  void SetUp() override { Remake(0); }
  void TearDown() override {
    for (ulyxContext_t context : held_) MUST(ulyxContextDestroy(context));
    MUST(ulyxContextCacheDestroy(cache_));
  }

  void Remake(int capacity) {
    MUST(ulyxContextCacheDestroy(cache_));
    MUST(ulyxContextCacheCreate(capacity, &cache_));
  }

  // The test keeps a reference to all it got, so that no address comes twice.
  ulyxContext_t Get(const std::vector<int64_t>& cuSeqlens, int nRanks = 2, int rank = 0, int split = 0,
                    int convKernel = 0) {
    ulyxContext_t context = nullptr;
    MUST(ulyxContextCacheGet(cache_, cuSeqlens.data(), int64_t(cuSeqlens.size()), ulyxInt64, nRanks, rank, split,
                             convKernel, &context));
    held_.push_back(context);
    return context;
  }

  ulyxContextCache_t cache_ = nullptr;
  std::vector<ulyxContext_t> held_;
};

}  // namespace

TEST_F(ContextCache, GivesTheSameContextForTheSameContentAtAnyAddress) {
  const ulyxContext_t context = Get({0, 3, 9}, 2, 1, ulyxSplitBalanced, 4);
  EXPECT_EQ(Get({0, 3, 9}, 2, 1, ulyxSplitBalanced, 4), context);
  ExpectContext(context, TokenWorld({0, 3, 9}, 2, ulyxSplitBalanced).Expect(1, 4), 2, 1, ulyxSplitBalanced, 4);
}

TEST_F(ContextCache, LooksAtValuesAndNotAtTheirType) {
  const ulyxContext_t context = Get({0, 3, 9});
  const int32_t narrow[] = {0, 3, 9};
  ulyxContext_t same = nullptr;
  MUST(ulyxContextCacheGet(cache_, narrow, 3, ulyxInt32, 2, 0, 0, 0, &same));
  EXPECT_EQ(same, context);
  MUST(ulyxContextDestroy(same));
}

TEST_F(ContextCache, TellsEveryArgumentApart) {
  Get({0, 4, 8}, 2, 0, ulyxSplitBalanced, 0);
  Get({0, 4, 8}, 4, 0, ulyxSplitBalanced, 0);
  Get({0, 4, 8}, 2, 1, ulyxSplitBalanced, 0);
  Get({0, 4, 8}, 2, 0, ulyxSplitEqual, 0);
  Get({0, 4, 8}, 2, 0, ulyxSplitTruncate, 0);
  Get({0, 4, 8}, 2, 0, ulyxSplitBalanced, 4);
  Get({0, 5, 8}, 2, 0, ulyxSplitBalanced, 0);
  Get({0, 4, 8, 8}, 2, 0, ulyxSplitBalanced, 0);
  Get({0, 0, 4, 8}, 2, 0, ulyxSplitBalanced, 0);
  Get({0}, 2, 0, ulyxSplitBalanced, 0);
  std::sort(held_.begin(), held_.end());
  EXPECT_EQ(std::unique(held_.begin(), held_.end()), held_.end());
}

TEST_F(ContextCache, SeesAnArrayThatWasEditedInPlace) {
  Rng rng(50);
  std::vector<int64_t> cuSeqlens = {0, 5, 5, 9, 20};
  for (int round = 0; round < 300; round++) {
    const size_t i = rng.Between(1, 3);
    cuSeqlens[i] = rng.Between(cuSeqlens[i - 1], cuSeqlens[i + 1]);
    const int nRanks = int(rng.Between(1, 4)), rank = int(rng.Between(0, nRanks - 1));
    const TokenWorld world(cuSeqlens, nRanks, ulyxSplitBalanced);
    ExpectContext(Get(cuSeqlens, nRanks, rank, ulyxSplitBalanced, 4), world.Expect(rank, 4), nRanks, rank,
                  ulyxSplitBalanced, 4);
  }
}

TEST_F(ContextCache, ComparesInFullWhereHashesCollide) {
  const std::vector<int64_t> first = {0, 3, 9}, second = {0, 4, 9};
  const ulyxContextKey keys[] = {{first.data(), 3, ulyxInt64, 2, 0, 0, 0},
                                 {second.data(), 3, ulyxInt64, 2, 0, 0, 0},
                                 {first.data(), 3, ulyxInt64, 2, 1, 0, 0},
                                 {first.data(), 2, ulyxInt64, 2, 0, 0, 0}};
  for (int round = 0; round < 2; round++) {
    for (const ulyxContextKey& key : keys) {
      ulyxContext_t context = nullptr;
      MUST(ulyxContextCacheFind(cache_, &key, 42, &context));
      held_.push_back(context);
    }
  }
  for (size_t i = 0; i < 4; i++) {
    EXPECT_EQ(held_[i], held_[i + 4]);
    for (size_t j = 0; j < i; j++) EXPECT_NE(held_[i], held_[j]);
  }
}

TEST_F(ContextCache, ComparesAndHashesLongArraysToTheirEnd) {
  for (const int64_t count : {63, 64, 65, 127, 128, 129, 200}) {
    SCOPED_TRACE(count);
    std::vector<int64_t> cuSeqlens(count);
    for (int64_t i = 0; i < count; i++) cuSeqlens[i] = 5 * i;
    const std::vector<int32_t> narrow(cuSeqlens.begin(), cuSeqlens.end());
    const ulyxContextKey key = {cuSeqlens.data(), count, ulyxInt64, 2, 0, 0, 0};
    const ulyxContextKey same = {narrow.data(), count, ulyxInt32, 2, 0, 0, 0};
    const uint64_t hash = ulyxContextKeyHash(&key);
    EXPECT_EQ(ulyxContextKeyHash(&same), hash);
    const ulyxContext_t context = Get(cuSeqlens);
    for (int64_t i = 1; i < count; i++) {
      cuSeqlens[i]++;
      EXPECT_NE(ulyxContextKeyHash(&key), hash) << "value " << i;
      ulyxContext_t other = nullptr;
      MUST(ulyxContextCacheFind(cache_, &key, hash, &other));
      EXPECT_NE(other, context) << "value " << i;
      MUST(ulyxContextDestroy(other));
      cuSeqlens[i]--;
      EXPECT_EQ(Get(cuSeqlens), context);
    }
  }
}

TEST_F(ContextCache, ForgetsWhatWasNotUsedForLongestAndKeepsTheRest) {
  Remake(3);
  const ulyxContext_t a = Get({0, 1}), b = Get({0, 2}), c = Get({0, 3});
  EXPECT_EQ(Get({0, 1}), a);  // b is the oldest now
  const ulyxContext_t d = Get({0, 4});
  EXPECT_EQ(Get({0, 1}), a);
  EXPECT_EQ(Get({0, 3}), c);
  EXPECT_EQ(Get({0, 4}), d);
  EXPECT_NE(Get({0, 2}), b);
  ExpectContext(b, TokenWorld({0, 2}, 2, 0).Expect(0, 0), 2, 0, 0, 0);  // whoever holds it may go on
}

TEST_F(ContextCache, HoldsSixtyFourContextsUnlessToldOtherwise) {
  std::vector<ulyxContext_t> first;
  for (int64_t i = 0; i < 64; i++) first.push_back(Get({0, i}));
  for (int64_t i = 0; i < 64; i++) EXPECT_EQ(Get({0, i}), first[i]);
  Get({0, 64});
  EXPECT_EQ(Get({0, 1}), first[1]);
  EXPECT_NE(Get({0, 0}), first[0]);
}

TEST_F(ContextCache, MayBeDestroyedBeforeTheContextsItGave) {
  const ulyxContext_t context = Get({0, 3, 9}, 2, 1);
  MUST(ulyxContextCacheDestroy(cache_));
  cache_ = nullptr;
  ExpectContext(context, TokenWorld({0, 3, 9}, 2, 0).Expect(1, 0), 2, 1, 0, 0);
}

TEST_F(ContextCache, RefusesWhatMakingAContextRefusesAndKeepsNothingOfIt) {
  ulyxContext_t context = nullptr;
  const int64_t falling[] = {0, 9, 3};
  const auto get = [&](const void* data, int64_t count, int type, int nRanks, int rank, int split, int convKernel) {
    return ulyxContextCacheGet(cache_, data, count, type, nRanks, rank, split, convKernel, &context);
  };
  for (int round = 0; round < 2; round++) {
    EXPECT_TRUE(Refused(get(falling, 3, ulyxInt64, 2, 0, 0, 0), ulyxInvalidArgument, {"cuSeqlens[2]", "3", "9"}));
    EXPECT_TRUE(Refused(get(falling, 2, ulyxInt64, 2, 0, ulyxSplitEqual, 0), ulyxInvalidArgument, {"9", "2"}));
    EXPECT_TRUE(Refused(get(falling, 2, ulyxInt64, 2, 2, 0, 0), ulyxInvalidArgument, {"rank is 2"}));
    EXPECT_TRUE(Refused(get(falling, 2, ulyxInt64, 2, 0, 0, -1), ulyxInvalidArgument, {"convKernel", "-1"}));
    EXPECT_TRUE(Refused(get(falling, 0, ulyxInt64, 2, 0, 0, 0), ulyxInvalidArgument, {"count", "0"}));
    EXPECT_TRUE(Refused(get(falling, 2, ulyxFloat64, 2, 0, 0, 0), ulyxInvalidArgument, {"type"}));
    EXPECT_TRUE(Refused(get(nullptr, 2, ulyxInt64, 2, 0, 0, 0), ulyxInvalidArgument, {"cuSeqlens"}));
  }
  EXPECT_EQ(context, nullptr);
  EXPECT_TRUE(Refused(ulyxContextCacheGet(nullptr, falling, 2, ulyxInt64, 1, 0, 0, 0, &context), ulyxInvalidArgument,
                      {"cache"}));
  EXPECT_TRUE(Refused(ulyxContextCacheGet(cache_, falling, 2, ulyxInt64, 1, 0, 0, 0, nullptr), ulyxInvalidArgument,
                      {"context"}));
  ulyxContextCache_t cache = nullptr;
  EXPECT_TRUE(Refused(ulyxContextCacheCreate(-4, &cache), ulyxInvalidArgument, {"capacity", "-4"}));
  EXPECT_EQ(cache, nullptr);
  EXPECT_TRUE(Refused(ulyxContextCacheCreate(4, nullptr), ulyxInvalidArgument, {"cache"}));
}

TEST_F(ContextCache, AnswersManyThreadsAtOnceRightly) {
  Remake(5);  // fewer than the 24 contents below, so that entries come and go all the time
  RunRanks(6, [this](int thread) {
    Rng rng(60 + thread);
    std::vector<ulyxContext_t> kept;
    for (int round = 0; round < 2000; round++) {
      const int64_t middle = rng.Between(1, 6), convKernel = 4;
      const int rank = int(rng.Between(0, 3));
      const int64_t cuSeqlens[] = {0, middle, 16};
      ulyxContext_t context = nullptr;
      MUST(ulyxContextCacheGet(cache_, cuSeqlens, 3, ulyxInt64, 4, rank, ulyxSplitEqual, convKernel, &context));
      const ulyxContextInfo_t info = InfoOf(context);
      const int64_t start = rank * 4, sequenceStart = start < middle ? 0 : middle;
      EXPECT_EQ(info.rank, rank);
      EXPECT_EQ(info.preNumConvTokens, start - sequenceStart);
      EXPECT_EQ(info.localCuSeqlens[info.numSequences], 4);
      kept.push_back(context);
      if (kept.size() < 4) continue;
      MUST(ulyxContextDestroy(kept[round % 4]));
      kept.erase(kept.begin() + round % 4);
    }
    for (ulyxContext_t context : kept) MUST(ulyxContextDestroy(context));
  });
}

TEST_F(ContextCache, HitsWithinTwoMicrosecondsForSixtyFourSequences) {
  if (!TimeCounts()) GTEST_SKIP() << "time means nothing under a sanitizer or without optimization";
  constexpr int kHits = 2000;
  std::vector<int32_t> cuSeqlens;
  for (int32_t i = 0; i <= 64; i++) cuSeqlens.push_back(i * 512);
  for (int64_t i = 0; i < 63; i++) Get({0, i});  // a full cache, ours in its last place
  double best = 1e9;
  for (int round = 0; round < 20; round++) {
    const double start = ThreadSeconds();
    for (int hit = 0; hit < kHits; hit++) {
      ulyxContext_t context = nullptr;
      MUST(ulyxContextCacheGet(cache_, cuSeqlens.data(), 65, ulyxInt32, 8, 3, 0, 4, &context));
      MUST(ulyxContextDestroy(context));
    }
    best = std::min(best, (ThreadSeconds() - start) * 1e6 / kHits);
  }
  RecordProperty("microseconds", std::to_string(best));
  EXPECT_LT(best, 2.0);
}

}  // namespace ulyx_test
