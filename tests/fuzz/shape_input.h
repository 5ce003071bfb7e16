// SPDX-License-Identifier: MIT
//
// A shape and a world from an input's bytes: every field may be anything, and legal ones are common enough that most of
// what follows is reached.
#ifndef ULYX_TESTS_FUZZ_SHAPE_INPUT_H_
#define ULYX_TESTS_FUZZ_SHAPE_INPUT_H_

#include <memory>
#include <vector>

#include "input.h"
#include "ulyx.h"

namespace ulyx_fuzz {

class ShapeInput {
 public:
  explicit ShapeInput(Input* input);
  ~ShapeInput();
  ShapeInput(const ShapeInput&) = delete;
  ShapeInput& operator=(const ShapeInput&) = delete;

  // In memory of the size that it claims, so that reading behind it is seen.
  const ulyxShape_t* Shape() const { return reinterpret_cast<const ulyxShape_t*>(memory_.get()); }
  int NRanks() const { return nRanks_; }

 private:
  void FillCounts(Input* input, ulyxShape_t* shape);
  void FillStrides(Input* input, ulyxShape_t* shape) const;
  void FillSequences(Input* input, ulyxShape_t* shape);
  void Store(Input* input, const ulyxShape_t& shape);

  int nRanks_ = 1;
  std::unique_ptr<int64_t[]> tokenCounts_, headCounts_;
  ulyxSequences_t sequences_ = nullptr;
  std::unique_ptr<uint8_t[]> memory_;
};

}  // namespace ulyx_fuzz

#endif  // ULYX_TESTS_FUZZ_SHAPE_INPUT_H_
