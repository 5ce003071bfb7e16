// SPDX-License-Identifier: MIT
//
// Runs both exchanges of a shape on a session and compares every byte of every tensor with the oracle: outputs,
// the gaps between their elements, the canaries round all buffers, and inputs, which must not change.
#ifndef ULYX_TESTS_SUPPORT_EXCHANGE_CHECK_H_
#define ULYX_TESTS_SUPPORT_EXCHANGE_CHECK_H_

#include <functional>
#include <vector>

#include "support/oracle.h"
#include "support/world.h"

namespace ulyx_test {

// Where a tensor lies: in memory from ulyxMemAlloc or in the world's own, and by how many bytes its data pointer
// misses a 256-byte boundary.
struct Place {
  bool symmetric = false;
  int64_t misalign = 0;
};
using Placement = std::function<Place(int rank, Slot slot)>;

Place Ordinary(int rank, Slot slot);
Place Symmetric(int rank, Slot slot);
// Each tensor of each rank somewhere else.
Placement Scattered(uint64_t seed);

// One rank's eight tensors, filled, canaries round them. Made, reset and freed by the rank's thread; all ranks
// together, since ulyxMemAlloc is collective.
class RankTensors {
 public:
  RankTensors(const Session& session, const Oracle& oracle, int rank, const Placement& placement);
  ~RankTensors();
  RankTensors(const RankTensors&) = delete;
  RankTensors& operator=(const RankTensors&) = delete;

  // Inputs as the oracle says, outputs unwritten.
  void Fill() const;
  // The same with another oracle's values; its shape must be the same.
  void FillAs(const Oracle& oracle);
  // Throws unless all tensors hold what both exchanges must leave; or what Fill put there.
  void ExpectWritten() const;
  void ExpectUntouched() const;

  // NULL for a tensor without elements.
  void* Data(Slot slot) const;
  // The plan's tensors with this rank's data.
  ulyxQkv_t In(ulyxPlan_t plan) const;
  ulyxQkv_t Out(ulyxPlan_t plan) const;
  ulyxTensor_t OutputIn(ulyxPlan_t plan) const;
  ulyxTensor_t OutputOut(ulyxPlan_t plan) const;

 private:
  struct Buffer {
    Place place;
    void* fromUlyx = nullptr;
    void* ordinary = nullptr;
    uint8_t* memory = nullptr;  // one of the two
    std::vector<uint8_t> filled;
    std::vector<uint8_t> written;
  };
  void Compare(Slot slot, const std::vector<uint8_t>& expected) const;

  const Session& session_;
  const Oracle& oracle_;
  const int rank_;
  std::vector<Buffer> buffers_;
};

// Reserves the arena that the shape needs and makes its plan, on the rank's thread. Throws if it is refused.
ulyxPlan_t MakePlan(const Session& session, const ulyxShape_t& shape, int rank);

// Enqueues both exchanges on the rank's stream.
void Exchange(const Session& session, ulyxPlan_t plan, const RankTensors& tensors, int rank);

// Plans the shape and exchanges `times` times there and back, checking each time.
void CheckExchanges(const Session& session, const ulyxShape_t& shape, uint64_t seed,
                    const Placement& placement = Ordinary, int times = 1);

}  // namespace ulyx_test

#endif  // ULYX_TESTS_SUPPORT_EXCHANGE_CHECK_H_
