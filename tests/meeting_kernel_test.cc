// SPDX-License-Identifier: MIT
//
// The meeting kernel by itself, for two ranks that share one GPU: exchanges of a rank that follow each other, and two
// that overlap, as graphs replayed on two streams at once do.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "exchange_layout.h"
#include "kernels.h"
#include "support/internal.h"
#include "support/world.h"

namespace ulyx_test {

namespace {

constexpr int kRanks = 2;
constexpr uint64_t kTimeoutNs = 5000000000;  // longer than a test takes that is right

constexpr int64_t kOwnBytes = 4 << 20;
constexpr int kBlocks = 40;

struct Mailbox {
  ulyxReport passing, final;
  uint32_t abort;
};

class MeetingKernel : public ::testing::Test {
 protected:
  void SetUp() override {
    const World& gpus = *Worlds().back();
    ULYX_SKIP_BELOW(gpus, 1);
    gpus.Use(0);
    ASSERT_EQ(ulyxLoadExchange(), cudaSuccess);
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&records_), kRanks * sizeof(ulyxRecords)), cudaSuccess);
    ASSERT_EQ(cudaMemset(records_, 0, kRanks * sizeof(ulyxRecords)), cudaSuccess);
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&state_), kRanks * sizeof(ulyxSyncState)), cudaSuccess);
    ASSERT_EQ(cudaMemset(state_, 0, kRanks * sizeof(ulyxSyncState)), cudaSuccess);
    const uint64_t windows[kRanks] = {reinterpret_cast<uint64_t>(records_), reinterpret_cast<uint64_t>(records_ + 1)};
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&windows_), sizeof windows), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(windows_, windows, sizeof windows, cudaMemcpyHostToDevice), cudaSuccess);
    ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&mailbox_), kRanks * sizeof *mailbox_), cudaSuccess);
    std::memset(mailbox_, 0, kRanks * sizeof *mailbox_);
    for (cudaStream_t& stream : streams_) {
      ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  void TearDown() override {
    if (records_ == nullptr) return;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (const cudaStream_t stream : streams_) EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(mailbox_), cudaSuccess);
    for (void* memory : {static_cast<void*>(records_), static_cast<void*>(state_), static_cast<void*>(windows_)}) {
      EXPECT_EQ(cudaFree(memory), cudaSuccess);
    }
  }

  enum Half { kWhole, kEntering, kLeaving };

  // With `own`, a copy of its first half to its second by many blocks; without, the one warp that only meets.
  void Launch(int rank, cudaStream_t stream, uint64_t signature = 77, Half half = kWhole,
              unsigned char* own = nullptr) {
    static ulyxExchangeBatch batch;  // too large for a stack
    batch = {};
    if (own != nullptr) {
      ulyxStrip strip = {own, own + kOwnBytes / 2, 1, kOwnBytes / 2, kOwnBytes / 2, kOwnBytes / 2, 0};
      ulyxCopyDescTake(&batch.desc[0], &batch.tiles, &strip);
      batch.count = 1;
    }
    batch.meeting.windows = windows_;
    batch.meeting.state = state_ + rank;
    batch.meeting.passing = &mailbox_[rank].passing;
    batch.meeting.final = &mailbox_[rank].final;
    batch.meeting.abort = &mailbox_[rank].abort;
    batch.meeting.signature = signature;
    batch.meeting.timeoutNs = kTimeoutNs;
    batch.meeting.rank = rank;
    batch.meeting.nRanks = kRanks;
    batch.meeting.enters = half != kLeaving;
    batch.meeting.leaves = half != kEntering;
    EXPECT_EQ(ulyxLaunchExchange(&batch, own != nullptr ? kBlocks : 1, stream), cudaSuccess);
  }

  // First half 1, second half 2.
  static unsigned char* Own() {
    unsigned char* own = nullptr;
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&own), kOwnBytes), cudaSuccess);
    EXPECT_EQ(cudaMemset(own, 1, kOwnBytes / 2), cudaSuccess);
    EXPECT_EQ(cudaMemset(own + kOwnBytes / 2, 2, kOwnBytes / 2), cudaSuccess);
    return own;
  }
  // How many bytes of the second half the first one's are in by now; frees it.
  static int64_t Copied(unsigned char* own) {
    std::vector<unsigned char> half(kOwnBytes / 2);
    EXPECT_EQ(cudaMemcpy(half.data(), own + kOwnBytes / 2, half.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(cudaFree(own), cudaSuccess);
    return std::count(half.begin(), half.end(), 1);
  }

  ulyxSyncState StateOf(int rank) const {
    ulyxSyncState state = {};
    EXPECT_EQ(cudaMemcpy(&state, state_ + rank, sizeof state, cudaMemcpyDeviceToHost), cudaSuccess);
    return state;
  }

  ulyxRecords* records_ = nullptr;
  ulyxSyncState* state_ = nullptr;
  uint64_t* windows_ = nullptr;
  Mailbox* mailbox_ = nullptr;
  cudaStream_t streams_[3] = {};
};

}  // namespace

TEST_F(MeetingKernel, LetsExchangesFollowEachOther) {
  constexpr int kExchanges = 50;
  for (int i = 0; i < kExchanges; i++) {
    for (int rank = 0; rank < kRanks; rank++) Launch(rank, streams_[rank]);
  }
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (int rank = 0; rank < kRanks; rank++) {
    EXPECT_EQ(mailbox_[rank].final.kind, uint32_t{ulyxFoundNothing});
    EXPECT_EQ(mailbox_[rank].passing.kind, uint32_t{ulyxFoundNothing});
    const ulyxSyncState state = StateOf(rank);
    EXPECT_EQ(state.epoch, uint64_t{kExchanges});
    EXPECT_EQ(state.entered, state.epoch);
    EXPECT_EQ(state.verdict.lost, 0u);
  }
}

TEST_F(MeetingKernel, LetsAnExchangeFollowOneThatWasRefused) {
  for (const uint64_t signatureOfOne : {78, 77}) {
    Launch(0, streams_[0]);
    Launch(1, streams_[1], signatureOfOne);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (int rank = 0; rank < kRanks; rank++) {
      const bool refused = signatureOfOne != 77;
      EXPECT_EQ(mailbox_[rank].passing.kind, uint32_t{refused ? ulyxFoundMismatch : ulyxFoundNothing});
      EXPECT_EQ(mailbox_[rank].final.kind, uint32_t{ulyxFoundNothing});
      EXPECT_EQ(StateOf(rank).verdict.voided, refused ? 1u : 0u);
      EXPECT_EQ(StateOf(rank).entered, StateOf(rank).epoch);
      mailbox_[rank].passing.kind = ulyxFoundNothing;
    }
  }
}

// Rank 0's first has met rank 1 and waits for it to leave; its second begins beside it. Neither may look as if it had
// ended well, to the host, to what follows on the stream, or to rank 1.
TEST_F(MeetingKernel, LosesAnExchangeThatHasMetItsPeersToOneThatOverlapsIt) {
  Launch(1, streams_[1], 77, kEntering);
  Launch(0, streams_[0]);
  ASSERT_EQ(cudaStreamSynchronize(streams_[1]), cudaSuccess);
  Launch(0, streams_[2]);
  ASSERT_EQ(cudaStreamSynchronize(streams_[2]), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(streams_[0]), cudaSuccess);
  EXPECT_EQ(mailbox_[0].final.kind, uint32_t{ulyxFoundOverlap});
  EXPECT_EQ(StateOf(0).verdict.voided, 1u);
  EXPECT_EQ(StateOf(0).epoch, 0u);
  Launch(1, streams_[1], 77, kLeaving);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(mailbox_[1].final.kind, uint32_t{ulyxFoundAborted});
  EXPECT_EQ(StateOf(1).verdict.voided, 1u);
}

// The same by kernels that copy: of two that overlap before the peer has come, neither copies anything, and what comes
// later is refused at once.
TEST_F(MeetingKernel, OfManyBlocksCopyOnceMetAndNothingWhereTwoOverlap) {
  unsigned char *const right = Own(), *const first = Own(), *const second = Own();
  Launch(0, streams_[0], 77, kWhole, right);
  Launch(1, streams_[1]);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(Copied(right), kOwnBytes / 2);
  EXPECT_EQ(StateOf(0).entered, 1u);
  Launch(0, streams_[0], 77, kWhole, first);
  Launch(0, streams_[2], 77, kWhole, second);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(mailbox_[0].final.kind, uint32_t{ulyxFoundOverlap});
  EXPECT_EQ(mailbox_[0].final.epoch, 2u);
  EXPECT_EQ(StateOf(0).epoch, 1u);
  EXPECT_EQ(Copied(first), 0);
  EXPECT_EQ(Copied(second), 0);
}

// Rank 0's first waits for rank 1, which does not come; its second begins beside it.
TEST_F(MeetingKernel, FindsTwoExchangesOfARankThatOverlapLongBeforeTheDeadline) {
  Launch(0, streams_[0]);
  Launch(0, streams_[2]);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(mailbox_[0].final.kind, uint32_t{ulyxFoundOverlap});
  EXPECT_EQ(mailbox_[0].final.epoch, 1u);
  EXPECT_EQ(mailbox_[0].final.peer, 0u);
  EXPECT_EQ(StateOf(0).verdict.lost, 1u);
  EXPECT_EQ(StateOf(0).verdict.voided, 1u);
  // The peer that comes then is told.
  Launch(1, streams_[1]);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(mailbox_[1].final.kind, uint32_t{ulyxFoundAborted});
  EXPECT_EQ(mailbox_[1].final.peer, 0u);
}

}  // namespace ulyx_test
