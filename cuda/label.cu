// SPDX-License-Identifier: MIT
//
// The kernels of labels: one writes what is sent and expected, one compares what has come.

#include "kernels.h"

namespace {

constexpr int kThreads = 128;
constexpr int kWarp = 32;
constexpr uint32_t kNobody = UINT32_MAX;

using AtomicWord = unsigned long long;
static_assert(sizeof(AtomicWord) == sizeof(uint64_t), "CUDA's atomics have a type of their own");

__device__ uint64_t exchange(uint64_t* word, uint64_t value) {
  return atomicExch(reinterpret_cast<AtomicWord*>(word), AtomicWord{value});
}

// Of two exchanges that begin at once one finds the other.
__device__ void begin(const ulyxLabelWrite& write) {
  volatile ulyxLabelOverlap* const overlap = write.overlap;
  const uint64_t running = exchange(&write.run->running, write.own.number);
  if (running != 0 && atomicExch(&write.run->told, 1u) == 0) {
    overlap->number = write.own.number;
    overlap->running = running;
    __threadfence_system();
    overlap->found = 1;
  }
  write.labels[ULYX_LABEL_OWN] = write.own;
}

__global__ void __launch_bounds__(kThreads) writeKernel(const __grid_constant__ ulyxLabelWrite write) {
  if (threadIdx.x == 0 && write.firstRank == 0) begin(write);
  for (int i = static_cast<int>(threadIdx.x); i < write.count; i += kThreads) {
    ulyxLabel expected = {};
    expected.state = (write.awaited[i / 64] >> (i % 64) & 1) != 0 ? ulyxLabelAwaited : ulyxLabelNone;
    write.labels[ULYX_LABEL_FROM(write.firstRank + i)] = expected;
  }
}

__device__ void copyLabel(volatile ulyxLabel* to, const ulyxLabel& from) {
  to->state = from.state;
  to->signature = from.signature;
  to->plan = from.plan;
  to->number = from.number;
  for (int i = 0; i < ULYX_LABEL_NAME_BYTES; ++i) to->operation[i] = from.operation[i];
}

// The lowest rank's is told, unless the host has not yet read an earlier one. What has not come was given up by an
// abort.
__device__ void tell(const ulyxLabelCompare& compare, uint32_t wrong) {
  const ulyxLabel* const labels = compare.labels;
  volatile ulyxMislabelled* const found = compare.found;
  if (wrong == kNobody || found->peer != 0) return;
  copyLabel(&found->mine, labels[ULYX_LABEL_OWN]);
  copyLabel(&found->theirs, labels[ULYX_LABEL_FROM(wrong)]);
  __threadfence_system();
  found->peer = 1 + wrong;
}

__global__ void __launch_bounds__(kWarp) compareKernel(const ulyxLabelCompare compare) {
  const ulyxLabel* const labels = compare.labels;
  uint32_t wrong = kNobody;
  for (int rank = static_cast<int>(threadIdx.x); rank < compare.nRanks; rank += kWarp) {
    const ulyxLabel* const from = &labels[ULYX_LABEL_FROM(rank)];
    const bool differs = from->state == ulyxLabelWritten && from->signature != labels[ULYX_LABEL_OWN].signature;
    if (differs) wrong = min(wrong, static_cast<uint32_t>(rank));
  }
  wrong = __reduce_min_sync(UINT32_MAX, wrong);
  if (threadIdx.x != 0) return;
  tell(compare, wrong);
  (void)exchange(&compare.run->running, 0);
}

}  // namespace

extern "C" cudaError_t ulyxLaunchLabelWrite(const ulyxLabelWrite* write, cudaStream_t stream) {
  void* arguments[] = {const_cast<ulyxLabelWrite*>(write)};
  return cudaLaunchKernel(reinterpret_cast<const void*>(writeKernel), dim3(1), dim3(kThreads), arguments, 0, stream);
}

extern "C" cudaError_t ulyxLaunchLabelCompare(const ulyxLabelCompare* compare, cudaStream_t stream) {
  void* arguments[] = {const_cast<ulyxLabelCompare*>(compare)};
  return cudaLaunchKernel(reinterpret_cast<const void*>(compareKernel), dim3(1), dim3(kWarp), arguments, 0, stream);
}

extern "C" cudaError_t ulyxLoadLabels(void) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, writeKernel);
  return error != cudaSuccess ? error : cudaFuncGetAttributes(&attributes, compareKernel);
}
