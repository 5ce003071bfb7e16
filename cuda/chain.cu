// SPDX-License-Identifier: MIT
//
// The chain kernel. Block (head, columns) keeps two tiles of keyDim x 16 floats of S in shared memory and swaps
// them from hop to hop; thread (r, c) computes rows r, r + 16, ... of column c. M's rows are read by 16 threads
// at once and stay in L1.

#include "kernels.h"
#include "tiles.cuh"

namespace {

// to[k][c] = S_hop[k][c] + sum over j of M[k][j] from[j][c].
__device__ void applyHop(const ulyxChainArgs& args, const float* state, const float* matrix, const float* from,
                         float* to, int64_t column) {
  const int64_t keyDim = args.keyDim;
  for (int64_t k = threadIdx.y; k < keyDim; k += ULYX_CHAIN_ROWS) {
    float sum = column < args.valueDim ? state[k * args.valueDim + column] : 0.0f;
    for (int64_t j = 0; j < keyDim; ++j) {
      const float m = args.transposed ? matrix[j * keyDim + k] : matrix[k * keyDim + j];
      sum = __fmaf_rn(m, from[j * ULYX_CHAIN_COLUMNS + threadIdx.x], sum);
    }
    to[k * ULYX_CHAIN_COLUMNS + threadIdx.x] = isnan(sum) ? __int_as_float(0x7fffffff) : sum;
  }
  __syncthreads();
}

__device__ void loadTile(const ulyxChainArgs& args, const float* state, float* tile, int64_t column) {
  for (int64_t k = threadIdx.y; k < args.keyDim; k += ULYX_CHAIN_ROWS) {
    tile[k * ULYX_CHAIN_COLUMNS + threadIdx.x] =
        state != nullptr && column < args.valueDim ? state[k * args.valueDim + column] : 0.0f;
  }
  __syncthreads();
}

__device__ void storeTile(const ulyxChainArgs& args, const float* tile, float* state, int64_t column) {
  for (int64_t k = threadIdx.y; k < args.keyDim; k += ULYX_CHAIN_ROWS) {
    if (column < args.valueDim) state[k * args.valueDim + column] = tile[k * ULYX_CHAIN_COLUMNS + threadIdx.x];
  }
}

__device__ const float* headOf(const float* all, int64_t head, int64_t size) {
  return all != nullptr ? all + head * size : nullptr;
}

__device__ void mergeColumns(const ulyxChainArgs& args, int64_t head, int64_t column, float* tiles) {
  const int64_t stateSize = args.keyDim * args.valueDim, matrixSize = args.keyDim * args.keyDim;
  float* now = tiles;
  float* next = tiles + args.keyDim * ULYX_CHAIN_COLUMNS;
  loadTile(args, headOf(args.initial, head, stateSize), now, column);
  for (int hop = 0; hop < args.hopCount; ++hop) {
    const float* const states = reinterpret_cast<const float*>(args.hops + hop * args.hopBytes);
    const float* const matrices = states + args.heads * stateSize;
    applyHop(args, states + head * stateSize, matrices + head * matrixSize, now, next, column);
    float* const swapped = now;
    now = next;
    next = swapped;
  }
  storeTile(args, now, args.received + head * stateSize, column);
  if (args.final == nullptr) return;
  __syncthreads();
  if (args.startsHere) loadTile(args, headOf(args.ownStart, head, stateSize), now, column);
  applyHop(args, args.ownState + head * stateSize, args.ownMatrix + head * matrixSize, now, next, column);
  storeTile(args, next, args.final + head * stateSize, column);
}

__global__ void __launch_bounds__(ULYX_CHAIN_COLUMNS* ULYX_CHAIN_ROWS)
    chainKernel(const __grid_constant__ ulyxChainArgs args) {
  extern __shared__ float tiles[];
  if (ulyxIsSkipped(args.skip)) return;
  const int64_t columnBlocks = (args.valueDim + ULYX_CHAIN_COLUMNS - 1) / ULYX_CHAIN_COLUMNS;
  for (int64_t block = blockIdx.x; block < args.heads * columnBlocks; block += gridDim.x) {
    mergeColumns(args, block / columnBlocks, (block % columnBlocks) * ULYX_CHAIN_COLUMNS + threadIdx.x, tiles);
    __syncthreads();  // the tiles are free again
  }
}

}  // namespace

extern "C" cudaError_t ulyxLaunchChain(const ulyxChainArgs* args, int maxCtas, cudaStream_t stream) {
  const int64_t columnBlocks = (args->valueDim + ULYX_CHAIN_COLUMNS - 1) / ULYX_CHAIN_COLUMNS;
  const int64_t blocks = args->heads * columnBlocks;
  const int64_t most = maxCtas > 0 ? maxCtas : INT32_MAX;
  const size_t sharedBytes = 2 * static_cast<size_t>(args->keyDim) * ULYX_CHAIN_COLUMNS * sizeof(float);
  void* arguments[] = {const_cast<ulyxChainArgs*>(args)};
  return cudaLaunchKernel(reinterpret_cast<const void*>(chainKernel),
                          dim3(static_cast<unsigned int>(blocks < most ? blocks : most)),
                          dim3(ULYX_CHAIN_COLUMNS, ULYX_CHAIN_ROWS), arguments, sharedBytes, stream);
}

extern "C" cudaError_t ulyxLoadChain(void) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, chainKernel);
}
