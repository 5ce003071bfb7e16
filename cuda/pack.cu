// SPDX-License-Identifier: MIT
//
// The copy kernel. Layout: a batch's copies are cut into tiles of ULYX_COPY_TILE_UNITS units; thread block b
// takes tiles b, b + grid, b + 2 grid, ... so neighbouring blocks read neighbouring memory. Uncapped, every tile
// has a block of its own: the hardware's scheduler keeps more loads in flight than blocks that loop. Within a
// tile thread t moves units t, t + 256, ...: all loads are issued before the first store. There is no
// synchronisation between threads; every byte is moved by exactly one.

#include "kernels.h"

namespace {

template <int kCapacity>
struct Batch {
  ULYX_COPY_BATCH_FIELDS(kCapacity);
};

static_assert(sizeof(Batch<ULYX_COPY_BATCH_SMALL>) == sizeof(ulyxCopyBatchSmall), "one layout");
static_assert(sizeof(Batch<ULYX_COPY_BATCH_LARGE>) == sizeof(ulyxCopyBatch), "one layout");

// The last copy whose first tile is not after `tile`.
template <int kCapacity>
__device__ uint32_t findCopy(const Batch<kCapacity>& batch, uint32_t tile) {
  uint32_t low = 0, high = batch.count;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (batch.desc[middle].firstTile <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

struct Place {
  uint32_t row;
  int64_t column;  // bytes
};

template <typename Unit>
__device__ Place placeOf(const ulyxCopyDesc& desc, uint32_t unit) {
  const uint32_t row = static_cast<uint32_t>((static_cast<uint64_t>(unit) * desc.magic) >> desc.shift);
  return {row, static_cast<int64_t>(unit - row * desc.unitsPerRow) * static_cast<int64_t>(sizeof(Unit))};
}

// Places are computed again for the stores: holding them costs registers that are worth more as loads in flight.
template <typename Unit>
__device__ void copyTile(const ulyxCopyDesc& desc, uint32_t tile) {
  const uint32_t first = tile * ULYX_COPY_TILE_UNITS + threadIdx.x;
  Unit held[ULYX_COPY_UNITS_PER_THREAD];
#pragma unroll
  for (int i = 0; i < ULYX_COPY_UNITS_PER_THREAD; ++i) {
    const uint32_t unit = first + i * ULYX_COPY_THREADS;
    if (unit < desc.units) {
      const Place place = placeOf<Unit>(desc, unit);
      held[i] = *reinterpret_cast<const Unit*>(desc.src + place.row * desc.srcPitch + place.column);
    }
  }
#pragma unroll
  for (int i = 0; i < ULYX_COPY_UNITS_PER_THREAD; ++i) {
    const uint32_t unit = first + i * ULYX_COPY_THREADS;
    if (unit < desc.units) {
      const Place place = placeOf<Unit>(desc, unit);
      *reinterpret_cast<Unit*>(desc.dst + place.row * desc.dstPitch + place.column) = held[i];
    }
  }
}

template <int kCapacity>
__global__ void __launch_bounds__(ULYX_COPY_THREADS) copyKernel(const __grid_constant__ Batch<kCapacity> batch) {
  for (uint32_t tile = blockIdx.x; tile < batch.tiles; tile += gridDim.x) {
    const ulyxCopyDesc& desc = batch.desc[findCopy(batch, tile)];
    const uint32_t inCopy = tile - desc.firstTile;
    switch (desc.unitBytesLog2) {
      case 4:
        copyTile<uint4>(desc, inCopy);
        break;
      case 3:
        copyTile<uint2>(desc, inCopy);
        break;
      case 2:
        copyTile<uint32_t>(desc, inCopy);
        break;
      case 1:
        copyTile<uint16_t>(desc, inCopy);
        break;
      default:
        copyTile<uint8_t>(desc, inCopy);
        break;
    }
  }
}

template <int kCapacity>
cudaError_t launch(const ulyxCopyBatch* batch, uint32_t ctas, cudaStream_t stream) {
  const void* const kernel = reinterpret_cast<const void*>(copyKernel<kCapacity>);
  void* arguments[] = {const_cast<ulyxCopyBatch*>(batch)};  // a smaller batch is a prefix
  return cudaLaunchKernel(kernel, dim3(ctas), dim3(ULYX_COPY_THREADS), arguments, 0, stream);
}

}  // namespace

extern "C" cudaError_t ulyxLaunchCopies(const ulyxCopyBatch* batch, int maxCtas, cudaStream_t stream) {
  if (batch->tiles == 0) return cudaSuccess;
  const uint32_t most = maxCtas > 0 ? static_cast<uint32_t>(maxCtas) : batch->tiles;
  const uint32_t ctas = batch->tiles < most ? batch->tiles : most;
  return batch->count <= ULYX_COPY_BATCH_SMALL ? launch<ULYX_COPY_BATCH_SMALL>(batch, ctas, stream)
                                               : launch<ULYX_COPY_BATCH_LARGE>(batch, ctas, stream);
}

extern "C" cudaError_t ulyxLoadKernels(void) {
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, copyKernel<ULYX_COPY_BATCH_SMALL>);
  if (error != cudaSuccess) return error;
  return cudaFuncGetAttributes(&attributes, copyKernel<ULYX_COPY_BATCH_LARGE>);
}
