/* SPDX-License-Identifier: MIT
 *
 * What a chain of states begins with, and what ulyx.h says comes out: numbers are hashes of tensor, rank, head and
 * place and of a seed, so any rank can compute any other's. All on the host: states are small however long their
 * sequences are. */
#ifndef PERF_CHAIN_VALUES_H_
#define PERF_CHAIN_VALUES_H_

#include <stdbool.h>
#include <stdint.h>

#include "pattern.h"

typedef struct perfChain {
  int64_t heads;
  int64_t keyDim;
  int64_t valueDim;
  bool backward;
  bool hasInitial;
} perfChain_t;

/* What one rank's end of a chain depends on: see ulyx.h about ulyxStates_t. */
typedef struct perfChainPlace {
  int rank;
  int farthest;     /* the rank where the sequence that is received for starts; `rank` if here */
  bool oneSequence; /* what is received and what is contributed belong to the same sequence */
} perfChainPlace_t;

/* One head of one rank's perfTensorState, perfTensorTransition or perfTensorInitial. */
void perfChainFill(const perfChain_t* chain, perfTensor_t tensor, uint64_t seed, int rank, int64_t head, float* to);

/* Elements of one head of such a tensor. */
int64_t perfChainElements(const perfChain_t* chain, perfTensor_t tensor);

/* One head of what comes out; `scratch` has perfChainScratchElements. */
void perfChainExpect(const perfChain_t* chain, const perfChainPlace_t* place, uint64_t seed, int64_t head,
                     float* received, float* final, float* scratch);
int64_t perfChainScratchElements(const perfChain_t* chain);

#endif /* PERF_CHAIN_VALUES_H_ */
