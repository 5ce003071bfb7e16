/* SPDX-License-Identifier: MIT */
#include "chain_values.h"

#include <math.h>
#include <string.h>

int64_t perfChainElements(const perfChain_t* chain, perfTensor_t tensor) {
  return chain->keyDim * (tensor == perfTensorTransition ? chain->keyDim : chain->valueDim);
}

int64_t perfChainScratchElements(const perfChain_t* chain) {
  return perfChainElements(chain, perfTensorTransition) + 2 * perfChainElements(chain, perfTensorState);
}

/* Numbers from -1 to 1, of transitions so much smaller that states stay near 1 along any chain. */
void perfChainFill(const perfChain_t* chain, perfTensor_t tensor, uint64_t seed, int rank, int64_t head, float* to) {
  const uint64_t key = perfPatternKey(seed, (int32_t)tensor, rank, head, 0);
  const float scale = tensor == perfTensorTransition ? 0x1p-23f / (float)chain->keyDim : 0x1p-23f;
  const int64_t elements = perfChainElements(chain, tensor);
  for (int64_t i = 0; i < elements; i++) {
    const int32_t number = (int32_t)(perfPatternWord(key, i) >> 40) - (1 << 23);
    to[i] = (float)number * scale;
  }
}

static void fillStart(const perfChain_t* chain, bool isGiven, uint64_t seed, int rank, int64_t head, float* to) {
  if (isGiven) {
    perfChainFill(chain, perfTensorInitial, seed, rank, head, to);
  } else {
    memset(to, 0, (size_t)perfChainElements(chain, perfTensorState) * sizeof(*to));
  }
}

/* to = M from + S_ext of a rank; backward M is transposed. */
static void apply(const perfChain_t* chain, uint64_t seed, int rank, int64_t head, const float* from, float* to,
                  float* matrix) {
  const int64_t keyDim = chain->keyDim;
  const int64_t valueDim = chain->valueDim;
  perfChainFill(chain, perfTensorTransition, seed, rank, head, matrix);
  perfChainFill(chain, perfTensorState, seed, rank, head, to);
  for (int64_t k = 0; k < keyDim; k++) {
    for (int64_t j = 0; j < keyDim; j++) {
      const float factor = chain->backward ? matrix[j * keyDim + k] : matrix[k * keyDim + j];
      for (int64_t v = 0; v < valueDim; v++) {
        to[k * valueDim + v] = fmaf(factor, from[j * valueDim + v], to[k * valueDim + v]);
      }
    }
  }
}

void perfChainExpect(const perfChain_t* chain, const perfChainPlace_t* place, uint64_t seed, int64_t head,
                     float* received, float* final, float* scratch) {
  const int64_t stateElements = perfChainElements(chain, perfTensorState);
  const size_t stateBytes = (size_t)stateElements * sizeof(float);
  float* matrix = scratch;
  float* start = matrix + perfChainElements(chain, perfTensorTransition);
  float* next = start + stateElements;
  const int step = chain->backward ? -1 : 1;
  const bool receives = place->farthest != place->rank;
  fillStart(chain, chain->hasInitial && (receives || place->oneSequence), seed, place->farthest, head, received);
  for (int rank = place->farthest; rank != place->rank; rank += step) {
    apply(chain, seed, rank, head, received, next, matrix);
    memcpy(received, next, stateBytes);
  }
  if (place->oneSequence) {
    memcpy(start, received, stateBytes);
  } else {
    fillStart(chain, chain->hasInitial, seed, place->rank, head, start);
  }
  apply(chain, seed, place->rank, head, start, final, matrix);
}
