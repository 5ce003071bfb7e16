// SPDX-License-Identifier: MIT
#include "support/exchange_check.h"

#include <stdexcept>

#include "support/rng.h"
#include "support/status.h"

namespace ulyx_test {

Place Ordinary(int, Slot) {
  return {false, 0};
}

Place Symmetric(int, Slot) {
  return {true, 0};
}

Placement Scattered(uint64_t seed) {
  return [seed](int rank, Slot slot) {
    Rng rng(seed + uint64_t(rank) * kSlots + uint64_t(slot));
    // Half of them aligned enough for the widest accesses.
    const int64_t misalign = rng.OneIn(2) ? 16 * rng.Between(0, kMaxMisalign / 16) : rng.Between(0, kMaxMisalign);
    return Place{rng.OneIn(2), misalign};
  };
}

RankTensors::RankTensors(const Session& session, const Oracle& oracle, int rank, const Placement& wanted)
    : session_(session), oracle_(oracle), rank_(rank), buffers_(kSlots) {
  const bool alike = session.GetWorld().OutputsLieAlike();
  const Placement placement = [&](int r, Slot slot) { return wanted(alike && IsOutput(slot) ? 0 : r, slot); };
  for (int i = 0; i < kSlots; i++) {
    const Slot slot = Slot(i);
    Buffer& buffer = buffers_[i];
    buffer.place = placement(rank, slot);
    const size_t bytes = oracle.Written(rank, slot, buffer.place.misalign).size();
    bool anyRankSymmetric = false;
    for (int other = 0; other < oracle.NRanks(); other++) anyRankSymmetric |= placement(other, slot).symmetric;
    if (anyRankSymmetric) {
      MUST(ulyxMemAlloc(session.Runtime(rank), buffer.place.symmetric ? int64_t(bytes) : 0, &buffer.fromUlyx));
    }
    if (!buffer.place.symmetric) buffer.ordinary = session.GetWorld().Alloc(rank, bytes);
    buffer.memory = static_cast<uint8_t*>(buffer.place.symmetric ? buffer.fromUlyx : buffer.ordinary);
  }
  FillAs(oracle);
}

RankTensors::~RankTensors() {
  for (const Buffer& buffer : buffers_) {
    if (buffer.fromUlyx != nullptr && ulyxMemFree(session_.Runtime(rank_), buffer.fromUlyx) != ulyxSuccess) {
      ADD_FAILURE() << "ulyxMemFree: " << ulyxGetLastError(nullptr);
    }
    if (buffer.ordinary != nullptr) session_.GetWorld().Free(rank_, buffer.ordinary);
  }
}

void RankTensors::Fill() const {
  for (const Buffer& buffer : buffers_) {
    session_.GetWorld().Upload(rank_, buffer.memory, buffer.filled.data(), buffer.filled.size());
  }
}

void RankTensors::FillAs(const Oracle& oracle) {
  for (int i = 0; i < kSlots; i++) {
    const Slot slot = Slot(i);
    Buffer& buffer = buffers_[i];
    buffer.written = oracle.Written(rank_, slot, buffer.place.misalign);
    buffer.filled = IsOutput(slot) ? oracle.Unwritten(rank_, slot, buffer.place.misalign) : buffer.written;
  }
  Fill();
}

void RankTensors::Compare(Slot slot, const std::vector<uint8_t>& expected) const {
  const Buffer& buffer = buffers_[slot];
  std::vector<uint8_t> found(expected.size());
  session_.GetWorld().Download(rank_, found.data(), buffer.memory, found.size());
  const std::string difference = oracle_.Difference(rank_, slot, buffer.place.misalign, expected, found);
  if (!difference.empty()) throw std::runtime_error(difference);
}

void RankTensors::ExpectWritten() const {
  for (int slot = 0; slot < kSlots; slot++) Compare(Slot(slot), buffers_[slot].written);
}

void RankTensors::ExpectUntouched() const {
  for (int slot = 0; slot < kSlots; slot++) Compare(Slot(slot), buffers_[slot].filled);
}

void* RankTensors::Data(Slot slot) const {
  if (oracle_.LayoutOf(rank_, slot).bytes == 0) return nullptr;
  return buffers_[slot].memory + kCanary + buffers_[slot].place.misalign;
}

ulyxQkv_t RankTensors::In(ulyxPlan_t plan) const {
  ulyxQkv_t in = ULYX_QKV_INITIALIZER;
  MUST(ulyxPlanGetQkv(plan, &in, nullptr));
  in.q.data = Data(kQIn);
  in.k.data = Data(kKIn);
  in.v.data = Data(kVIn);
  return in;
}

ulyxQkv_t RankTensors::Out(ulyxPlan_t plan) const {
  ulyxQkv_t out = ULYX_QKV_INITIALIZER;
  MUST(ulyxPlanGetQkv(plan, nullptr, &out));
  out.q.data = Data(kQOut);
  out.k.data = Data(kKOut);
  out.v.data = Data(kVOut);
  return out;
}

ulyxTensor_t RankTensors::OutputIn(ulyxPlan_t plan) const {
  ulyxTensor_t in = ULYX_TENSOR_INITIALIZER;
  MUST(ulyxPlanGetOutput(plan, &in, nullptr));
  in.data = Data(kOIn);
  return in;
}

ulyxTensor_t RankTensors::OutputOut(ulyxPlan_t plan) const {
  ulyxTensor_t out = ULYX_TENSOR_INITIALIZER;
  MUST(ulyxPlanGetOutput(plan, nullptr, &out));
  out.data = Data(kOOut);
  return out;
}

ulyxPlan_t MakePlan(const Session& session, const ulyxShape_t& shape, int rank) {
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  MUST(ulyxShapeGetBytes(&shape, session.NRanks(), rank, &bytes));
  MUST(ulyxRuntimeReserve(session.Runtime(rank), bytes.arena));
  ulyxPlan_t plan = nullptr;
  MUST(ulyxPlanCreate(session.Runtime(rank), &shape, &plan));
  return plan;
}

void Exchange(const Session& session, ulyxPlan_t plan, const RankTensors& tensors, int rank) {
  const ulyxQkv_t in = tensors.In(plan);
  const ulyxQkv_t out = tensors.Out(plan);
  MUST(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)));
  const ulyxTensor_t outputIn = tensors.OutputIn(plan);
  const ulyxTensor_t outputOut = tensors.OutputOut(plan);
  MUST(ulyxHeadsToSeq(plan, &outputIn, &outputOut, session.Stream(rank)));
}

void CheckExchanges(const Session& session, const ulyxShape_t& shape, uint64_t seed, const Placement& placement,
                    int times) {
  const Oracle oracle(shape, session.NRanks(), seed);
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape, rank);
    {
      const RankTensors tensors(session, oracle, rank, placement);
      for (int i = 0; i < times; i++) {
        if (i > 0) tensors.Fill();
        Exchange(session, plan, tensors, rank);
        session.Synchronize(rank);
        tensors.ExpectWritten();
      }
    }
    MUST(ulyxPlanDestroy(plan));
  });
}

}  // namespace ulyx_test
