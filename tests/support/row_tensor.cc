// SPDX-License-Identifier: MIT
#include "support/row_tensor.h"

#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "support/oracle.h"
#include "support/rng.h"

namespace ulyx_test {

Spot AnySpot(uint64_t seed, int rank, int64_t unit) {
  Rng common(seed), own(seed + uint64_t(rank) + 1);
  Spot spot;
  spot.allocated = common.OneIn(3);
  spot.symmetric = spot.allocated && !own.OneIn(4);
  if (!own.OneIn(2)) spot.misalign = unit * own.Between(0, kMaxMisalign / unit);
  return spot;
}

RowTensor::RowTensor(const Session& session, int rank, const std::string& name, const std::array<int64_t, 4>& extents,
                     int type, int64_t elementBytes, int64_t rows, int64_t rowBytes, int64_t pitch, Spot spot,
                     uint64_t seed)
    : session_(session), rank_(rank), name_(name), rows_(rows), rowBytes_(rowBytes), pitch_(pitch), spot_(spot) {
  const int64_t span = rows > 0 ? (rows - 1) * pitch + rowBytes : 0;
  Rng rng(seed + uint64_t(rank) * 977);
  noise_.resize(size_t(kCanary + spot.misalign + span + kCanary));
  for (uint8_t& byte : noise_) byte = uint8_t(rng.Next() >> 32);
  const size_t bytes = noise_.size();
  if (spot.allocated) MUST(ulyxMemAlloc(session.Runtime(rank), spot.symmetric ? int64_t(bytes) : 0, &fromUlyx_));
  if (!spot.symmetric) ordinary_ = session.GetWorld().Alloc(rank, bytes);
  memory_ = static_cast<uint8_t*>(spot.symmetric ? fromUlyx_ : ordinary_);
  std::memcpy(tensor_.extents, extents.data(), sizeof tensor_.extents);
  tensor_.type = type;
  tensor_.elementBytes = int(elementBytes);
  tensor_.data = span > 0 ? memory_ + kCanary + spot.misalign : nullptr;
  Poison();
}

RowTensor::~RowTensor() {
  if (fromUlyx_ != nullptr && ulyxMemFree(session_.Runtime(rank_), fromUlyx_) != ulyxSuccess) {
    ADD_FAILURE() << "ulyxMemFree: " << ulyxGetLastError(nullptr);
  }
  if (ordinary_ != nullptr) session_.GetWorld().Free(rank_, ordinary_);
}

ulyxTensor_t RowTensor::Tensor() const {
  return tensor_;
}

Bytes RowTensor::With(const Bytes& rows) const {
  if (int64_t(rows.size()) != rows_ * rowBytes_) {
    throw std::runtime_error(name_ + ": the test has " + std::to_string(rows.size()) + " bytes for " +
                             std::to_string(rows_) + " rows of " + std::to_string(rowBytes_));
  }
  Bytes image = noise_;
  if (rowBytes_ == 0) return image;
  for (int64_t row = 0; row < rows_; row++) {
    std::memcpy(image.data() + kCanary + spot_.misalign + row * pitch_, rows.data() + row * rowBytes_,
                size_t(rowBytes_));
  }
  return image;
}

void RowTensor::Put(const Bytes& rows) {
  filled_ = With(rows);
  session_.GetWorld().Upload(rank_, memory_, filled_.data(), filled_.size());
}

void RowTensor::Poison() {
  filled_ = noise_;
  session_.GetWorld().Upload(rank_, memory_, filled_.data(), filled_.size());
}

Bytes RowTensor::Rows() const {
  Bytes image(noise_.size()), rows(size_t(rows_ * rowBytes_));
  if (rows.empty()) return rows;
  session_.GetWorld().Download(rank_, image.data(), memory_, image.size());
  for (int64_t row = 0; row < rows_; row++) {
    std::memcpy(rows.data() + row * rowBytes_, image.data() + kCanary + spot_.misalign + row * pitch_,
                size_t(rowBytes_));
  }
  return rows;
}

void RowTensor::Compare(const Bytes& expected) const {
  Bytes found(expected.size());
  session_.GetWorld().Download(rank_, found.data(), memory_, found.size());
  if (found == expected) return;
  for (size_t i = 0; i < found.size(); i++) {
    if (found[i] == expected[i]) continue;
    const int64_t at = int64_t(i) - kCanary - spot_.misalign;
    std::ostringstream text;
    text << name_ << " of rank " << rank_ << ": byte " << at << " of its data (row " << (at >= 0 ? at / pitch_ : -1)
         << " of " << rows_ << ", byte " << (at >= 0 ? at % pitch_ : at) << " of " << rowBytes_ << ") is "
         << int(found[i]) << ", expected " << int(expected[i]);
    throw std::runtime_error(text.str());
  }
}

void RowTensor::Expect(const Bytes& rows) const {
  Compare(With(rows));
}

void RowTensor::ExpectUntouched() const {
  Compare(filled_);
}

int64_t ArenaAskedFor() {
  const std::string said = ulyxGetLastError(nullptr);
  const char words[] = "the plan stages ";
  const size_t at = said.find(words);
  if (at == std::string::npos) throw std::runtime_error("no number of bytes in: " + said);
  return std::strtoll(said.c_str() + at + sizeof words - 1, nullptr, 10);
}

}  // namespace ulyx_test
