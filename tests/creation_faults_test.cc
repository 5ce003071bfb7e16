// SPDX-License-Identifier: MIT
//
// Whatever a rank asks of CUDA, NCCL or the host while its runtime, memory, plans and first exchanges are made fails
// once, call by call, until nothing is left to fail: each time there is an error with words, nothing is written, nobody
// hangs, and in the end nothing is held that was not held before.
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "fake.h"
#include "support/held.h"
#include "support/kinds.h"
#include "support/ranks.h"
#include "support/rng.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

constexpr int kRanks = 2, kVictim = 1;
constexpr int kPatientMs = 20000, kHurryMs = 20;

// The thread sanitizer has nothing to find in the rest of them, and takes its time.
#if defined(__SANITIZE_THREAD__)
constexpr int kStride = 4;
#else
constexpr int kStride = 1;
#endif
using Clock = std::chrono::steady_clock;

const World& On(int transport) {
  for (const World* world : Worlds()) {
    if (world->Transport() == transport) return *world;
  }
  throw std::runtime_error("no such world");
}

enum class Step { kCreate, kReserve, kAlloc, kPlan, kExchange, kFree, kEnd };
const char* NameOf(Step step) {
  static const char* const names[] = {"create", "reserve", "alloc", "plan", "exchange", "free"};
  return names[int(step)];
}

// Ranks that make their way from nothing to an exchange, each on a thread of its own.
class Ranks {
 public:
  Ranks(const World& world, Kind kind, int timeoutMs) : world_(world), kind_(kind) {
    config_.timeoutMs = timeoutMs;
    world.Complete(&config_);
    for (int rank = 0; rank < kRanks; rank++) {
      kinds_.push_back(std::make_unique<Kinds>(world, kRanks, rank));
      streams_.push_back(world.NewStream(rank));
    }
    if (config_.transport != ulyxTransportLoopback) MUST(ulyxGetUniqueId(&id_));
  }
  ~Ranks() {
    for (int rank = 0; rank < kRanks; rank++) world_.FreeStream(rank, streams_[rank]);
  }

  // One step of a rank's way; what it makes is written on success only.
  ulyxResult_t Take(Step step, int rank) {
    switch (step) {
      case Step::kCreate:
        return Create(rank);
      case Step::kReserve:
        return ulyxRuntimeReserve(runtimes_[rank], kKindsArenaBytes);
      case Step::kAlloc:
        return ulyxMemAlloc(runtimes_[rank], 1000, &memory_[rank]);
      case Step::kPlan:
        return kinds_[rank]->Make(runtimes_[rank], kind_, &plans_[rank]);
      case Step::kExchange:
        return Exchange(rank);
      default:
        return ulyxMemFree(runtimes_[rank], memory_[rank]);
    }
  }
  // Whether a step that was refused has written nothing.
  bool HasNothingOf(Step step, int rank) const {
    return step == Step::kCreate  ? runtimes_[rank] == nullptr
           : step == Step::kAlloc ? memory_[rank] == nullptr
           : step == Step::kPlan  ? plans_[rank] == nullptr
                                  : true;
  }

  void Use(int rank) const { world_.Use(rank); }
  ulyxRuntime_t Runtime(int rank) const { return runtimes_[rank]; }
  // Whatever of it there is.
  void Destroy() {
    RunRanks(kRanks, [&](int rank) {
      Use(rank);
      (void)ulyxRuntimeDestroy(&runtimes_[rank]);
      EXPECT_EQ(runtimes_[rank], nullptr);
    });
  }

 private:
  ulyxResult_t Create(int rank) {
    if (config_.transport != ulyxTransportLoopback) {
      return ulyxRuntimeCreate(&config_, kRanks, id_, rank, &runtimes_[rank]);
    }
    return rank != kVictim ? ulyxSuccess : ulyxRuntimeCreateLocal(&config_, kRanks, nullptr, runtimes_);
  }
  ulyxResult_t Exchange(int rank) {
    const ulyxResult_t there = kinds_[rank]->Call(kind_, plans_[rank], false, streams_[rank]);
    if (there != ulyxSuccess || !Kinds::HasBackward(kind_)) return there;
    return kinds_[rank]->Call(kind_, plans_[rank], true, streams_[rank]);
  }

  const World& world_;
  const Kind kind_;
  ulyxConfig_t config_ = ULYX_CONFIG_INITIALIZER;
  ulyxUniqueId_t id_ = {};
  std::vector<std::unique_ptr<Kinds>> kinds_;
  std::vector<ulyxStream_t> streams_;
  ulyxRuntime_t runtimes_[kRanks] = {};
  void* memory_[kRanks] = {};
  ulyxPlan_t plans_[kRanks] = {};
};

// Whether all ranks came so far: a busy machine can keep one from it until the others' deadline.
bool TakeUpTo(Ranks* ranks, Step end) {
  for (int step = 0; step < int(end); step++) {
    std::atomic<bool> taken{true};
    RunRanks(kRanks, [&](int rank) {
      ranks->Use(rank);
      const ulyxResult_t result = ranks->Take(Step(step), rank);
      if (result != ulyxSuccess) taken = false;
      EXPECT_TRUE(result == ulyxSuccess || result == ulyxTimeout || result == ulyxRemoteError)
          << ulyxGetLastError(nullptr);
    });
    if (!taken) return false;
  }
  return true;
}

// These may fail unseen: they put back what was set before, ask what the answer is not needed of, or are asked again.
bool MayPass(const std::string& function) {
  static const std::set<std::string> unseen = {"cudaSetDevice", "cudaDeviceSynchronize", "cudaEventQuery",
                                               "cudaThreadExchangeStreamCaptureMode"};
  return unseen.count(function) > 0;
}

struct Outcome {
  bool struck = false;
  std::string function;
  ulyxResult_t results[kRanks] = {};
  std::string messages[kRanks];
  double seconds = 0;
  bool Clean() const {
    return std::all_of(results, results + kRanks, [](ulyxResult_t result) { return result == ulyxSuccess; });
  }
};

// A step of a kind's way on a transport.
struct Way {
  int transport;
  Kind kind;
  Step step;
};

// How long ranks wait for each other where that is not NCCL's affair.
int TimeoutMs(const Way& way) {
  if (way.transport == ulyxTransportLoopback) return kPatientMs;
  const bool onDevice = way.step == Step::kExchange && way.transport != ulyxTransportNccl;
  return onDevice ? 80 : way.step == Step::kCreate ? 150 : kPatientMs;
}

// All ranks take a step in which the victim's call-th call fails.
Outcome TakeStruck(Ranks* ranks, Step step, int call) {
  Outcome outcome;
  const Clock::time_point start = Clock::now();
  RunRanks(kRanks, [&](int rank) {
    ranks->Use(rank);
    if (rank == kVictim) fakeFailNthHere(nullptr, call);
    outcome.results[rank] = ranks->Take(step, rank);
    if (rank == kVictim) {
      outcome.struck = fakeIsArmedHere() == 0;
      fakeFailNthHere(nullptr, 0);
    }
    outcome.messages[rank] = ulyxGetLastError(nullptr);
  });
  outcome.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (outcome.struck) outcome.function = fakeStruck();
  return outcome;
}

// Every rank hears of a plan that one of them refuses.
bool MustBeHeard(const Outcome& outcome, Step step) {
  return step == Step::kPlan && outcome.function == "malloc";
}
bool IsHeard(const Outcome& outcome) {
  return outcome.results[1 - kVictim] == ulyxMismatch &&
         outcome.messages[1 - kVictim].find("rank 1 refused its shape") != std::string::npos;
}

void ExpectTold(const Outcome& outcome, const Ranks& ranks, Step step) {
  const bool passed = outcome.results[kVictim] == ulyxSuccess;
  EXPECT_TRUE(!passed || MayPass(outcome.function));
  for (int rank = 0; rank < kRanks; rank++) {
    if (outcome.results[rank] == ulyxSuccess) continue;
    EXPECT_NE(outcome.messages[rank], "");
    EXPECT_TRUE(ranks.HasNothingOf(step, rank));
    const bool madeBefore = ranks.Runtime(rank) != nullptr;
    EXPECT_TRUE(!madeBefore || outcome.messages[rank] == ulyxGetLastError(ranks.Runtime(rank)));
  }
  EXPECT_LT(outcome.seconds, kPatientMs / 2000.0) << "somebody waited for a rank that never came";
  EXPECT_TRUE(outcome.function != "malloc" || outcome.results[kVictim] == ulyxSystemError);
  EXPECT_TRUE(!MustBeHeard(outcome, step) || IsHeard(outcome));
}

void PrintTo(const Way& way, std::ostream* out) {
  *out << On(way.transport).Name() << " " << NameOf(way.step) << " " << NameOf(way.kind);
}

std::vector<Way> Ways() {
  std::vector<Way> ways;
  const auto add = [&ways](int transport, Kind kind, Step step) { ways.push_back({transport, kind, step}); };
  for (int transport : {ulyxTransportLoopback, ulyxTransportNccl, ulyxTransportDirect}) {
    add(transport, Kind::kExchange, Step::kCreate);
    if (transport != ulyxTransportLoopback) add(transport, Kind::kExchange, Step::kReserve);
    add(transport, Kind::kExchange, Step::kAlloc);
    add(transport, Kind::kExchange, Step::kFree);
    for (Kind kind : kKinds) add(transport, kind, Step::kPlan);
  }
  for (int transport : {ulyxTransportNccl, ulyxTransportDirect, ulyxTransportCopyEngine}) {
    add(transport, Kind::kExchange, Step::kExchange);
    add(transport, Kind::kChain, Step::kExchange);
  }
  add(ulyxTransportNccl, Kind::kReduceScatter, Step::kExchange);
  add(ulyxTransportNccl, Kind::kHalo, Step::kExchange);
  return ways;
}

std::string NameOfWay(const ::testing::TestParamInfo<Way>& param) {
  const Way& way = param.param;
  return std::string(On(way.transport).Name()) + "_" + NameOf(way.step) + "_" + NameOf(way.kind);
}

class CreationFaults : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(In, CreationFaults, ::testing::ValuesIn(Ways()), NameOfWay);

}  // namespace

TEST_P(CreationFaults, EndInAnErrorAndLeaveNothingBehind) {
  const Way way = GetParam();
  int call = 1 + int(TestSeed() % kStride), tries = 0, deadlineMs = kHurryMs;
  for (bool struck = true; struck && !HasFailure();) {
    SCOPED_TRACE("call " + std::to_string(call));
    Ranks ranks(On(way.transport), way.kind, TimeoutMs(way));
    const Held before;
    ASSERT_LT(++tries, 1000);
    if (!TakeUpTo(&ranks, way.step)) {
      ranks.Destroy();
      continue;
    }
    fakeSetDeadlineMs(deadlineMs);  // how long the other waits in NCCL for the one that stopped
    const Outcome outcome = TakeStruck(&ranks, way.step, call);
    fakeSetDeadlineMs(kPatientMs);
    SCOPED_TRACE(outcome.function + ": " + outcome.messages[kVictim]);
    // A busy machine cut it short before it came to the call, or before the other heard of it.
    const bool cut = outcome.struck ? MustBeHeard(outcome, way.step) && !IsHeard(outcome) && deadlineMs < kPatientMs
                                    : !outcome.Clean();
    if (outcome.struck && !cut) ExpectTold(outcome, ranks, way.step);
    ranks.Destroy();
    EXPECT_EQ(Held().Beyond(before), "");
    deadlineMs = cut ? std::min(10 * deadlineMs, kPatientMs) : kHurryMs;
    if (cut) continue;
    struck = outcome.struck;
    if (struck) call += kStride;
  }
  std::printf("calls before the %dth can fail\n", call);
  Ranks ranks(On(way.transport), way.kind, kPatientMs);
  EXPECT_TRUE(TakeUpTo(&ranks, Step::kEnd));
  ranks.Destroy();
}

// NCCL has no deadline of its own, but ulyx has: whoever waits for the victim ends by it.
TEST(CreationFault, OfOneRankEndsTheOthersByTheirDeadline) {
  constexpr int kTimeoutMs = 1000;
  constexpr double kGrace = 5;  // a busy machine
  Rng rng(TestSeed());
  for (int transport : {ulyxTransportNccl, ulyxTransportDirect}) {
    for (Step step : {Step::kCreate, Step::kPlan, Step::kExchange}) {
      const int call = int(rng.Between(1, 8));
      SCOPED_TRACE(std::string(NameOf(step)) + ", call " + std::to_string(call) + ", seed " +
                   std::to_string(TestSeed()));
      Ranks ranks(On(transport), Kind::kExchange, kTimeoutMs);
      ASSERT_TRUE(TakeUpTo(&ranks, step));
      const Outcome outcome = TakeStruck(&ranks, step, call);
      SCOPED_TRACE(outcome.function + ": " + outcome.messages[kVictim]);
      EXPECT_TRUE(outcome.struck);
      EXPECT_LT(outcome.seconds, kTimeoutMs / 1000.0 + kGrace);
      const Clock::time_point start = Clock::now();
      ranks.Destroy();
      EXPECT_LT(std::chrono::duration<double>(Clock::now() - start).count(), kTimeoutMs / 1000.0 + kGrace);
    }
  }
}

// A rank that fails before it joins is missed by those that have joined.
TEST(CreationFault, OfOneRankThatHasNotJoinedEndsTheWorldThatOneThreadMakes) {
  const World& world = On(ulyxTransportNccl);
  const std::vector<int> devices = world.Devices(3);
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.timeoutMs = 1000;
  world.Complete(&config);
  ulyxRuntime_t runtimes[3] = {};
  fakeSetDeadlineMs(8000);  // NCCL itself waits for ever
  fakeFailNth("cudaSetDevice", 1);
  const Clock::time_point start = Clock::now();
  EXPECT_NE(ulyxRuntimeCreateLocal(&config, 3, devices.data(), runtimes), ulyxSuccess);
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - start).count(), 6);
  for (ulyxRuntime_t runtime : runtimes) EXPECT_EQ(runtime, nullptr);
}

// One thread makes all ranks: what fails on it, before their threads start, while they do, or after.
TEST(CreationFault, OfTheThreadThatMakesAllRanksLeavesNoneBehind) {
  const World& world = On(ulyxTransportNccl);
  const std::vector<int> devices = world.Devices(3);
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  world.Complete(&config);
  ulyxRuntime_t runtimes[3] = {};
  const Held before;
  int call = 1;
  for (bool struck = true; struck && !HasFailure(); call++) {
    fakeFailNthHere(nullptr, call);
    const ulyxResult_t result = ulyxRuntimeCreateLocal(&config, 3, devices.data(), runtimes);
    struck = fakeIsArmedHere() == 0;
    fakeFailNthHere(nullptr, 0);
    if (struck) {
      EXPECT_TRUE(Refused(result, result, {""})) << fakeStruck();
      EXPECT_NE(result, ulyxSuccess) << fakeStruck();
    }
    for (ulyxRuntime_t& runtime : runtimes) {
      EXPECT_EQ(runtime == nullptr, struck);
      MUST(ulyxRuntimeDestroy(&runtime));
    }
    EXPECT_EQ(Held().Beyond(before), "") << fakeStruck();
  }
  EXPECT_GT(call, 10);
}

TEST(CreationFault, OfARankOverACallersCommunicatorLeavesThatAlone) {
  const World& world = On(ulyxTransportNccl);
  world.Use(0);
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  world.Complete(&config);
  ulyxRuntime_t runtime = nullptr;
  const Held before;
  int call = 1;
  for (bool struck = true; struck && !HasFailure(); call++) {
    fakeFailNthHere(nullptr, call);
    const ulyxResult_t result = ulyxRuntimeCreateFromComm(&config, comm, &runtime);
    struck = fakeIsArmedHere() == 0;
    fakeFailNthHere(nullptr, 0);
    const std::string function = struck ? fakeStruck() : "";
    EXPECT_TRUE(!struck || result != ulyxSuccess || MayPass(function)) << function;
    EXPECT_EQ(runtime != nullptr, result == ulyxSuccess) << function;
    MUST(ulyxRuntimeDestroy(&runtime));
    EXPECT_EQ(Held().Beyond(before), "") << function;
  }
  EXPECT_GT(call, 40);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

}  // namespace ulyx_test
