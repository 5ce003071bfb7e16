// SPDX-License-Identifier: MIT
//
// Versions, names of results, and what the last refused call said.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <thread>

#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

TEST(Status, TheLibrarysVersionIsTheHeaders) {
  int version = -1;
  MUST(ulyxGetVersion(&version));
  EXPECT_EQ(version, ULYX_VERSION_CODE);
  EXPECT_TRUE(Refused(ulyxGetVersion(nullptr), ulyxInvalidArgument, {"version", "NULL"}));
}

TEST(Status, ResultCodesZeroToSevenAreNccls) {
  EXPECT_EQ(ulyxSuccess, 0);
  EXPECT_EQ(ulyxUnhandledCudaError, 1);
  EXPECT_EQ(ulyxSystemError, 2);
  EXPECT_EQ(ulyxInternalError, 3);
  EXPECT_EQ(ulyxInvalidArgument, 4);
  EXPECT_EQ(ulyxInvalidUsage, 5);
  EXPECT_EQ(ulyxRemoteError, 6);
  EXPECT_EQ(ulyxInProgress, 7);
}

TEST(Status, EveryResultHasItsOwnName) {
  const ulyxResult_t all[] = {ulyxSuccess,       ulyxUnhandledCudaError, ulyxSystemError,
                              ulyxInternalError, ulyxInvalidArgument,    ulyxInvalidUsage,
                              ulyxRemoteError,   ulyxInProgress,         ulyxMismatch,
                              ulyxTimeout,       ulyxArenaTooSmall,      ulyxClosed,
                              ulyxUnsupported};
  std::set<std::string> names;
  for (ulyxResult_t result : all) {
    ASSERT_NE(ulyxGetErrorString(result), nullptr);
    EXPECT_STRNE(ulyxGetErrorString(result), "");
    names.insert(ulyxGetErrorString(result));
  }
  EXPECT_EQ(names.size(), std::size(all));
  for (int unknown : {-1, 8, 99, 105, 1 << 30}) {
    ASSERT_NE(ulyxGetErrorString(ulyxResult_t(unknown)), nullptr);
    EXPECT_EQ(names.count(ulyxGetErrorString(ulyxResult_t(unknown))), 0u) << unknown;
  }
}

TEST(Status, TheLastErrorIsTheCallingThreadsOwn) {
  ulyxRange_t range;
  EXPECT_EQ(ulyxBalancedRanges(3, 4, &range), ulyxInvalidArgument);
  const std::string mine = ulyxGetLastError(nullptr);
  EXPECT_NE(mine, "");
  std::thread([] {
    EXPECT_STREQ(ulyxGetLastError(nullptr), "");
    ulyxRange_t other;
    EXPECT_EQ(ulyxBalancedRanges(55, 66, &other), ulyxInvalidArgument);
    EXPECT_NE(std::strstr(ulyxGetLastError(nullptr), "66"), nullptr);
  }).join();
  EXPECT_EQ(mine, ulyxGetLastError(nullptr));
}

class LastError : public ::testing::TestWithParam<const World*> {};
ULYX_ON_EVERY_WORLD(LastError);

TEST_P(LastError, OfARuntimeIsWhatItsOwnLastRefusedCallSaid) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  Session session(*GetParam(), 2);
  EXPECT_STREQ(ulyxGetLastError(session.Runtime(0)), "");
  EXPECT_EQ(ulyxRuntimeGetInfo(session.Runtime(0), nullptr), ulyxInvalidArgument);
  EXPECT_NE(std::strstr(ulyxGetLastError(session.Runtime(0)), "info"), nullptr);
  EXPECT_STREQ(ulyxGetLastError(session.Runtime(1)), "");
  // Readable from another thread, and not replaced by errors on no object.
  const std::string said = ulyxGetLastError(session.Runtime(0));
  ulyxRange_t range;
  EXPECT_EQ(ulyxBalancedRanges(3, 4, &range), ulyxInvalidArgument);
  std::thread([&] { EXPECT_EQ(said, ulyxGetLastError(session.Runtime(0))); }).join();
}

}  // namespace ulyx_test
