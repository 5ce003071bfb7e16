/* SPDX-License-Identifier: MIT
 *
 * The merge of a chain of states on the host: the kernel's arithmetic, element by element, in its order. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "chain.h"
#include "sum.h"

void ulyxChainArgsFill(const ulyxChain* chain, void* const* src, void* const* dst, ulyxChainArgs* args) {
  *args =
      (ulyxChainArgs){.hops = ulyxPlaceAddress(chain->hop, src, dst),
                      .hopBytes = chain->hopBytes,
                      .initial = chain->hasInitial ? (const float*)ulyxPlaceAddress(chain->initial, src, dst) : NULL,
                      .received = (float*)ulyxPlaceAddress(chain->received, src, dst),
                      .ownState = (const float*)ulyxPlaceAddress(chain->ownState, src, dst),
                      .ownMatrix = (const float*)ulyxPlaceAddress(chain->ownMatrix, src, dst),
                      .ownStart = chain->hasOwnStart ? (const float*)ulyxPlaceAddress(chain->ownStart, src, dst) : NULL,
                      .final = chain->hasFinal ? (float*)ulyxPlaceAddress(chain->final, src, dst) : NULL,
                      .heads = chain->heads,
                      .keyDim = chain->keyDim,
                      .valueDim = chain->valueDim,
                      .hopCount = chain->hops,
                      .transposed = chain->transposed,
                      .startsHere = chain->startsHere ? 1 : 0};
}

/* The one NaN that a merge stores: quiet, no sign, as the kernel's. */
static float quietNan(void) {
  const uint32_t bits = UINT32_C(0x7fffffff);
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* One column of one head: to = S_hop + M from. */
static void applyHop(const ulyxChainArgs* args, const float* state, const float* matrix, const float* from, float* to,
                     int64_t column) {
  const int64_t keyDim = args->keyDim;
  for (int64_t k = 0; k < keyDim; ++k) {
    float sum = state[k * args->valueDim + column];
    for (int64_t j = 0; j < keyDim; ++j) {
      sum = fmaf(args->transposed ? matrix[j * keyDim + k] : matrix[k * keyDim + j], from[j], sum);
    }
    to[k] = isnan(sum) ? quietNan() : sum; /* whose NaN it was differs between processors */
  }
}

static void loadColumn(const ulyxChainArgs* args, const float* state, int64_t column, float* to) {
  for (int64_t k = 0; k < args->keyDim; ++k) to[k] = state != NULL ? state[k * args->valueDim + column] : 0.0f;
}

static void storeColumn(const ulyxChainArgs* args, const float* from, int64_t column, float* state) {
  /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): as many were loaded as are stored */
  for (int64_t k = 0; k < args->keyDim; ++k) state[k * args->valueDim + column] = from[k];
}

static void mergeColumn(const ulyxChainArgs* args, int64_t head, int64_t column) {
  const int64_t stateSize = args->keyDim * args->valueDim, matrixSize = args->keyDim * args->keyDim;
  float tiles[2][ULYX_CHAIN_MAX_KEY_DIM];
  int now = 0;
  loadColumn(args, args->initial != NULL ? args->initial + head * stateSize : NULL, column, tiles[now]);
  for (int hop = 0; hop < args->hopCount; ++hop) {
    const float* const states = (const float*)(const void*)(args->hops + hop * args->hopBytes);
    const float* const matrices = states + args->heads * stateSize;
    applyHop(args, states + head * stateSize, matrices + head * matrixSize, tiles[now], tiles[1 - now], column);
    now = 1 - now;
  }
  storeColumn(args, tiles[now], column, args->received + head * stateSize);
  if (args->final == NULL) return;
  if (args->startsHere) {
    loadColumn(args, args->ownStart != NULL ? args->ownStart + head * stateSize : NULL, column, tiles[now]);
  }
  applyHop(args, args->ownState + head * stateSize, args->ownMatrix + head * matrixSize, tiles[now], tiles[1 - now],
           column);
  storeColumn(args, tiles[1 - now], column, args->final + head * stateSize);
}

void ulyxChainOnHost(const ulyxChainArgs* args) {
  for (int64_t head = 0; head < args->heads; ++head) {
    for (int64_t column = 0; column < args->valueDim; ++column) mergeColumn(args, head, column);
  }
}
