// SPDX-License-Identifier: MIT
//
// A rank with one plan and the tensors of one way, for tests that are not about what is exchanged.
#ifndef ULYX_TESTS_SUPPORT_TRAVELLER_H_
#define ULYX_TESTS_SUPPORT_TRAVELLER_H_

#include <cinttypes>
#include <cstdio>
#include <string>

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
  ulyxPlan_t Plan() const { return plan_; }

 private:
  const ulyxStream_t stream_;
  const ulyxPlan_t plan_;
  const RankTensors tensors_;
};

}  // namespace ulyx_test

#endif  // ULYX_TESTS_SUPPORT_TRAVELLER_H_
