// SPDX-License-Identifier: MIT
//
// Settings: the config's fields, else the environment, else the defaults; read when a runtime is created.
#include <gtest/gtest.h>

#include <climits>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "support/internal.h"
#include "support/shapes.h"
#include "support/status.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

constexpr const char* kVariables[] = {"ULYX_TRANSPORT", "ULYX_AGREE_PLANS", "ULYX_TIMEOUT_MS", "ULYX_MAX_CTAS",
                                      "ULYX_ARENA_BYTES"};

// Starts from an environment without ulyx's variables and puts back what was there.
class Config : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* variable : kVariables) {
      const char* value = std::getenv(variable);
      saved_.push_back(value != nullptr ? value : "");
      unsetenv(variable);
    }
  }
  void TearDown() override {
    for (size_t i = 0; i < saved_.size(); i++) {
      if (saved_[i].empty()) {
        unsetenv(kVariables[i]);
      } else {
        setenv(kVariables[i], saved_[i].c_str(), 1);
      }
    }
  }

  static ulyxSettings Resolved(const ulyxConfig_t* config) {
    ulyxSettings settings;
    MUST(ulyxSettingsResolve(config, &settings));
    return settings;
  }

  ulyxConfig_t config_ = ULYX_CONFIG_INITIALIZER;

 private:
  std::vector<std::string> saved_;
};

}  // namespace

TEST_F(Config, OfNothingIsTheDefaults) {
  for (const ulyxConfig_t* config : {static_cast<const ulyxConfig_t*>(nullptr), &std::as_const(config_)}) {
    const ulyxSettings settings = Resolved(config);
    EXPECT_EQ(settings.transport, ulyxTransportAuto);
    EXPECT_TRUE(settings.agreePlans);
    EXPECT_EQ(settings.timeoutMs, 60000);
    EXPECT_EQ(settings.maxCtas, 0);
    EXPECT_EQ(settings.arenaBytes, 0);
    EXPECT_EQ(settings.copyStreams, 1);
  }
}

TEST_F(Config, TakesUndefinedFieldsFromTheEnvironment) {
  setenv("ULYX_TRANSPORT", "loopback", 1);
  setenv("ULYX_AGREE_PLANS", "0", 1);
  setenv("ULYX_TIMEOUT_MS", "1234", 1);
  setenv("ULYX_MAX_CTAS", "17", 1);
  setenv("ULYX_ARENA_BYTES", "8589934592", 1);
  const ulyxSettings settings = Resolved(&config_);
  EXPECT_EQ(settings.transport, ulyxTransportLoopback);
  EXPECT_FALSE(settings.agreePlans);
  EXPECT_EQ(settings.timeoutMs, 1234);
  EXPECT_EQ(settings.maxCtas, 17);
  EXPECT_EQ(settings.arenaBytes, int64_t{8589934592});
}

TEST_F(Config, PrefersItsFieldsToTheEnvironment) {
  for (const char* variable : kVariables) setenv(variable, "garbage", 1);
  config_.transport = ulyxTransportNccl;
  config_.agreePlans = 1;
  config_.timeoutMs = 0;
  config_.maxCtas = 3;
  config_.arenaBytes = 7;
  const ulyxSettings settings = Resolved(&config_);
  EXPECT_EQ(settings.transport, ulyxTransportNccl);
  EXPECT_TRUE(settings.agreePlans);
  EXPECT_EQ(settings.timeoutMs, 0);
  EXPECT_EQ(settings.maxCtas, 3);
  EXPECT_EQ(settings.arenaBytes, 7);
}

TEST_F(Config, RefusesFieldsOutOfRangeByNameAndNumber) {
  ulyxRuntime_t runtime = nullptr;
  const auto refused = [&runtime](const ulyxConfig_t& config, const char* field, const char* number) {
    return Refused(ulyxRuntimeCreateLocal(&config, 1, nullptr, &runtime), ulyxInvalidArgument, {field, number});
  };
  ulyxConfig_t config = config_;
  config.transport = 5;
  EXPECT_TRUE(refused(config, "transport", "5"));
  config.transport = -1;
  EXPECT_TRUE(refused(config, "transport", "-1"));
  config = config_;
  config.agreePlans = 2;
  EXPECT_TRUE(refused(config, "agreePlans", "2"));
  config = config_;
  config.timeoutMs = -5;
  EXPECT_TRUE(refused(config, "timeoutMs", "-5"));
  config = config_;
  config.maxCtas = -6;
  EXPECT_TRUE(refused(config, "maxCtas", "-6"));
  config = config_;
  config.arenaBytes = -8;
  EXPECT_TRUE(refused(config, "arenaBytes", "-8"));
  EXPECT_EQ(runtime, nullptr);
}

TEST_F(Config, RefusesVariablesThatAreNoNumbersOrOutOfRangeByName) {
  for (const char* variable : kVariables) {
    for (const char* value : {"7x", "-1", "one", "99999999999999999999", " ", "0x10", "1.5"}) {
      setenv(variable, value, 1);
      ulyxRuntime_t runtime = nullptr;
      EXPECT_TRUE(
          Refused(ulyxRuntimeCreateLocal(nullptr, 1, nullptr, &runtime), ulyxInvalidArgument, {variable, value}));
      EXPECT_EQ(runtime, nullptr);
    }
    unsetenv(variable);
  }
}

TEST_F(Config, IsReadFromTheEnvironmentOnceWhenTheRuntimeIsCreated) {
  setenv("ULYX_AGREE_PLANS", "0", 1);
  ulyxRuntime_t runtimes[2];
  MUST(ulyxRuntimeCreateLocal(nullptr, 2, nullptr, runtimes));
  setenv("ULYX_AGREE_PLANS", "1", 1);
  setenv("ULYX_TIMEOUT_MS", "garbage", 1);
  // Not collective, as it was when the runtimes were made: one thread makes one rank's plan.
  const Shape shape(4, 2, 8);
  ulyxPlan_t plan = nullptr;
  MUST(ulyxPlanCreate(runtimes[0], &shape.c, &plan));
  MUST(ulyxRuntimeDestroy(&runtimes[0]));
  MUST(ulyxRuntimeDestroy(&runtimes[1]));
}

TEST_F(Config, MustBeOneAndOfAKnownVersion) {
  ulyxRuntime_t runtime = nullptr;
  const auto refused = [&runtime](const ulyxConfig_t& config, const char* word) {
    return Refused(ulyxRuntimeCreateLocal(&config, 1, nullptr, &runtime), ulyxInvalidArgument, {"config", word});
  };
  ulyxConfig_t config = config_;
  config.magic = ULYX_SHAPE_MAGIC;
  EXPECT_TRUE(refused(config, "magic"));
  config = config_;
  config.version = 0;
  EXPECT_TRUE(refused(config, "version"));
  config = config_;
  config.size = 0;
  EXPECT_TRUE(refused(config, "size"));
  EXPECT_EQ(runtime, nullptr);
}

TEST_F(Config, MayComeFromALaterVersionWithZerosInWhatIsUnknown) {
  struct {
    ulyxConfig_t known = ULYX_CONFIG_INITIALIZER;
    int64_t later[2] = {0, 0};
  } config;
  config.known.size = sizeof config;
  config.known.version = 2;
  ulyxRuntime_t runtime = nullptr;
  MUST(ulyxRuntimeCreateLocal(&config.known, 1, nullptr, &runtime));
  MUST(ulyxRuntimeDestroy(&runtime));
  config.later[1] = 1;
  EXPECT_TRUE(Refused(ulyxRuntimeCreateLocal(&config.known, 1, nullptr, &runtime), ulyxInvalidArgument,
                      {"config", std::to_string(sizeof config)}));
  EXPECT_EQ(runtime, nullptr);
}

}  // namespace ulyx_test
