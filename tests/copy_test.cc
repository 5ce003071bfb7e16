// SPDX-License-Identifier: MIT
//
// Copies: applied to plain memory, those of all pairs of ranks write every byte of every destination once, from
// the right place; and blocks cost few copies.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "support/internal.h"
#include "support/oracle.h"
#include "support/rng.h"
#include "support/shapes.h"
#include "support/status.h"

namespace ulyx_test {

namespace {

// A shape resolved by the library.
class Geometry {
 public:
  Geometry(const ulyxShape_t& shape, int nRanks) { MUST(ulyxGeometryResolve(&shape, nRanks, &c)); }
  ~Geometry() { ulyxGeometryFree(&c); }
  Geometry(const Geometry&) = delete;
  Geometry& operator=(const Geometry&) = delete;
  ulyxGeometry c = {};
};

class Copies {
 public:
  Copies(const ulyxGeometry& geometry, ulyxOp_t op, int src, int dst) {
    MUST(ulyxOperations[op].list(&geometry, src, dst, &list_));
  }
  ~Copies() { ulyxCopyListFree(&list_); }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  int64_t Count() const { return list_.count; }
  const ulyxCopy* begin() const { return list_.copies; }
  const ulyxCopy* end() const { return list_.copies + list_.count; }

 private:
  ulyxCopyList list_ = {};
};

Slot SlotOf(ulyxOp_t op, bool source, int buffer) {
  if (op == ulyxOpHeadsToSeq) return source ? kOIn : kOOut;
  return Slot((source ? kQIn : kQOut) + buffer);
}

// Makes all copies of an operation between plain buffers and counts how often each byte is written.
void ExpectEveryByteOnce(const ulyxShape_t& shape, int nRanks, ulyxOp_t op) {
  const Geometry geometry(shape, nRanks);
  const Oracle oracle(shape, nRanks, 1);
  for (int dst = 0; dst < nRanks; dst++) {
    std::vector<uint8_t> found[kSlots];
    std::vector<int> written[kSlots];
    for (int buffer = 0; buffer < 3; buffer++) {
      const Slot slot = SlotOf(op, false, buffer);
      found[slot] = oracle.Unwritten(dst, slot, 0);
      written[slot].assign(found[slot].size(), 0);
      if (op == ulyxOpHeadsToSeq) break;
    }
    for (int src = 0; src < nRanks; src++) {
      for (const ulyxCopy& copy : Copies(geometry.c, op, src, dst)) {
        EXPECT_GT(copy.rows, 0);
        EXPECT_GT(copy.rowBytes, 0);
        const Slot from = SlotOf(op, true, copy.srcBuffer), to = SlotOf(op, false, copy.dstBuffer);
        const std::vector<uint8_t> source = oracle.Written(src, from, 0);
        for (int64_t row = 0; row < copy.rows; row++) {
          const int64_t srcAt = copy.srcOffset + row * copy.srcPitch, dstAt = copy.dstOffset + row * copy.dstPitch;
          ASSERT_GE(srcAt, 0);
          ASSERT_LE(srcAt + copy.rowBytes, oracle.LayoutOf(src, from).bytes);
          ASSERT_GE(dstAt, 0);
          ASSERT_LE(dstAt + copy.rowBytes, oracle.LayoutOf(dst, to).bytes);
          std::memcpy(&found[to][kCanary + dstAt], &source[kCanary + srcAt], copy.rowBytes);
          for (int64_t byte = 0; byte < copy.rowBytes; byte++) written[to][kCanary + dstAt + byte]++;
        }
      }
    }
    for (int slot = 0; slot < kSlots; slot++) {
      if (found[slot].empty()) continue;
      EXPECT_EQ(oracle.Difference(dst, Slot(slot), 0, oracle.Written(dst, Slot(slot), 0), found[slot]), "");
      for (int times : written[slot]) ASSERT_LE(times, 1);
    }
  }
}

}  // namespace

TEST(Copies, OfAllPairsWriteEveryByteOnce) {
  const uint64_t seed = TestSeed();
  for (int i = 0; i < TestShapes(150); i++) {
    const uint64_t own = seed + uint64_t(i);
    const int nRanks = int(Rng(own).Between(1, 6));
    const Shape shape = RandomShape(nRanks, own);
    SCOPED_TRACE(Describe(shape.c, nRanks));
    for (ulyxOp_t op : {ulyxOpSeqToHeads, ulyxOpHeadsToSeq}) ExpectEveryByteOnce(shape.c, nRanks, op);
    if (::testing::Test::HasFailure()) FAIL() << "replay with ULYX_TEST_SHAPES=1 ULYX_TEST_SEED=" << own;
  }
}

TEST(Copies, BetweenRanksWithNothingInCommonAreNone) {
  const Shape shape = Shape(0, 5, 8).TokenCounts({3, 0, 2}).HeadCounts({5, 0, 0});
  const Geometry geometry(shape.c, 3);
  EXPECT_EQ(Copies(geometry.c, ulyxOpSeqToHeads, 0, 1).Count(), 0);
  EXPECT_EQ(Copies(geometry.c, ulyxOpSeqToHeads, 1, 0).Count(), 0);
  EXPECT_GT(Copies(geometry.c, ulyxOpSeqToHeads, 2, 0).Count(), 0);
  EXPECT_EQ(Copies(geometry.c, ulyxOpHeadsToSeq, 0, 1).Count(), 0);
}

TEST(Copies, OfADenseShapeAreOneATensor) {
  Shape shape(1000, 16, 128);
  const Geometry geometry(shape.c, 4);
  EXPECT_EQ(Copies(geometry.c, ulyxOpSeqToHeads, 1, 2).Count(), 3);
  EXPECT_EQ(Copies(geometry.c, ulyxOpHeadsToSeq, 1, 2).Count(), 1);
}

TEST(Copies, OfBatchedShapesAreOneABatchItemAtMost) {
  Shape shape(1000, 16, 128);
  shape.c.batch = 3;
  const Geometry geometry(shape.c, 4);
  EXPECT_LE(Copies(geometry.c, ulyxOpSeqToHeads, 1, 2).Count(), 3 * 3);
}

TEST(Copies, OfARankThatOwnsEverythingAreOneRunATensor) {
  Shape shape = Shape(0, 16, 128).TokenCounts({0, 1000}).HeadCounts({0, 16});
  shape.c.batch = 3;
  const Geometry geometry(shape.c, 2);
  const Copies copies(geometry.c, ulyxOpSeqToHeads, 1, 1);
  ASSERT_EQ(copies.Count(), 3);
  EXPECT_EQ(copies.begin()->rows, 1);
  EXPECT_EQ(copies.begin()->rowBytes, int64_t{3} * 1000 * 16 * 128 * 2);
}

}  // namespace ulyx_test
