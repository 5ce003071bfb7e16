// SPDX-License-Identifier: MIT
//
// ulyx.hpp as a project without exceptions and without RTTI compiles it.
#include "hpp_without_exceptions.h"

#include <cstring>

#include "ulyx.hpp"

namespace ulyx_test {

const char* ExchangeWithoutExceptions() {
  ulyx::Runtime rt;
  ulyx::Config config;
  config.transport = ulyxTransportLoopback;
  if (ulyxRuntimeCreateLocal(&config, 1, nullptr, rt.put()) != ulyxSuccess) return "no runtime";
  ulyx::Shape shape;
  ulyx::Plan plan;
  if (ulyxPlanCreate(rt.get(), &shape, plan.put()) != ulyxInvalidArgument || plan) return "a shape without tokens";
  if (std::strncmp(rt.lastError(), "shape.", 6) != 0) return "no words";
  shape.tokens = shape.heads = 1;
  shape.headDim = 2;
  shape.type = ulyx::dataType<int32_t>;
  if (ulyxPlanCreate(rt.get(), &shape, plan.put()) != ulyxSuccess) return "no plan";
  ulyxTensor_t in, out;
  if (ulyxPlanGetOutput(plan.get(), &in, &out) != ulyxSuccess) return "no tensors";
  void* memory = nullptr;
  if (ulyxMemAlloc(rt.get(), 2 * ulyx::span(out) * int64_t{sizeof(int32_t)}, &memory) != ulyxSuccess)
    return "no memory";
  const ulyx::Memory<int32_t> owner(rt.get(), static_cast<int32_t*>(memory), 2 * ulyx::span(out));
  const ulyx::Tensor<int32_t> given(in, owner.data()), got(out, owner.data() + ulyx::span(in));
  given(0, 0, 0, 0) = 7;
  in = given;
  out = got;
  if (ulyxHeadsToSeq(plan.get(), &in, &out, nullptr) != ulyxSuccess) return "no exchange";
  return got(0, 0, 0, 0) == 7 ? nullptr : "wrong data";
}

}  // namespace ulyx_test
