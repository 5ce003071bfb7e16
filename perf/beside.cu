/* SPDX-License-Identifier: MIT */
#include "beside.h"

#include "device_loop.cuh"
#include "pattern.h"

namespace {

/* The upper half of the float's bits is the bfloat16 below it. */
__device__ uint16_t bfloat16Of(float value) {
  return (uint16_t)(__float_as_uint(value) >> 16);
}

__global__ void random(uint16_t* data, int64_t count, uint64_t seed) {
  for (int64_t i = perfFirstItem(); i < count; i += perfItemStride()) {
    const uint64_t bits = perfMix(seed ^ perfMix((uint64_t)i));
    data[i] = bfloat16Of((float)(bits >> 40) * (2.0f / 16777216.0f) - 1.0f);
  }
}

}  // namespace

extern "C" cudaError_t besideLaunchRandom(void* data, int64_t count, uint64_t seed, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  random<<<perfBlocksFor(count), PERF_LOOP_THREADS, 0, stream>>>((uint16_t*)data, count, seed);
  return cudaGetLastError();
}
