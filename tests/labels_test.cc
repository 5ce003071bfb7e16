// SPDX-License-Identifier: MIT
//
// Labels of messages by themselves, on a device or what stands in for it: what is written, what is found, and what is
// said of an exchange that does not end.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>  // with templates, so not within what follows

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "support/status.h"
#include "support/world.h"

#include "kernels.h"
extern "C" {
#include "labels.h"
}

namespace ulyx_test {

namespace {

constexpr uint64_t kSignature = 0x1234, kPlan = 0xabcdef;
constexpr int64_t kNumber = 41;
constexpr ulyxGuardExchange kWatched = {kNumber, "seq_to_heads", kPlan};

ulyxLabel LabelOf(uint64_t signature, uint64_t plan, uint64_t number, const char* operation) {
  ulyxLabel label = {ulyxLabelWritten, signature, plan, number, {}};
  std::strncpy(label.operation, operation, sizeof label.operation - 1);
  return label;
}

class Labels : public ::testing::Test {
 protected:
  void SetUp() override {
    const World& gpus = *Worlds().back();
    ULYX_SKIP_BELOW(gpus, 1);
    gpus.Use(0);
    ASSERT_EQ(ulyxLoadLabels(), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }

  void TearDown() override {
    if (stream_ == nullptr) return;
    MUST(ulyxLabelsDestroy(&labels_));
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }

  // Of a rank that is sent something by each of `senders`.
  void Create(int nRanks, int rank, const std::vector<int>& senders) {
    MUST(ulyxLabelsCreate(nRanks, rank, &labels_));
    starts_.assign(nRanks + 1, 0);
    for (int sender : senders) starts_[sender + 1] = 1;
    for (int i = 0; i < nRanks; i++) starts_[i + 1] += starts_[i];
    phase_.nRanks = nRanks;
    phase_.rank = rank;
    phase_.recvStart = starts_.data();
    exchange_.operation = "seq_to_heads";
    exchange_.number = kNumber;
    exchange_.plan = kPlan;
    exchange_.signature = kSignature;
    exchange_.phase = &phase_;
    exchange_.stream = stream_;
  }

  void Write() {
    MUST(ulyxLabelsWrite(&labels_, &exchange_));
    Synchronize();
  }
  void Compare() {
    MUST(ulyxLabelsCompare(&labels_, &exchange_));
    Synchronize();
  }
  void Synchronize() { ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }

  // As NCCL would bring it.
  void Bring(int rank, const ulyxLabel& label) {
    ASSERT_EQ(cudaMemcpy(&labels_.device[ULYX_LABEL_FROM(rank)], &label, sizeof label, cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  void BringOurs(int rank) { Bring(rank, LabelOf(kSignature, kPlan, kNumber, "seq_to_heads")); }

  std::vector<ulyxLabel> There() {
    std::vector<ulyxLabel> labels(starts_.size());
    EXPECT_EQ(cudaMemcpy(labels.data(), labels_.device, labels.size() * sizeof(ulyxLabel), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return labels;
  }

  std::string Explained(const ulyxGuardExchange& exchange = kWatched, size_t bytes = 256) {
    std::string text(bytes, '#');
    ulyxLabelsExplain(&labels_, &exchange, text.data(), bytes);
    return text.substr(0, text.find('\0'));
  }

  ulyxLabels labels_ = {};
  ulyxPhase phase_ = {};
  ulyxExchange exchange_ = {};
  cudaStream_t stream_ = nullptr;

 private:
  std::vector<int64_t> starts_;
};

}  // namespace

// More than one launch writes.
TEST_F(Labels, AreAwaitedFromTheOtherRanksThatSend) {
  const int nRanks = 1100, own = 601;
  std::vector<int> senders;
  for (int rank = 0; rank < nRanks; rank++) {
    if (rank % 3 == 1) senders.push_back(rank);
  }
  Create(nRanks, own, senders);
  Write();
  const std::vector<ulyxLabel> labels = There();
  EXPECT_EQ(labels[ULYX_LABEL_OWN].state, ulyxLabelWritten);
  EXPECT_EQ(labels[ULYX_LABEL_OWN].signature, kSignature);
  EXPECT_EQ(labels[ULYX_LABEL_OWN].plan, kPlan);
  EXPECT_EQ(labels[ULYX_LABEL_OWN].number, uint64_t(kNumber));
  EXPECT_STREQ(labels[ULYX_LABEL_OWN].operation, "seq_to_heads");
  for (int rank = 0; rank < nRanks; rank++) {
    const uint64_t expected = rank % 3 == 1 && rank != own ? ulyxLabelAwaited : ulyxLabelNone;
    ASSERT_EQ(labels[ULYX_LABEL_FROM(rank)].state, expected) << "rank " << rank;
  }
}

TEST_F(Labels, ThatAreThisRanksOwnAreNothingToTell) {
  Create(70, 2, {0, 1, 69});
  Write();
  for (int rank : {0, 1, 69}) BringOurs(rank);
  Compare();
  EXPECT_FALSE(ulyxLabelsHavePassing(&labels_));
  MUST(ulyxLabelsPassing(&labels_));
}

// An abort of the communicator lets what follows NCCL's kernel run.
TEST_F(Labels, ThatHaveNotComeAreNothingToTell) {
  Create(3, 2, {0, 1});
  Write();
  BringOurs(0);
  Compare();
  EXPECT_FALSE(ulyxLabelsHavePassing(&labels_));
}

TEST_F(Labels, ThatAreAnothersAreToldOnceWithBothSidesTheLowestRankFirst) {
  Create(70, 2, {0, 1, 40, 69});
  Write();
  for (int rank : {0, 1}) BringOurs(rank);
  Bring(69, LabelOf(1, 2, 3, "all_gather_rows"));
  Bring(40, LabelOf(kSignature + 8, 0x77, 42, "heads_to_seq"));
  Compare();
  Bring(0, LabelOf(5, 6, 7, "later"));  // nobody has asked since
  Compare();
  EXPECT_TRUE(ulyxLabelsHavePassing(&labels_));
  EXPECT_TRUE(Refused(ulyxLabelsPassing(&labels_), ulyxMismatch,
                      {"exchange 41 by nccl is seq_to_heads of plan 0000000000abcdef here",
                       "rank 40 sent exchange 42, heads_to_seq of plan 0000000000000077", "void", "same order"}));
  EXPECT_FALSE(ulyxLabelsHavePassing(&labels_));
  Compare();
  EXPECT_TRUE(Refused(ulyxLabelsPassing(&labels_), ulyxMismatch, {"rank 0 sent exchange 7, later of plan"}));
}

TEST_F(Labels, OfExchangesThatFollowEachOtherAreNothingToTell) {
  Create(1100, 0, {1});  // more than one launch writes
  for (int i = 0; i < 3; i++) {
    Write();
    Compare();
  }
  MUST(ulyxLabelsLost(&labels_));
}

TEST_F(Labels, OfAnExchangeThatBeginsWhileAnotherRunsLoseTheWorldOnceAndForAll) {
  Create(1100, 7, {1});
  Write();
  ++exchange_.number;
  MUST(ulyxLabelsLost(&labels_));
  Write();
  Compare();
  for (int i = 0; i < 2; i++) {
    EXPECT_TRUE(Refused(ulyxLabelsLost(&labels_), ulyxRemoteError,
                        {"exchange 42 by nccl began while exchange 41", "rank 7", "order them by events"}));
    exchange_.number += 10;
    Write();  // one more that overlaps is not told
    Write();
  }
}

TEST_F(Labels, SayWhoDidNotCome) {
  Create(12, 0, {1, 2, 3});
  Write();
  BringOurs(2);
  EXPECT_EQ(Explained(), "nothing came from rank 1, rank 3");
}

TEST_F(Labels, NameTheFirstOfManyThatDidNotCome) {
  std::vector<int> all;
  for (int rank = 0; rank < 2000; rank++) all.push_back(rank);
  Create(2000, 0, all);
  Write();
  EXPECT_EQ(Explained(),
            "nothing came from rank 1, rank 2, rank 3, rank 4, rank 5, rank 6, rank 7, rank 8 and 1991 more");
}

TEST_F(Labels, SayWhatARankCameWithInstead) {
  Create(3, 0, {1, 2});
  Write();
  Bring(2, LabelOf(kSignature ^ 1, 0x99, 40, "reduce_scatter_rows"));
  const std::string said = Explained();
  EXPECT_NE(said.find("rank 2 came with exchange 40, reduce_scatter_rows of plan 0000000000000099"), std::string::npos)
      << said;
}

TEST_F(Labels, SayThatNobodyIsWaitedForWhereNobodySends) {
  Create(3, 0, {});
  Write();
  EXPECT_EQ(Explained(), "this rank only sends, and a rank does not receive");
}

TEST_F(Labels, SayWhatElseThereIsToSay) {
  Create(2, 0, {1});
  EXPECT_EQ(Explained(), "what precedes it on its stream has not ended");
  Write();
  BringOurs(1);
  EXPECT_EQ(Explained(), "every rank that sends to this one came; one was lost since, or does not receive");
  EXPECT_EQ(Explained({kNumber + 1, "seq_to_heads", kPlan}), "what precedes it on its stream has not ended");
  EXPECT_EQ(Explained(kWatched, 11), "every rank");
}

}  // namespace ulyx_test
