/* SPDX-License-Identifier: MIT
 *
 * ulyxStateChain and ulyxStateChainBackward: the state of a linear attention, handed from rank to rank along a
 * sequence. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "chain_values.h"
#include "exchange.h"
#include "report.h"
#include "sequences.h"

#define DEFAULT_HEADS 16
#define DEFAULT_DIM 128
#define MAX_KEY_DIM 384
#define MAX_ELEMENTS (INT64_C(1) << 57) /* of the states and transitions of all ranks */

static int flags(perfOptions_t* o, perfFlag_t* all) {
  int count = 0;
  all[count++] = (perfFlag_t){"--heads", perfFlagInt, &o->heads, 1, INT64_MAX, NULL, "value heads [16]"};
  all[count++] = (perfFlag_t){"--key-dim", perfFlagInt, &o->keyDim, 1, MAX_KEY_DIM, NULL, "rows of a state [128]"};
  all[count++] = (perfFlag_t){"--value-dim", perfFlagInt, &o->valueDim, 1, INT64_MAX, NULL, "columns of a state [128]"};
  all[count++] = perfSequencesFlag(o);
  all[count++] = (perfFlag_t){"--backward",
                              perfFlagSwitch,
                              &o->backward,
                              0,
                              0,
                              NULL,
                              "ulyxStateChainBackward: gradients, from the last rank down"};
  all[count++] =
      (perfFlag_t){"--initial", perfFlagSwitch, &o->initial, 0, 0, NULL, "sequences start from a state of their own"};
  all[count++] =
      (perfFlag_t){"--final", perfFlagSwitch, &o->final, 0, 0, NULL, "the states after each rank come out too"};
  all[count++] =
      (perfFlag_t){"-d,--datatype", perfFlagFixed, NULL, 0, 0, "float|float32", "states are float32 and nothing else"};
  return count;
}

static bool settle(perfOptions_t* o) {
  o->type = perfTypeByName("float32");
  if (o->heads == 0) o->heads = DEFAULT_HEADS;
  if (o->keyDim == 0) o->keyDim = DEFAULT_DIM;
  if (o->valueDim == 0) o->valueDim = DEFAULT_DIM;
  return perfSequencesSettle(o);
}

static void printShape(const perfOptions_t* o) {
  (void)printf("heads %" PRId64 ", key dim %" PRId64 ", value dim %" PRId64 ", type %s%s%s%s, ", o->heads, o->keyDim,
               o->valueDim, o->type->name, o->backward != 0 ? ", backward" : "", o->initial != 0 ? ", initial" : "",
               o->final != 0 ? ", final" : "");
  perfSequencesPrintShape(o);
}

static void writeShape(const perfProblem_t* problem, perfJson_t* json) {
  const perfOptions_t* o = problem->options;
  perfJsonInt(json, "tokens", problem->step->tokens);
  perfJsonInt(json, "sequences", perfSequencesCount(o));
  perfJsonInt(json, "heads", o->heads);
  perfJsonInt(json, "key_dim", o->keyDim);
  perfJsonInt(json, "value_dim", o->valueDim);
  perfJsonBool(json, "backward", o->backward != 0);
  perfJsonBool(json, "initial", o->initial != 0);
  perfJsonBool(json, "final", o->final != 0);
}

static perfChain_t chainOf(const perfProblem_t* problem) {
  const perfOptions_t* o = problem->options;
  return (perfChain_t){o->heads, o->keyDim, o->valueDim, o->backward != 0, o->initial != 0};
}

static int64_t tensorBytes(const perfProblem_t* problem, perfTensor_t tensor) {
  const perfChain_t chain = chainOf(problem);
  return chain.heads * perfChainElements(&chain, tensor) * (int64_t)sizeof(float);
}

static bool judge(const perfProblem_t* problem, perfStep_t* step) {
  const perfOptions_t* o = problem->options;
  if (o->valueDim > MAX_ELEMENTS / MAX_KEY_DIM - MAX_KEY_DIM ||
      o->keyDim * (o->keyDim + o->valueDim) > MAX_ELEMENTS / problem->nRanks / o->heads) {
    perfError("%" PRId64 " heads of states of %" PRId64 " x %" PRId64 " are too large", o->heads, o->keyDim,
              o->valueDim);
    return false;
  }
  if (!perfSequencesJudge(problem)) return false;
  step->sizeBytes = tensorBytes(problem, perfTensorState) + tensorBytes(problem, perfTensorTransition);
  return true;
}

/* How many ranks hand their state to this one; the farthest is that many away. */
static int hopsTo(const perfProblem_t* problem, int rank) {
  const perfShard_t shard = perfShardOf(problem, rank);
  return problem->options->backward != 0 ? shard.after : shard.before;
}

static bool messages(const perfProblem_t* problem, int64_t* bytes) {
  const perfOptions_t* o = problem->options;
  for (int from = 0; from < problem->nRanks; from++) {
    for (int to = 0; to < problem->nRanks; to++, bytes += PERF_MAX_TENSORS) {
      const int away = o->backward != 0 ? from - to : to - from;
      const int hops = hopsTo(problem, to);
      if (away < 1 || away > hops) continue;
      bytes[0] = tensorBytes(problem, perfTensorState);
      bytes[1] = tensorBytes(problem, perfTensorTransition);
      if (o->initial != 0 && away == hops) bytes[2] = tensorBytes(problem, perfTensorInitial);
    }
  }
  return true;
}

static bool lay(const perfProblem_t* problem, int rank, perfLayout_t* in, perfLayout_t* out) {
  (void)rank;
  const int64_t stateBytes = tensorBytes(problem, perfTensorState);
  perfLayoutAddBuffer(in, stateBytes);
  perfLayoutAddBuffer(in, tensorBytes(problem, perfTensorTransition));
  if (problem->options->initial != 0) perfLayoutAddBuffer(in, stateBytes);
  perfLayoutAddBuffer(out, stateBytes);
  if (problem->options->final != 0) perfLayoutAddBuffer(out, stateBytes);
  return true;
}

static bool plan(const perfProblem_t* problem, int rank, ulyxRuntime_t rt, ulyxPlan_t* created) {
  const perfOptions_t* o = problem->options;
  ulyxStateShape_t shape = ULYX_STATE_SHAPE_INITIALIZER;
  if (!perfSequencesContext(problem, rank, &shape.context)) return false;
  shape.heads = o->heads;
  shape.keyDim = o->keyDim;
  shape.valueDim = o->valueDim;
  shape.hasInitial = (int)o->initial;
  shape.wantsFinal = (int)o->final;
  const bool ok = perfUlyxOk(ulyxStatePlanCreate(rt, &shape, created), rt, "ulyxStatePlanCreate");
  return perfUlyxOk(ulyxContextDestroy(shape.context), NULL, "ulyxContextDestroy") && ok;
}

static ulyxResult_t bind(ulyxPlan_t planned, void* const* in, void* const* out, perfTensors_t* tensors) {
  const ulyxResult_t result = ulyxPlanGetStates(planned, &tensors->states);
  if (result != ulyxSuccess) return result;
  /* What an option leaves out has no buffer: its pointer is NULL. */
  tensors->states.state.data = in[0];
  tensors->states.transition.data = in[1];
  tensors->states.initial.data = in[2];
  tensors->states.received.data = out[0];
  tensors->states.final.data = out[1];
  return ulyxSuccess;
}

static ulyxResult_t run(const perfProblem_t* problem, ulyxPlan_t planned, const perfTensors_t* tensors,
                        ulyxStream_t stream) {
  return problem->options->backward != 0 ? ulyxStateChainBackward(planned, &tensors->states, stream)
                                         : ulyxStateChain(planned, &tensors->states, stream);
}

static bool fill(perfExchange_t* exchange) {
  static const perfTensor_t tensors[] = {perfTensorState, perfTensorTransition, perfTensorInitial};
  perfRank_t* me = exchange->me;
  const perfChain_t chain = chainOf(&exchange->problem);
  bool ok = true;
  for (int i = 0; i < exchange->in.layout.nBuffers && ok; i++) {
    const int64_t bytes = exchange->in.layout.bufferBytes[i];
    const int64_t elements = perfChainElements(&chain, tensors[i]);
    float* host = malloc((size_t)bytes);
    if (host == NULL) {
      perfError("out of memory for the states of rank %d", me->rank);
      return false;
    }
    for (int64_t head = 0; head < chain.heads; head++) {
      perfChainFill(&chain, tensors[i], exchange->seed, me->rank, head, host + head * elements);
    }
    ok = me->backend->put(me, perfBufferData(&exchange->in.buffers[i]), host, bytes);
    free(host);
  }
  return ok;
}

static int64_t countWrong(const float* given, const float* expected, int64_t elements) {
  int64_t wrong = 0;
  for (int64_t i = 0; i < elements; i++) {
    wrong += perfPatternCountWrong((const unsigned char*)&given[i], perfBitsOfFloat(expected[i]), sizeof(given[i]));
  }
  return wrong;
}

static bool check(perfExchange_t* exchange, int64_t* wrong) {
  const perfProblem_t* problem = &exchange->problem;
  perfRank_t* me = exchange->me;
  const perfChain_t chain = chainOf(problem);
  const perfShard_t shard = perfShardOf(problem, me->rank);
  const int hops = hopsTo(problem, me->rank);
  const perfChainPlace_t place = {me->rank, chain.backward ? me->rank + hops : me->rank - hops, shard.oneSequence};
  const int64_t elements = perfChainElements(&chain, perfTensorState);
  const int64_t bytes = chain.heads * elements * (int64_t)sizeof(float);
  /* Without tokens a rank has no sequence whose state `final` could be. */
  const bool hasFinal = problem->options->final != 0 && perfRangeLength(shard.tokens) > 0;
  bool ok = false;
  float* given[2] = {malloc((size_t)bytes), hasFinal ? malloc((size_t)bytes) : NULL};
  float* expected[2] = {malloc((size_t)elements * sizeof(float)), malloc((size_t)elements * sizeof(float))};
  float* scratch = malloc((size_t)perfChainScratchElements(&chain) * sizeof(float));
  if (given[0] == NULL || (hasFinal && given[1] == NULL) || expected[0] == NULL || expected[1] == NULL ||
      scratch == NULL) {
    perfError("out of memory for the states of rank %d", me->rank);
    goto freeStates;
  }
  for (int i = 0; i < 2 && given[i] != NULL; i++) {
    if (!me->backend->get(me, given[i], perfBufferData(&exchange->out.buffers[i]), bytes)) goto freeStates;
  }
  for (int64_t head = 0; head < chain.heads; head++) {
    perfChainExpect(&chain, &place, exchange->seed, head, expected[0], expected[1], scratch);
    for (int i = 0; i < 2 && given[i] != NULL; i++) {
      *wrong += countWrong(given[i] + head * elements, expected[i], elements);
    }
  }
  ok = true;

freeStates:
  free(scratch);
  for (int i = 1; i >= 0; i--) {
    free(expected[i]);
    free(given[i]);
  }
  return ok;
}

int main(int argc, char** argv) {
  const perfOp_t op = {
      .name = "state_chain_perf",
      .summary = "the recurrent states of a linear attention along sequences that span ranks",
      .call = "ulyxStateChain",
      .sizeText = "state and transition of one rank",
      .unit = "tokens",
      .inputInSymmetric = false,
      .baselines = {{perfBaselineNone, "nccl", "nccl_us", "NCCL has nothing like it"}},
      .nBaselines = 1,
      .flags = flags,
      .settle = settle,
      .printShape = printShape,
      .writeShape = writeShape,
      .list = perfSequencesList,
      .judge = judge,
      .messages = messages,
      .lay = lay,
      .plan = plan,
      .bind = bind,
      .run = run,
      .fill = fill,
      .check = check,
  };
  return perfMain(argc, argv, &op);
}
