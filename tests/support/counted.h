// SPDX-License-Identifier: MIT
//
// What the library allocates in the calls of a test, and nothing that the test itself does.
#ifndef ULYX_TESTS_SUPPORT_COUNTED_H_
#define ULYX_TESTS_SUPPORT_COUNTED_H_

#include <cstdint>

#include "support/allocations.h"
#include "support/status.h"
#include "ulyx.h"

namespace ulyx_test {

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
