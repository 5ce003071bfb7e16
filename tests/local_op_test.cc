// SPDX-License-Identifier: MIT
//
// What a rank does with rows and states by itself, on the host: sums bit for bit against the formats' definitions,
// and how many ranks a sum takes.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "support/contexts.h"
#include "support/floats.h"
#include "support/internal.h"
#include "support/rng.h"
#include "support/shapes.h"
#include "support/status.h"

extern "C" {
#include "halo.h"
#include "rows.h"
void ulyxSumOnHost(const ulyxSumBatch* batch);  // sum.h itself is C's alone
}

namespace ulyx_test {

namespace {

// The sum of one-element addends, by the library.
uint32_t SumOf(int type, const std::vector<uint32_t>& addends) {
  std::vector<uint8_t> memory(4 * addends.size() + 4, 0xee);
  static ulyxSumBatch batch;
  batch.dst = memory.data() + 4 * addends.size();
  batch.dstPitch = 4;
  batch.rows = batch.rowElements = 1;
  batch.type = type;
  batch.wide = 0;
  batch.count = int32_t(addends.size());
  for (size_t i = 0; i < addends.size(); i++) {
    StoreBits(type, addends[i], &memory[4 * i]);
    batch.addends[i] = {&memory[4 * i], 4, 0, 1};
  }
  ulyxSumOnHost(&batch);
  return LoadBits(type, batch.dst);
}

}  // namespace

TEST(LocalSum, OfOneAddendKeepsEveryBitPatternButNaNs) {
  for (int type : {ulyxFloat16, ulyxBfloat16}) {
    for (uint32_t bits = 0; bits < 65536; bits++) {
      const float value = ValueOf(type, bits);
      ASSERT_EQ(SumOf(type, {bits}), value != value ? 0x7fffu : bits) << "type " << type;
    }
  }
}

TEST(LocalSum, RoundsToNearestEvenAtEveryEdge) {
  // Half a unit in the last place, a quarter and three quarters, at every exponent and at both ends of the fraction.
  for (int type : {ulyxFloat16, ulyxBfloat16}) {
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
      const uint32_t fraction = bits & (type == ulyxFloat16 ? 0x3ffu : 0x7fu);
      if (fraction > 3 && fraction < (type == ulyxFloat16 ? 0x3fcu : 0x7cu)) continue;
      for (uint64_t other = 0; other < 40; other++) {
        const uint32_t more = AnyBits(type, Mix(bits * 64 + other));
        const float sum = ValueOf(type, bits) + ValueOf(type, more);
        ASSERT_EQ(SumOf(type, {bits, more}), BitsOf(type, sum)) << type << " " << bits << " + " << more;
      }
    }
  }
}

TEST(LocalSum, OfRandomAddendsIsExact) {
  Rng rng(TestSeed());
  for (int type : SummedTypes()) {
    for (int round = 0; round < 5000; round++) {
      std::vector<uint32_t> addends;
      for (int64_t left = rng.Between(1, rng.OneIn(20) ? 512 : 6); left > 0; left--) {
        addends.push_back(AnyBits(type, rng.Next()));
      }
      float sum = ValueOf(type, addends.front());
      for (size_t i = 1; i < addends.size(); i++) sum += ValueOf(type, addends[i]);
      ASSERT_EQ(SumOf(type, addends), BitsOf(type, sum)) << "type " << type << ", round " << round;
    }
  }
}

TEST(LocalSum, OfMoreRanksThanOneKernelAddsIsRefused) {
  for (int nRanks : {512, 513}) {
    ulyxRowsShape_t shape = ULYX_ROWS_SHAPE_INITIALIZER;
    shape.op = ulyxRowsReduceScatter;
    shape.rowElements = 2;
    shape.total = nRanks;
    ulyxRows rows = {};
    ulyxPhase phase = {};
    MUST(ulyxRowsResolve(&shape, nRanks, 3, &rows));
    const ulyxResult_t result = ulyxRowsPhase(&rows, &phase);
    if (nRanks == 512) {
      MUST(result);
    } else {
      EXPECT_TRUE(Refused(result, ulyxUnsupported, {"513", "512"}));
    }
    ulyxPhaseFree(&phase);
    ulyxRowsFree(&rows);
  }
}

TEST(LocalSum, OfMoreHalosThanOneKernelAddsIsRefused) {
  for (int kernel : {512, 513}) {  // one token a rank: kernel - 1 ranks after this one need it
    const ulyxContext_t context = MakeContext({0, 600}, 600, 3, ulyxSplitBalanced, kernel);
    ulyxHaloShape_t shape = ULYX_HALO_SHAPE_INITIALIZER;
    shape.context = context;
    shape.rowElements = 2;
    ulyxHalo halo = {};
    ulyxPhase phase = {};
    MUST(ulyxHaloResolve(&shape, 600, 3, &halo));
    const ulyxResult_t result = ulyxHaloBackward(&halo, &phase);
    if (kernel == 512) {
      MUST(result);
      EXPECT_EQ(phase.after.sum.addendCount, 512);
    } else {
      EXPECT_TRUE(Refused(result, ulyxUnsupported, {"512", "511"}));
    }
    ulyxPhaseFree(&phase);
    ulyxHaloFree(&halo);
    MUST(ulyxContextDestroy(context));
  }
}

}  // namespace ulyx_test
