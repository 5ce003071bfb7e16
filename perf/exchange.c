/* SPDX-License-Identifier: MIT */
#include "exchange.h"

#include <string.h>

#include "report.h"

/* Off the alignment of every allocation by this much; the canary before the data is longer by it. */
static int64_t unalignedBytes(const perfRank_t* me) {
  return me->options->unalign * me->options->type->bytes;
}

static bool allocSide(perfRank_t* me, bool symmetric, perfSide_t* side) {
  /* In one process an allocation on one GPU may wait for all of them, so it must not meet a collective that
   * waits for this rank. */
  if (symmetric && !perfTeamBarrier(me->team, me->rank)) return false;
  for (int i = 0; i < side->layout.nBuffers; i++) {
    perfBuffer_t* buffer = &side->buffers[i];
    const int64_t offset = PERF_CANARY_BYTES + unalignedBytes(me);
    const int64_t bytes = offset + side->layout.bufferBytes[i] + PERF_CANARY_BYTES;
    void* base = NULL;
    if (symmetric) {
      if (!perfUlyxOk(ulyxMemAlloc(me->rt, bytes, &base), me->rt, "ulyxMemAlloc")) return false;
    } else {
      if (!me->backend->alloc(me, bytes, &base)) return false;
    }
    *buffer = (perfBuffer_t){base, bytes, offset, side->layout.bufferBytes[i], symmetric};
  }
  return true;
}

static void freeSide(perfRank_t* me, bool collective, perfSide_t* side) {
  for (int i = PERF_MAX_TENSORS - 1; i >= 0; i--) {
    perfBuffer_t* buffer = &side->buffers[i];
    if (buffer->base == NULL) continue;
    if (!buffer->symmetric) {
      me->backend->release(me, buffer->base);
    } else if (collective) {
      (void)perfUlyxOk(ulyxMemFree(me->rt, buffer->base), me->rt, "ulyxMemFree");
    }
    buffer->base = NULL;
  }
}

unsigned char* perfBufferData(const perfBuffer_t* buffer) {
  return buffer->base != NULL ? buffer->base + buffer->dataOffset : NULL;
}

static void dataPointers(const perfSide_t* side, void* pointers[PERF_MAX_TENSORS]) {
  for (int i = 0; i < PERF_MAX_TENSORS; i++) pointers[i] = perfBufferData(&side->buffers[i]);
}

static void startTensors(perfTensors_t* tensors) {
  const ulyxTensor_t none = ULYX_TENSOR_INITIALIZER;
  tensors->qkvIn = (ulyxQkv_t)ULYX_QKV_INITIALIZER;
  tensors->qkvOut = (ulyxQkv_t)ULYX_QKV_INITIALIZER;
  tensors->in = none;
  tensors->out = none;
  tensors->states = (ulyxStates_t){none, none, none, none, none};
}

bool perfExchangeCreate(perfRank_t* me, const perfOp_t* op, const perfStep_t* step, perfExchange_t* exchange) {
  memset(exchange, 0, sizeof(*exchange));
  exchange->me = me;
  exchange->op = op;
  exchange->problem = (perfProblem_t){me->options, step, me->nRanks};
  const bool symmetric = me->options->memory == perfMemorySymmetric;
  void* in[PERF_MAX_TENSORS];
  void* out[PERF_MAX_TENSORS];
  if (!op->lay(&exchange->problem, me->rank, &exchange->in.layout, &exchange->out.layout)) return false;
  if (!op->plan(&exchange->problem, me->rank, me->rt, &exchange->plan)) return false;
  if (!allocSide(me, symmetric && op->inputInSymmetric, &exchange->in)) return false;
  if (!allocSide(me, symmetric, &exchange->out)) return false;
  dataPointers(&exchange->in, in);
  dataPointers(&exchange->out, out);
  startTensors(&exchange->tensors);
  if (!perfUlyxOk(op->bind(exchange->plan, in, out, &exchange->tensors), me->rt, "the plan's tensors")) return false;
  /* Also loads the backend's kernels, which could wait for an exchange that waits for this rank. */
  return perfExchangeRefresh(exchange) && perfTeamBarrier(me->team, me->rank);
}

void perfExchangeDestroy(perfExchange_t* exchange, bool collective) {
  freeSide(exchange->me, collective, &exchange->out);
  freeSide(exchange->me, collective, &exchange->in);
  (void)perfUlyxOk(ulyxPlanDestroy(exchange->plan), exchange->me->rt, "ulyxPlanDestroy");
  exchange->plan = NULL;
}

bool perfExchangeRun(void* state, ulyxStream_t stream) {
  const perfExchange_t* exchange = state;
  return perfUlyxOk(exchange->op->run(&exchange->problem, exchange->plan, &exchange->tensors, stream), exchange->me->rt,
                    exchange->op->call);
}

static bool fillViews(perfExchange_t* exchange) {
  perfRank_t* me = exchange->me;
  for (int i = 0; i < exchange->in.layout.nViews; i++) {
    const perfView_t* view = &exchange->in.layout.views[i];
    if (!me->backend->fill(me, perfBufferData(&exchange->in.buffers[view->buffer]), view, exchange->seed)) return false;
  }
  return true;
}

static bool checkViews(perfExchange_t* exchange, int64_t* wrong) {
  perfRank_t* me = exchange->me;
  for (int i = 0; i < exchange->out.layout.nViews; i++) {
    const perfView_t* view = &exchange->out.layout.views[i];
    const unsigned char* data = perfBufferData(&exchange->out.buffers[view->buffer]);
    if (!me->backend->countWrong(me, data, view, exchange->seed, wrong)) return false;
  }
  return true;
}

bool perfExchangeRefresh(void* state) {
  perfExchange_t* exchange = state;
  perfRank_t* me = exchange->me;
  exchange->seed++;
  if (!(exchange->op->fill != NULL ? exchange->op->fill : fillViews)(exchange)) return false;
  for (int i = 0; i < exchange->out.layout.nBuffers; i++) {
    const perfBuffer_t* buffer = &exchange->out.buffers[i];
    if (!me->backend->poison(me, buffer->base, buffer->bytes)) return false;
  }
  return true;
}

bool perfExchangeCheck(perfExchange_t* exchange, int64_t* wrong) {
  perfRank_t* me = exchange->me;
  const perfBackend_t* backend = me->backend;
  if (!(exchange->op->check != NULL ? exchange->op->check : checkViews)(exchange, wrong)) return false;
  for (int i = 0; i < exchange->out.layout.nBuffers; i++) {
    const perfBuffer_t* buffer = &exchange->out.buffers[i];
    const unsigned char* after = perfBufferData(buffer) + buffer->dataBytes;
    if (!backend->countNotPoison(me, buffer->base, buffer->dataOffset, wrong)) return false;
    if (!backend->countNotPoison(me, after, PERF_CANARY_BYTES, wrong)) return false;
  }
  return true;
}

int64_t perfExchangeMemory(const perfExchange_t* exchange) {
  int64_t bytes = 0;
  for (int i = 0; i < PERF_MAX_TENSORS; i++) bytes += exchange->in.buffers[i].bytes + exchange->out.buffers[i].bytes;
  return bytes;
}
