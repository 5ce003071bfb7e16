// SPDX-License-Identifier: MIT
//
// The store kernel: one block copies the values it was given into device memory.

#include "kernels.h"

namespace {

template <int kCapacity>
struct Batch {
  ULYX_STORE_FIELDS(kCapacity);
};

static_assert(sizeof(Batch<ULYX_STORE_MANY>) == sizeof(ulyxStoreBatch), "one layout");
static_assert(sizeof(ulyxStoreBatch) <= 32764, "a batch must fit in kernel parameters");

template <int kCapacity>
__global__ void __launch_bounds__(ULYX_STORE_THREADS) storeKernel(const __grid_constant__ Batch<kCapacity> batch) {
  for (int64_t i = threadIdx.x; i < batch.count; i += ULYX_STORE_THREADS) batch.dst[i] = batch.values[i];
}

template <int kCapacity>
cudaError_t launch(const ulyxStoreBatch* batch, cudaStream_t stream) {
  void* arguments[] = {const_cast<ulyxStoreBatch*>(batch)};  // a smaller batch is a prefix
  const void* const kernel = reinterpret_cast<const void*>(storeKernel<kCapacity>);
  return cudaLaunchKernel(kernel, dim3(1), dim3(ULYX_STORE_THREADS), arguments, 0, stream);
}

}  // namespace

extern "C" cudaError_t ulyxLaunchStore(const ulyxStoreBatch* batch, cudaStream_t stream) {
  if (batch->count == 0) return cudaSuccess;
  return batch->count <= ULYX_STORE_FEW ? launch<ULYX_STORE_FEW>(batch, stream)
                                        : launch<ULYX_STORE_MANY>(batch, stream);
}

extern "C" cudaError_t ulyxLoadStore(void) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, storeKernel<ULYX_STORE_FEW>);
  return error != cudaSuccess ? error : cudaFuncGetAttributes(&attributes, storeKernel<ULYX_STORE_MANY>);
}
