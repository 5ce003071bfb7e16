/* SPDX-License-Identifier: MIT
 *
 * One step of a sweep on one rank: a plan, its tensors' memory with canaries round each, and their checks. */
#ifndef PERF_EXCHANGE_H_
#define PERF_EXCHANGE_H_

#include <stdbool.h>
#include <stdint.h>

#include "backend.h"

#define PERF_CANARY_BYTES 256

typedef struct perfBuffer {
  unsigned char* base; /* canary, data, canary; NULL: none */
  int64_t bytes;       /* of all three */
  int64_t dataOffset;
  int64_t dataBytes;
  bool symmetric; /* from ulyxMemAlloc */
} perfBuffer_t;

typedef struct perfSide {
  perfLayout_t layout;
  perfBuffer_t buffers[PERF_MAX_TENSORS];
} perfSide_t;

typedef struct perfExchange {
  perfRank_t* me;
  const perfOp_t* op;
  perfProblem_t problem;
  ulyxPlan_t plan;
  perfSide_t in;
  perfSide_t out;
  perfTensors_t tensors;
  uint64_t seed; /* of the data that is in the inputs */
} perfExchange_t;

/* Collective; the inputs hold data and the outputs are poisoned. Destroy in either case, with collective false once the
 * team has failed: what the ranks hold in common is then left to the runtime's destruction. */
bool perfExchangeCreate(perfRank_t* me, const perfOp_t* op, const perfStep_t* step, perfExchange_t* exchange);
void perfExchangeDestroy(perfExchange_t* exchange, bool collective);

/* Enqueues the exchange; a perfTask_t's enqueue. */
bool perfExchangeRun(void* exchange, ulyxStream_t stream);

/* Fills the inputs with data of the next seed and poisons the outputs; a perfTask_t's refresh. */
bool perfExchangeRefresh(void* exchange);

/* Where the data of a buffer begins. */
unsigned char* perfBufferData(const perfBuffer_t* buffer);

/* Of its tensors on this rank, canaries included. */
int64_t perfExchangeMemory(const perfExchange_t* exchange);

/* Adds the outputs' wrong bytes and the canaries' changed ones to *wrong. */
bool perfExchangeCheck(perfExchange_t* exchange, int64_t* wrong);

#endif /* PERF_EXCHANGE_H_ */
