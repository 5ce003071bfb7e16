// SPDX-License-Identifier: MIT
//
// What is lost while NCCL has work on the device, on a device that hangs until its communicator is aborted: nobody
// waits longer than the deadline and a moment, and own kernels are quiet before the abort takes their memory away.
#include <gtest/gtest.h>
#include <nccl.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

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

constexpr auto kSoon = std::chrono::seconds(5);  // a busy machine
constexpr int kRanks = 2;

const World& Of(int transport) {
  for (const World* world : Worlds()) {
    if (world->Transport() == transport) return *world;
  }
  throw std::runtime_error("no such world");
}

void AbortAndHang(void* runtime) {
  fakeSetHanging(1);
  MUST(ulyxRuntimeAbort(static_cast<ulyxRuntime_t>(runtime)));
}

void Pause(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

ulyxConfig_t WithTimeout(int timeoutMs) {
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.timeoutMs = timeoutMs;
  return config;
}

// What a runtime answers when it is asked.
struct Finding {
  ulyxResult_t code = ulyxSuccess;
  std::string words;
  explicit Finding(ulyxRuntime_t runtime) {
    MUST(ulyxRuntimeGetAsyncError(runtime, &code));
    words = ulyxGetLastError(runtime);
  }
};

const Shape kShape(9, 6, 8);

// Ranks of which each has a plan and its tensors.
class Company : public Session {
 public:
  Company(int transport, int timeoutMs) : Company(transport, WithTimeout(timeoutMs)) {}
  void Travel(const std::function<void(int rank, const Traveller& own)>& body) const {
    Run([&](int rank) { body(rank, Traveller(*this, oracle_, kShape, rank)); });
  }

 private:
  Company(int transport, const ulyxConfig_t& config)
      : Session(Of(transport), kRanks, &config), oracle_(kShape.c, kRanks, TestSeed()) {}

  const Oracle oracle_;
};

}  // namespace

TEST(Lost, ByAnAbortAfterAnExchangeWasEnqueuedAndBeforeItIsWatchedLeavesNobodyWaiting) {
  Company company(ulyxTransportNccl, 20000);
  std::vector<ulyxResult_t> results(kRanks, ulyxSuccess);
  company.Travel([&](int rank, const Traveller& own) {
    // what follows NCCL's group and precedes the watch: the record of the exchange's end
    if (rank == 0) fakeCallAtNthHere("cudaEventRecord", 1, AbortAndHang, company.Runtime(0));
    results[rank] = own.GoTheOtherWay();
  });
  EXPECT_EQ(results[0], ulyxRemoteError);
  const Clock::time_point start = Clock::now();
  while (fakeGet().aborts == 0 && Clock::now() - start < kSoon) std::this_thread::yield();
  EXPECT_GT(fakeGet().aborts, 0);  // before a destruction would do it
  company.Destroy();
  EXPECT_LT(Clock::now() - start, kSoon);
  EXPECT_GT(fakeGet().aborts, 0);
}

TEST(Lost, ByAnAbortWhileAGraphReplaysAnExchangeOfNcclFreesTheDeviceAndReturnsBeforeTheGraphIsGone) {
  Company company(ulyxTransportNccl, 20000);
  std::atomic<bool> done{false};
  company.Travel([&](int rank, const Traveller& own) {
    fakeSetCapturing(company.Stream(rank), 1);  // the graph lives while the capture does
    MUST(own.GoTheOtherWay());
    if (rank == 0) {
      fakeSetHanging(1);  // a replay that waits for its peer
      const Clock::time_point start = Clock::now();
      MUST(ulyxRuntimeAbort(company.Runtime(0)));
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(1));
      while (fakeIsHanging() && Clock::now() - start < kSoon) std::this_thread::yield();
      EXPECT_FALSE(fakeIsHanging());
      EXPECT_TRUE(Refused(ulyxRuntimeDestroy(company.RuntimePtr(0)), ulyxInvalidUsage, {"captured graphs", "1"}));
      EXPECT_LT(Clock::now() - start, kSoon);
      done = true;
    }
    while (!done) std::this_thread::yield();
    fakeSetCapturing(company.Stream(rank), 0);
  });
  company.Destroy();
}

namespace {

struct Order {
  std::atomic<bool> aborted{false};
  std::atomic<bool> hungAtAbort{false};
};

void NoteAbort(void* argument) {
  Order* const order = static_cast<Order*>(argument);
  order->hungAtAbort = fakeIsHanging() != 0;
  order->aborted = true;
}

}  // namespace

TEST(Lost, ByAnAgreementThatTimesOutOwnKernelsEndBeforeTheCommunicatorIsAborted) {
  for (const int transport : {ulyxTransportDirect, ulyxTransportCopyEngine}) {
    constexpr int kTimeoutMs = 1000;
    const ulyxConfig_t config = WithTimeout(kTimeoutMs);
    Order order;
    bool heldBack = false;  // by a busy machine, for longer than kernels have to end
    {
      const Session session(Of(transport), kRanks, &config);
      fakeCallAtNth("ncclCommAbort", 1, NoteAbort, &order);
      session.Run([&](int rank) {
        ulyxPlan_t plan = nullptr;
        if (rank == 0) fakeSetHanging(1);  // an exchange of this rank is still running when the agreement begins
        const Clock::time_point start = Clock::now();
        const ulyxResult_t result = ulyxPlanCreate(session.Runtime(rank), &kShape.c, &plan);
        if (rank != 0) return;
        EXPECT_TRUE(Refused(result, ulyxTimeout, {"an agreement", std::to_string(kTimeoutMs)}));
        Pause(100);
        const bool atOnce = order.aborted;
        fakeSetHanging(0);  // own kernels end in the moment that they have
        heldBack = Clock::now() - start > std::chrono::milliseconds(kTimeoutMs + 400);
        EXPECT_TRUE(heldBack || !atOnce) << "own kernels had no moment to end";
      });
    }
    EXPECT_TRUE(order.aborted);
    EXPECT_TRUE(heldBack || !order.hungAtAbort);
  }
}

// A network's end is known to NCCL's own threads long before the deadline; its kernels wait on.
TEST(Lost, ByAFailureOfNcclSaysSoAtOnceWithTheExchange) {
  const Oracle oracle(kShape.c, kRanks, TestSeed());
  const struct {
    bool runs;
    int timeoutMs;
  } cases[] = {{true, 20000}, {false, 20000}, {true, 0}};
  for (const auto& [runs, timeoutMs] : cases) {
    const ulyxConfig_t config = WithTimeout(timeoutMs);
    const Session session(Of(ulyxTransportNccl), kRanks, &config);
    std::vector<std::unique_ptr<Traveller>> own(kRanks);
    session.Run([&](int rank) { own[rank] = std::make_unique<Traveller>(session, oracle, kShape, rank); });
    if (runs) {
      fakeSetHanging(1);
      session.Run([&](int rank) { MUST(own[rank]->GoTheOtherWay()); });
    }
    const Clock::time_point start = Clock::now();
    int named = 0;
    fakeSetNcclFailure(ncclRemoteError);
    for (int rank = 0; rank < kRanks; rank++) {
      EXPECT_TRUE(Refused(Found(session.Runtime(rank)), ulyxRemoteError,
                          {"NCCL failed", ncclGetErrorString(ncclRemoteError), "destroy the runtime"}));
      named += std::strstr(ulyxGetLastError(session.Runtime(rank)), "in exchange 1 (seq_to_heads of plan") != nullptr;
    }
    EXPECT_EQ(named > 0, runs);  // the first abort frees the simulated device for the other rank's exchange as well
    EXPECT_LT(Clock::now() - start, kSoon);
    fakeSetNcclFailure(ncclSuccess);
  }
}

// A pair that means different numbers of bytes never ends, but its labels have come.
TEST(Lost, ByAnExchangeOfNcclThatARankMeansDifferentlyNamesBothPlans) {
  constexpr int kTimeoutMs = 1000;
  const ulyxConfig_t config = WithTimeout(kTimeoutMs);
  const Session session(Of(ulyxTransportNccl), kRanks, &config);
  const Shape shapes[] = {Shape(8, 4, 16), Shape(8, 8, 8)};
  const Oracle oracles[] = {{shapes[0].c, kRanks, TestSeed()}, {shapes[1].c, kRanks, TestSeed()}};
  std::vector<std::unique_ptr<Traveller>> own(kRanks);
  std::vector<std::string> plans(kRanks);
  session.Run([&](int rank) {
    for (int plan = 0; plan < kRanks; plan++) {
      auto made = std::make_unique<Traveller>(session, oracles[plan], shapes[plan], rank);
      if (plan == rank) own[rank] = std::move(made);
    }
    plans[rank] = SignatureOf(own[rank]->Plan());
  });
  fakeSetHanging(1);
  session.Run([&](int rank) { MUST(own[rank]->GoTheOtherWay()); });
  const Clock::time_point start = Clock::now();
  while (fakeIsHanging() && Clock::now() - start < kSoon) Pause(1);  // the first rank's abort frees both
  int lost = 0;
  for (int rank = 0; rank < kRanks; rank++) {
    const int other = 1 - rank;
    const std::string mine = "exchange 1 by nccl (seq_to_heads of plan " + plans[rank] + ") did not end within 1000 ms";
    const std::string theirs =
        "rank " + std::to_string(other) + " came with exchange 1, seq_to_heads of plan " + plans[other];
    (void)Finding(session.Runtime(rank));  // the simulated device has compared what a real one still waits for
    const Finding found(session.Runtime(rank));
    if (found.code == ulyxSuccess) continue;
    ++lost;
    EXPECT_TRUE(Refused(found.code, ulyxTimeout, {mine.c_str(), theirs.c_str(), "same order", "destroy the runtime"}));
  }
  EXPECT_GT(lost, 0);
}

TEST(Lost, ATimeoutStaysWhateverIsAbortedAfter) {
  constexpr int kTimeoutMs = 2000;
  const ulyxConfig_t config = WithTimeout(kTimeoutMs);
  for (const World* world : Worlds()) {
    SCOPED_TRACE(world->Name());
    const Session session(*world, kRanks, &config);
    ulyxPlan_t plan = nullptr;
    EXPECT_EQ(ulyxPlanCreate(session.Runtime(0), &kShape.c, &plan), ulyxTimeout);
    for (int i = 0; i < 2; i++) {
      MUST(ulyxRuntimeAbort(session.Runtime(0)));
      EXPECT_TRUE(Refused(Finding(session.Runtime(0)).code, ulyxTimeout, {"2000 ms", "destroy the runtime"}));
    }
  }
}

namespace {

ncclResult_t Settled(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  return state;
}

// What this thread allocates meanwhile may stay.
struct LeakIsMeant {
#ifdef __SANITIZE_ADDRESS__
  LeakIsMeant() {
    __lsan_disable();
  }
  ~LeakIsMeant() {
    __lsan_enable();
  }
#endif
};

}  // namespace

// The parent answers before it has ended what it was asked for.
TEST(Lost, NothingByAParentCommunicatorThatDoesNotBlock) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  const World& world = Of(ulyxTransportNccl);
  RunRanks(kRanks, [&](int rank) {
    world.Use(rank);
    ncclComm_t parent = nullptr;
    ncclConfig_t patient = NCCL_CONFIG_INITIALIZER;
    patient.blocking = 0;
    EXPECT_EQ(ncclCommInitRankConfig(&parent, kRanks, id, rank, &patient), ncclInProgress);
    EXPECT_EQ(Settled(parent), ncclSuccess);
    ulyxConfig_t config = WithTimeout(5000);
    config.transport = ulyxTransportNccl;
    ulyxRuntime_t runtime = nullptr;
    MUST(ulyxRuntimeCreateFromComm(&config, parent, &runtime));
    MUST(ulyxRuntimeDestroy(&runtime));
    EXPECT_EQ(ncclCommDestroy(parent), ncclSuccess);
  });
}

// NCCL writes the new communicator's address when the last rank comes, whoever has given up by then.
TEST(Lost, ByAParentThatDoesNotBlockIsNoMemoryThatNcclStillWrites) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  const World& world = Of(ulyxTransportNccl);
  std::atomic<bool> givenUp{false}, come{false};
  const fakeHostUse before = fakeHostGet();
  RunRanks(kRanks, [&](int rank) {
    world.Use(rank);
    ncclComm_t parent = nullptr, child = nullptr;
    ncclConfig_t patient = NCCL_CONFIG_INITIALIZER;
    patient.blocking = 0;
    EXPECT_EQ(ncclCommInitRankConfig(&parent, kRanks, id, rank, &patient), ncclInProgress);
    EXPECT_EQ(Settled(parent), ncclSuccess);
    if (rank == 0) {
      ulyxConfig_t config = WithTimeout(1000);
      config.transport = ulyxTransportNccl;
      ulyxRuntime_t runtime = nullptr;
      {
        [[maybe_unused]] const LeakIsMeant meant;  // of the word
        EXPECT_EQ(ulyxRuntimeCreateFromComm(&config, parent, &runtime), ulyxTimeout);
      }
      givenUp = true;
      while (!come) Pause(1);
      EXPECT_EQ(Settled(parent), ncclSuccess);
    } else {
      while (!givenUp) Pause(1);
      EXPECT_EQ(ncclCommSplit(parent, 0, rank, &child, nullptr), ncclInProgress);
      come = true;
      EXPECT_EQ(Settled(parent), ncclSuccess);
      EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
    }
    EXPECT_EQ(ncclCommDestroy(parent), ncclSuccess);
  });
  EXPECT_EQ(fakeGet().comms, 1) << "the child that nobody was left to take";
  fakeReset();
  const fakeHostUse after = fakeHostGet();
  EXPECT_EQ(after.blocks - before.blocks, 1);
  fakeHostForget(after.blocks - before.blocks, after.bytes - before.bytes);
}

TEST(Lost, NothingByAHostThatRunsFurtherAheadThanExchangesCanBeToldApart) {
  const Company company(ulyxTransportNccl, 2000);
  company.Travel([&](int, const Traveller& own) {
    fakeSetLagMs(150);  // each ends in time, some forty behind the host
    for (int i = 0; i < 1000; i++) {
      MUST(own.Go());
      Pause(3);
    }
  });
  fakeSetLagMs(0);
}

TEST(Lost, WhileNcclHasNothingToDoKeepsItsCommunicatorAlsoAfterMemoryCameAndWent) {
  const ulyxConfig_t config = WithTimeout(20000);
  Session session(Of(ulyxTransportDirect), kRanks, &config);
  session.Run([&](int rank) {
    void* memory = nullptr;
    MUST(ulyxMemAlloc(session.Runtime(rank), 100, &memory));
    MUST(ulyxRuntimeReserve(session.Runtime(rank), 1 << 24));
    MUST(ulyxMemFree(session.Runtime(rank), memory));
  });
  MUST(ulyxRuntimeAbort(session.Runtime(0)));
  Pause(700);
  EXPECT_EQ(fakeGet().aborts, 0);
  session.Destroy();
}

namespace {

// Ends the process, with 0 if all went well: what CUDA owned goes with it.
void DestroyLostAfterCudaHasGone(int transport) {
  const ulyxConfig_t config = WithTimeout(20000);
  Session session(Of(transport), kRanks, &config);
  MUST(ulyxRuntimeAbort(session.Runtime(0)));
  Pause(100);
  fakeSetCudaGone(1);
  for (int rank = 0; rank < kRanks; rank++) (void)ulyxRuntimeDestroy(session.RuntimePtr(rank));
  _exit(fakeGet().violations == 0 ? 0 : 1);
}

}  // namespace

TEST(Lost, AndLeftByCudaAreDestroyedWithoutNccl) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(DestroyLostAfterCudaHasGone(ulyxTransportDirect), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(DestroyLostAfterCudaHasGone(ulyxTransportNccl), ::testing::ExitedWithCode(0), "");
}

TEST(Lost, AreTheOthersWhenNcclFailsOneRankOfALocalWorldAndTheyEndByTheDeadline) {
  const World& world = Of(ulyxTransportNccl);
  ulyxConfig_t config = WithTimeout(1000);
  config.transport = ulyxTransportNccl;
  const std::vector<int> devices = world.Devices(kRanks);
  ulyxRuntime_t runtimes[kRanks] = {};
  fakeFailNth("ncclCommInitRankConfig", 1);
  const Clock::time_point start = Clock::now();
  EXPECT_NE(ulyxRuntimeCreateLocal(&config, kRanks, devices.data(), runtimes), ulyxSuccess);
  EXPECT_LT(Clock::now() - start, kSoon);
  EXPECT_EQ(runtimes[0], nullptr);
}

TEST(Lost, NoMismatchByAnExchangeThatIsRefusedBeforeItIsTold) {
  const Company company(ulyxTransportDirect, 5000);
  const ulyxStream_t foreign = company.GetWorld().NewStream(1);
  company.Travel([&](int rank, const Traveller& own) {
    MUST(rank == 0 ? own.Go() : own.GoTheOtherWay());
    if (rank != 0) return;
    EXPECT_EQ(own.GoOn(foreign), ulyxInvalidArgument);
    EXPECT_EQ(Finding(company.Runtime(0)).code, ulyxMismatch);
  });
  company.GetWorld().FreeStream(1, foreign);
}

TEST(Lost, WorldsThatRefuseToFreeMemoryUnderAGraphKeepTheCommunicatorThatMapsIt) {
  Company company(ulyxTransportCopyEngine, 20000);
  company.Travel([&](int rank, const Traveller& own) {
    void* memory = nullptr;
    MUST(ulyxMemAlloc(company.Runtime(rank), 100, &memory));
    fakeSetCapturing(company.Stream(rank), 1);
    MUST(own.Go());
    if (rank == 0) {
      MUST(ulyxRuntimeAbort(company.Runtime(0)));
      std::thread([&] {  // not the thread that captures
        EXPECT_TRUE(Refused(ulyxMemFree(company.Runtime(0), memory), ulyxInvalidUsage, {"captured graphs"}));
      })
          .join();
      EXPECT_EQ(fakeGet().aborts, 0);
    }
    fakeSetCapturing(company.Stream(rank), 0);
    if (rank == 0) MUST(ulyxMemFree(company.Runtime(0), memory));
  });
  company.Destroy();
}

namespace {

// A record that waits for room in a full queue.
void WaitForRoom(void* argument) {
  std::atomic<bool>* const full = static_cast<std::atomic<bool>*>(argument);
  *full = true;
  const Clock::time_point start = Clock::now();
  while (fakeIsHanging() && Clock::now() - start < 2 * kSoon) Pause(1);
}

}  // namespace

TEST(Lost, ByAnAbortWhileTheOwnerWaitsForRoomInItsQueueDoesNotWaitForTheOwner) {
  Company company(ulyxTransportNccl, 20000);
  std::atomic<bool> full{false};
  std::atomic<int> ready{0};
  company.Travel([&](int rank, const Traveller& own) {
    ready++;
    while (ready < kRanks) Pause(1);
    if (rank == 0) fakeSetHanging(1);
    while (fakeIsHanging() == 0) Pause(1);
    if (rank == 0) {
      // the first is the exchange's own end; the watch finds no room
      fakeCallAtNthHere("cudaEventRecord", 2, WaitForRoom, &full);
      std::thread aborter([&] {
        while (!full) Pause(1);
        const Clock::time_point start = Clock::now();
        MUST(ulyxRuntimeAbort(company.Runtime(0)));
        EXPECT_LT(Clock::now() - start, std::chrono::seconds(1));
      });
      EXPECT_EQ(own.Go(), ulyxRemoteError);
      aborter.join();
    } else {
      (void)own.Go();
    }
  });
  company.Destroy();
}

TEST(Lost, ByATimeoutNamesTheExchangeByTheNumberOfItsRecord) {
  const Company company(ulyxTransportNccl, 1000);
  company.Travel([&](int rank, const Traveller& own) {
    for (int i = 0; i < 2; i++) {  // captured, and numbered like any
      fakeSetCapturing(company.Stream(rank), 1);
      MUST(own.Go());
      fakeSetCapturing(company.Stream(rank), 0);
    }
    fakeSetBusy(1);
    MUST(own.Go());
    EXPECT_TRUE(Refused(Found(company.Runtime(rank)), ulyxTimeout, {"exchange 3 by nccl", SignatureOf(own.Plan())}));
  });
  fakeSetBusy(0);
}

TEST(Lost, ByAnAbortAfterAPeersMemoryWentWritesWhereNobodyReads) {
  const ulyxConfig_t config = WithTimeout(20000);
  Session session(Of(ulyxTransportDirect), kRanks, &config);
  MUST(ulyxRuntimeDestroy(session.RuntimePtr(1)));
  MUST(ulyxRuntimeAbort(session.Runtime(0)));
  session.Destroy();
}

TEST(Lost, ByADeviceIsNotToldToThePeersASecondTime) {
  const Company company(ulyxTransportDirect, 1000);
  company.Travel([&](int rank, const Traveller& own) {
    if (rank != 0) return;
    MUST(own.Go());  // the other does not come, and the kernel that waited for it has told it so
    bool told = false;
    fakeCallAtNthHere(
        "cudaMemcpyAsync", 2, [](void* flag) { *static_cast<bool*>(flag) = true; }, &told);
    EXPECT_TRUE(Refused(Finding(company.Runtime(0)).code, ulyxTimeout, {"rank 1 did not reach exchange 1"}));
    EXPECT_EQ(own.Go(), ulyxTimeout);
    EXPECT_FALSE(told) << "more than this rank's own state was written";
    fakeCallAtNthHere(nullptr, 0, nullptr, nullptr);
  });
}

TEST(Lost, ByADeviceAreForItsReasonWhateverFindsItFirst) {
  const std::vector<std::function<void(ulyxRuntime_t, void*)>> finders = {
      [](ulyxRuntime_t runtime, void* memory) { MUST(ulyxMemFree(runtime, memory)); },
      [](ulyxRuntime_t runtime, void*) { MUST(ulyxRuntimeAbort(runtime)); },
      [](ulyxRuntime_t runtime, void*) { EXPECT_EQ(ulyxRuntimeReserve(runtime, 1 << 24), ulyxTimeout); }};
  for (const auto& find : finders) {
    const Company company(ulyxTransportDirect, 1000);
    company.Travel([&](int rank, const Traveller& own) {
      const ulyxRuntime_t runtime = company.Runtime(rank);
      void* memory = nullptr;
      MUST(ulyxMemAlloc(runtime, 100, &memory));
      if (rank != 0) return;
      MUST(own.Go());                                                 // the other does not come
      EXPECT_EQ(ulyxMemFree(runtime, &memory), ulyxInvalidArgument);  // leaves words in this thread
      find(runtime, memory);
      for (int i = 0; i < 2; i++) {
        const Finding found(runtime);
        EXPECT_EQ(found.code, ulyxTimeout);
        EXPECT_EQ(found.words, "rank 1 did not reach exchange 1 within 1000 ms; destroy the runtime");
        EXPECT_EQ(own.Go(), ulyxTimeout);
      }
    });
  }
}

TEST(Lost, WorldsStillTellOfTheMismatchBefore) {
  for (const bool halfWay : {false, true}) {
    const Company company(ulyxTransportDirect, 20000);
    company.Travel([&](int rank, const Traveller& own) {
      MUST(rank == 0 ? own.Go() : own.GoTheOtherWay());
      if (rank != 0) return;
      if (halfWay) {
        fakeFailNthHere("ulyxLaunchExchange", 1);
        EXPECT_EQ(own.Go(), ulyxUnhandledCudaError);
      } else {
        MUST(ulyxRuntimeAbort(company.Runtime(0)));
      }
      EXPECT_EQ(Finding(company.Runtime(0)).code, ulyxMismatch);
      for (int i = 0; i < 2; i++) EXPECT_EQ(Finding(company.Runtime(0)).code, ulyxRemoteError);
    });
  }
}

TEST(Lost, NoErrorOfADestructionThatHasALogger) {
  Session session(Of(ulyxTransportNccl), kRanks);
  std::vector<std::string> heard;
  const ulyxLogger_t hear = [](void* user, ulyxLogLevel_t, const char* line) {
    static_cast<std::vector<std::string>*>(user)->push_back(line);
  };
  MUST(ulyxRuntimeSetLogger(session.Runtime(0), hear, &heard));
  fakeFailNth("cudaEventDestroy", 1);
  EXPECT_EQ(ulyxRuntimeDestroy(session.RuntimePtr(0)), ulyxUnhandledCudaError);
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0], ulyxGetLastError(nullptr));
  session.Destroy();
}

}  // namespace ulyx_test
