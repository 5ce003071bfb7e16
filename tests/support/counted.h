// SPDX-License-Identifier: MIT
//
// Plans made again and again: worlds for it, and what the library allocates in the calls of a test, which is nothing
// that the test itself does.
#ifndef ULYX_TESTS_SUPPORT_COUNTED_H_
#define ULYX_TESTS_SUPPORT_COUNTED_H_

#include <gtest/gtest.h>

#include <cstdint>

#include "support/allocations.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

// Tests of making plans again and again, on every world.
class PlansAgain : public ::testing::TestWithParam<const World*> {
 protected:
  const World& On() const { return *GetParam(); }
  bool OnLoopback() const { return On().Transport() == ulyxTransportLoopback; }

  // Room for every plan. What a fake or a driver allocates is not ulyx's: on GPUs plans are made, not agreed upon.
  ulyxConfig_t Config() const {
    ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
    config.arenaBytes = 32 << 20;
    config.agreePlans = OnLoopback() ? 1 : 0;
    return config;
  }
};

// Adds up what the library allocates in the calls that go through it.
class Counted {
 public:
  template <class Call>
  void operator()(const Call& call) {
    const int64_t before = ulyxTestAllocations();
    const ulyxResult_t result = call();
    allocations_ += ulyxTestAllocations() - before;
    MUST(result);
  }
  int64_t Allocations() const { return allocations_; }

 private:
  int64_t allocations_ = 0;
};

// Leaves a test as skipped, with the reason, where a program cannot count.
#define ULYX_SKIP_UNCOUNTED()                                                                            \
  do {                                                                                                   \
    if (ulyxTestAllocationsUncounted() != nullptr) {                                                     \
      GTEST_SKIP() << "allocations are not counted in this program: " << ulyxTestAllocationsUncounted(); \
    }                                                                                                    \
  } while (0)

}  // namespace ulyx_test

#endif  // ULYX_TESTS_SUPPORT_COUNTED_H_
