// SPDX-License-Identifier: MIT
//
// A rank with one plan and its tensors, for tests that are not about what is exchanged.
#ifndef ULYX_TESTS_SUPPORT_TRAVELLER_H_
#define ULYX_TESTS_SUPPORT_TRAVELLER_H_

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <string>
#include <thread>

#include "exchange_check.h"
#include "world.h"

namespace ulyx_test {

// As the library writes it.
inline std::string SignatureOf(ulyxPlan_t plan) {
  ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
  MUST(ulyxPlanGetInfo(plan, &info));
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, info.signature);
  return text;
}

// Asks until there is an answer, for as long as a busy machine may take.
inline ulyxResult_t Found(ulyxRuntime_t runtime) {
  ulyxResult_t found = ulyxSuccess;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (found == ulyxSuccess && std::chrono::steady_clock::now() < until) {
    MUST(ulyxRuntimeGetAsyncError(runtime, &found));
    if (found == ulyxSuccess) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return found;
}

class Traveller {
 public:
  Traveller(const Session& session, const Oracle& oracle, const Shape& shape, int rank)
      : stream_(session.Stream(rank)),
        plan_(MakePlan(session, shape.c, rank)),
        tensors_(session, oracle, rank, Ordinary) {}
  ulyxResult_t Go() const { return GoOn(stream_); }
  ulyxResult_t GoOn(ulyxStream_t stream) const {
    const ulyxTensor_t in = tensors_.OutputIn(plan_), out = tensors_.OutputOut(plan_);
    return ulyxHeadsToSeq(plan_, &in, &out, stream);
  }
  // The plan's other exchange.
  ulyxResult_t GoTheOtherWay() const {
    const ulyxQkv_t in = tensors_.In(plan_), out = tensors_.Out(plan_);
    return ulyxSeqToHeads(plan_, &in, &out, stream_);
  }
  ulyxPlan_t Plan() const { return plan_; }

 private:
  const ulyxStream_t stream_;
  const ulyxPlan_t plan_;
  const RankTensors tensors_;
};

}  // namespace ulyx_test

#endif  // ULYX_TESTS_SUPPORT_TRAVELLER_H_
