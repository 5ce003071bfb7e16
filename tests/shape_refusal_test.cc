// SPDX-License-Identifier: MIT
//
// Impossible shapes: each is refused with the field's name and the numbers, and nothing is written.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "support/shapes.h"
#include "support/status.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

struct Impossible {
  const char* name;  // of the test
  std::function<void(Shape*)> spoil;
  std::vector<std::string> words;  // of the error
};

void PrintTo(const Impossible& impossible, std::ostream* out) {
  *out << impossible.name;
}

constexpr int64_t kHuge = int64_t{1} << 62;

// Four ranks, 10 tokens [3,3,2,2], 8 heads of 16, 4 key/value heads, bf16.
Shape Possible() {
  return Shape(10, 8, 16).KvHeads(4);
}

const std::vector<Impossible>& All() {
  static const std::vector<Impossible> all = {
      {"NegativeTokens", [](Shape* s) { s->c.tokens = -10; }, {"tokens", "-10"}},
      {"NoTokensForSomeRanks", [](Shape* s) { s->c.tokens = 3; }, {"tokens", "3", "4"}},
      {"NoTokensAtAllWithoutCounts", [](Shape* s) { s->c.tokens = 0; }, {"tokens", "0"}},
      {"NegativeHeads", [](Shape* s) { s->c.heads = -8; }, {"heads", "-8"}},
      {"NoHeads", [](Shape* s) { s->c.heads = 0; }, {"heads", "0"}},
      {"NoHeadsForSomeRanks", [](Shape* s) { s->c.heads = s->c.kvHeads = 2; }, {"heads", "2", "4"}},
      {"NegativeKvHeads", [](Shape* s) { s->c.kvHeads = -4; }, {"kvHeads", "-4"}},
      {"KvHeadsThatDoNotDivideHeads", [](Shape* s) { s->c.kvHeads = 3; }, {"kvHeads", "8", "3"}},
      {"MoreKvHeadsThanHeads", [](Shape* s) { s->c.kvHeads = 16; }, {"kvHeads", "8", "16"}},
      {"NegativeHeadDim", [](Shape* s) { s->c.headDim = -1; }, {"headDim", "-1"}},
      {"NoHeadDim", [](Shape* s) { s->c.headDim = 0; }, {"headDim", "0"}},
      {"NegativeValueDim", [](Shape* s) { s->c.valueDim = -7; }, {"valueDim", "-7"}},
      {"NegativeBatch", [](Shape* s) { s->c.batch = -2; }, {"batch", "-2"}},
      {"UnknownType", [](Shape* s) { s->c.type = 12; }, {"type", "12"}},
      {"NegativeType", [](Shape* s) { s->c.type = -1; }, {"type", "-1"}},
      {"OpaqueWithoutASize", [](Shape* s) { s->c.type = ulyxOpaque; }, {"elementBytes", "0"}},
      {"NegativeElementBytes",
       [](Shape* s) {
         s->c.type = ulyxOpaque;
         s->c.elementBytes = -4;
       },
       {"elementBytes", "-4"}},
      {"ElementBytesOfAnotherType", [](Shape* s) { s->c.elementBytes = 4; }, {"elementBytes", "4", "2"}},
      {"UnknownSeqOrder", [](Shape* s) { s->c.seqOrder = 2; }, {"seqOrder", "2"}},
      {"UnknownHeadsOrder", [](Shape* s) { s->c.headsOrder = -1; }, {"headsOrder", "-1"}},
      {"PackedInOfTwo", [](Shape* s) { s->c.packedIn = 2; }, {"packedIn", "2"}},
      {"PackedOutOfTwo", [](Shape* s) { s->c.packedOut = 2; }, {"packedOut", "2"}},
      {"NegativeReplicatedTokens",
       [](Shape* s) { s->c.replicatedTokens = -3; },
       {"replicatedTokens", "-3", "0 or more"}},
      {"UnknownReplicatedPlace", [](Shape* s) { s->c.replicatedPlace = 2; }, {"replicatedPlace", "2", "0 or 1"}},
      {"NegativeReplicatedPlace", [](Shape* s) { s->c.replicatedPlace = -1; }, {"replicatedPlace", "-1", "0 or 1"}},
      {"ReservedOfOne", [](Shape* s) { s->c.reserved = 1; }, {"reserved", "1", "expected 0"}},
      {"ReplicatedTokensPastSixtyThreeBits",
       [](Shape* s) { s->Replicated(INT64_MAX - 9, ulyxReplicatedLast); },
       {"10 tokens", std::to_string(INT64_MAX - 9) + " replicated", "2^63"}},
      {"ReplicatedTokensThatPassSixtyThreeBitsInBytes",
       [](Shape* s) { s->Replicated(kHuge, ulyxReplicatedFirst); },
       {"qIn", "2^63 bytes"}},
      {"BatchItemsThatShareMemoryWithReplicatedTokens",
       [](Shape* s) {
         s->Replicated(1, ulyxReplicatedLast);
         s->c.batch = 2;
         s->c.qOut.batch = 11 * 2 * 16 - 1;  // enough for the ten tokens
       },
       {"qOut", "batch"}},
      {"ANegativeTokenCount",
       [](Shape* s) {
         s->TokenCounts({4, -1, 4, 3});
       },
       {"count 1 of tokens", "-1"}},
      {"TokenCountsOfAnotherSum",
       [](Shape* s) {
         s->TokenCounts({4, 4, 4, 4});
       },
       {"tokenCounts", "10", "16"}},
      {"TokenCountsPastSixtyThreeBits",
       [](Shape* s) {
         s->c.tokens = 0;
         s->TokenCounts({INT64_MAX, 1, 0, 0});
       },
       {"counts of tokens", "2^63"}},
      {"ANegativeHeadCount",
       [](Shape* s) {
         s->HeadCounts({9, -3, 1, 1});
       },
       {"count 1 of heads", "-3"}},
      {"HeadCountsOfAnotherSum",
       [](Shape* s) {
         s->HeadCounts({2, 2, 2, 1});
       },
       {"headCounts", "8", "7"}},
      {"HeadCountsPastSixtyThreeBits",
       [](Shape* s) {
         s->HeadCounts({INT64_MAX, INT64_MAX, 10, 0});
       },
       {"counts of heads", "2^63"}},
      {"ANegativeStride", [](Shape* s) { s->c.vOut.token = -64; }, {"vOut", "-64"}},
      {"HeadsThatShareMemory", [](Shape* s) { s->c.qIn.head = 15; }, {"qIn", "head"}},
      {"TokensThatShareMemory", [](Shape* s) { s->c.kIn.token = 63; }, {"kIn", "token"}},
      {"TokensThatShareMemoryOnTheWidestRankOnly",
       [](Shape* s) {
         s->HeadCounts({1, 1, 5, 1});
         s->c.oIn.token = 79;
       },
       {"oIn", "token", "2"}},
      {"TokensThatShareOneByte",
       [](Shape* s) {
         s->c.type = ulyxUint8;
         s->c.oOut.token = 8 * 16 - 1;
       },
       {"oOut", "token"}},
      {"BatchItemsThatShareMemory",
       [](Shape* s) {
         s->c.batch = 2;
         s->c.qOut.batch = 10 * 2 * 16 - 1;
       },
       {"qOut", "batch"}},
      {"PackedTokensThatShareMemory",
       [](Shape* s) {
         s->c.packedIn = 1;
         s->c.qIn.token = (8 + 4 + 4) * 16 - 1;
       },
       {"qIn", "token"}},
      {"DimsThatPassSixtyThreeBits", [](Shape* s) { s->c.headDim = kHuge; }, {"dims", std::to_string(kHuge)}},
      {"HeadsThatPassSixtyThreeBits",
       [](Shape* s) { s->c.heads = s->c.kvHeads = kHuge; },
       {"heads", std::to_string(kHuge)}},
      {"TokensThatPassSixtyThreeBits", [](Shape* s) { s->c.tokens = kHuge; }, {"qIn", "2^63 bytes"}},
      {"BatchThatPassesSixtyThreeBits", [](Shape* s) { s->c.batch = kHuge; }, {"qIn", "2^63 bytes"}},
      {"StridesThatPassSixtyThreeBits", [](Shape* s) { s->c.kOut.token = kHuge; }, {"kOut", "2^63 bytes"}},
      {"ElementsThatPassSixtyThreeBits",
       [](Shape* s) {
         s->c.type = ulyxOpaque;
         s->c.elementBytes = INT32_MAX;
         s->c.tokens = int64_t{1} << 30;
       },
       {"qIn", "2^63 bytes"}},
      {"AnotherMagic", [](Shape* s) { s->c.magic = 7; }, {"shape", "magic"}},
      {"AnotherStructsMagic", [](Shape* s) { s->c.magic = ULYX_CONFIG_MAGIC; }, {"shape", "magic"}},
      {"NoVersion", [](Shape* s) { s->c.version = 0; }, {"shape", "version", "0"}},
      {"ASmallerSize",
       [](Shape* s) { s->c.size = sizeof(ulyxShape_t) - 8; },
       {"shape", "size", std::to_string(sizeof(ulyxShape_t) - 8), std::to_string(sizeof(ulyxShape_t))}},
      {"NoSize", [](Shape* s) { s->c.size = 0; }, {"shape", "size", "0"}},
  };
  return all;
}

bool Holds(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (text.find(word) == std::string::npos) return false;
  }
  return true;
}

class ImpossibleShape : public ::testing::TestWithParam<Impossible> {
 protected:
  ImpossibleShape() : shape_(Possible()) { GetParam().spoil(&shape_); }

  void ExpectRefused(ulyxResult_t result) const {
    EXPECT_EQ(result, ulyxInvalidArgument);
    const std::string said = ulyxGetLastError(nullptr);
    std::string words;
    for (const std::string& word : GetParam().words) words += "'" + word + "' ";
    EXPECT_TRUE(Holds(said, GetParam().words)) << "expected " << words << "in: " << said;
  }

  Shape shape_;
};

INSTANTIATE_TEST_SUITE_P(Is, ImpossibleShape, ::testing::ValuesIn(All()),
                         [](const ::testing::TestParamInfo<Impossible>& param) { return param.param.name; });

}  // namespace

TEST_P(ImpossibleShape, RefusedByEveryPureGetter) {
  const ulyxRange_t poison = {-5, -6};
  std::vector<ulyxRange_t> ranges(12, poison);
  ExpectRefused(ulyxShapeGetRanges(&shape_.c, 4, ranges.data(), ranges.data() + 4, ranges.data() + 8));
  for (const ulyxRange_t& range : ranges) EXPECT_EQ(std::memcmp(&range, &poison, sizeof range), 0);

  for (ulyxOp_t op : {ulyxOpSeqToHeads, ulyxOpHeadsToSeq}) {
    std::vector<int64_t> traffic(16, -7);
    ExpectRefused(ulyxShapeGetTraffic(&shape_.c, 4, op, traffic.data()));
    EXPECT_EQ(traffic, std::vector<int64_t>(16, -7));
    ulyxShapeTimes_t times = ULYX_SHAPE_TIMES_INITIALIZER;
    times.directUs = -9;
    ExpectRefused(ulyxShapeGetTimes(&shape_.c, 4, op, &times));
    EXPECT_EQ(times.directUs, -9);
  }

  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  bytes.qIn = bytes.arena = -8;
  const ulyxShapeBytes_t before = bytes;
  ExpectRefused(ulyxShapeGetBytes(&shape_.c, 4, 0, &bytes));
  EXPECT_EQ(std::memcmp(&bytes, &before, sizeof bytes), 0);
}

TEST_P(ImpossibleShape, RefusedByPlans) {
  ulyxRuntime_t runtimes[4];
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.agreePlans = 0;  // each rank for itself, so that one thread can ask
  MUST(ulyxRuntimeCreateLocal(&config, 4, nullptr, runtimes));
  for (ulyxRuntime_t runtime : runtimes) {
    ulyxPlan_t plan = reinterpret_cast<ulyxPlan_t>(this);
    ExpectRefused(ulyxPlanCreate(runtime, &shape_.c, &plan));
    EXPECT_EQ(plan, reinterpret_cast<ulyxPlan_t>(this));
  }
  for (ulyxRuntime_t& runtime : runtimes) MUST(ulyxRuntimeDestroy(&runtime));
}

TEST(PossibleShape, IsWhatTheImpossibleOnesWereMadeFrom) {
  const Shape shape = Possible();
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  EXPECT_EQ(ulyxShapeGetBytes(&shape.c, 4, 0, &bytes), ulyxSuccess) << ulyxGetLastError(nullptr);
}

TEST(PossibleShape, MayComeFromALaterVersionWithZerosInWhatIsUnknown) {
  struct {
    ulyxShape_t known = ULYX_SHAPE_INITIALIZER;
    int64_t later[3] = {0, 0, 0};
  } shape;
  shape.known.size = sizeof shape;
  shape.known.tokens = 10;
  shape.known.heads = 4;
  shape.known.headDim = 8;
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  EXPECT_EQ(ulyxShapeGetBytes(&shape.known, 4, 0, &bytes), ulyxSuccess) << ulyxGetLastError(nullptr);
  const std::string size = std::to_string(sizeof shape);
  auto* const tail = reinterpret_cast<char*>(shape.later);
  for (size_t i = 0; i < sizeof shape.later; i++) {
    tail[i] = 1;
    EXPECT_TRUE(Refused(ulyxShapeGetBytes(&shape.known, 4, 0, &bytes), ulyxInvalidArgument, {"shape", size}));
    tail[i] = 0;
  }
}

}  // namespace ulyx_test
