// SPDX-License-Identifier: MIT
#include "support/contexts.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <set>

#include "support/status.h"

namespace ulyx_test {

bool TokenWorld::Refuses(int64_t total, int nRanks, int split) {
  if (split == ulyxSplitBalanced) return false;
  return total < nRanks || (split == ulyxSplitEqual && total % nRanks != 0);
}

// A split that is refused must not come here.
TokenWorld::TokenWorld(const std::vector<int64_t>& cuSeqlens, int nRanks, int split) : nRanks_(nRanks) {
  for (size_t i = 0; i + 1 < cuSeqlens.size(); i++)
    sequence_.insert(sequence_.end(), cuSeqlens[i + 1] - cuSeqlens[i], i);
  const int64_t total = int64_t(sequence_.size());
  std::vector<int64_t> share(nRanks, 0);  // tokens dealt one by one, as cards are
  for (int64_t token = 0; token < total; token++) share[token % nRanks]++;
  if (split != ulyxSplitBalanced) std::fill(share.begin(), share.end(), share.back());
  for (int rank = 0; int64_t(owner_.size()) < total; rank++) {
    owner_.insert(owner_.end(), rank < nRanks ? share[rank] : share.back(), rank);
  }
  owner_.resize(total);
}

ExpectedContext TokenWorld::Expect(int rank, int convKernel) const {
  ExpectedContext expected;
  const int64_t total = int64_t(owner_.size());
  int64_t first = -1, last = -1, before = 0, kept = 0;
  for (int64_t token = 0; token < total; token++) {
    before += owner_[token] < rank;
    kept += owner_[token] < nRanks_;
    if (owner_[token] != rank) continue;
    if (first < 0) first = token;
    last = token;
    if (expected.sequenceIndices.empty() || expected.sequenceIndices.back() != sequence_[token]) {
      expected.sequenceIndices.push_back(sequence_[token]);
      expected.localCuSeqlens.push_back(expected.localCuSeqlens.back());
    }
    expected.localCuSeqlens.back()++;
  }
  expected.droppedTokens = total - kept;
  expected.cutsSequence = kept > 0 && kept < total && sequence_[kept - 1] == sequence_[kept];
  expected.tokenRange = {before, before + expected.localCuSeqlens.back()};
  if (first < 0) return expected;

  std::set<int> ownersBefore, ownersAfter;
  for (int64_t token = 0; token < first; token++) {
    if (sequence_[token] != sequence_[first]) continue;
    expected.preNumConvTokens++;
    ownersBefore.insert(owner_[token]);
  }
  for (int64_t token = last + 1; token < total; token++) {
    if (sequence_[token] == sequence_[last]) ownersAfter.insert(owner_[token]);
  }
  expected.preNumRanks = int(ownersBefore.size());
  expected.postNumRanks = int(ownersAfter.size());
  for (int tap = 1; tap < convKernel; tap++) expected.haloTokens += tap <= expected.preNumConvTokens;
  return expected;
}

ulyxContextInfo_t InfoOf(ulyxContext_t context) {
  ulyxContextInfo_t info = ULYX_CONTEXT_INFO_INITIALIZER;
  MUST(ulyxContextGetInfo(context, &info));
  return info;
}

void ExpectContext(ulyxContext_t context, const ExpectedContext& expected, int nRanks, int rank, int split,
                   int convKernel) {
  const ulyxContextInfo_t info = InfoOf(context);
  EXPECT_EQ(info.nRanks, nRanks);
  EXPECT_EQ(info.rank, rank);
  EXPECT_EQ(info.split, split);
  EXPECT_EQ(info.convKernel, convKernel);
  EXPECT_EQ(info.isCpEnabled, nRanks > 1 ? 1 : 0);
  EXPECT_EQ(info.isFirstRank, expected.preNumRanks == 0 ? 1 : 0);
  EXPECT_EQ(info.isLastRank, expected.postNumRanks == 0 ? 1 : 0);
  EXPECT_EQ(info.preNumRanks, expected.preNumRanks);
  EXPECT_EQ(info.postNumRanks, expected.postNumRanks);
  EXPECT_EQ(info.cutsSequence, expected.cutsSequence ? 1 : 0);
  EXPECT_EQ(info.preNumConvTokens, expected.preNumConvTokens);
  EXPECT_EQ(info.haloTokens, expected.haloTokens);
  EXPECT_EQ(info.droppedTokens, expected.droppedTokens);
  EXPECT_EQ(info.tokenRange.start, expected.tokenRange.start);
  EXPECT_EQ(info.tokenRange.stop, expected.tokenRange.stop);
  ASSERT_EQ(info.numSequences, int64_t(expected.sequenceIndices.size()));
  const std::vector<int32_t> local(info.localCuSeqlens, info.localCuSeqlens + info.numSequences + 1);
  const std::vector<int64_t> indices(info.sequenceIndices, info.sequenceIndices + info.numSequences);
  EXPECT_EQ(local, expected.localCuSeqlens);
  EXPECT_EQ(indices, expected.sequenceIndices);
}

std::vector<int64_t> RandomCuSeqlens(Rng& rng, int64_t maxSequences, int64_t maxLength) {
  std::vector<int64_t> cuSeqlens = {0};
  for (int64_t left = rng.Between(0, maxSequences); left > 0; left--) {
    cuSeqlens.push_back(cuSeqlens.back() + (rng.OneIn(3) ? 0 : rng.Between(0, maxLength)));
  }
  return cuSeqlens;
}

ulyxContext_t MakeContext(const std::vector<int64_t>& cuSeqlens, int nRanks, int rank, int split, int convKernel) {
  ulyxSequences_t sequences = nullptr;
  ulyxContext_t context = nullptr;
  MUST(ulyxSequencesCreate(cuSeqlens.data(), int64_t(cuSeqlens.size()), ulyxInt64, &sequences));
  const ulyxResult_t result = ulyxContextCreate(sequences, nRanks, rank, split, convKernel, &context);
  MUST(ulyxSequencesDestroy(sequences));
  MUST(result);
  return context;
}

double ThreadSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

bool TimeCounts() {
#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;
#elif defined(__has_feature)
  return !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer);
#else
  return true;
#endif
}

}  // namespace ulyx_test
