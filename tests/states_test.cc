// SPDX-License-Identifier: MIT
//
// Every public function that takes a runtime, a plan or a context, in every state that these can be in: open, lost in
// each way that a world can be, closed, destroyed where that is defined, entered by another thread, and NULL. A
// function that ulyx.h gains and the table of calls does not fails the test.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fake.h"
#include "support/calls.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

ulyxConfig_t Config(int timeoutMs) {
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.arenaBytes = kKindsArenaBytes;
  config.timeoutMs = timeoutMs;
  return config;
}

class States : public ::testing::TestWithParam<const World*> {
 protected:
  static bool OnCpu() { return GetParam()->Transport() == ulyxTransportLoopback; }
  static bool Meets() { return GetParam()->Transport() >= ulyxTransportDirect; }
};
ULYX_ON_EVERY_WORLD(States);

void Call(Actor* actor, const std::vector<Row>& rows, Verdict Row::*state) {
  for (const Row& row : rows) {
    const ulyxResult_t result = row.call(*actor);
    Expect(row, row.*state, result, actor->runtime);
  }
}

}  // namespace

TEST_P(States, AreKnownForEveryFunctionThatTheLibraryExports) {
  std::set<std::string> known = StatelessFunctions(), exported;
  for (const Row& row : AllRows(*GetParam())) EXPECT_TRUE(known.insert(row.name).second) << row.name << " twice";
  std::ifstream file(ULYX_EXPORTED_SYMBOLS);
  for (std::string name; std::getline(file, name);) exported.insert(name);
  EXPECT_EQ(known, exported);
}

TEST_P(States, OfOpenRuntimesLetEveryCallThrough) {
  const ulyxConfig_t config = Config(20000);
  Session session(*GetParam(), kActors, &config);
  std::vector<Row> rows = AllRows(*GetParam());
  session.Run([&](int rank) {
    GetParam()->Use(rank);
    Actor actor(session, rank);
    for (const Row& row : rows) {
      if (row.name == std::string("ulyxRuntimeClose")) break;  // the states below begin with the rest
      Expect(row, kWorks, row.call(actor), actor.runtime);
    }
  });
  session.Destroy();
}

TEST_P(States, OfClosedRuntimesLetThroughWhatEndsThem) {
  const ulyxConfig_t config = Config(20000);
  Session session(*GetParam(), kActors, &config);
  session.Run([&](int rank) {
    GetParam()->Use(rank);
    Actor actor(session, rank);
    MUST(ulyxRuntimeClose(actor.runtime));
    Call(&actor, AllRows(*GetParam()), &Row::closed);
    *session.RuntimePtr(rank) = actor.runtime;  // destroyed
  });
}

TEST_P(States, OfAbortedWorldsSayWhyWhereOthersAreNeeded) {
  const ulyxConfig_t config = Config(20000);
  Session session(*GetParam(), kActors, &config);
  session.Run([&](int rank) {
    GetParam()->Use(rank);
    Actor actor(session, rank);
    MUST(ulyxRuntimeAbort(actor.runtime));
    std::vector<Row> rows = AllRows(*GetParam());
    Call(&actor, rows, &Row::lost);
    *session.RuntimePtr(rank) = actor.runtime;
  });
}

namespace {

// All ranks have come, and the first goes on alone on this thread.
class Stage {
 public:
  Stage(const World& world, int timeoutMs) : config_(Config(timeoutMs)), session_(world, kActors, &config_) {
    session_.Run([&](int rank) {
      world.Use(rank);
      actors_[rank] = std::make_unique<Actor>(session_, rank);
    });
    world.Use(0);
  }
  Actor& First() { return *actors_[0]; }
  // The session destroys no runtime that a call has destroyed.
  void TakeBack() { *session_.RuntimePtr(0) = First().runtime; }

 private:
  const ulyxConfig_t config_;
  Session session_;
  std::unique_ptr<Actor> actors_[kActors];
};

}  // namespace

// The other rank makes no further call.
TEST_P(States, OfWorldsThatARankDidNotComeToSayWhyWhereItIsNeeded) {
  Stage stage(*GetParam(), 300);
  Actor& actor = stage.First();
  const ulyxResult_t met = ulyxHeadsToSeq(actor.plans[0], &actor.oIn, &actor.oOut, actor.stream);
  EXPECT_EQ(met, Meets() ? ulyxSuccess : ulyxTimeout);  // a device tells later
  Call(&actor, AllRows(*GetParam()), &Row::lost);
  stage.TakeBack();
}

TEST_P(States, OfWorldsThatThisRankBrokeSayWhyWhereOthersAreNeeded) {
  if (!Meets()) GTEST_SKIP() << GetParam()->Name() << " leaves no exchange half made";
  Stage stage(*GetParam(), 300);
  Actor& actor = stage.First();
  fakeFailNthHere("ulyxLaunchExchange", 1);
  EXPECT_EQ(ulyxHeadsToSeq(actor.plans[0], &actor.oIn, &actor.oOut, actor.stream), ulyxUnhandledCudaError);
  Call(&actor, AllRows(*GetParam()), &Row::lost);
  stage.TakeBack();
}

// There is nothing to wait for: the device has told already.
TEST_P(States, OfWorldsThatADeviceLostSayWhyAtOnce) {
  if (!Meets()) GTEST_SKIP() << GetParam()->Name() << " learns nothing from devices";
  Stage stage(*GetParam(), 2000);
  Actor& actor = stage.First();
  fakeFailNthHere("ulyxLaunchExchange", 1);
  EXPECT_EQ(ulyxHeadsToSeq(actor.plans[0], &actor.oIn, &actor.oOut, actor.stream), ulyxUnhandledCudaError);
  for (const Row& row : AllRows(*GetParam())) {
    if (row.lost != kLost) continue;
    const auto start = std::chrono::steady_clock::now();
    Expect(row, kLost, row.call(actor), actor.runtime);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(1500)) << row.name;
  }
}

TEST_P(States, OfHandlesThatAreNullAreRefusedOrLeftAlone) {
  const ulyxConfig_t config = Config(20000);
  Session session(*GetParam(), kActors, &config);
  session.Run([&](int rank) {
    GetParam()->Use(rank);
    Actor actor(session, rank);
    const ulyxRuntime_t runtime = actor.runtime;
    actor.TakeHandlesAway();
    Call(&actor, AllRows(*GetParam()), &Row::null);
    EXPECT_STREQ(ulyxGetLastError(runtime), "") << "it was no call of this runtime's";
    MUST(ulyxMemFree(runtime, actor.memory));
  });
}

// The runtime keeps the memory of its plans, so that this use after the end is always caught.
TEST_P(States, OfDestroyedPlansAreRefused) {
  const ulyxConfig_t config = Config(20000);
  Session session(*GetParam(), kActors, &config);
  session.Run([&](int rank) {
    GetParam()->Use(rank);
    Actor actor(session, rank);
    actor.DestroyPlans();
    for (const Row& row : PlanRows()) {
      Expect(row, row.destroyed, row.call(actor), actor.runtime);
      EXPECT_NE(std::string(ulyxGetLastError(nullptr)).find("destroyed"), std::string::npos) << row.name;
    }
  });
}

// A second thread is told at once; what may be called beside another call is.
TEST_P(States, OfRuntimesThatAnotherThreadIsInAreToldToTheSecondAlone) {
  const ulyxConfig_t config = Config(20000);
  Session session(*GetParam(), kActors, &config);
  std::unique_ptr<Actor> actors[kActors];
  session.Run([&](int rank) {
    GetParam()->Use(rank);
    actors[rank] = std::make_unique<Actor>(session, rank);
  });
  Actor& actor = *actors[0];
  std::thread inside([&] {
    GetParam()->Use(0);
    ulyxPlan_t plan = nullptr;
    ulyxResult_t result = ulyxInvalidUsage;  // until it is this thread that is inside
    while (result == ulyxInvalidUsage) result = actor.kinds.Make(actor.runtime, Kind::kGather, &plan);
    EXPECT_EQ(result, ulyxRemoteError);  // the other rank never comes
  });
  GetParam()->Use(0);
  ulyxRuntimeInfo_t info = ULYX_RUNTIME_INFO_INITIALIZER;
  while (ulyxRuntimeGetInfo(actor.runtime, &info) == ulyxSuccess) std::this_thread::yield();
  const std::string said = ulyxGetLastError(actor.runtime);
  for (const Row& row : AllRows(*GetParam())) {
    if (row.name == std::string("ulyxRuntimeAbort")) continue;  // below: it ends the other's call
    Expect(row, row.entered, row.call(actor), actor.runtime);
  }
  EXPECT_EQ(ulyxGetLastError(actor.runtime), said);
  MUST(ulyxRuntimeAbort(actor.runtime));
  inside.join();
}

}  // namespace ulyx_test
