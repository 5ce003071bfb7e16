/* SPDX-License-Identifier: MIT
 *
 * What NCCL's own collective takes for the same bytes. It wants as many from every rank. */
#include <stdlib.h>

#include "cuda_backend.h"

typedef struct collective {
  ncclComm_t comm;
  bool reduces;
  ncclDataType_t type;
  size_t elements; /* of one rank */
  void* buffers[2];
} collective_t;

static bool enqueueCollective(void* state, ulyxStream_t stream) {
  const collective_t* c = state;
  if (c->reduces) {
    return perfNcclOk(ncclReduceScatter(c->buffers[0], c->buffers[1], c->elements, c->type, ncclSum, c->comm, stream),
                      "ncclReduceScatter");
  }
  return perfNcclOk(ncclAllGather(c->buffers[0], c->buffers[1], c->elements, c->type, c->comm, stream),
                    "ncclAllGather");
}

/* The bytes of one rank if every rank sends as many to every rank, its own included; 0 if not. */
static int64_t equalBytes(const int64_t* messages, int nRanks) {
  const size_t pairs = (size_t)nRanks * (size_t)nRanks;
  for (size_t pair = 1; pair < pairs; pair++) {
    if (messages[pair * PERF_MAX_TENSORS] != messages[0]) return 0;
  }
  return messages[0];
}

bool perfCudaTimeCollective(perfRank_t* me, const perfOp_t* op, const perfProblem_t* problem, perfBaselineKind_t kind,
                            const perfRepeat_t* repeat, double* us) {
  int64_t* messages = perfMessagesCreate(op, problem);
  if (messages == NULL) return false;
  const int64_t bytes = equalBytes(messages, me->nRanks);
  free(messages);
  *us = PERF_NOT_MEASURED;
  if (bytes == 0) return true;
  collective_t collective = {.comm = me->comm, .type = ncclUint8, .elements = (size_t)bytes};
  if (kind == perfBaselineReduceScatter) {
    const perfType_t* type = me->options->type;
    collective.reduces = true;
    collective.type = (ncclDataType_t)type->type; /* ulyx's codes of numbers are NCCL's */
    collective.elements = (size_t)(bytes / type->bytes);
  }
  const perfTask_t task = {enqueueCollective, NULL, &collective};
  return perfCudaTimeInWindows(me, bytes * me->nRanks, &task, collective.buffers, repeat, us);
}
