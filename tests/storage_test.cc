// SPDX-License-Identifier: MIT
//
// Memory that is built in again and again: it keeps what it holds, never shrinks, and refuses what no memory has.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>

#include "support/internal.h"
#include "support/status.h"

namespace ulyx_test {

TEST(Storage, KeepsWhatItHoldsWhenItGrows) {
  ulyxStorage storage = {};
  for (size_t count : {1, 100, 1000, 100000}) {
    const size_t before = storage.bytes / sizeof(int64_t);
    MUST(ulyxStorageEnsure(&storage, count, sizeof(int64_t), "numbers"));
    int64_t* const numbers = static_cast<int64_t*>(storage.data);
    ASSERT_GE(storage.bytes, count * sizeof(int64_t));
    for (size_t i = 0; i < before; i++) ASSERT_EQ(numbers[i], int64_t(i));
    std::iota(numbers, numbers + storage.bytes / sizeof(int64_t), 0);
  }
  ulyxStorageFree(&storage);
  EXPECT_EQ(storage.data, nullptr);
  EXPECT_EQ(storage.bytes, 0u);
}

TEST(Storage, IsNotTouchedByAnAskForLess) {
  ulyxStorage storage = {};
  MUST(ulyxStorageEnsure(&storage, 5000, 3, "bytes"));
  const ulyxStorage before = storage;
  for (size_t count : {0, 1, 4999, 5000}) {
    MUST(ulyxStorageEnsure(&storage, count, 3, "bytes"));
    EXPECT_EQ(storage.data, before.data);
    EXPECT_EQ(storage.bytes, before.bytes);
  }
  ulyxStorageFree(&storage);
}

TEST(Storage, GrowsBySharesWhereTheAskRisesByOne) {
  ulyxStorage storage = {};
  int grown = 0;
  for (size_t count = 1; count <= 100000; count++) {
    const size_t before = storage.bytes;
    MUST(ulyxStorageEnsure(&storage, count, 8, "numbers"));
    if (storage.bytes != before) grown++;
  }
  EXPECT_LT(grown, 20);
  ulyxStorageFree(&storage);
}

TEST(Storage, OfNothingNeedsNoMemory) {
  ulyxStorage storage = {};
  MUST(ulyxStorageEnsure(&storage, 0, 8, "numbers"));
  EXPECT_EQ(storage.data, nullptr);
  ulyxStorageFree(&storage);
}

TEST(Storage, RefusesWhatNoMemoryHasAndStaysAsItWas) {
  ulyxStorage storage = {};
  MUST(ulyxStorageEnsure(&storage, 10, 8, "numbers"));
  const ulyxStorage before = storage;
  EXPECT_TRUE(Refused(ulyxStorageEnsure(&storage, SIZE_MAX / 2, 8, "numbers"), ulyxSystemError, {"numbers", "8"}));
  EXPECT_EQ(storage.data, before.data);
  EXPECT_EQ(storage.bytes, before.bytes);
  ulyxStorageFree(&storage);
}

}  // namespace ulyx_test
