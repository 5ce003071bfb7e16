// SPDX-License-Identifier: MIT
//
// Tiles of a batch of copies, for the kernels that make them: which copy a tile is of, and where a unit of it lies.
#ifndef ULYX_TILES_CUH_
#define ULYX_TILES_CUH_

#include "copy_layout.h"

__device__ inline bool ulyxIsSkipped(const ulyxVerdict* skip) {
  if (skip == nullptr) return false;
  const volatile ulyxVerdict* const verdict = skip;
  const uint32_t lost = verdict->lost, voided = verdict->voided;
  return (lost | voided) != 0;
}

// The last copy whose first tile is not after `tile`.
__device__ inline uint32_t ulyxFindCopy(const ulyxCopyDesc* desc, uint32_t count, uint32_t tile) {
  uint32_t low = 0, high = count;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (desc[middle].firstTile <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

struct ulyxUnitPlace {
  uint32_t row;
  int64_t column;  // bytes
};

template <typename Unit>
__device__ ulyxUnitPlace ulyxPlaceOf(const ulyxCopyDesc& desc, uint32_t unit) {
  const uint32_t row = static_cast<uint32_t>((static_cast<uint64_t>(unit) * desc.magic) >> desc.shift);
  return {row, static_cast<int64_t>(unit - row * desc.unitsPerRow) * static_cast<int64_t>(sizeof(Unit))};
}

#endif  // ULYX_TILES_CUH_
