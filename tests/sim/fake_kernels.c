/* SPDX-License-Identifier: MIT
 *
 * ulyx's copy kernel on the CPU: the same walk over tiles, units and rows, with the descriptors' own magic
 * numbers, after checking what the real kernel takes on trust. */
#include <string.h>

#include "fake_cuda.h"
#include "kernels.h"

uint32_t fakeDescTiles(const ulyxCopyDesc* desc) {
  return (uint32_t)(((uint64_t)desc->units + ULYX_COPY_TILE_UNITS - 1) / ULYX_COPY_TILE_UNITS);
}

static bool aligned(const ulyxCopyDesc* desc, const void* dst, int64_t rows) {
  uint64_t bits = (uintptr_t)desc->src | (uintptr_t)dst;
  if (rows > 1) bits |= (uint64_t)desc->srcPitch | (uint64_t)desc->dstPitch;
  return (bits & ((UINT64_C(1) << desc->unitBytesLog2) - 1)) == 0;
}

const char* fakeDescFault(const ulyxCopyDesc* desc, uint32_t firstTile, int device, const void* dst, int dstDevice) {
  if (desc->unitBytesLog2 > 4) return "a unit is more than 16 bytes";
  if (desc->units == 0 || desc->units >= UINT32_C(1) << 31) return "units are not in 1 to 2^31 - 1";
  if (desc->unitsPerRow == 0 || desc->units % desc->unitsPerRow != 0) return "units are no whole number of rows";
  if (desc->firstTile != firstTile) return "firstTile is not the sum of the tiles before it";
  if (desc->shift >= 64) return "shift is 64 or more";
  const int64_t rows = desc->units / desc->unitsPerRow;
  const int64_t rowBytes = (int64_t)desc->unitsPerRow << desc->unitBytesLog2;
  if (!aligned(desc, dst, rows)) return "an address or a pitch is not aligned to the unit";
  if (rows > 1 && (desc->srcPitch < rowBytes || desc->dstPitch < rowBytes)) return "a pitch is shorter than the row";
  if (!fakeDeviceReaches(device, desc->src, (rows - 1) * desc->srcPitch + rowBytes)) {
    return "the source is not within one block of this device's memory";
  }
  if (!fakeDeviceReaches(dstDevice, dst, (rows - 1) * desc->dstPitch + rowBytes)) {
    return "the destination is not within one block of this device's memory";
  }
  return NULL;
}

static bool batchIsSound(const ulyxCopyBatch* batch, int device) {
  if (batch->count > ULYX_COPY_BATCH_LARGE) {
    fakeViolation("ulyxLaunchCopies: %u copies in a batch of at most %d", batch->count, ULYX_COPY_BATCH_LARGE);
    return false;
  }
  uint32_t tiles = 0;
  for (uint32_t i = 0; i < batch->count; i++) {
    const ulyxCopyDesc* desc = &batch->desc[i];
    const char* fault = fakeDescFault(desc, tiles, device, desc->dst, device);
    if (fault != NULL) {
      fakeViolation("ulyxLaunchCopies: copy %u on device %d: %s", i, device, fault);
      return false;
    }
    tiles += fakeDescTiles(&batch->desc[i]);
  }
  if (tiles != batch->tiles) {
    fakeViolation("ulyxLaunchCopies: the batch says %u tiles, its copies have %u", batch->tiles, tiles);
    return false;
  }
  return true;
}

const ulyxCopyDesc* fakeDescOfTile(const ulyxCopyDesc* desc, uint32_t count, uint32_t tile) {
  uint32_t low = 0, high = count;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (desc[middle].firstTile <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return &desc[low];
}

/* The row of a unit, by the kernel's own arithmetic; false if it is not the row. */
static bool rowOf(ulyxCopyDesc desc, uint32_t unit, uint32_t* row) {
  *row = (uint32_t)(((uint64_t)unit * desc.magic) >> desc.shift);
  if (*row == unit / desc.unitsPerRow) return true;
  fakeViolation("ulyxLaunchCopies: magic %u, shift %u put unit %u in row %u; %u units a row", desc.magic, desc.shift,
                unit, *row, desc.unitsPerRow);
  return false;
}

bool fakeMakeTile(ulyxCopyDesc desc, uint32_t tileOfCopy) {
  uint32_t unit = tileOfCopy * ULYX_COPY_TILE_UNITS;
  const uint32_t end = desc.units - unit > ULYX_COPY_TILE_UNITS ? unit + ULYX_COPY_TILE_UNITS : desc.units;
  while (unit < end) {
    const uint32_t first = unit;
    uint32_t row = 0, next = 0;
    if (!rowOf(desc, first, &row)) return false;
    for (unit++; unit < end; unit++) {
      if (!rowOf(desc, unit, &next)) return false;
      if (next != row) break;
    }
    const int64_t column = (int64_t)(first - row * desc.unitsPerRow) << desc.unitBytesLog2;
    memcpy(desc.dst + row * desc.dstPitch + column, desc.src + row * desc.srcPitch + column,
           (size_t)(unit - first) << desc.unitBytesLog2);
  }
  return true;
}

cudaError_t ulyxLaunchCopies(const ulyxCopyBatch* batch, int maxCtas, cudaStream_t stream) {
  FAKE_CUDA(cudaErrorLaunchOutOfResources);
  if (batch->count == 0) return cudaSuccess;
  int device;
  const cudaError_t error = fakeStreamDevice(stream, &device);
  if (error != cudaSuccess) return error;
  if (device != fakeCurrentDevice()) {
    fakeViolation("ulyxLaunchCopies: a stream of device %d while device %d is current", device, fakeCurrentDevice());
    return fakeCudaResult(cudaErrorInvalidResourceHandle);
  }
  if (maxCtas < 0) {
    fakeViolation("ulyxLaunchCopies: maxCtas is %d", maxCtas);
    return fakeCudaResult(cudaErrorInvalidValue);
  }
  if (!batchIsSound(batch, device)) return fakeCudaResult(cudaErrorInvalidValue);
  if (fakeIsSkipped(batch->skip)) return cudaSuccess;
  fakeCount(FAKE_COUNTER(launches), 1);
  fakeCount(FAKE_COUNTER(launchedCopies), batch->count);
  fakeCountMax(FAKE_COUNTER(mostCtas),
               maxCtas > 0 && (uint32_t)maxCtas < batch->tiles ? maxCtas : (int64_t)batch->tiles);
  for (uint32_t tile = 0; tile < batch->tiles; tile++) {
    const ulyxCopyDesc* desc = fakeDescOfTile(batch->desc, batch->count, tile);
    if (!fakeMakeTile(*desc, tile - desc->firstTile)) return fakeCudaResult(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t ulyxLoadCopies(void) {
  FAKE_CUDA(cudaErrorInitializationError);
  return cudaSuccess;
}
