// SPDX-License-Identifier: MIT
//
// The sum kernel. One thread owns 16 bytes of one row (one element where addresses or pitches are not multiples
// of 16) and adds the addends that cover the row in fp32, in their order, from registers: the bits do not depend
// on the grid. A NaN is stored as the type's quiet NaN without payload, as on the host.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels.h"
#include "tiles.cuh"
#include "sum_layout.h"
#include "ulyx.h"

namespace {

template <int kCapacity>
struct Batch {
  ULYX_SUM_FIELDS(kCapacity);
};

static_assert(sizeof(Batch<ULYX_SUM_MAX_ADDENDS>) == sizeof(ulyxSumBatch), "one layout");

__device__ float toFloat(float value) {
  return value;
}
__device__ float toFloat(__half value) {
  return __half2float(value);
}
__device__ float toFloat(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

__device__ void fromFloat(float value, float* to) {
  *to = isnan(value) ? __int_as_float(0x7fffffff) : value;
}
__device__ void fromFloat(float value, __half* to) {
  *to = isnan(value) ? __ushort_as_half(0x7fff) : __float2half_rn(value);
}
__device__ void fromFloat(float value, __nv_bfloat16* to) {
  *to = isnan(value) ? __ushort_as_bfloat16(0x7fff) : __float2bfloat16_rn(value);
}

template <typename Element, int kWidth>
struct alignas(sizeof(Element) * kWidth) Pack {
  Element element[kWidth];
};

template <typename Element, int kWidth, int kCapacity>
__device__ void sumRows(const Batch<kCapacity>& batch) {
  const int64_t packsPerRow = batch.rowElements / kWidth;
  const int64_t packs = batch.rows * packsPerRow;
  const int64_t step = static_cast<int64_t>(gridDim.x) * ULYX_SUM_THREADS;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * ULYX_SUM_THREADS + threadIdx.x; i < packs; i += step) {
    const int64_t row = i / packsPerRow;
    const int64_t column = (i - row * packsPerRow) * static_cast<int64_t>(sizeof(Pack<Element, kWidth>));
    float sum[kWidth] = {};
    bool first = true;
    for (int a = 0; a < batch.count; ++a) {
      const ulyxSumAddend& addend = batch.addends[a];
      const int64_t inAddend = row - addend.firstRow;
      if (inAddend < 0 || inAddend >= addend.rowCount) continue;
      const auto pack = *reinterpret_cast<const Pack<Element, kWidth>*>(addend.data + inAddend * addend.pitch + column);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        sum[e] = first ? toFloat(pack.element[e]) : __fadd_rn(sum[e], toFloat(pack.element[e]));
      }
      first = false;
    }
    Pack<Element, kWidth> out;
#pragma unroll
    for (int e = 0; e < kWidth; ++e) fromFloat(sum[e], &out.element[e]);
    *reinterpret_cast<Pack<Element, kWidth>*>(batch.dst + row * batch.dstPitch + column) = out;
  }
}

template <typename Element, int kCapacity>
__device__ void sumOfType(const Batch<kCapacity>& batch) {
  if (batch.wide) {
    sumRows<Element, 16 / static_cast<int>(sizeof(Element))>(batch);
  } else {
    sumRows<Element, 1>(batch);
  }
}

template <int kCapacity>
__global__ void __launch_bounds__(ULYX_SUM_THREADS) sumKernel(const __grid_constant__ Batch<kCapacity> batch) {
  if (ulyxIsSkipped(batch.skip)) return;
  switch (batch.type) {
    case ulyxFloat16:
      sumOfType<__half>(batch);
      break;
    case ulyxBfloat16:
      sumOfType<__nv_bfloat16>(batch);
      break;
    default:
      sumOfType<float>(batch);
      break;
  }
}

template <int kCapacity>
cudaError_t launch(const ulyxSumBatch* batch, uint32_t ctas, cudaStream_t stream) {
  void* arguments[] = {const_cast<ulyxSumBatch*>(batch)};  // a smaller batch is a prefix
  const void* const kernel = reinterpret_cast<const void*>(sumKernel<kCapacity>);
  return cudaLaunchKernel(kernel, dim3(ctas), dim3(ULYX_SUM_THREADS), arguments, 0, stream);
}

}  // namespace

extern "C" cudaError_t ulyxLaunchSum(const ulyxSumBatch* batch, int maxCtas, cudaStream_t stream) {
  const int64_t width = batch->wide ? 16 / (batch->type == ulyxFloat32 ? 4 : 2) : 1;
  const int64_t blocks = (batch->rows * (batch->rowElements / width) + ULYX_SUM_THREADS - 1) / ULYX_SUM_THREADS;
  if (blocks == 0) return cudaSuccess;
  const int64_t most = maxCtas > 0 ? maxCtas : INT32_MAX;
  const uint32_t ctas = static_cast<uint32_t>(blocks < most ? blocks : most);
  return batch->count <= ULYX_SUM_FEW_ADDENDS ? launch<ULYX_SUM_FEW_ADDENDS>(batch, ctas, stream)
                                              : launch<ULYX_SUM_MAX_ADDENDS>(batch, ctas, stream);
}

extern "C" cudaError_t ulyxLoadSum(void) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, sumKernel<ULYX_SUM_FEW_ADDENDS>);
  return error != cudaSuccess ? error : cudaFuncGetAttributes(&attributes, sumKernel<ULYX_SUM_MAX_ADDENDS>);
}
