// SPDX-License-Identifier: MIT
//
// One tensor of rows on one rank, wherever its world keeps memory, with canaries round it and noise between its
// rows: every byte of the allocation is compared.
#ifndef ULYX_TESTS_SUPPORT_ROW_TENSOR_H_
#define ULYX_TESTS_SUPPORT_ROW_TENSOR_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

using Bytes = std::vector<uint8_t>;

// Where a tensor lies. allocated: every rank takes memory from ulyxMemAlloc, together; symmetric: this one uses it.
struct Spot {
  bool allocated = false;
  bool symmetric = false;
  int64_t misalign = 0;
};

// Any spot, the same on every rank but for what a rank may choose; misaligned by a multiple of `unit` bytes.
Spot AnySpot(uint64_t seed, int rank, int64_t unit);

class RowTensor {
 public:
  // `type` and `elementBytes` are what the tensor says of itself; a row is rowElements elements, `pitch` bytes from
  // the next.
  RowTensor(const Session& session, int rank, const std::string& name, const std::array<int64_t, 4>& extents, int type,
            int64_t elementBytes, int64_t rows, int64_t rowBytes, int64_t pitch, Spot spot, uint64_t seed);
  // [1, rows, 1, rowElements].
  RowTensor(const Session& session, int rank, const std::string& name, int64_t rows, int64_t rowElements, int type,
            int64_t elementBytes, int64_t pitch, Spot spot, uint64_t seed)
      : RowTensor(session, rank, name, {1, rows, 1, rowElements}, type, elementBytes, rows, rowElements * elementBytes,
                  pitch, spot, seed) {}
  ~RowTensor();
  RowTensor(const RowTensor&) = delete;
  RowTensor& operator=(const RowTensor&) = delete;

  // Rows, one after another, and noise everywhere else.
  void Put(const Bytes& rows);
  // Noise everywhere.
  void Poison();
  // Throws unless the rows are these and nothing else has changed.
  void Expect(const Bytes& rows) const;
  void ExpectUntouched() const;
  Bytes Rows() const;

  ulyxTensor_t Tensor() const;

 private:
  void Compare(const Bytes& expected) const;
  Bytes With(const Bytes& rows) const;

  const Session& session_;
  const int rank_;
  const std::string name_;
  const int64_t rows_, rowBytes_, pitch_;
  const Spot spot_;
  ulyxTensor_t tensor_ = ULYX_TENSOR_INITIALIZER;
  Bytes noise_, filled_;
  void* fromUlyx_ = nullptr;
  void* ordinary_ = nullptr;
  uint8_t* memory_ = nullptr;
};

// Makes a plan with `create(runtime, &plan)` on the rank's thread, reserving what the last error asks for. Throws
// what is refused otherwise.
template <class Create>
ulyxPlan_t PlanWith(const Session& session, int rank, const Create& create);

int64_t ArenaAskedFor();

}  // namespace ulyx_test

#include "support/status.h"

namespace ulyx_test {

template <class Create>
ulyxPlan_t PlanWith(const Session& session, int rank, const Create& create) {
  ulyxPlan_t plan = nullptr;
  ulyxResult_t result = create(session.Runtime(rank), &plan);
  for (int tries = 0; result == ulyxArenaTooSmall && tries <= session.NRanks(); tries++) {
    MUST(ulyxRuntimeReserve(session.Runtime(rank), ArenaAskedFor()));
    result = create(session.Runtime(rank), &plan);
  }
  MUST(result);
  return plan;
}

}  // namespace ulyx_test

#endif  // ULYX_TESTS_SUPPORT_ROW_TENSOR_H_
