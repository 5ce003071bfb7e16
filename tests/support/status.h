// SPDX-License-Identifier: MIT
//
// Judging ulyx's results. MUST throws where a test cannot go on (any thread); Refused is for EXPECT_TRUE.
#ifndef ULYX_TESTS_SUPPORT_STATUS_H_
#define ULYX_TESTS_SUPPORT_STATUS_H_

#include <gtest/gtest.h>

#include <initializer_list>
#include <stdexcept>
#include <string>

#include "ulyx.h"

namespace ulyx_test {

inline void Must(ulyxResult_t result, const char* call, const char* file, int line) {
  if (result == ulyxSuccess) return;
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + call + " returned " +
                           ulyxGetErrorString(result) + ": " + ulyxGetLastError(nullptr));
}
#define MUST(call) ::ulyx_test::Must((call), #call, __FILE__, __LINE__)

// Whether `result` is `expected` and the calling thread's last error holds every one of `words`.
inline ::testing::AssertionResult Refused(ulyxResult_t result, ulyxResult_t expected,
                                          std::initializer_list<std::string> words) {
  const std::string said = ulyxGetLastError(nullptr);
  if (result != expected) {
    return ::testing::AssertionFailure() << "returned " << ulyxGetErrorString(result) << ", expected "
                                         << ulyxGetErrorString(expected) << "; the last error is: " << said;
  }
  for (const std::string& word : words) {
    if (said.find(word) == std::string::npos) {
      return ::testing::AssertionFailure() << "the last error does not hold '" << word << "': " << said;
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace ulyx_test

#endif  // ULYX_TESTS_SUPPORT_STATUS_H_
