// SPDX-License-Identifier: MIT
//
// Ranges of integers: the pure functions that every rank computes alike.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "support/oracle.h"
#include "support/rng.h"
#include "support/shapes.h"
#include "support/status.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

constexpr ulyxRange_t kPoison = {-77, -78};

void ExpectRanges(const std::vector<ulyxRange_t>& ranges, const std::vector<Span>& spans) {
  ASSERT_EQ(ranges.size(), spans.size());
  for (size_t i = 0; i < ranges.size(); i++) {
    EXPECT_EQ(ranges[i].start, spans[i].first) << "range " << i;
    EXPECT_EQ(ranges[i].stop, spans[i].end) << "range " << i;
  }
}

std::vector<ulyxRange_t> Balanced(int64_t total, int parts) {
  std::vector<ulyxRange_t> ranges(parts, kPoison);
  MUST(ulyxBalancedRanges(total, parts, ranges.data()));
  return ranges;
}

}  // namespace

TEST(Partition, TheFirstRemainderRangesAreOneLonger) {
  ExpectRanges(Balanced(20, 8), {{0, 3}, {3, 6}, {6, 9}, {9, 12}, {12, 14}, {14, 16}, {16, 18}, {18, 20}});
  ExpectRanges(Balanced(7, 4), {{0, 2}, {2, 4}, {4, 6}, {6, 7}});
}

TEST(Partition, BalancedRangesFollowOneAnotherAndDifferByOneAtMost) {
  for (int parts = 1; parts <= 70; parts++) {
    for (int64_t total = parts; total <= parts + 150; total += 1 + parts / 9) {
      const std::vector<ulyxRange_t> ranges = Balanced(total, parts);
      ExpectRanges(ranges, BalancedSpans(total, parts));
      EXPECT_EQ(ranges.front().start, 0);
      EXPECT_EQ(ranges.back().stop, total);
    }
  }
}

TEST(Partition, BalancedRangesHoldTheLargestTotal) {
  const std::vector<ulyxRange_t> ranges = Balanced(INT64_MAX, 3);
  EXPECT_EQ(ranges[0].stop, INT64_MAX / 3 + 1);
  EXPECT_EQ(ranges[2].stop, INT64_MAX);
}

TEST(Partition, NoPartsAreRefusedAndNothingIsWritten) {
  for (int parts : {0, -1, INT32_MIN}) {
    ulyxRange_t range = kPoison;
    EXPECT_TRUE(Refused(ulyxBalancedRanges(5, parts, &range), ulyxInvalidArgument, {std::to_string(parts)}));
    const int64_t count = 1;
    EXPECT_TRUE(Refused(ulyxRangesFromCounts(&count, parts, &range), ulyxInvalidArgument, {std::to_string(parts)}));
    int64_t length = -5;
    EXPECT_TRUE(Refused(ulyxRangeLengths(&range, parts, &length), ulyxInvalidArgument, {std::to_string(parts)}));
    EXPECT_EQ(length, -5);
    EXPECT_EQ(range.start, kPoison.start);
    EXPECT_EQ(range.stop, kPoison.stop);
  }
}

TEST(Partition, FewerItemsThanPartsAreRefusedWithBothNumbers) {
  for (int64_t total : {int64_t{6}, int64_t{0}, int64_t{-3}, INT64_MIN}) {
    std::vector<ulyxRange_t> ranges(7, kPoison);
    EXPECT_TRUE(
        Refused(ulyxBalancedRanges(total, 7, ranges.data()), ulyxInvalidArgument, {std::to_string(total), "7"}));
    for (const ulyxRange_t& range : ranges) EXPECT_EQ(range.start, kPoison.start);
  }
}

TEST(Partition, CountsBecomeRangesZerosIncluded) {
  const std::vector<int64_t> counts = {0, 5, 0, 0, 2, 0};
  std::vector<ulyxRange_t> ranges(counts.size(), kPoison);
  MUST(ulyxRangesFromCounts(counts.data(), int(counts.size()), ranges.data()));
  ExpectRanges(ranges, {{0, 0}, {0, 5}, {5, 5}, {5, 5}, {5, 7}, {7, 7}});
}

TEST(Partition, ANegativeCountIsRefusedByPlaceAndNumber) {
  const std::vector<int64_t> counts = {4, 4, -9};
  std::vector<ulyxRange_t> ranges(3, kPoison);
  EXPECT_TRUE(Refused(ulyxRangesFromCounts(counts.data(), 3, ranges.data()), ulyxInvalidArgument, {"2", "-9"}));
  for (const ulyxRange_t& range : ranges) EXPECT_EQ(range.stop, kPoison.stop);
}

TEST(Partition, CountsThatPassSixtyThreeBitsAreRefused) {
  const std::vector<int64_t> counts = {INT64_MAX, 0, 1};
  std::vector<ulyxRange_t> ranges(3, kPoison);
  EXPECT_TRUE(Refused(ulyxRangesFromCounts(counts.data(), 3, ranges.data()), ulyxInvalidArgument, {"2"}));
  for (const ulyxRange_t& range : ranges) EXPECT_EQ(range.stop, kPoison.stop);
  MUST(ulyxRangesFromCounts(counts.data(), 2, ranges.data()));
  EXPECT_EQ(ranges[1].stop, INT64_MAX);
}

TEST(Partition, LengthsAreStopMinusStart) {
  const ulyxRange_t ranges[] = {{0, 3}, {3, 3}, {3, 10}};
  int64_t lengths[] = {-1, -1, -1};
  MUST(ulyxRangeLengths(ranges, 3, lengths));
  EXPECT_EQ(lengths[0], 3);
  EXPECT_EQ(lengths[1], 0);
  EXPECT_EQ(lengths[2], 7);
}

TEST(Partition, QueryHeadsUseTheKeyValueHeadOfTheirGroup) {
  for (int64_t kvHeads = 1; kvHeads <= 6; kvHeads++) {
    for (int64_t group = 1; group <= 5; group++) {
      const int64_t heads = kvHeads * group;
      for (int64_t start = 0; start <= heads; start++) {
        for (int64_t stop = start; stop <= heads; stop++) {
          ulyxRange_t found = kPoison;
          MUST(ulyxKvHeadRange(heads, kvHeads, {start, stop}, &found));
          // By the definition: the set of h / group for every h in [start, stop).
          if (start == stop) {
            EXPECT_EQ(found.start, found.stop);
            continue;
          }
          EXPECT_EQ(found.start, start / group);
          int64_t last = -1;
          for (int64_t head = start; head < stop; head++) last = head / group;
          EXPECT_EQ(found.stop, last + 1);
        }
      }
    }
  }
}

TEST(Partition, HeadsThatKeyValueHeadsDoNotDivideAreRefused) {
  ulyxRange_t range = kPoison;
  EXPECT_TRUE(Refused(ulyxKvHeadRange(8, 3, {0, 4}, &range), ulyxInvalidArgument, {"8", "3"}));
  EXPECT_TRUE(Refused(ulyxKvHeadRange(8, 0, {0, 4}, &range), ulyxInvalidArgument, {"0"}));
  EXPECT_TRUE(Refused(ulyxKvHeadRange(8, -2, {0, 4}, &range), ulyxInvalidArgument, {"-2"}));
  EXPECT_TRUE(Refused(ulyxKvHeadRange(0, 2, {0, 0}, &range), ulyxInvalidArgument, {"0"}));
  EXPECT_EQ(range.start, kPoison.start);
}

TEST(Partition, HeadRangesOutsideTheHeadsAreRefused) {
  ulyxRange_t range = kPoison;
  EXPECT_TRUE(Refused(ulyxKvHeadRange(8, 2, {-1, 4}, &range), ulyxInvalidArgument, {"-1"}));
  EXPECT_TRUE(Refused(ulyxKvHeadRange(8, 2, {0, 9}, &range), ulyxInvalidArgument, {"9"}));
  EXPECT_TRUE(Refused(ulyxKvHeadRange(8, 2, {5, 4}, &range), ulyxInvalidArgument, {"5", "4"}));
  EXPECT_EQ(range.start, kPoison.start);
}

TEST(Partition, NullPointersAreRefusedByName) {
  const int64_t counts[] = {1};
  const ulyxRange_t ranges[] = {{0, 1}};
  ulyxRange_t range;
  int64_t length;
  EXPECT_TRUE(Refused(ulyxBalancedRanges(5, 1, nullptr), ulyxInvalidArgument, {"ranges", "NULL"}));
  EXPECT_TRUE(Refused(ulyxRangesFromCounts(nullptr, 1, &range), ulyxInvalidArgument, {"counts", "NULL"}));
  EXPECT_TRUE(Refused(ulyxRangesFromCounts(counts, 1, nullptr), ulyxInvalidArgument, {"ranges", "NULL"}));
  EXPECT_TRUE(Refused(ulyxRangeLengths(nullptr, 1, &length), ulyxInvalidArgument, {"ranges", "NULL"}));
  EXPECT_TRUE(Refused(ulyxRangeLengths(ranges, 1, nullptr), ulyxInvalidArgument, {"lengths", "NULL"}));
  EXPECT_TRUE(Refused(ulyxKvHeadRange(8, 2, {0, 1}, nullptr), ulyxInvalidArgument, {"kvHeadRange", "NULL"}));
}

}  // namespace ulyx_test
