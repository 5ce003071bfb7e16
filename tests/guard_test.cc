// SPDX-License-Identifier: MIT
//
// What ends a wait that NCCL would not: each way of being late has its own words, with the call or the exchange and the
// deadline in them and what to do; the first reason stays; and what watches spoils nobody's capture.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "fake.h"
#include "support/exchange_check.h"
#include "support/ranks.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/traveller.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTimeoutMs = 1000;  // long beside what a busy machine may hold a thread back
#define TIMEOUT_WORDS "1000 ms"
constexpr auto kSoon = std::chrono::seconds(5);  // a busy machine

const World& Nccl() {
  return *Worlds()[1];
}

ulyxConfig_t Impatient() {
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.timeoutMs = kTimeoutMs;
  return config;
}

void Pause(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

const Shape kShape(9, 6, 8);

ulyxResult_t TryPlan(const Session& session, int rank) {
  ulyxPlan_t plan = nullptr;
  const ulyxResult_t result = ulyxPlanCreate(session.Runtime(rank), &kShape.c, &plan);
  if (result != ulyxSuccess) {
    EXPECT_EQ(plan, nullptr);
  }
  return result;
}

void ExpectTimeout(ulyxRuntime_t runtime, ulyxResult_t result, const std::string& words) {
  EXPECT_EQ(result, ulyxTimeout) << ulyxGetErrorString(result);
  EXPECT_EQ(ulyxGetLastError(nullptr), words);
  EXPECT_EQ(ulyxGetLastError(runtime), words);
}

}  // namespace

TEST(Guard, NamesTheCallThatARankDidNotComeToAndTheDeadline) {
  const ulyxConfig_t config = Impatient();
  const Session session(Nccl(), 2, &config);
  const std::string words = "an agreement took longer than " TIMEOUT_WORDS ": a rank did not come; destroy the runtime";
  const Clock::time_point start = Clock::now();
  ExpectTimeout(session.Runtime(0), TryPlan(session, 0), words);
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(kTimeoutMs));
  EXPECT_LT(Clock::now() - start, kSoon);
  void* memory = nullptr;
  ExpectTimeout(session.Runtime(0), ulyxMemAlloc(session.Runtime(0), 100, &memory), words);
  ExpectTimeout(session.Runtime(0), ulyxRuntimeReserve(session.Runtime(0), 1 << 24), words);
}

TEST(Guard, NamesTheRegistrationThatARankDidNotComeTo) {
  const ulyxConfig_t config = Impatient();
  const Session session(Nccl(), 2, &config);
  session.Run([&](int rank) {
    void* memory = nullptr;
    if (rank == 1) fakeFailNthHere("ncclCommWindowRegister", 1);
    const ulyxResult_t result = ulyxMemAlloc(session.Runtime(rank), 100, &memory);
    EXPECT_EQ(memory, nullptr);
    if (rank == 1) {
      EXPECT_TRUE(Refused(result, ulyxSystemError, {"ncclCommWindowRegister", "injected"}));
    } else {
      ExpectTimeout(session.Runtime(rank), result,
                    "the registration of memory took longer than " TIMEOUT_WORDS
                    ": a rank did not come; destroy the runtime");
    }
  });
}

TEST(Guard, SaysWhatWasNotReachedWhereTheDeviceStaysAtWork) {
  const ulyxConfig_t config = Impatient();
  const Session session(Nccl(), 2, &config);
  const std::string words = "an agreement was not reached by every rank within " TIMEOUT_WORDS "; destroy the runtime";
  fakeSetBusy(1);
  session.Run([&](int rank) {
    // The rank that has lost its world first may keep the other from coming.
    const ulyxResult_t result = TryPlan(session, rank);
    EXPECT_EQ(result, ulyxTimeout);
    EXPECT_EQ(ulyxGetLastError(session.Runtime(rank)), words);
  });
  fakeSetBusy(0);
  session.Run([&](int rank) { ExpectTimeout(session.Runtime(rank), TryPlan(session, rank), words); });  // it stays
}

TEST(Guard, SaysAtCreationThatTheFirstMessagesWereNotReached) {
  ulyxUniqueId_t id;
  MUST(ulyxGetUniqueId(&id));
  fakeSetBusy(1);
  RunRanks(2, [&](int rank) {
    Nccl().Use(rank);
    const ulyxConfig_t config = Impatient();
    ulyxRuntime_t runtime = nullptr;
    EXPECT_EQ(ulyxRuntimeCreate(&config, 2, id, rank, &runtime), ulyxTimeout);
    EXPECT_STREQ(ulyxGetLastError(nullptr),
                 "the first message of every pair was not reached by every rank within " TIMEOUT_WORDS
                 "; destroy the runtime");
    EXPECT_EQ(runtime, nullptr);
  });
  fakeSetBusy(0);
}

TEST(Guard, SaysWhoWaitedHowLongForARankThatNeverJoined) {
  ulyxUniqueId_t id;
  MUST(ulyxGetUniqueId(&id));
  const Clock::time_point start = Clock::now();
  RunRanks(2, [&](int rank) {  // of three
    Nccl().Use(rank);
    const ulyxConfig_t config = Impatient();
    ulyxRuntime_t runtime = nullptr;
    EXPECT_EQ(ulyxRuntimeCreate(&config, 3, id, rank, &runtime), ulyxTimeout);
    EXPECT_EQ(ulyxGetLastError(nullptr), "rank " + std::to_string(rank) +
                                             " waited " TIMEOUT_WORDS
                                             " for the other ranks of 3 to join; one did not come");
    EXPECT_EQ(runtime, nullptr);
  });
  EXPECT_LT(Clock::now() - start, kSoon);
}

TEST(Guard, NumbersTheExchangeThatDidNotEndAmongThoseThatDid) {
  const ulyxConfig_t config = Impatient();
  const Session session(Nccl(), 2, &config);
  const Oracle oracle(kShape.c, 2, TestSeed());
  constexpr int kEnded = 21;  // more than can be told apart while they run
  std::unique_ptr<Traveller> ranks[2];
  session.Run([&](int rank) {
    ranks[rank] = std::make_unique<Traveller>(session, oracle, kShape, rank);
    for (int i = 0; i < kEnded; i++) MUST(ranks[rank]->Go());
    Pause(2 * kTimeoutMs);  // an idle world is not lost
    ulyxResult_t found = ulyxTimeout;
    MUST(ulyxRuntimeGetAsyncError(session.Runtime(rank), &found));
    EXPECT_EQ(found, ulyxSuccess);
  });
  const std::string words = "exchange 22 by nccl (heads_to_seq of plan " + SignatureOf(ranks[0]->Plan()) +
                            ") did not end within " TIMEOUT_WORDS
                            ": a rank did not come, came with another exchange, as its own error would say, or what "
                            "precedes it on its stream takes longer; destroy the runtime";
  fakeSetBusy(1);
  session.Run([&](int rank) {
    MUST(ranks[rank]->Go());
    EXPECT_EQ(Found(session.Runtime(rank)), ulyxTimeout);
    EXPECT_EQ(ulyxGetLastError(session.Runtime(rank)), words);
    ExpectTimeout(session.Runtime(rank), ranks[rank]->Go(), words);
  });
  fakeSetBusy(0);
}

TEST(Guard, CountsAnExchangesTimeFromTheEndOfTheOneBefore) {
  constexpr int kDeadlineMs = 2400;
  ulyxConfig_t config = Impatient();
  config.timeoutMs = kDeadlineMs;
  const Session session(Nccl(), 2, &config);
  const Oracle oracle(kShape.c, 2, TestSeed());
  std::unique_ptr<Traveller> ranks[2];
  session.Run([&](int rank) { ranks[rank] = std::make_unique<Traveller>(session, oracle, kShape, rank); });
  for (int i = 0; i < 4; i++) {  // together longer than the deadline, none by itself
    fakeSetBusy(1);
    session.Run([&](int rank) { MUST(ranks[rank]->Go()); });
    Pause(kDeadlineMs / 3);
    fakeSetBusy(0);
    Pause(kDeadlineMs / 4);
  }
  session.Run([&](int rank) { MUST(ranks[rank]->Go()); });
}

// NCCL's abort takes its time, and until it is through the communicator's windows are there.
TEST(Guard, LetsNobodyFreeWhatACommunicatorHoldsThatIsBeingAborted) {
  const ulyxConfig_t config = Impatient();
  Session session(Nccl(), 2, &config);
  fakeSetAbortMs(100);
  session.Run([&](int rank) {
    void* memory = nullptr;
    MUST(ulyxMemAlloc(session.Runtime(rank), 1000, &memory));
    if (rank == 1) return;
    EXPECT_EQ(TryPlan(session, rank), ulyxTimeout);  // rank 1 does not come
    EXPECT_EQ(ulyxMemFree(session.Runtime(rank), memory), ulyxSuccess) << ulyxGetLastError(nullptr);
  });
  session.Destroy();
  EXPECT_EQ(fakeGet().violations, 0);
}

// ---- A reason that is there stays ------------------------------------------------------------------------

class LostWorlds : public ::testing::TestWithParam<const World*> {};
ULYX_ON_EVERY_WORLD(LostWorlds);

TEST_P(LostWorlds, ThatAreAbortedAfterATimeoutKeepTheFirstReason) {
  const ulyxConfig_t config = Impatient();
  Session session(*GetParam(), 2, &config);
  const Oracle oracle(kShape.c, 2, TestSeed());
  session.Run([&](int rank) {
    const Traveller own(session, oracle, kShape, rank);
    if (rank != 0) return;
    ulyxResult_t result = own.Go();  // rank 1 does not come
    if (GetParam()->Transport() != ulyxTransportLoopback && result == ulyxSuccess) {
      session.Synchronize(rank);
      result = Found(session.Runtime(rank));
    }
    EXPECT_EQ(result, ulyxTimeout);
    const std::string words = ulyxGetLastError(session.Runtime(rank));
    EXPECT_NE(words.find(TIMEOUT_WORDS), std::string::npos) << words;
    for (int i = 0; i < 2; i++) {
      MUST(ulyxRuntimeAbort(session.Runtime(rank)));
      ExpectTimeout(session.Runtime(rank), own.Go(), words);
    }
  });
  const Clock::time_point start = Clock::now();
  session.Destroy();
  EXPECT_LT(Clock::now() - start, kSoon);
}

TEST_P(LostWorlds, ThatTheHostFoundOutOfTellTheOthersThatMeetInMemory) {
  if (GetParam()->Transport() < ulyxTransportDirect) GTEST_SKIP() << GetParam()->Name() << " does not";
  const ulyxConfig_t config = Impatient();
  const Session session(*GetParam(), 2, &config);
  const Oracle oracle(kShape.c, 2, TestSeed());
  std::atomic<bool> lost{false};
  session.Run([&](int rank) {
    const Traveller own(session, oracle, kShape, rank);
    if (rank == 0) {
      EXPECT_EQ(TryPlan(session, rank), ulyxTimeout);  // rank 1 does not come
      lost = true;
      return;
    }
    while (!lost) Pause(1);
    ulyxResult_t result = own.Go();
    if (result == ulyxSuccess) {
      session.Synchronize(rank);
      result = Found(session.Runtime(rank));
    }
    EXPECT_TRUE(Refused(result, ulyxRemoteError, {"rank 0"}));
  });
}

TEST_P(LostWorlds, ThatWereAbortedUnderACaptureWaitForItsGraphAndGo) {
  if (GetParam()->Transport() == ulyxTransportLoopback) GTEST_SKIP() << "captures nothing";
  ulyxConfig_t config = Impatient();
  config.timeoutMs = 20000;
  Session session(*GetParam(), 2, &config);
  const Oracle oracle(kShape.c, 2, TestSeed());
  session.Run([&](int rank) {
    const Traveller own(session, oracle, kShape, rank);
    fakeSetCapturing(session.Stream(rank), 1);  // its graph is there as long as the capture lasts
    MUST(own.Go());
    std::thread aborter([&] { MUST(ulyxRuntimeAbort(session.Runtime(rank))); });
    aborter.join();
    MUST(ulyxRuntimeAbort(session.Runtime(rank)));  // from the capturing thread as well
    EXPECT_TRUE(Refused(own.Go(), ulyxRemoteError, {"rank"}));
    const Clock::time_point start = Clock::now();
    EXPECT_TRUE(Refused(ulyxRuntimeDestroy(session.RuntimePtr(rank)), ulyxInvalidUsage, {"captured graphs", "1"}));
    EXPECT_NE(session.Runtime(rank), nullptr);
    EXPECT_LT(Clock::now() - start, kSoon);
    fakeSetCapturing(session.Stream(rank), 0);
  });
  const Clock::time_point start = Clock::now();
  session.Destroy();
  EXPECT_LT(Clock::now() - start, kSoon);
}

// ---- Captures of others -----------------------------------------------------------------------------------

TEST(Guard, LooksAtExchangesWhileAnotherThreadCapturesInGlobalMode) {
  ulyxConfig_t config = Impatient();
  config.timeoutMs = 2000;
  const Session session(Nccl(), 2, &config);
  const Oracle oracle(kShape.c, 2, TestSeed());
  const ulyxStream_t bystander = Nccl().NewStream(2);
  std::unique_ptr<Traveller> ranks[2];
  session.Run([&](int rank) { ranks[rank] = std::make_unique<Traveller>(session, oracle, kShape, rank); });
  fakeSetBusy(1);  // so that there is something to look at
  fakeSetCapturingGlobally(bystander, 1);
  fakeFailNth("cudaEventQuery", 2);
  session.Run([&](int rank) {
    for (int i = 0; i < 3; i++) MUST(ranks[rank]->Go());
  });
  for (const Clock::time_point start = Clock::now(); fakeGet().faults == 0 && Clock::now() - start < kSoon;) Pause(2);
  EXPECT_EQ(fakeGet().faults, 1) << "the guard has not looked";
  fakeSetCapturingGlobally(bystander, 0);
  fakeSetBusy(0);
  EXPECT_EQ(fakeGet().violations, 0);
  session.Run([&](int rank) { MUST(ranks[rank]->Go()); });  // nothing was lost
  Nccl().FreeStream(2, bystander);
}

TEST_P(LostWorlds, AreLostFromAThreadBesideACaptureInGlobalModeWithoutSpoilingIt) {
  if (GetParam()->Transport() == ulyxTransportLoopback) GTEST_SKIP() << "captures nothing";
  Session session(*GetParam(), 2);
  const ulyxStream_t bystander = GetParam()->NewStream(2);
  fakeSetCapturingGlobally(bystander, 1);
  std::thread aborter([&] { MUST(ulyxRuntimeAbort(session.Runtime(0))); });
  aborter.join();
  fakeSetCapturingGlobally(bystander, 0);
  EXPECT_EQ(fakeGet().violations, 0);
  session.Destroy();
  GetParam()->FreeStream(2, bystander);
}

}  // namespace ulyx_test
