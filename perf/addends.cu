/* SPDX-License-Identifier: MIT
 *
 * Addends and sums in device memory. Work item i is element i of the dense rows. */
#include <cuda_runtime_api.h>

#include "addends.h"
#include "device_loop.cuh"

namespace {

__global__ void fillAddends(unsigned char* data, perfAddends_t addends, uint64_t seed, int64_t items) {
  const int bytes = perfAddendBytes(addends.type);
  for (int64_t item = perfFirstItem(); item < items; item += perfItemStride()) {
    const int64_t row = addends.firstRow + item / addends.rowElements;
    perfPatternStore(data + item * bytes, perfAddendBits(&addends, seed, row, item % addends.rowElements), bytes);
  }
}

__global__ void countWrongSums(const unsigned char* data, perfAddends_t sums, uint64_t seed, int64_t items,
                               unsigned long long* wrong) {
  const int bytes = perfAddendBytes(sums.type);
  unsigned long long mine = 0;
  for (int64_t item = perfFirstItem(); item < items; item += perfItemStride()) {
    const int64_t row = sums.firstRow + item / sums.rowElements;
    mine += perfPatternCountWrong(data + item * bytes, perfSumBits(&sums, seed, row, item % sums.rowElements), bytes);
  }
  if (mine > 0) atomicAdd(wrong, mine);
}

}  // namespace

extern "C" cudaError_t perfLaunchFillAddends(void* data, const perfAddends_t* addends, uint64_t seed,
                                             cudaStream_t stream) {
  const int64_t items = addends->rows * addends->rowElements;
  if (items == 0) return cudaSuccess;
  fillAddends<<<perfBlocksFor(items), PERF_LOOP_THREADS, 0, stream>>>((unsigned char*)data, *addends, seed, items);
  return cudaGetLastError();
}

extern "C" cudaError_t perfLaunchCountWrongSums(const void* data, const perfAddends_t* sums, uint64_t seed,
                                                unsigned long long* wrong, cudaStream_t stream) {
  const int64_t items = sums->rows * sums->rowElements;
  if (items == 0) return cudaSuccess;
  countWrongSums<<<perfBlocksFor(items), PERF_LOOP_THREADS, 0, stream>>>((const unsigned char*)data, *sums, seed, items,
                                                                         wrong);
  return cudaGetLastError();
}
