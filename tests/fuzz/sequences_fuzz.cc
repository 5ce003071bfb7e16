// SPDX-License-Identifier: MIT
//
// Any bytes as cu_seqlens, under any split. What cannot be sequences is refused and nothing is made; of what is
// accepted, every rank's context is what a look at every rank and every sequence says, whether made, copied or cached.
#include <algorithm>
#include <memory>
#include <vector>

#include "input.h"
#include "ulyx.h"

extern "C" {
#include "context.h"
}

namespace ulyx_fuzz {

namespace {

constexpr int kMostRanks = 40;    // whose contexts are looked at one by one
constexpr int kMostCount = 3000;  // two pieces of what the library checks at a time
constexpr int kMostCached = 4;    // ranks whose contexts are also asked of a cache

// An array of int32 or int64 at any address, in memory that ends where it does.
class CuSeqlens {
 public:
  explicit CuSeqlens(Input* input) {
    const int kind = input->Byte();
    type_ = kind < 120 ? ulyxInt32 : kind < 250 ? ulyxInt64 : int(input->Number(20));
    const bool wide = type_ == ulyxInt64;
    std::vector<int64_t> values;
    const int how = input->Byte();
    count_ = how < 240 ? 1 + how % 20 : 1 + (input->Number(255) & INT64_MAX) % kMostCount;
    for (int64_t i = 0; i < count_; i++) values.push_back(Next(input, how, values));
    bytes_ = size_t(count_) * (wide ? 8 : 4);
    offset_ = input->Byte() % 8;
    memory_ = std::make_unique<uint8_t[]>(offset_ + bytes_);
    for (int64_t i = 0; i < count_; i++) {
      const int32_t narrow = int32_t(values[i]);
      if (wide) {
        std::memcpy(memory_.get() + offset_ + 8 * i, &values[i], 8);
      } else {
        std::memcpy(memory_.get() + offset_ + 4 * i, &narrow, 4);
        values[i] = narrow;
      }
    }
    values_ = values;
    if (input->Chance(6)) ClaimAnotherCount(input);
  }

  const void* Data() const { return isNull_ ? nullptr : memory_.get() + offset_; }
  int64_t Count() const { return count_; }
  int Type() const { return type_; }
  const std::vector<int64_t>& Values() const { return values_; }

  // By the header's words.
  bool Valid() const {
    if (isNull_ || count_ != int64_t(values_.size()) || (type_ != ulyxInt32 && type_ != ulyxInt64)) return false;
    return values_[0] == 0 && std::is_sorted(values_.begin(), values_.end());
  }

 private:
  // Rising from 0, or anything.
  static int64_t Next(Input* input, int how, const std::vector<int64_t>& values) {
    if (how % 8 == 7) return input->Number(200);
    if (values.empty()) return how % 8 == 6 ? input->Number(1) : 0;
    const int64_t length = how % 2 == 0 ? input->Byte() % 6 : input->Number(60);
    return int64_t(uint64_t(values.back()) + uint64_t(length));
  }

  // None, negative ones, and more than there is memory for: those must be refused before anything is read.
  void ClaimAnotherCount(Input* input) {
    const int kind = input->Byte();
    isNull_ = kind < 64;
    if (kind >= 64)
      count_ = kind < 128 ? -(input->Number(3) & INT64_MAX) : (INT64_C(1) << (28 + kind % 35)) + input->Byte();
  }

  int type_;
  int64_t count_;
  size_t offset_, bytes_;
  std::unique_ptr<uint8_t[]> memory_;
  std::vector<int64_t> values_;
  bool isNull_ = false;
};

// Shards by a loop over the ranks; behind them, shards as long as the ranks', which the dropped tail would take.
class Shards {
 public:
  Shards(int64_t total, int nRanks, int split) : nRanks_(nRanks) {
    const int64_t longer = split == ulyxSplitBalanced ? total % nRanks : 0;
    int64_t start = 0;
    for (int rank = 0; rank < nRanks || start < total; rank++) {
      const int64_t length = total / nRanks + (rank < longer ? 1 : 0);
      const int64_t stop = start + std::min(length, total - start);
      ranges_.push_back({start, stop});
      start = stop;
    }
  }

  static bool Refuses(int64_t total, int nRanks, int split) {
    if (nRanks < 1 || split < ulyxSplitBalanced || split > ulyxSplitTruncate) return true;
    if (split == ulyxSplitEqual) return total < nRanks || total % nRanks != 0;
    return split == ulyxSplitTruncate && total < nRanks;
  }

  ulyxRange_t Of(int rank) const { return ranges_[rank]; }
  int64_t Kept() const { return ranges_[nRanks_ - 1].stop; }
  int OwnerOf(int64_t token) const {
    int rank = 0;
    while (ranges_[rank].stop <= token) rank++;
    return rank;
  }

 private:
  const int nRanks_;
  std::vector<ulyxRange_t> ranges_;
};

struct Call {
  int nRanks, rank, split, convKernel;
};

void CheckInfo(ulyxContext_t context, const std::vector<int64_t>& bounds, const Shards& shards, const Call& call) {
  ulyxContextInfo_t info = ULYX_CONTEXT_INFO_INITIALIZER;
  FUZZ_CHECK(ulyxContextGetInfo(context, &info) == ulyxSuccess);
  const ulyxRange_t own = shards.Of(call.rank);
  std::vector<int64_t> indices;
  std::vector<int64_t> local = {0};
  for (size_t i = 0; i + 1 < bounds.size(); i++) {
    const int64_t start = std::max(bounds[i], own.start), stop = std::min(bounds[i + 1], own.stop);
    if (start >= stop) continue;
    indices.push_back(int64_t(i));
    local.push_back(stop - own.start);
  }
  int64_t before = 0;
  int pre = 0, post = 0;
  if (!indices.empty()) {
    before = own.start - bounds[indices.front()];
    pre = call.rank - shards.OwnerOf(bounds[indices.front()]);
    post = shards.OwnerOf(bounds[indices.back() + 1] - 1) - call.rank;
  }
  const int64_t kept = shards.Kept(), total = bounds.back();
  const bool cuts = kept < total && !std::any_of(bounds.begin(), bounds.end(), [&](int64_t b) { return b == kept; });

  FUZZ_CHECK(info.nRanks == call.nRanks && info.rank == call.rank && info.split == call.split);
  FUZZ_CHECK(info.convKernel == call.convKernel && info.isCpEnabled == (call.nRanks > 1));
  FUZZ_CHECK(info.tokenRange.start == own.start && info.tokenRange.stop == own.stop);
  FUZZ_CHECK(info.preNumRanks == pre && info.isFirstRank == (pre == 0));
  FUZZ_CHECK(info.postNumRanks == post && info.isLastRank == (post == 0));
  FUZZ_CHECK(info.preNumConvTokens == before);
  FUZZ_CHECK(info.haloTokens == (call.convKernel == 0 ? 0 : std::min<int64_t>(call.convKernel - 1, before)));
  FUZZ_CHECK(info.droppedTokens == total - kept && info.cutsSequence == cuts);
  FUZZ_CHECK(info.numSequences == int64_t(indices.size()));
  FUZZ_CHECK(std::equal(indices.begin(), indices.end(), info.sequenceIndices));
  FUZZ_CHECK(std::equal(local.begin(), local.end(), info.localCuSeqlens));

  const ulyxShardView view = ulyxContextViewRank(context, call.rank);
  FUZZ_CHECK(view.haloTokens == info.haloTokens && view.preNumConvTokens == before);
  FUZZ_CHECK(view.preNumRanks == pre && view.postNumRanks == post);
  FUZZ_CHECK((ulyxContextCheckChain(context) == ulyxSuccess) == !cuts);
}

// A shard of more than 2^31 - 1 tokens has local cu_seqlens that int32 cannot hold.
bool Fits(const Shards& shards, int rank) {
  return shards.Of(rank).stop - shards.Of(rank).start <= INT32_MAX;
}

void CheckRank(ulyxSequences_t sequences, ulyxContextCache_t cache, const CuSeqlens& given, const Shards& shards,
               const Call& call) {
  ulyxContext_t context = nullptr, copy = nullptr, cached = nullptr;
  const ulyxResult_t result =
      ulyxContextCreate(sequences, call.nRanks, call.rank, call.split, call.convKernel, &context);
  if (!Fits(shards, call.rank)) {
    FUZZ_CHECK(result == ulyxInvalidArgument && context == nullptr);
    return;
  }
  FUZZ_CHECK(result == ulyxSuccess);
  CheckInfo(context, given.Values(), shards, call);
  FUZZ_CHECK(ulyxContextCopy(context, &copy) == ulyxSuccess);
  FUZZ_CHECK(ulyxContextDestroy(context) == ulyxSuccess);
  CheckInfo(copy, given.Values(), shards, call);
  FUZZ_CHECK(ulyxContextDestroy(copy) == ulyxSuccess);
  for (int turn = 0; call.rank < kMostCached && turn < 2; turn++) {
    FUZZ_CHECK(ulyxContextCacheGet(cache, given.Data(), given.Count(), given.Type(), call.nRanks, call.rank, call.split,
                                   call.convKernel, &cached) == ulyxSuccess);
    CheckInfo(cached, given.Values(), shards, call);
    FUZZ_CHECK(ulyxContextDestroy(cached) == ulyxSuccess);
  }
}

// What every one of these is to be refused for, or not.
void CheckCall(ulyxSequences_t sequences, const Call& call, int64_t total) {
  ulyxContext_t context = nullptr;
  const ulyxResult_t result =
      ulyxContextCreate(sequences, call.nRanks, call.rank, call.split, call.convKernel, &context);
  const bool refused = Shards::Refuses(total, call.nRanks, call.split) || call.rank < 0 || call.rank >= call.nRanks ||
                       call.convKernel < 0;
  FUZZ_CHECK(result == ulyxSuccess || result == ulyxInvalidArgument);
  FUZZ_CHECK(!refused || result == ulyxInvalidArgument);
  FUZZ_CHECK((result == ulyxSuccess) == (context != nullptr));
  FUZZ_CHECK(result == ulyxSuccess || ulyxGetLastError(nullptr)[0] != '\0');
  FUZZ_CHECK(ulyxContextDestroy(context) == ulyxSuccess);
}

void CheckWorlds(Input* input, ulyxSequences_t sequences, const CuSeqlens& given) {
  ulyxContextCache_t cache = nullptr;
  FUZZ_CHECK(ulyxContextCacheCreate(1 + input->Byte() % 4, &cache) == ulyxSuccess);
  const int64_t total = given.Values().back();
  const int nRanks = 1 + input->Byte() % kMostRanks;
  const int convKernel = int(input->Number(9) & INT32_MAX);
  for (int split = ulyxSplitBalanced; split <= ulyxSplitTruncate; split++) {
    CheckCall(sequences, {nRanks, 0, split, convKernel}, total);
    if (Shards::Refuses(total, nRanks, split)) continue;
    const Shards shards(total, nRanks, split);
    for (int rank = 0; rank < nRanks; rank++) {
      CheckRank(sequences, cache, given, shards, {nRanks, rank, split, convKernel});
    }
  }
  for (int turns = 4; turns > 0; turns--) {
    const Call any = {int(input->Number(9)), int(input->Number(9)), int(input->Number(4)), int(input->Number(9))};
    CheckCall(sequences, any, total);
  }
  FUZZ_CHECK(ulyxContextCacheDestroy(cache) == ulyxSuccess);
}

}  // namespace

int Run(const uint8_t* data, size_t size) {
  Input input(data, size);
  const CuSeqlens given(&input);
  ulyxSequences_t sequences = nullptr;
  const ulyxResult_t result = ulyxSequencesCreate(given.Data(), given.Count(), given.Type(), &sequences);
  if (!given.Valid()) {
    FUZZ_CHECK(result == ulyxInvalidArgument || result == ulyxSystemError);
    FUZZ_CHECK(result == ulyxInvalidArgument || given.Count() >= INT64_C(1) << 28);
    FUZZ_CHECK(sequences == nullptr && ulyxGetLastError(nullptr)[0] != '\0');
    return 0;
  }
  FUZZ_CHECK(result == ulyxSuccess);
  CheckWorlds(&input, sequences, given);
  FUZZ_CHECK(ulyxSequencesDestroy(sequences) == ulyxSuccess);
  return 0;
}

}  // namespace ulyx_fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return ulyx_fuzz::Run(data, size);
}
