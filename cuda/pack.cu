// SPDX-License-Identifier: MIT
//
// The copy kernel. Layout: a batch's copies are cut into tiles of ULYX_COPY_TILE_UNITS units; thread block b
// takes tiles b, b + grid, b + 2 grid, ... so neighbouring blocks read neighbouring memory. Uncapped, every tile
// has a block of its own: the hardware's scheduler keeps more loads in flight than blocks that loop. Within a
// tile thread t moves units t, t + 256, ...: all loads are issued before the first store. There is no
// synchronisation between threads; every byte is moved by exactly one.

#include "kernels.h"
#include "tiles.cuh"

namespace {

template <int kCapacity>
struct Batch {
  ULYX_COPY_BATCH_FIELDS(kCapacity);
};

static_assert(sizeof(Batch<ULYX_COPY_BATCH_SMALL>) == sizeof(ulyxCopyBatchSmall), "one layout");
static_assert(sizeof(Batch<ULYX_COPY_BATCH_LARGE>) == sizeof(ulyxCopyBatch), "one layout");

// Streaming accesses are the first to be evicted: what NCCL's kernel is about to read stays in the L2 cache.
template <bool kStreaming, typename Unit>
__device__ Unit load(const unsigned char* from) {
  const Unit* const unit = reinterpret_cast<const Unit*>(from);
  return kStreaming ? __ldcs(unit) : *unit;
}

template <bool kStreaming, typename Unit>
__device__ void store(unsigned char* to, Unit value) {
  if (kStreaming) {
    __stcs(reinterpret_cast<Unit*>(to), value);
  } else {
    *reinterpret_cast<Unit*>(to) = value;
  }
}

// Places are computed again for the stores: holding them costs registers that are worth more as loads in flight.
template <bool kStreaming, typename Unit>
__device__ void copyTile(const ulyxCopyDesc& desc, uint32_t tile) {
  const uint32_t first = tile * ULYX_COPY_TILE_UNITS + threadIdx.x;
  Unit held[ULYX_COPY_UNITS_PER_THREAD];
#pragma unroll
  for (int i = 0; i < ULYX_COPY_UNITS_PER_THREAD; ++i) {
    const uint32_t unit = first + i * ULYX_COPY_THREADS;
    if (unit < desc.units) {
      const ulyxUnitPlace place = ulyxPlaceOf<Unit>(desc, unit);
      held[i] = load<kStreaming, Unit>(desc.src + place.row * desc.srcPitch + place.column);
    }
  }
#pragma unroll
  for (int i = 0; i < ULYX_COPY_UNITS_PER_THREAD; ++i) {
    const uint32_t unit = first + i * ULYX_COPY_THREADS;
    if (unit < desc.units) {
      const ulyxUnitPlace place = ulyxPlaceOf<Unit>(desc, unit);
      store<kStreaming>(desc.dst + place.row * desc.dstPitch + place.column, held[i]);
    }
  }
}

template <int kCapacity, bool kStreaming>
__global__ void __launch_bounds__(ULYX_COPY_THREADS) copyKernel(const __grid_constant__ Batch<kCapacity> batch) {
  if (ulyxIsSkipped(batch.skip)) return;
  for (uint32_t tile = blockIdx.x; tile < batch.tiles; tile += gridDim.x) {
    const ulyxCopyDesc& desc = batch.desc[ulyxFindCopy(batch.desc, batch.count, tile)];
    const uint32_t inCopy = tile - desc.firstTile;
    switch (desc.unitBytesLog2) {
      case 4:
        copyTile<kStreaming, uint4>(desc, inCopy);
        break;
      case 3:
        copyTile<kStreaming, uint2>(desc, inCopy);
        break;
      case 2:
        copyTile<kStreaming, uint32_t>(desc, inCopy);
        break;
      case 1:
        copyTile<kStreaming, uint16_t>(desc, inCopy);
        break;
      default:
        copyTile<kStreaming, uint8_t>(desc, inCopy);
        break;
    }
  }
}

template <int kCapacity, bool kStreaming>
cudaError_t launch(const ulyxCopyBatch* batch, uint32_t ctas, cudaStream_t stream) {
  const void* const kernel = reinterpret_cast<const void*>(copyKernel<kCapacity, kStreaming>);
  void* arguments[] = {const_cast<ulyxCopyBatch*>(batch)};  // a smaller batch is a prefix
  return cudaLaunchKernel(kernel, dim3(ctas), dim3(ULYX_COPY_THREADS), arguments, 0, stream);
}

template <bool kStreaming>
cudaError_t launchAny(const ulyxCopyBatch* batch, uint32_t ctas, cudaStream_t stream) {
  return batch->count <= ULYX_COPY_BATCH_SMALL ? launch<ULYX_COPY_BATCH_SMALL, kStreaming>(batch, ctas, stream)
                                               : launch<ULYX_COPY_BATCH_LARGE, kStreaming>(batch, ctas, stream);
}

template <bool kStreaming>
cudaError_t loadBoth() {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, copyKernel<ULYX_COPY_BATCH_SMALL, kStreaming>);
  return error != cudaSuccess ? error
                              : cudaFuncGetAttributes(&attributes, copyKernel<ULYX_COPY_BATCH_LARGE, kStreaming>);
}

}  // namespace

extern "C" cudaError_t ulyxLaunchCopies(const ulyxCopyBatch* batch, int maxCtas, cudaStream_t stream) {
  if (batch->tiles == 0) return cudaSuccess;
  const uint32_t most = maxCtas > 0 ? static_cast<uint32_t>(maxCtas) : batch->tiles;
  const uint32_t ctas = batch->tiles < most ? batch->tiles : most;
  return batch->streaming ? launchAny<true>(batch, ctas, stream) : launchAny<false>(batch, ctas, stream);
}

extern "C" cudaError_t ulyxLoadCopies(void) {
  const cudaError_t error = loadBoth<false>();
  return error != cudaSuccess ? error : loadBoth<true>();
}
