// SPDX-License-Identifier: MIT
//
// The fakes themselves: what NCCL and CUDA would do, what they would refuse, and what they would let pass but a
// test must see.
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fake.h"
#include "kernels.h"

namespace {

class Fakes : public ::testing::Test {
 protected:
  void SetUp() override {
    fakeReset();
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    cudaGetLastError();
  }
  void TearDown() override { fakeReset(); }

  static void ExpectNothingLeft() {
    const fakeCounters counters = fakeGet();
    EXPECT_EQ(counters.allocations, 0);
    EXPECT_EQ(counters.hostAllocations, 0);
    EXPECT_EQ(counters.streams, 0);
    EXPECT_EQ(counters.events, 0);
    EXPECT_EQ(counters.comms, 0);
    EXPECT_EQ(counters.ncclAllocations, 0);
    EXPECT_EQ(counters.windows, 0);
    EXPECT_EQ(counters.registrations, 0);
    EXPECT_EQ(counters.openGroups, 0);
    EXPECT_EQ(counters.violations, 0);
  }
};

void OnThreads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; i++) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

// One rank on its own device, with a stream.
struct Rank {
  int rank = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;

  Rank(int nRanks, ncclUniqueId id, int r) : rank(r) {
    EXPECT_EQ(cudaSetDevice(rank), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(ncclCommInitRank(&comm, nRanks, id, rank), ncclSuccess);
  }
  ~Rank() {
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
};

void WithRanks(int nRanks, const std::function<void(Rank&)>& body) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  OnThreads(nRanks, [&](int r) {
    Rank rank(nRanks, id, r);
    if (rank.comm != nullptr) body(rank);
  });
}

template <typename T>
T* DeviceArray(const std::vector<T>& values) {
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, values.size() * sizeof(T)), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(p, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  return static_cast<T*>(p);
}

template <typename T>
std::vector<T> HostArray(const T* p, size_t count) {
  std::vector<T> values(count);
  EXPECT_EQ(cudaMemcpy(values.data(), p, count * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
  return values;
}

// ---- NCCL ---------------------------------------------------------------------------------------------

TEST_F(Fakes, GroupedMessagesReachEveryRankInOrder) {
  constexpr int kRanks = 4, kRounds = 20;
  WithRanks(kRanks, [](Rank& rank) {
    // Two messages a pair and round, itself included, so that order matters.
    for (int round = 0; round < kRounds; round++) {
      std::vector<int> out(2 * kRanks), in(2 * kRanks, -1);
      for (int i = 0; i < 2 * kRanks; i++) out[i] = 10000 * round + 100 * rank.rank + i;
      int* const send = DeviceArray(out);
      int* const receive = DeviceArray(in);
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      for (int i = 0; i < 2 * kRanks; i++) {
        EXPECT_EQ(ncclSend(send + i, 1, ncclInt32, i / 2, rank.comm, rank.stream), ncclSuccess);
        EXPECT_EQ(ncclRecv(receive + i, 1, ncclInt32, i / 2, rank.comm, rank.stream), ncclSuccess);
      }
      EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
      in = HostArray(receive, in.size());
      for (int i = 0; i < 2 * kRanks; i++) {
        EXPECT_EQ(in[i], 10000 * round + 100 * (i / 2) + 2 * rank.rank + i % 2);
      }
      EXPECT_EQ(cudaFree(send), cudaSuccess);
      EXPECT_EQ(cudaFree(receive), cudaSuccess);
    }
  });
  const fakeCounters counters = fakeGet();
  EXPECT_EQ(counters.sends, kRounds * kRanks * 2 * kRanks);
  EXPECT_EQ(counters.receives, counters.sends);
  EXPECT_EQ(counters.groups, kRounds * kRanks);
  EXPECT_EQ(counters.maxGroupMessages, 4 * kRanks);
  EXPECT_EQ(counters.zeroByteMessages, 0);
  EXPECT_EQ(fakeSentBytes(1, 3), kRounds * 2 * 4);
  ExpectNothingLeft();
}

TEST_F(Fakes, OneThreadDrivesAllRanksOfACommInitAll) {
  constexpr int kRanks = 16;
  std::vector<ncclComm_t> comms(kRanks);
  ASSERT_EQ(ncclCommInitAll(comms.data(), kRanks, nullptr), ncclSuccess);
  std::vector<int*> data(kRanks);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int r = 0; r < kRanks; r++) {
    int device = -1, rank = -1, count = 0;
    EXPECT_EQ(ncclCommCuDevice(comms[r], &device), ncclSuccess);
    EXPECT_EQ(ncclCommUserRank(comms[r], &rank), ncclSuccess);
    EXPECT_EQ(ncclCommCount(comms[r], &count), ncclSuccess);
    EXPECT_EQ(device, r);
    EXPECT_EQ(rank, r);
    EXPECT_EQ(count, kRanks);
    ASSERT_EQ(cudaSetDevice(r), cudaSuccess);
    std::vector<int> values(kRanks, -1);
    values[r] = 7 * r;
    data[r] = DeviceArray(values);
    EXPECT_EQ(ncclAllGather(data[r] + r, data[r], 1, ncclInt32, comms[r], nullptr), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  int current = -1;
  EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, kRanks - 1);
  for (int r = 0; r < kRanks; r++) {
    const std::vector<int> values = HostArray(data[r], kRanks);
    for (int i = 0; i < kRanks; i++) EXPECT_EQ(values[i], 7 * i);
    EXPECT_EQ(cudaFree(data[r]), cudaSuccess);
    EXPECT_EQ(ncclCommDestroy(comms[r]), ncclSuccess);
  }
  EXPECT_EQ(fakeGet().sends, 0);
  EXPECT_EQ(fakeGet().collectives, kRanks);
  ExpectNothingLeft();
}

TEST_F(Fakes, BroadcastGivesTheRootsData) {
  WithRanks(3, [](Rank& rank) {
    int* const source = DeviceArray(std::vector<int>{100 + rank.rank});
    int* const data = DeviceArray(std::vector<int>{-1});
    EXPECT_EQ(ncclBroadcast(source, data, 1, ncclInt32, 2, rank.comm, rank.stream), ncclSuccess);
    EXPECT_EQ(HostArray(data, 1)[0], 102);
    EXPECT_EQ(cudaFree(source), cudaSuccess);
    EXPECT_EQ(cudaFree(data), cudaSuccess);
  });
  ExpectNothingLeft();
}

TEST_F(Fakes, SplitOrdersByKeyAndOutlivesItsParent) {
  WithRanks(4, [](Rank& rank) {
    ncclComm_t child = nullptr;
    const int color = rank.rank == 3 ? NCCL_SPLIT_NOCOLOR : rank.rank == 1 ? 1 : 0;
    EXPECT_EQ(ncclCommSplit(rank.comm, color, -rank.rank, &child, nullptr), ncclSuccess);
    EXPECT_EQ(child == nullptr, rank.rank == 3);
    if (child == nullptr) return;
    int count = 0, childRank = -1;
    EXPECT_EQ(ncclCommCount(child, &count), ncclSuccess);
    EXPECT_EQ(ncclCommUserRank(child, &childRank), ncclSuccess);
    EXPECT_EQ(count, rank.rank == 1 ? 1 : 2);
    EXPECT_EQ(childRank, rank.rank == 0 ? 1 : 0);
    EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
  });
  ExpectNothingLeft();
}

TEST_F(Fakes, DifferentSizesAreRefusedWhereTheyAreReceived) {
  WithRanks(2, [](Rank& rank) {
    int* const data = DeviceArray(std::vector<int>(8, rank.rank));
    const int peer = 1 - rank.rank;
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(data, 3, ncclInt32, peer, rank.comm, rank.stream), ncclSuccess);
    EXPECT_EQ(ncclRecv(data + 4, rank.rank == 0 ? 4 : 3, ncclInt32, peer, rank.comm, rank.stream), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), rank.rank == 0 ? ncclInvalidUsage : ncclSuccess);
    if (rank.rank == 0) {
      const std::string said = ncclGetLastError(rank.comm);
      EXPECT_NE(said.find("rank 1 sends 12 bytes"), std::string::npos) << said;
      EXPECT_NE(said.find("expects 16"), std::string::npos) << said;
      EXPECT_EQ(HostArray(data + 4, 1)[0], 0);
      ncclResult_t error = ncclSuccess;
      EXPECT_EQ(ncclCommGetAsyncError(rank.comm, &error), ncclSuccess);
      EXPECT_EQ(error, ncclInvalidUsage);
    }
    EXPECT_EQ(cudaFree(data), cudaSuccess);
  });
  ExpectNothingLeft();
}

TEST_F(Fakes, WaitingEndsAtTheDeadlineAndNamesTheRank) {
  fakeSetDeadlineMs(100);
  WithRanks(2, [](Rank& rank) {
    if (rank.rank == 1) return;
    int* const data = DeviceArray(std::vector<int>(2));
    EXPECT_EQ(ncclRecv(data, 1, ncclInt32, 1, rank.comm, rank.stream), ncclSystemError);
    const std::string said = ncclGetLastError(rank.comm);
    EXPECT_NE(said.find("rank 0 waited 100 ms for 4 bytes"), std::string::npos) << said;
    EXPECT_NE(said.find("from rank 1"), std::string::npos) << said;
    EXPECT_EQ(ncclSend(data, 1, ncclInt32, 1, rank.comm, rank.stream), ncclSystemError);
    EXPECT_EQ(cudaFree(data), cudaSuccess);
  });
  ExpectNothingLeft();
}

TEST_F(Fakes, JoiningAloneEndsAtTheDeadline) {
  fakeSetDeadlineMs(100);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 1), ncclSystemError);
  EXPECT_EQ(comm, nullptr);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("for rank 0"), std::string::npos);
  ExpectNothingLeft();
}

TEST_F(Fakes, AbortFromAnotherThreadEndsTheWaiting) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comms[2];
  OnThreads(2, [&](int r) {
    EXPECT_EQ(cudaSetDevice(r), cudaSuccess);
    EXPECT_EQ(ncclCommInitRank(&comms[r], 2, id, r), ncclSuccess);
  });
  int* const data = DeviceArray(std::vector<int>{1});
  std::thread waiting([&] { EXPECT_EQ(ncclRecv(data, 1, ncclInt32, 1, comms[0], nullptr), ncclInternalError); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(ncclCommAbort(comms[0]), ncclSuccess);
  waiting.join();
  EXPECT_EQ(ncclCommDestroy(comms[1]), ncclSuccess);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  ExpectNothingLeft();
}

TEST_F(Fakes, ACommunicatorThatDoesNotBlockIsThereBeforeTheOthersAre) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comms[2] = {}, children[2] = {};
  ncclResult_t state = ncclSuccess;
  const auto stateOf = [&state](ncclComm_t comm) {
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    return state;
  };
  for (int rank = 0; rank < 2; rank++) {  // one thread: it never waits
    ASSERT_EQ(cudaSetDevice(rank), cudaSuccess);
    ASSERT_EQ(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config), ncclInProgress);
    ASSERT_NE(comms[rank], nullptr);
    EXPECT_EQ(stateOf(comms[rank]), rank == 0 ? ncclInProgress : ncclSuccess);
  }
  EXPECT_EQ(stateOf(comms[0]), ncclSuccess);
  for (int rank = 0; rank < 2; rank++) {
    EXPECT_EQ(ncclCommSplit(comms[rank], 0, rank, &children[rank], nullptr), ncclInProgress);
    EXPECT_EQ(stateOf(comms[rank]), rank == 0 ? ncclInProgress : ncclSuccess);
    EXPECT_EQ(children[rank] == nullptr, rank == 0);
  }
  EXPECT_EQ(stateOf(comms[0]), ncclSuccess);
  for (ncclComm_t comm : {children[0], children[1], comms[0], comms[1]}) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ASSERT_EQ(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config), ncclInProgress);
  EXPECT_EQ(ncclCommAbort(comms[0]), ncclSuccess);  // the only way out
  ExpectNothingLeft();
}

TEST_F(Fakes, WrongArgumentsAreRefusedAndFailTheGroup) {
  WithRanks(2, [](Rank& rank) {
    int* const data = DeviceArray(std::vector<int>(4));
    int host = 0;
    EXPECT_EQ(ncclSend(data, 1, ncclInt32, 2, rank.comm, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(ncclSend(nullptr, 1, ncclInt32, 0, rank.comm, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(ncclSend(&host, 1, ncclInt32, 0, rank.comm, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(ncclSend(data, 1, ncclInt32, rank.rank, rank.comm, rank.stream), ncclInvalidUsage);
    EXPECT_EQ(ncclSend(data, 1, ncclInt32, 0, nullptr, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(data, 1, ncclInt32, 1 - rank.rank, rank.comm, rank.stream), ncclSuccess);
    EXPECT_EQ(ncclRecv(data, 1, ncclInt32, -1, rank.comm, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    EXPECT_EQ(cudaFree(data), cudaSuccess);
  });
  EXPECT_EQ(fakeGet().sends, 0);
  ExpectNothingLeft();
}

TEST_F(Fakes, MemoryOfAnotherDeviceIsRefused) {
  WithRanks(2, [](Rank& rank) {
    EXPECT_EQ(cudaSetDevice(5), cudaSuccess);
    int* const elsewhere = DeviceArray(std::vector<int>(1));
    EXPECT_EQ(ncclSend(elsewhere, 1, ncclInt32, 1 - rank.rank, rank.comm, rank.stream), ncclInvalidArgument);
    EXPECT_EQ(cudaFree(elsewhere), cudaSuccess);
  });
  ExpectNothingLeft();
}

TEST_F(Fakes, TwoRanksOnOneDeviceAreRefused) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  OnThreads(2, [&](int r) {
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRank(&comm, 2, id, r), ncclInvalidUsage);
  });
  ExpectNothingLeft();
}

TEST_F(Fakes, MessagesOfNothingAreCounted) {
  WithRanks(2, [](Rank& rank) {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(nullptr, 0, ncclInt8, 1 - rank.rank, rank.comm, rank.stream), ncclSuccess);
    EXPECT_EQ(ncclRecv(nullptr, 0, ncclInt8, 1 - rank.rank, rank.comm, rank.stream), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  });
  EXPECT_EQ(fakeGet().zeroByteMessages, 4);
  ExpectNothingLeft();
}

TEST_F(Fakes, ReceivesOverWhatIsSentAreCountedAndCopyNothing) {
  WithRanks(3, [](Rank& rank) {
    int* const data = DeviceArray(std::vector<int>{100 + rank.rank});
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (int peer = 0; peer < 3; peer++) {
      if (peer == rank.rank) continue;
      EXPECT_EQ(ncclSend(data, 1, ncclInt32, peer, rank.comm, rank.stream), ncclSuccess);
      EXPECT_EQ(ncclRecv(data, 1, ncclInt32, peer, rank.comm, rank.stream), ncclSuccess);
    }
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(HostArray(data, 1)[0], 100 + rank.rank);
    EXPECT_EQ(cudaFree(data), cudaSuccess);
  });
  EXPECT_EQ(fakeGet().overlaps, 6);
  ExpectNothingLeft();
}

TEST_F(Fakes, WindowsAreCollectiveAndHoldTheirMemory) {
  WithRanks(3, [](Rank& rank) {
    void* memory = nullptr;
    ncclWindow_t window = nullptr;
    const size_t bytes = 1000 + 1000 * size_t(rank.rank);
    EXPECT_EQ(ncclMemAlloc(&memory, bytes), ncclSuccess);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % NCCL_WIN_REQUIRED_ALIGNMENT, 0u);
    EXPECT_EQ(ncclCommWindowRegister(rank.comm, memory, bytes, &window, NCCL_WIN_DEFAULT), ncclSuccess);
    EXPECT_NE(window, nullptr);
    EXPECT_EQ(ncclMemFree(memory), ncclInvalidUsage);
    EXPECT_EQ(ncclCommWindowDeregister(rank.comm, window), ncclSuccess);
    EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
  });
  EXPECT_EQ(fakeGet().violations, 3);
  EXPECT_EQ(fakeGet().minWindowBytes, 1000);
  EXPECT_EQ(fakeGet().maxWindowBytes, 3000);
  EXPECT_EQ(fakeGet().windows, 0);
  EXPECT_EQ(fakeGet().ncclAllocations, 0);
}

TEST_F(Fakes, MemoryThatItsOwnerFreedStaysUntilNoPeersWindowSeesIt) {
  void* memory[2] = {};
  ncclWindow_t windows[2] = {};
  ncclComm_t comms[2] = {};
  ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ncclSuccess);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int r = 0; r < 2; r++) {
    ASSERT_EQ(cudaSetDevice(r), cudaSuccess);
    ASSERT_EQ(ncclMemAlloc(&memory[r], 64), ncclSuccess);
    ASSERT_EQ(ncclCommWindowRegister(comms[r], memory[r], 64, &windows[r], NCCL_WIN_DEFAULT), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(ncclCommWindowDeregister(comms[0], windows[0]), ncclSuccess);
  EXPECT_EQ(ncclMemFree(memory[0]), ncclSuccess);
  EXPECT_EQ(fakeGet().ncclAllocations, 1);
  std::memset(memory[0], 1, 64);  // the sanitizers say whether it is there
  const std::vector<char> other(64);
  EXPECT_EQ(cudaMemcpy(memory[0], other.data(), 64, cudaMemcpyHostToDevice), cudaSuccess);  // by the peer
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(memory[0], other.data(), 64, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(fakeGet().violations, 1);
  cudaPointerAttributes attributes;
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, memory[0]), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(ncclCommWindowDeregister(comms[1], windows[1]), ncclSuccess);
  EXPECT_EQ(ncclMemFree(memory[1]), ncclSuccess);
  for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_EQ(fakeGet().windows, 0);
  EXPECT_EQ(fakeGet().ncclAllocations, 0);
  EXPECT_EQ(fakeGet().violations, 1);
}

TEST_F(Fakes, WindowsNeedNcclMemory) {
  WithRanks(1, [](Rank& rank) {
    int* const memory = DeviceArray(std::vector<int>(4096));
    ncclWindow_t window = nullptr;
    EXPECT_EQ(ncclCommWindowRegister(rank.comm, memory, 4096, &window, NCCL_WIN_DEFAULT), ncclInvalidArgument);
    fakeSetWindowSupport(0);
    EXPECT_EQ(ncclCommWindowRegister(rank.comm, memory, 4096, &window, NCCL_WIN_DEFAULT), ncclSuccess);
    EXPECT_EQ(window, nullptr);
    EXPECT_EQ(ncclCommWindowDeregister(rank.comm, window), ncclSuccess);
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
  });
  ExpectNothingLeft();
}

TEST_F(Fakes, AWindowGoesWithItsCommunicatorAlone) {
  void* memory = nullptr;
  ncclWindow_t window = nullptr;
  ncclComm_t comm = nullptr, other = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
  ASSERT_EQ(ncclCommInitAll(&other, 1, nullptr), ncclSuccess);
  ASSERT_EQ(ncclMemAlloc(&memory, 64), ncclSuccess);
  ASSERT_EQ(ncclCommWindowRegister(comm, memory, 64, &window, NCCL_WIN_DEFAULT), ncclSuccess);
  EXPECT_EQ(ncclCommWindowDeregister(other, window), ncclInvalidArgument);
  EXPECT_EQ(fakeGet().violations, 1);
  EXPECT_EQ(ncclCommDestroy(other), ncclSuccess);
  EXPECT_EQ(fakeGet().violations, 1);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);  // the window should have gone first
  EXPECT_EQ(fakeGet().violations, 2);
  EXPECT_EQ(fakeGet().windows, 0);
  EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
}

// ---- Faults -------------------------------------------------------------------------------------------

TEST_F(Fakes, TheNthCallFails) {
  void* p = nullptr;
  fakeFailNth("cudaMalloc", 2);
  ASSERT_EQ(cudaMalloc(&p, 16), cudaSuccess);
  void* q = nullptr;
  EXPECT_EQ(cudaMalloc(&q, 16), cudaErrorMemoryAllocation);
  EXPECT_EQ(q, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&q, 16), cudaSuccess);
  EXPECT_EQ(fakeGet().faults, 1);
  fakeFailNth(nullptr, 1);
  EXPECT_NE(cudaFree(q), cudaSuccess);  // freed all the same
  EXPECT_EQ(cudaFree(p), cudaSuccess);
  ExpectNothingLeft();
}

TEST_F(Fakes, AFaultHereLeavesOtherThreadsAlone) {
  fakeFailNthHere("cudaStreamCreate", 1);
  cudaStream_t stream = nullptr;
  std::thread([&] { EXPECT_EQ(cudaStreamCreate(&stream), cudaSuccess); }).join();
  cudaStream_t none = nullptr;
  EXPECT_EQ(cudaStreamCreate(&none), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  ExpectNothingLeft();
}

TEST_F(Fakes, AFaultInsideAGroupFailsTheGroup) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
  int* const data = DeviceArray(std::vector<int>(2));
  for (const char* function : {"ncclSend", "ncclRecv", "ncclGroupEnd"}) {
    fakeFailNth(function, 1);
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    ncclSend(data, 1, ncclInt32, 0, comm, nullptr);
    ncclRecv(data + 1, 1, ncclInt32, 0, comm, nullptr);
    EXPECT_EQ(ncclGroupEnd(), ncclSystemError) << function;
  }
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclSend(data, 1, ncclInt32, 0, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclRecv(data + 1, 1, ncclInt32, 0, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(fakeGet().faults, 3);
  EXPECT_EQ(fakeGet().sends, 1);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  ExpectNothingLeft();
}

TEST_F(Fakes, WhatIsAliveAtAResetIsCountedNoLonger) {
  void* p = nullptr;
  ASSERT_EQ(cudaMalloc(&p, 16), cudaSuccess);
  EXPECT_EQ(fakeGet().allocations, 1);
  fakeReset();
  EXPECT_EQ(fakeGet().allocations, 0);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
  ExpectNothingLeft();
}

// ---- CUDA ---------------------------------------------------------------------------------------------

TEST_F(Fakes, PointersKnowTheirKindAndDevice) {
  fakeSetDeviceCount(3);
  EXPECT_EQ(cudaSetDevice(3), cudaErrorInvalidDevice);
  ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
  void *device = nullptr, *managed = nullptr, *pinned = nullptr;
  int host = 0;
  ASSERT_EQ(cudaMalloc(&device, 100), cudaSuccess);
  ASSERT_EQ(cudaMallocManaged(&managed, 100, cudaMemAttachGlobal), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 100), cudaSuccess);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(device) % 256, 0u);
  const std::pair<const void*, cudaMemoryType> expected[] = {{static_cast<char*>(device) + 99, cudaMemoryTypeDevice},
                                                             {managed, cudaMemoryTypeManaged},
                                                             {pinned, cudaMemoryTypeHost},
                                                             {&host, cudaMemoryTypeUnregistered}};
  for (const auto& [p, type] : expected) {
    cudaPointerAttributes attributes;
    EXPECT_EQ(cudaPointerGetAttributes(&attributes, p), cudaSuccess);
    EXPECT_EQ(attributes.type, type);
    EXPECT_EQ(attributes.device, type == cudaMemoryTypeUnregistered ? cudaInvalidDeviceId : 2);
  }
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFree(managed), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  ExpectNothingLeft();
  EXPECT_EQ(cudaFree(&host), cudaErrorInvalidValue);
  EXPECT_EQ(fakeGet().violations, 1);
}

TEST_F(Fakes, CopiesStayInTheirBlocks) {
  char* const data = DeviceArray(std::vector<char>(100, 'a'));
  char host[101] = {};
  EXPECT_EQ(cudaMemcpy(host, data, 101, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host, data, 100, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(fakeGet().violations, 2);
  EXPECT_EQ(cudaMemcpy2DAsync(data, 10, host, 11, 10, 9, cudaMemcpyHostToDevice, nullptr), cudaSuccess);
  EXPECT_EQ(cudaMemcpy2DAsync(data, 9, host, 11, 10, 9, cudaMemcpyDefault, nullptr), cudaErrorInvalidPitchValue);
  EXPECT_EQ(cudaMemset(data + 99, 'b', 1), cudaSuccess);
  EXPECT_EQ(HostArray(data + 99, 1)[0], 'b');
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(Fakes, EventsBelongToTheirStreamsDevice) {
  cudaEvent_t start = nullptr, end = nullptr;
  cudaStream_t stream = nullptr;
  float ms = -1;
  ASSERT_EQ(cudaEventCreate(&start), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&end), cudaSuccess);
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(start, stream), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(end, stream), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaSuccess);
  EXPECT_GE(ms, 0);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(nullptr, start, 0), cudaSuccess);
  EXPECT_EQ(fakeGet().violations, 0);
  EXPECT_EQ(cudaEventRecord(start, nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(fakeGet().violations, 1);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(start), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(end), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(Fakes, NothingWorksWhenCudaHasGone) {
  ncclComm_t comm = nullptr;
  void* p = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
  ASSERT_EQ(cudaMalloc(&p, 16), cudaSuccess);
  fakeSetCudaGone(1);
  int device = 0;
  EXPECT_EQ(cudaGetDevice(&device), cudaErrorCudartUnloading);
  EXPECT_EQ(cudaFree(p), cudaErrorCudartUnloading);
  EXPECT_EQ(fakeGet().violations, 0);
  int version = 0;
  EXPECT_EQ(ncclGetVersion(&version), ncclUnhandledCudaError);
  EXPECT_EQ(fakeGet().violations, 1);
  fakeSetCudaGone(0);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

class Capture : public Fakes {
 protected:
  void SetUp() override {
    Fakes::SetUp();
    ASSERT_EQ(cudaEventCreateWithFlags(&fork_, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&join_, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaStreamCreate(&stream_), cudaSuccess);
    ASSERT_EQ(cudaStreamCreate(&side_), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(join_, side_), cudaSuccess);
    fakeSetCapturing(stream_, 1);
  }
  void TearDown() override {
    EXPECT_EQ(cudaStreamDestroy(side_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(fork_), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(join_), cudaSuccess);
    Fakes::TearDown();
  }

  cudaEvent_t fork_ = nullptr, join_ = nullptr;
  cudaStream_t stream_ = nullptr, side_ = nullptr;
};

TEST_F(Capture, FollowsForkAndJoin) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  EXPECT_EQ(cudaEventRecord(fork_, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(side_, fork_, 0), cudaSuccess);
  EXPECT_EQ(cudaStreamIsCapturing(side_, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_EQ(cudaEventRecord(join_, side_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream_, join_, 0), cudaSuccess);
  fakeSetCapturing(stream_, 0);
  EXPECT_EQ(cudaStreamIsCapturing(side_, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(fakeGet().violations, 0);
}

TEST_F(Capture, MissesTheJoin) {
  EXPECT_EQ(cudaEventRecord(fork_, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(side_, fork_, 0), cudaSuccess);
  EXPECT_EQ(fakeGet().violations, 0);
  fakeSetCapturing(stream_, 0);
  EXPECT_EQ(fakeGet().violations, 1);
}

TEST_F(Capture, RefusesWhatCudaRefuses) {
  void* p = nullptr;
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamWaitEvent(stream_, join_, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(cudaMalloc(&p, 16), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(fakeGet().violations, 3);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&p, 16), cudaSuccess);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
  EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeRelaxed);
  fakeSetCapturing(stream_, 0);
  EXPECT_EQ(fakeGet().violations, 3);
}

TEST_F(Capture, InGlobalModeForbidsEveryThreadWhatItForbidsItsOwn) {
  fakeSetCapturing(stream_, 0);
  fakeSetCapturingGlobally(stream_, 1);
  std::thread([this] {
    EXPECT_EQ(cudaEventQuery(join_), cudaErrorStreamCaptureUnsupported);
    cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
    EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
    EXPECT_EQ(cudaEventQuery(join_), cudaSuccess);
  }).join();
  EXPECT_EQ(cudaEventQuery(join_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(fakeGet().violations, 2);
  fakeSetCapturingGlobally(stream_, 0);
  EXPECT_EQ(cudaEventQuery(join_), cudaSuccess);
}

// ---- Kernels ------------------------------------------------------------------------------------------

// A batch of one copy of 5 rows of 3 units of 4 bytes, pitches 20 and 12.
class CopyKernel : public Fakes {
 protected:
  void SetUp() override {
    Fakes::SetUp();
    std::vector<unsigned char> bytes(92);
    for (size_t i = 0; i < bytes.size(); i++) bytes[i] = static_cast<unsigned char>(i);
    src_ = DeviceArray(bytes);
    dst_ = DeviceArray(std::vector<unsigned char>(60));
    ulyxCopyDesc& desc = batch_->desc[0];
    desc.src = src_;
    desc.dst = dst_;
    desc.srcPitch = 20;
    desc.dstPitch = 12;
    desc.units = 15;
    desc.unitsPerRow = 3;
    desc.magic = static_cast<uint32_t>(((uint64_t{1} << 33) + 2) / 3);
    desc.shift = 33;
    desc.unitBytesLog2 = 2;
    batch_->count = 1;
    batch_->tiles = 1;
  }
  void TearDown() override {
    EXPECT_EQ(cudaFree(src_), cudaSuccess);
    EXPECT_EQ(cudaFree(dst_), cudaSuccess);
    Fakes::TearDown();
  }

  cudaError_t Launch() { return ulyxLaunchCopies(batch_.get(), 1, nullptr); }

  unsigned char* src_ = nullptr;
  unsigned char* dst_ = nullptr;
  std::unique_ptr<ulyxCopyBatch> batch_ = std::make_unique<ulyxCopyBatch>();
};

TEST_F(CopyKernel, MovesRows) {
  EXPECT_EQ(Launch(), cudaSuccess);
  const std::vector<unsigned char> moved = HostArray(dst_, 60);
  for (size_t i = 0; i < moved.size(); i++) EXPECT_EQ(moved[i], 20 * (i / 12) + i % 12) << i;
  EXPECT_EQ(fakeGet().launches, 1);
  EXPECT_EQ(fakeGet().launchedCopies, 1);
  EXPECT_EQ(fakeGet().mostCtas, 1);
  EXPECT_EQ(fakeGet().violations, 0);
}

TEST_F(CopyKernel, AnEmptyBatchLaunchesNothing) {
  batch_->count = batch_->tiles = 0;
  EXPECT_EQ(Launch(), cudaSuccess);
  EXPECT_EQ(fakeGet().launches, 0);
}

TEST_F(CopyKernel, RefusesWhatTheRealOneTakesOnTrust) {
  const ulyxCopyDesc sound = batch_->desc[0];
  const std::function<void(ulyxCopyDesc&)> mistakes[] = {
      [](ulyxCopyDesc& desc) { desc.src += 2; },          [](ulyxCopyDesc& desc) { desc.srcPitch = 22; },
      [](ulyxCopyDesc& desc) { desc.dstPitch = 8; },      [](ulyxCopyDesc& desc) { desc.dstPitch = 16; },
      [](ulyxCopyDesc& desc) { desc.units = 18; },        [](ulyxCopyDesc& desc) { desc.units = 16; },
      [](ulyxCopyDesc& desc) { desc.units = 0; },         [](ulyxCopyDesc& desc) { desc.units = 0xfffffffc; },
      [](ulyxCopyDesc& desc) { desc.unitBytesLog2 = 5; }, [](ulyxCopyDesc& desc) { desc.firstTile = 1; },
      [](ulyxCopyDesc& desc) { desc.magic -= 1; },        [](ulyxCopyDesc& desc) { desc.shift += 1; },
  };
  int64_t violations = 0;
  for (const auto& mistake : mistakes) {
    batch_->desc[0] = sound;
    mistake(batch_->desc[0]);
    EXPECT_EQ(Launch(), cudaErrorInvalidValue) << violations;
    EXPECT_EQ(fakeGet().violations, ++violations);
  }
  batch_->desc[0] = sound;
  batch_->tiles = 2;
  EXPECT_EQ(Launch(), cudaErrorInvalidValue);
  batch_->tiles = 1;
  EXPECT_EQ(ulyxLaunchCopies(batch_.get(), -1, nullptr), cudaErrorInvalidValue);
  batch_->count = ULYX_COPY_BATCH_LARGE + 1;
  EXPECT_EQ(Launch(), cudaErrorInvalidValue);
  EXPECT_EQ(fakeGet().violations, violations + 3);
}

TEST_F(CopyKernel, RefusesAnotherDevicesMemory) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(Launch(), cudaErrorInvalidValue);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(fakeGet().violations, 1);
}

}  // namespace
