// SPDX-License-Identifier: MIT
//
// After every test over the fakes: the library did nothing that real hardware would refuse or corrupt, and holds
// nothing any more.
#include <gtest/gtest.h>

#include "fake.h"

namespace {

class FakeCheck : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override {
    fakeReset();
    host_ = fakeHostGet();
  }

  void OnTestEnd(const ::testing::TestInfo&) override {
    const fakeCounters counters = fakeGet();
    EXPECT_EQ(counters.violations, 0);
    EXPECT_EQ(counters.zeroByteMessages, 0);
    EXPECT_EQ(counters.allocations, 0);
    EXPECT_EQ(counters.hostAllocations, 0);
    EXPECT_EQ(counters.streams, 0);
    EXPECT_EQ(counters.events, 0);
    EXPECT_EQ(counters.comms, 0);
    EXPECT_EQ(counters.ncclAllocations, 0);
    EXPECT_EQ(counters.windows, 0);
    EXPECT_EQ(counters.registrations, 0);
    EXPECT_EQ(counters.openGroups, 0);
    const fakeHostUse host = fakeHostGet();
    EXPECT_EQ(host.blocks, host_.blocks);
    EXPECT_EQ(host.bytes, host_.bytes);
    EXPECT_EQ(host.threads, host_.threads);
    EXPECT_EQ(host.locks, host_.locks);
  }

  fakeHostUse host_ = {};
};

[[maybe_unused]] const bool added = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new FakeCheck);
  return true;
}();

}  // namespace
