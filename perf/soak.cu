/* SPDX-License-Identifier: MIT
 *
 * The kernels of soak. Work item i of a tensor is one word of the pattern: the words of a head come first, then heads
 * and tokens. A grid has one row of blocks a tensor. */
#include "soak.h"

#include "device_loop.cuh"

namespace {

constexpr unsigned kMostBlocks = 264; /* a tensor */

__device__ uint64_t nowNs() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

/* A read takes longer than a nanosecond, so the reads bound the time even if the timer does not move. */
__device__ void idle(soakDelay_t delay, uint64_t round) {
  const uint64_t ns = delay.key == 0 ? delay.ns : perfMix(delay.key ^ perfMix(round)) % (delay.ns + 1);
  const uint64_t startNs = nowNs();
  for (uint64_t reads = 0; reads < ns && nowNs() - startNs < ns; reads++) {
  }
}

__global__ void begin(soakState_t* state, soakProgress_t* progress, soakDelay_t delay) {
  const unsigned long long round = state->round + 1;
  state->round = round;
  *progress = 2 * round - 1;
  idle(delay, round);
}

__global__ void arrive(const soakState_t* state, soakProgress_t* progress, soakDelay_t delay, soakSpoil_t spoil) {
  const unsigned long long round = state->round;
  *progress = 2 * round;
  if (round == spoil.round) *spoil.element ^= 1;
  idle(delay, round);
}

__host__ __device__ int64_t itemsOf(const perfView_t& view) {
  return view.tokens * view.heads * perfPatternWordsOfHead(view.headBytes);
}

/* Elements [first, first + count) of one head, whose place in the tensor is `at`. */
struct Word {
  int64_t token; /* of the model */
  int64_t head;
  int64_t first;
  int count;
  int64_t at;
  uint64_t pattern;
};

__device__ Word wordOf(const perfView_t& view, uint64_t round, int64_t item) {
  const int64_t words = perfPatternWordsOfHead(view.headBytes);
  const int64_t elements = view.headBytes / SOAK_ELEMENT_BYTES;
  const int64_t word = item % words;
  item /= words;
  const int64_t head = item % view.heads;
  const int64_t token = item / view.heads;
  const uint64_t key = perfPatternKey(round, view.tensor, 0, view.firstToken + token, view.firstHead + head);
  const int64_t first = word * SOAK_ELEMENTS_PER_WORD;
  return {view.firstToken + token,
          view.firstHead + head,
          first,
          perfPatternBytesOfWord(view.headBytes, word) / SOAK_ELEMENT_BYTES,
          (token * view.heads + head) * elements + first,
          perfPatternWord(key, word)};
}

__device__ uint16_t elementOf(uint64_t pattern, int element) {
  return (uint16_t)(pattern >> (16 * element));
}

__global__ void fill(soakTensors_t tensors, const soakState_t* state) {
  const perfView_t view = tensors.views[blockIdx.y];
  uint16_t* data = tensors.data[blockIdx.y];
  const int64_t items = itemsOf(view);
  const uint64_t round = state->round;
  for (int64_t item = perfFirstItem(); item < items; item += perfItemStride()) {
    const Word word = wordOf(view, round, item);
    for (int i = 0; i < word.count; i++) data[word.at + i] = elementOf(word.pattern, i);
  }
}

/* The first to find the round wrong also says where. Rounds beyond SOAK_NOTES are only counted. */
__device__ void note(soakState_t* state, const soakNote_t& found) {
  for (int i = 0; i < SOAK_NOTES; i++) {
    soakNote_t* slot = &state->notes[i];
    const unsigned long long held = atomicCAS(&slot->round, 0ULL, found.round);
    if (held != 0 && held != found.round) continue;
    atomicAdd(&slot->wrong, found.wrong);
    if (held == 0) {
      slot->token = found.token;
      slot->head = found.head;
      slot->element = found.element;
      slot->tensor = found.tensor;
      slot->expected = found.expected;
      slot->found = found.found;
    }
    return;
  }
}

__global__ void check(soakTensors_t tensors, soakState_t* state) {
  const perfView_t view = tensors.views[blockIdx.y];
  const uint16_t* data = tensors.data[blockIdx.y];
  const int64_t items = itemsOf(view);
  const uint64_t round = state->round;
  soakNote_t mine = {round, 0, 0, 0, 0, view.tensor, 0, 0};
  for (int64_t item = perfFirstItem(); item < items; item += perfItemStride()) {
    const Word word = wordOf(view, round, item);
    for (int i = 0; i < word.count; i++) {
      const uint16_t expected = elementOf(word.pattern, i);
      const uint16_t found = data[word.at + i];
      if (found == expected) continue;
      if (mine.wrong == 0) {
        mine.token = word.token;
        mine.head = word.head;
        mine.element = word.first + i;
        mine.expected = expected;
        mine.found = found;
      }
      mine.wrong++;
    }
  }
  if (mine.wrong == 0) return;
  atomicAdd(&state->wrong, mine.wrong);
  note(state, mine);
}

/* Enough for the largest of the tensors; x 0: they are all empty. */
dim3 gridOf(const soakTensors_t* tensors) {
  int64_t most = 0;
  for (int i = 0; i < tensors->count; i++) {
    const int64_t items = itemsOf(tensors->views[i]);
    if (items > most) most = items;
  }
  if (most == 0) return dim3(0, 1, 1);
  const unsigned blocks = perfBlocksFor(most);
  return dim3(blocks < kMostBlocks ? blocks : kMostBlocks, (unsigned)tensors->count, 1);
}

}  // namespace

extern "C" cudaError_t soakLoad(void) {
  const void* const kernels[] = {(const void*)begin, (const void*)fill, (const void*)arrive, (const void*)check};
  for (const void* kernel : kernels) {
    cudaFuncAttributes attributes;
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

extern "C" cudaError_t soakLaunchBegin(soakState_t* state, soakProgress_t* progress, soakDelay_t delay,
                                       cudaStream_t stream) {
  begin<<<1, 1, 0, stream>>>(state, progress, delay);
  return cudaGetLastError();
}

extern "C" cudaError_t soakLaunchFill(const soakTensors_t* tensors, const soakState_t* state, cudaStream_t stream) {
  const dim3 grid = gridOf(tensors);
  if (grid.x == 0) return cudaSuccess;
  fill<<<grid, PERF_LOOP_THREADS, 0, stream>>>(*tensors, state);
  return cudaGetLastError();
}

extern "C" cudaError_t soakLaunchArrive(const soakState_t* state, soakProgress_t* progress, soakDelay_t delay,
                                        soakSpoil_t spoil, cudaStream_t stream) {
  arrive<<<1, 1, 0, stream>>>(state, progress, delay, spoil);
  return cudaGetLastError();
}

extern "C" cudaError_t soakLaunchCheck(const soakTensors_t* tensors, soakState_t* state, cudaStream_t stream) {
  const dim3 grid = gridOf(tensors);
  if (grid.x == 0) return cudaSuccess;
  check<<<grid, PERF_LOOP_THREADS, 0, stream>>>(*tensors, state);
  return cudaGetLastError();
}
