// SPDX-License-Identifier: MIT
//
// Segments and targets against a token-by-token oracle.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/rng.h"
#include "support/status.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

constexpr ulyxSegment_t kPoison = {-77, -78, -79};

bool operator==(const ulyxSegment_t& a, const ulyxSegment_t& b) {
  return a.start == b.start && a.stop == b.stop && a.row == b.row;
}

bool Holds(int64_t start, int64_t stop, int64_t token) {
  return start <= token && token < stop;
}

// Every segment's tokens in the shard, found one by one.
std::vector<ulyxSegment_t> ExpectedSegments(const std::vector<ulyxSegment_t>& segments, ulyxRange_t shard) {
  std::vector<ulyxSegment_t> expected;
  for (const ulyxSegment_t& segment : segments) {
    int64_t first = -1, tokens = 0;
    for (int64_t token = shard.start; token < shard.stop; token++) {
      if (!Holds(segment.start, segment.stop, token)) continue;
      if (tokens++ == 0) first = token;
    }
    if (tokens > 0) expected.push_back({first - shard.start, first - shard.start + tokens, segment.row});
  }
  return expected;
}

ulyxRange_t RandomRange(Rng& rng, int64_t limit) {
  const int64_t start = rng.Between(0, limit);
  return {start, rng.Between(start, limit)};
}

std::vector<ulyxSegment_t> RandomSegments(Rng& rng, int64_t limit) {
  std::vector<ulyxSegment_t> segments(rng.Between(0, 12));
  for (ulyxSegment_t& segment : segments) {
    segment = {rng.Between(0, limit), rng.Between(0, limit), rng.Between(-3, 9)};
  }
  return segments;
}

}  // namespace

TEST(Segments, AreClippedInOrderRebasedAndDroppedWhereTheShardHasNothing) {
  const std::vector<ulyxSegment_t> segments = {{0, 4, 7}, {4, 9, 8}, {9, 12, 7}, {12, 20, -1}};
  std::vector<ulyxSegment_t> local(segments.size(), kPoison);
  int64_t count = -5;
  MUST(ulyxLocalizeSegments(segments.data(), 4, {5, 10}, local.data(), &count));
  ASSERT_EQ(count, 2);
  EXPECT_TRUE(local[0] == (ulyxSegment_t{0, 4, 8}));
  EXPECT_TRUE(local[1] == (ulyxSegment_t{4, 5, 7}));
  EXPECT_TRUE(local[2] == kPoison) << "nothing is written behind the count";
}

TEST(Segments, MatchTheOracleOverlappingReversedAndBeyondTheShard) {
  Rng rng(20);
  for (int round = 0; round < 3000; round++) {
    SCOPED_TRACE("round " + std::to_string(round));
    const std::vector<ulyxSegment_t> segments = RandomSegments(rng, 30);
    const ulyxRange_t shard = RandomRange(rng, 25);
    const std::vector<ulyxSegment_t> expected = ExpectedSegments(segments, shard);
    std::vector<ulyxSegment_t> local(segments.size() + 1, kPoison);
    int64_t count = -5;
    MUST(ulyxLocalizeSegments(segments.data(), int64_t(segments.size()), shard, local.data(), &count));
    ASSERT_EQ(count, int64_t(expected.size()));
    for (size_t i = 0; i < expected.size(); i++) EXPECT_TRUE(local[i] == expected[i]) << "segment " << i;
    for (size_t i = expected.size(); i < local.size(); i++) EXPECT_TRUE(local[i] == kPoison) << "segment " << i;
  }
}

TEST(Segments, MayBeLocalizedInPlace) {
  Rng rng(21);
  for (int round = 0; round < 500; round++) {
    std::vector<ulyxSegment_t> segments = RandomSegments(rng, 30);
    const ulyxRange_t shard = RandomRange(rng, 25);
    const std::vector<ulyxSegment_t> expected = ExpectedSegments(segments, shard);
    int64_t count = -5;
    MUST(ulyxLocalizeSegments(segments.data(), int64_t(segments.size()), shard, segments.data(), &count));
    ASSERT_EQ(count, int64_t(expected.size()));
    for (size_t i = 0; i < expected.size(); i++) EXPECT_TRUE(segments[i] == expected[i]) << "segment " << i;
  }
}

TEST(Segments, WithoutAnyNeedNoArrays) {
  int64_t count = -5;
  MUST(ulyxLocalizeSegments(nullptr, 0, {0, 10}, nullptr, &count));
  EXPECT_EQ(count, 0);
}

TEST(Segments, HoldTheLargestPositions) {
  const ulyxSegment_t segment = {0, INT64_MAX, INT64_MIN};
  ulyxSegment_t local = kPoison;
  int64_t count = -5;
  MUST(ulyxLocalizeSegments(&segment, 1, {INT64_MAX - 3, INT64_MAX}, &local, &count));
  ASSERT_EQ(count, 1);
  EXPECT_TRUE(local == (ulyxSegment_t{0, 3, INT64_MIN}));
}

TEST(Segments, ThatCannotBeMeantAreRefusedWithTheirNumbersAndNothingIsWritten) {
  std::vector<ulyxSegment_t> local(3, kPoison);
  int64_t count = -5;
  const std::vector<ulyxSegment_t> good = {{0, 4, 0}, {4, 9, 1}, {9, 12, 2}};
  std::vector<ulyxSegment_t> bad = good;
  bad[2].start = -6;
  EXPECT_TRUE(Refused(ulyxLocalizeSegments(bad.data(), 3, {0, 5}, local.data(), &count), ulyxInvalidArgument,
                      {"segment 2", "-6", "12"}));
  bad = good;
  bad[1].stop = -9;
  EXPECT_TRUE(Refused(ulyxLocalizeSegments(bad.data(), 3, {0, 5}, local.data(), &count), ulyxInvalidArgument,
                      {"segment 1", "4", "-9"}));
  EXPECT_TRUE(Refused(ulyxLocalizeSegments(good.data(), -2, {0, 5}, local.data(), &count), ulyxInvalidArgument,
                      {"count", "-2"}));
  EXPECT_TRUE(Refused(ulyxLocalizeSegments(good.data(), 3, {-1, 5}, local.data(), &count), ulyxInvalidArgument,
                      {"shard", "-1", "5"}));
  EXPECT_TRUE(Refused(ulyxLocalizeSegments(good.data(), 3, {6, 5}, local.data(), &count), ulyxInvalidArgument,
                      {"shard", "6", "5"}));
  EXPECT_TRUE(
      Refused(ulyxLocalizeSegments(nullptr, 3, {0, 5}, local.data(), &count), ulyxInvalidArgument, {"segments"}));
  EXPECT_TRUE(Refused(ulyxLocalizeSegments(good.data(), 3, {0, 5}, nullptr, &count), ulyxInvalidArgument, {"local"}));
  EXPECT_TRUE(Refused(ulyxLocalizeSegments(good.data(), 3, {0, 5}, local.data(), nullptr), ulyxInvalidArgument,
                      {"localCount"}));
  EXPECT_EQ(count, -5);
  for (const ulyxSegment_t& segment : local) EXPECT_TRUE(segment == kPoison);
}

TEST(Target, IntersectionCountsFromTheShardAndIsZeroZeroWhereTheyShareNothing) {
  for (int64_t a = 0; a <= 9; a++) {
    for (int64_t b = a; b <= 9; b++) {
      for (int64_t start = 0; start <= 9; start++) {
        for (int64_t stop = start; stop <= 9; stop++) {
          const std::vector<ulyxSegment_t> shared = ExpectedSegments({{a, b, 0}}, {start, stop});
          const ulyxRange_t expected =
              shared.empty() ? ulyxRange_t{0, 0} : ulyxRange_t{shared[0].start, shared[0].stop};
          ulyxRange_t local = {-7, -8};
          MUST(ulyxTargetIntersection({a, b}, {start, stop}, &local));
          EXPECT_EQ(local.start, expected.start);
          EXPECT_EQ(local.stop, expected.stop);
        }
      }
    }
  }
}

TEST(Target, CountsTheTokensOfEveryRankAndLosesNoneInsideTheSequence) {
  Rng rng(22);
  for (int round = 0; round < 1000; round++) {
    std::vector<int64_t> lengths(rng.Between(1, 9));
    int64_t total = 0;
    for (int64_t& length : lengths) total += length = rng.Between(0, 6);
    std::vector<ulyxRange_t> ranges(lengths.size());
    MUST(ulyxRangesFromCounts(lengths.data(), int(lengths.size()), ranges.data()));
    const ulyxRange_t target = RandomRange(rng, total + 4);
    std::vector<int64_t> counts(lengths.size(), -1);
    MUST(ulyxTargetCounts(target, ranges.data(), int(ranges.size()), counts.data()));
    int64_t sum = 0, inside = 0;
    for (size_t rank = 0; rank < ranges.size(); rank++) {
      int64_t expected = 0;
      for (int64_t token = ranges[rank].start; token < ranges[rank].stop; token++) {
        expected += Holds(target.start, target.stop, token);
      }
      EXPECT_EQ(counts[rank], expected);
      sum += counts[rank];
    }
    for (int64_t token = 0; token < total; token++) inside += Holds(target.start, target.stop, token);
    EXPECT_EQ(sum, inside);
  }
}

TEST(Target, ThatCannotBeMeantIsRefusedWithItsNumbersAndNothingIsWritten) {
  const ulyxRange_t ranges[] = {{0, 4}, {4, 8}};
  const ulyxRange_t reversed[] = {{0, 4}, {8, 4}};
  const ulyxRange_t negative[] = {{-3, 4}, {4, 8}};
  ulyxRange_t local = {-7, -8};
  int64_t counts[] = {-5, -6};
  EXPECT_TRUE(Refused(ulyxTargetIntersection({5, 3}, {0, 8}, &local), ulyxInvalidArgument, {"target", "5", "3"}));
  EXPECT_TRUE(Refused(ulyxTargetIntersection({-2, 3}, {0, 8}, &local), ulyxInvalidArgument, {"target", "-2"}));
  EXPECT_TRUE(Refused(ulyxTargetIntersection({0, 3}, {8, 7}, &local), ulyxInvalidArgument, {"shard", "8", "7"}));
  EXPECT_TRUE(Refused(ulyxTargetIntersection({0, 3}, {-4, 7}, &local), ulyxInvalidArgument, {"shard", "-4"}));
  EXPECT_TRUE(Refused(ulyxTargetIntersection({0, 3}, {0, 8}, nullptr), ulyxInvalidArgument, {"local"}));
  EXPECT_TRUE(Refused(ulyxTargetCounts({5, 3}, ranges, 2, counts), ulyxInvalidArgument, {"target", "5", "3"}));
  EXPECT_TRUE(
      Refused(ulyxTargetCounts({0, 3}, reversed, 2, counts), ulyxInvalidArgument, {"tokenRanges[1]", "8", "4"}));
  EXPECT_TRUE(Refused(ulyxTargetCounts({0, 3}, negative, 2, counts), ulyxInvalidArgument, {"tokenRanges[0]", "-3"}));
  EXPECT_TRUE(Refused(ulyxTargetCounts({0, 3}, ranges, 0, counts), ulyxInvalidArgument, {"nRanks", "0"}));
  EXPECT_TRUE(Refused(ulyxTargetCounts({0, 3}, nullptr, 2, counts), ulyxInvalidArgument, {"tokenRanges"}));
  EXPECT_TRUE(Refused(ulyxTargetCounts({0, 3}, ranges, 2, nullptr), ulyxInvalidArgument, {"counts"}));
  EXPECT_EQ(local.start, -7);
  EXPECT_EQ(local.stop, -8);
  EXPECT_EQ(counts[0], -5);
  EXPECT_EQ(counts[1], -6);
}

}  // namespace ulyx_test
