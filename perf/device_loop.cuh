/* SPDX-License-Identifier: MIT
 *
 * How the perf kernels go over their work items: a grid of a few blocks an SM strides over them, so that neighbouring
 * threads touch neighbouring bytes. */
#ifndef PERF_DEVICE_LOOP_CUH_
#define PERF_DEVICE_LOOP_CUH_

#include <cuda_runtime_api.h>
#include <stdint.h>

#define PERF_LOOP_THREADS 256
#define PERF_LOOP_BLOCKS 1056

static __device__ inline int64_t perfFirstItem() {
  return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ inline int64_t perfItemStride() {
  return (int64_t)gridDim.x * blockDim.x;
}

/* items > 0. */
static inline unsigned perfBlocksFor(int64_t items) {
  const int64_t blocks = (items + PERF_LOOP_THREADS - 1) / PERF_LOOP_THREADS;
  return (unsigned)(blocks < PERF_LOOP_BLOCKS ? blocks : PERF_LOOP_BLOCKS);
}

#endif /* PERF_DEVICE_LOOP_CUH_ */
