/* SPDX-License-Identifier: MIT
 *
 * The pattern in device memory. Work item i is one word of eight bytes: the words of a head come first, then
 * heads, tokens and batch items. Words are stored byte by byte, since a head may lie at any address. */
#include <cuda_runtime_api.h>

#include "device_loop.cuh"
#include "pattern.h"

namespace {

/* Where a work item lies in memory and what belongs there. */
struct Word {
  int64_t offset;
  int bytes;
  uint64_t pattern;
};

__device__ Word wordOf(const perfView_t& view, uint64_t seed, int64_t item) {
  const int64_t words = perfPatternWordsOfHead(view.headBytes);
  const int64_t word = item % words;
  item /= words;
  const int64_t head = item % view.heads;
  item /= view.heads;
  const int64_t token = item % view.tokens;
  const int64_t batch = item / view.tokens;
  const uint64_t key = perfPatternKey(seed, view.tensor, batch, view.firstToken + token, view.firstHead + head);
  const int64_t offset = view.offset + batch * view.batchPitch + token * view.tokenPitch + head * view.headBytes;
  return {offset + word * PERF_PATTERN_BYTES, perfPatternBytesOfWord(view.headBytes, word), perfPatternWord(key, word)};
}

__global__ void fill(unsigned char* data, perfView_t view, uint64_t seed, int64_t items) {
  for (int64_t item = perfFirstItem(); item < items; item += perfItemStride()) {
    const Word word = wordOf(view, seed, item);
    perfPatternStore(data + word.offset, word.pattern, word.bytes);
  }
}

__global__ void countWrong(const unsigned char* data, perfView_t view, uint64_t seed, int64_t items,
                           unsigned long long* wrong) {
  unsigned long long mine = 0;
  for (int64_t item = perfFirstItem(); item < items; item += perfItemStride()) {
    const Word word = wordOf(view, seed, item);
    mine += perfPatternCountWrong(data + word.offset, word.pattern, word.bytes);
  }
  if (mine > 0) atomicAdd(wrong, mine);
}

__global__ void countNotPoison(const unsigned char* ptr, int64_t bytes, unsigned long long* wrong) {
  unsigned long long mine = 0;
  for (int64_t i = perfFirstItem(); i < bytes; i += perfItemStride()) mine += ptr[i] != PERF_POISON_BYTE;
  if (mine > 0) atomicAdd(wrong, mine);
}

int64_t itemsOf(const perfView_t* view) {
  return view->batch * view->tokens * view->heads * perfPatternWordsOfHead(view->headBytes);
}

}  // namespace

extern "C" cudaError_t perfLaunchFill(void* data, const perfView_t* view, uint64_t seed, cudaStream_t stream) {
  const int64_t items = itemsOf(view);
  if (items == 0) return cudaSuccess;
  fill<<<perfBlocksFor(items), PERF_LOOP_THREADS, 0, stream>>>((unsigned char*)data, *view, seed, items);
  return cudaGetLastError();
}

extern "C" cudaError_t perfLaunchCountWrong(const void* data, const perfView_t* view, uint64_t seed,
                                            unsigned long long* wrong, cudaStream_t stream) {
  const int64_t items = itemsOf(view);
  if (items == 0) return cudaSuccess;
  countWrong<<<perfBlocksFor(items), PERF_LOOP_THREADS, 0, stream>>>((const unsigned char*)data, *view, seed, items,
                                                                     wrong);
  return cudaGetLastError();
}

extern "C" cudaError_t perfLaunchCountNotPoison(const void* ptr, int64_t bytes, unsigned long long* wrong,
                                                cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  countNotPoison<<<perfBlocksFor(bytes), PERF_LOOP_THREADS, 0, stream>>>((const unsigned char*)ptr, bytes, wrong);
  return cudaGetLastError();
}
