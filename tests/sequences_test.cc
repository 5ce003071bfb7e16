// SPDX-License-Identifier: MIT
//
// cu_seqlens: what is taken, what is refused, and finding a token's sequence.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "support/contexts.h"
#include "support/rng.h"
#include "support/status.h"
#include "ulyx.h"

extern "C" {
#include "sequences.h"
}

namespace ulyx_test {

namespace {

ulyxResult_t Create(const std::vector<int64_t>& cuSeqlens, int type, ulyxSequences_t* sequences) {
  const std::vector<int32_t> narrow(cuSeqlens.begin(), cuSeqlens.end());
  const void* const data = type == ulyxInt64 ? static_cast<const void*>(cuSeqlens.data()) : narrow.data();
  return ulyxSequencesCreate(data, int64_t(cuSeqlens.size()), type, sequences);
}

}  // namespace

TEST(Sequences, AreCopiedFromEitherType) {
  for (const int type : {ulyxInt32, ulyxInt64}) {
    const std::vector<int64_t> cuSeqlens = {0, 0, 3, 3, 17, INT32_MAX};
    ulyxSequences_t sequences = nullptr;
    MUST(Create(cuSeqlens, type, &sequences));
    EXPECT_EQ(sequences->count, 5);
    EXPECT_EQ(std::vector<int64_t>(sequences->bounds, sequences->bounds + 6), cuSeqlens);
    MUST(ulyxSequencesDestroy(sequences));
  }
}

TEST(Sequences, MayHoldTheLargestPositions) {
  ulyxSequences_t sequences = nullptr;
  MUST(Create({0, INT64_MAX}, ulyxInt64, &sequences));
  EXPECT_EQ(ulyxSequencesTotal(sequences), INT64_MAX);
  EXPECT_EQ(ulyxSequencesAt(sequences, INT64_MAX - 1), 0);
  MUST(ulyxSequencesDestroy(sequences));
}

TEST(Sequences, MayLieAtAnyAddress) {
  const int32_t cuSeqlens[] = {0, 5, 9};
  unsigned char bytes[sizeof cuSeqlens + 1];
  std::memcpy(bytes + 1, cuSeqlens, sizeof cuSeqlens);
  ulyxSequences_t sequences = nullptr;
  MUST(ulyxSequencesCreate(bytes + 1, 3, ulyxInt32, &sequences));
  EXPECT_EQ(ulyxSequencesTotal(sequences), 9);
  MUST(ulyxSequencesDestroy(sequences));
}

TEST(Sequences, OfALoneZeroAreNone) {
  ulyxSequences_t sequences = nullptr;
  MUST(Create({0}, ulyxInt32, &sequences));
  EXPECT_EQ(sequences->count, 0);
  EXPECT_EQ(ulyxSequencesTotal(sequences), 0);
  MUST(ulyxSequencesDestroy(sequences));
}

TEST(Sequences, AreFoundByEveryTokenAndNeverOneWithoutTokens) {
  Rng rng(30);
  for (int round = 0; round < 300; round++) {
    const std::vector<int64_t> cuSeqlens = RandomCuSeqlens(rng, 12, 5);
    ulyxSequences_t sequences = nullptr;
    MUST(Create(cuSeqlens, ulyxInt64, &sequences));
    int64_t token = 0;
    for (size_t i = 0; i + 1 < cuSeqlens.size(); i++) {
      for (; token < cuSeqlens[i + 1]; token++) EXPECT_EQ(ulyxSequencesAt(sequences, token), int64_t(i));
    }
    MUST(ulyxSequencesDestroy(sequences));
  }
}

TEST(Sequences, ThatDoNotStartAtZeroAreRefusedWithTheirStart) {
  ulyxSequences_t sequences = nullptr;
  for (const int type : {ulyxInt32, ulyxInt64}) {
    EXPECT_TRUE(Refused(Create({3, 8}, type, &sequences), ulyxInvalidArgument, {"cuSeqlens[0]", "3"}));
    EXPECT_TRUE(Refused(Create({-4, 0, 8}, type, &sequences), ulyxInvalidArgument, {"cuSeqlens[0]", "-4"}));
  }
  EXPECT_EQ(sequences, nullptr);
}

TEST(Sequences, ThatFallAreRefusedWithTheFirstPlaceAndBothValues) {
  ulyxSequences_t sequences = nullptr;
  for (const int type : {ulyxInt32, ulyxInt64}) {
    EXPECT_TRUE(Refused(Create({0, 8, 12, 11, 20, 13}, type, &sequences), ulyxInvalidArgument,
                        {"cuSeqlens[3]", "11", "cuSeqlens[2]", "12"}));
    EXPECT_TRUE(Refused(Create({0, -1}, type, &sequences), ulyxInvalidArgument, {"cuSeqlens[1]", "-1", "0"}));
  }
  EXPECT_EQ(sequences, nullptr);
}

TEST(Sequences, ThatFallAnywhereInALongArrayAreRefusedThere) {
  constexpr int64_t kCount = 10001;
  ulyxSequences_t sequences = nullptr;
  std::vector<int64_t> cuSeqlens(kCount);
  for (int64_t i = 0; i < kCount; i++) cuSeqlens[i] = 5 * i;
  for (int64_t fault = 1; fault < kCount; fault++) {
    cuSeqlens[fault] -= 6;
    const std::string place = "cuSeqlens[" + std::to_string(fault) + "]";
    EXPECT_TRUE(Refused(ulyxSequencesCreate(cuSeqlens.data(), kCount, ulyxInt64, &sequences), ulyxInvalidArgument,
                        {place, std::to_string(5 * fault - 6), std::to_string(5 * fault - 5)}));
    cuSeqlens[fault] += 6;
    if (fault % 512 == 4) fault += 500;  // the neighbourhood of every multiple of 512
  }
  EXPECT_EQ(sequences, nullptr);
}

TEST(Sequences, ThatCannotBeReadAreRefusedByName) {
  const int64_t cuSeqlens[] = {0, 4};
  ulyxSequences_t sequences = nullptr;
  EXPECT_TRUE(Refused(ulyxSequencesCreate(nullptr, 2, ulyxInt64, &sequences), ulyxInvalidArgument, {"cuSeqlens"}));
  for (const int64_t count : {int64_t{0}, int64_t{-3}}) {
    EXPECT_TRUE(Refused(ulyxSequencesCreate(cuSeqlens, count, ulyxInt64, &sequences), ulyxInvalidArgument,
                        {"count", std::to_string(count)}));
  }
  for (const int type : {int(ulyxFloat32), int(ulyxUint32), int(ulyxUint64), -1}) {
    EXPECT_TRUE(Refused(ulyxSequencesCreate(cuSeqlens, 2, type, &sequences), ulyxInvalidArgument,
                        {"type", std::to_string(type), "ulyxInt32", "ulyxInt64"}));
  }
  EXPECT_EQ(sequences, nullptr);
  EXPECT_TRUE(Refused(ulyxSequencesCreate(cuSeqlens, 2, ulyxInt64, nullptr), ulyxInvalidArgument, {"sequences"}));
}

TEST(Sequences, DestroyOfNullIsANoOp) {
  MUST(ulyxSequencesDestroy(nullptr));
}

}  // namespace ulyx_test
