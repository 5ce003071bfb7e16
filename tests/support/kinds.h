// SPDX-License-Identifier: MIT
//
// One rank's small plan of every kind, made and called with memory of its own: for tests of what surrounds an exchange
// rather than of what it moves.
#ifndef ULYX_TESTS_SUPPORT_KINDS_H_
#define ULYX_TESTS_SUPPORT_KINDS_H_

#include <vector>

#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

enum class Kind { kExchange, kGather, kReduceScatter, kAllToAll, kHalo, kChain };
constexpr Kind kKinds[] = {Kind::kExchange, Kind::kGather, Kind::kReduceScatter,
                           Kind::kAllToAll, Kind::kHalo,   Kind::kChain};
const char* NameOf(Kind kind);

// Staging that is enough for any of them.
constexpr int64_t kKindsArenaBytes = 1 << 18;

class Kinds {
 public:
  Kinds(const World& world, int nRanks, int rank);
  ~Kinds();
  Kinds(const Kinds&) = delete;
  Kinds& operator=(const Kinds&) = delete;

  ulyxResult_t Make(ulyxRuntime_t runtime, Kind kind, ulyxPlan_t* plan) const;
  // Enqueues the plan's exchange, or the other direction's where there is one.
  static bool HasBackward(Kind kind);
  ulyxResult_t Call(Kind kind, ulyxPlan_t plan, bool backward, ulyxStream_t stream) const;

  ulyxContext_t Context() const { return context_; }
  // Memory that nothing else uses during a call.
  void* Piece(int i) const { return static_cast<char*>(memory_) + i * kPieceBytes; }

 private:
  static constexpr int64_t kPieceBytes = 1 << 15;

  const World& world_;
  const int nRanks_, rank_;
  void* memory_ = nullptr;
  ulyxContext_t context_ = nullptr;
};

}  // namespace ulyx_test

#endif  // ULYX_TESTS_SUPPORT_KINDS_H_
