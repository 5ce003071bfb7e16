// SPDX-License-Identifier: MIT
//
// What making a plan costs the host by itself. What an agreement adds is in enqueue_cost, and the time to meet.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "support/contexts.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

class PlanCost : public ::testing::TestWithParam<const World*> {
 protected:
  const World& On() const { return *GetParam(); }
};
ULYX_ON_EVERY_WORLD(PlanCost);

constexpr double kLimitUs = 20;

double MedianUs(const std::function<ulyxResult_t(ulyxPlan_t*)>& make) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> us(1001);
  for (double& each : us) {
    ulyxPlan_t plan = nullptr;
    const Clock::time_point start = Clock::now();
    const ulyxResult_t result = make(&plan);
    each = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    MUST(result);
    MUST(ulyxPlanDestroy(plan));
  }
  std::nth_element(us.begin(), us.begin() + 500, us.end());
  return us[500];
}

// The least of many medians, up to the first below the limit: a busy machine slows down for a while.
double CostUs(const std::function<ulyxResult_t(ulyxPlan_t*)>& make) {
  double least = MedianUs(make);
  for (int i = 1; i < 5 || (i < 50 && least >= kLimitUs); i++) least = std::min(least, MedianUs(make));
  return least;
}

}  // namespace

TEST_P(PlanCost, IsLessThanTwentyMicrosecondsForEightRanks) {
  ULYX_SKIP_BELOW(On(), 8);
  if (!TimeCounts()) GTEST_SKIP() << "this build's times mean nothing";
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.arenaBytes = 32 << 20;
  config.agreePlans = 0;
  const Session session(On(), 8, &config);
  struct Case {
    const char* name;
    std::function<void(Shape*)> change;
  };
  const Case cases[] = {{"three tensors", [](Shape*) {}},
                        {"grouped heads", [](Shape* shape) { shape->KvHeads(8); }},
                        {"packed", [](Shape* shape) { shape->c.packedIn = shape->c.packedOut = 1; }},
                        {"counts", [](Shape* shape) {
                           shape->TokenCounts({9, 0, 700, 13, 1, 44, 0, 90}).HeadCounts({9, 4, 1, 0, 2, 6, 7, 3});
                           shape->c.tokens = 0;
                         }}};
  for (const Case& c : cases) {
    Shape shape(4099, 32, 8);
    c.change(&shape);
    int64_t length = 0;
    const double us = CostUs([&](ulyxPlan_t* plan) {
      if (shape.c.tokenCounts == nullptr) shape.c.tokens = 4099 + length++ % 1000;
      return ulyxPlanCreate(session.Runtime(3), &shape.c, plan);
    });
    std::printf("[          ] %s, %s: ulyxPlanCreate for 8 ranks takes %.2f us\n", On().Name(), c.name, us);
    EXPECT_LT(us, kLimitUs) << c.name;
  }
}

}  // namespace ulyx_test
