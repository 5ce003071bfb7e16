// SPDX-License-Identifier: MIT
//
// What a shape comes to: ranges, traffic, bytes, against the oracle's arithmetic.
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

void ExpectRange(ulyxRange_t found, Span expected) {
  EXPECT_EQ(found.start, expected.first);
  EXPECT_EQ(found.stop, expected.end);
}

void ExpectEverything(const ulyxShape_t& shape, int nRanks) {
  SCOPED_TRACE(Describe(shape, nRanks));
  const Oracle oracle(shape, nRanks, 0);
  std::vector<ulyxRange_t> tokens(nRanks), heads(nRanks), kvHeads(nRanks);
  MUST(ulyxShapeGetRanges(&shape, nRanks, tokens.data(), heads.data(), kvHeads.data()));
  std::vector<int64_t> there(nRanks * nRanks, -1), back(nRanks * nRanks, -1);
  MUST(ulyxShapeGetTraffic(&shape, nRanks, ulyxOpSeqToHeads, there.data()));
  MUST(ulyxShapeGetTraffic(&shape, nRanks, ulyxOpHeadsToSeq, back.data()));
  for (int rank = 0; rank < nRanks; rank++) {
    SCOPED_TRACE(rank);
    ExpectRange(tokens[rank], oracle.Tokens(rank));
    ExpectRange(heads[rank], oracle.Heads(rank));
    ExpectRange(kvHeads[rank], oracle.KvHeads(rank));
    for (int dst = 0; dst < nRanks; dst++) {
      EXPECT_EQ(there[rank * nRanks + dst], oracle.SeqToHeadsBytes(rank, dst)) << "to " << dst;
      EXPECT_EQ(back[rank * nRanks + dst], oracle.HeadsToSeqBytes(rank, dst)) << "to " << dst;
    }
    ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
    MUST(ulyxShapeGetBytes(&shape, nRanks, rank, &bytes));
    const int64_t found[kSlots] = {bytes.qIn,  bytes.kIn,  bytes.vIn, bytes.qOut,
                                   bytes.kOut, bytes.vOut, bytes.oIn, bytes.oOut};
    for (int slot = 0; slot < kSlots; slot++) {
      EXPECT_EQ(found[slot], oracle.LayoutOf(rank, Slot(slot)).bytes) << SlotName(Slot(slot));
    }
    EXPECT_GE(bytes.arena, 0);
  }
}

}  // namespace

TEST(Shape, RangesTrafficAndBytesOfRandomShapesAreTheOracles) {
  const uint64_t seed = TestSeed();
  const int shapes = TestShapes(400);
  for (int i = 0; i < shapes; i++) {
    const int nRanks = int(Rng(seed + uint64_t(i)).Between(1, 20));
    const Shape shape = RandomShape(nRanks, seed + uint64_t(i));
    ExpectEverything(shape.c, nRanks);
    if (::testing::Test::HasFailure()) FAIL() << "replay with ULYX_TEST_SHAPES=1 ULYX_TEST_SEED=" << seed + uint64_t(i);
  }
}

TEST(Shape, ADenseShapeHasTheBytesOfItsElements) {
  const Shape shape(10, 6, 8);  // bf16
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  MUST(ulyxShapeGetBytes(&shape.c, 4, 1, &bytes));
  EXPECT_EQ(bytes.qIn, 3 * 6 * 8 * 2);
  EXPECT_EQ(bytes.kIn, 3 * 6 * 8 * 2);
  EXPECT_EQ(bytes.vIn, 3 * 6 * 8 * 2);
  EXPECT_EQ(bytes.qOut, 10 * 2 * 8 * 2);
  EXPECT_EQ(bytes.oIn, 10 * 2 * 8 * 2);
  EXPECT_EQ(bytes.oOut, 3 * 6 * 8 * 2);
}

TEST(Shape, TrafficAddsUpToEveryByteOnce) {
  const Shape shape = Shape(101, 20, 46).KvHeads(4);
  std::vector<int64_t> bytes(64);
  MUST(ulyxShapeGetTraffic(&shape.c, 8, ulyxOpHeadsToSeq, bytes.data()));
  int64_t sum = 0;
  for (int64_t pair : bytes) sum += pair;
  EXPECT_EQ(sum, 101 * 20 * 46 * 2);
}

TEST(Shape, AnyRangesArrayMayBeNull) {
  const Shape shape(10, 4, 8);
  ulyxRange_t ranges[2];
  MUST(ulyxShapeGetRanges(&shape.c, 2, nullptr, nullptr, nullptr));
  MUST(ulyxShapeGetRanges(&shape.c, 2, ranges, nullptr, nullptr));
  EXPECT_EQ(ranges[1].stop, 10);
  MUST(ulyxShapeGetRanges(&shape.c, 2, nullptr, ranges, nullptr));
  EXPECT_EQ(ranges[1].stop, 4);
}

TEST(Shape, ExtentsOfOneLetTheirStrideBeAnything) {
  Shape shape(2, 2, 8);
  shape.c.qIn = {1, 1, 9};  // one batch item, one token a rank
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  MUST(ulyxShapeGetBytes(&shape.c, 2, 0, &bytes));
  EXPECT_EQ(bytes.qIn, (9 + 8) * 2);
}

TEST(Shape, HugeStridesOfEmptyTensorsDoNoHarm) {
  Shape shape(0, 24, 8);
  shape.TokenCounts({0, 0});
  const ulyxStrides_t huge = {INT64_MAX / 2, INT64_MAX / 2, INT64_MAX / 2};
  shape.c.qIn = shape.c.kOut = shape.c.oIn = shape.c.oOut = huge;
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  const ulyxResult_t result = ulyxShapeGetBytes(&shape.c, 2, 1, &bytes);
  if (result == ulyxSuccess) {
    EXPECT_EQ(bytes.qIn + bytes.kOut + bytes.oIn + bytes.oOut, 0);
  } else {
    EXPECT_TRUE(Refused(result, ulyxInvalidArgument, {"qIn"}));
  }
}

TEST(Shape, AHugeBatchOfNoTokensDoesNoHarm) {
  Shape shape(0, 2, 8);
  shape.TokenCounts({0, 0});
  shape.c.batch = int64_t{1} << 61;  // times the bytes of a head it passes 2^63
  for (const ulyxOp_t op : {ulyxOpSeqToHeads, ulyxOpHeadsToSeq}) {
    ulyxShapeTimes_t times = ULYX_SHAPE_TIMES_INITIALIZER;
    MUST(ulyxShapeGetTimes(&shape.c, 2, op, &times));
    EXPECT_EQ(times.remoteBytes, 0);
  }
}

TEST(Shape, SixtyThreeBitsAreEnoughForLargeWorlds) {
  Shape shape(int64_t{1} << 40, 512, 128);
  std::vector<int64_t> bytes(64 * 64);
  MUST(ulyxShapeGetTraffic(&shape.c, 64, ulyxOpHeadsToSeq, bytes.data()));
  EXPECT_EQ(bytes[63], (int64_t{1} << 34) * 8 * 128 * 2);
}

TEST(Shape, GettersRefuseNullAndWrongRanksByName) {
  const Shape shape(10, 4, 8);
  int64_t traffic[4];
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  EXPECT_TRUE(
      Refused(ulyxShapeGetRanges(nullptr, 2, nullptr, nullptr, nullptr), ulyxInvalidArgument, {"shape", "NULL"}));
  EXPECT_TRUE(Refused(ulyxShapeGetTraffic(nullptr, 2, ulyxOpSeqToHeads, traffic), ulyxInvalidArgument, {"shape"}));
  EXPECT_TRUE(Refused(ulyxShapeGetTraffic(&shape.c, 2, ulyxOpSeqToHeads, nullptr), ulyxInvalidArgument, {"bytes"}));
  EXPECT_TRUE(Refused(ulyxShapeGetBytes(nullptr, 2, 0, &bytes), ulyxInvalidArgument, {"shape"}));
  EXPECT_TRUE(Refused(ulyxShapeGetBytes(&shape.c, 2, 0, nullptr), ulyxInvalidArgument, {"bytes"}));
  EXPECT_TRUE(Refused(ulyxShapeGetBytes(&shape.c, 2, 2, &bytes), ulyxInvalidArgument, {"rank", "2"}));
  EXPECT_TRUE(Refused(ulyxShapeGetBytes(&shape.c, 2, -1, &bytes), ulyxInvalidArgument, {"rank", "-1"}));
  EXPECT_TRUE(Refused(ulyxShapeGetBytes(&shape.c, 0, 0, &bytes), ulyxInvalidArgument, {"nRanks", "0"}));
}

}  // namespace ulyx_test
