// SPDX-License-Identifier: MIT
//
// What a context must say, from global coordinates only: every token's sequence and every token's owner, looked at
// one by one. No search, no division of positions by shard sizes.
#ifndef ULYX_TESTS_SUPPORT_CONTEXTS_H_
#define ULYX_TESTS_SUPPORT_CONTEXTS_H_

#include <cstdint>
#include <vector>

#include "support/rng.h"
#include "ulyx.h"

namespace ulyx_test {

struct ExpectedContext {
  ulyxRange_t tokenRange = {0, 0};
  std::vector<int32_t> localCuSeqlens = {0};
  std::vector<int64_t> sequenceIndices;
  int64_t preNumConvTokens = 0, haloTokens = 0, droppedTokens = 0;
  int preNumRanks = 0, postNumRanks = 0;
  bool cutsSequence = false;
};

class TokenWorld {
 public:
  TokenWorld(const std::vector<int64_t>& cuSeqlens, int nRanks, int split);

  ExpectedContext Expect(int rank, int convKernel) const;

  // What a caller of the split must be refused.
  static bool Refuses(int64_t total, int nRanks, int split);

 private:
  const int nRanks_;
  std::vector<int64_t> sequence_;  // of each token
  std::vector<int> owner_;         // of each token; nRanks and more for the tail that belongs to nobody
};

// Checks every field.
void ExpectContext(ulyxContext_t context, const ExpectedContext& expected, int nRanks, int rank, int split,
                   int convKernel);

ulyxContextInfo_t InfoOf(ulyxContext_t context);

// Sequences of 0 to maxLength tokens, one in three without any.
std::vector<int64_t> RandomCuSeqlens(Rng& rng, int64_t maxSequences, int64_t maxLength);

// The context of cuSeqlens; throws what is refused.
ulyxContext_t MakeContext(const std::vector<int64_t>& cuSeqlens, int nRanks, int rank, int split, int convKernel);

// Processor time of the calling thread, which a busy machine does not stretch.
double ThreadSeconds();

// False where a build's time means nothing: without optimization or with a sanitizer.
bool TimeCounts();

}  // namespace ulyx_test

#endif  // ULYX_TESTS_SUPPORT_CONTEXTS_H_
