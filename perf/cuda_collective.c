/* SPDX-License-Identifier: MIT
 *
 * What NCCL's own collective takes for the same bytes. It wants as many from every rank, or of every pair. */
#include <stdlib.h>

#include "cuda_backend.h"

#define NCCL_WITH_ALL_TO_ALL 22800

typedef struct collective {
  ncclComm_t comm;
  perfBaselineKind_t kind;
  ncclDataType_t type;
  size_t elements; /* of one rank */
  void* buffers[2];
} collective_t;

static bool enqueueCollective(void* state, ulyxStream_t stream) {
  const collective_t* c = state;
  if (c->kind == perfBaselineReduceScatter) {
    return perfNcclOk(ncclReduceScatter(c->buffers[0], c->buffers[1], c->elements, c->type, ncclSum, c->comm, stream),
                      "ncclReduceScatter");
  }
#if NCCL_VERSION_CODE >= NCCL_WITH_ALL_TO_ALL
  if (c->kind == perfBaselineAllToAll) {
    return perfNcclOk(ncclAlltoAll(c->buffers[0], c->buffers[1], c->elements, c->type, c->comm, stream),
                      "ncclAlltoAll");
  }
#endif
  return perfNcclOk(ncclAllGather(c->buffers[0], c->buffers[1], c->elements, c->type, c->comm, stream),
                    "ncclAllGather");
}

static int64_t bytesOfPair(const int64_t* messages, size_t pair) {
  int64_t bytes = 0;
  for (size_t i = 0; i < PERF_MAX_TENSORS; i++) bytes += messages[pair * PERF_MAX_TENSORS + i];
  return bytes;
}

/* The bytes of a pair if every rank sends as many to every rank, its own included; 0 if not. */
static int64_t equalBytes(const int64_t* messages, int nRanks) {
  const size_t pairs = (size_t)nRanks * (size_t)nRanks;
  const int64_t bytes = bytesOfPair(messages, 0);
  for (size_t pair = 1; pair < pairs; pair++) {
    if (bytesOfPair(messages, pair) != bytes) return 0;
  }
  return bytes;
}

bool perfCudaTimeCollective(perfRank_t* me, const perfOp_t* op, const perfProblem_t* problem, perfBaselineKind_t kind,
                            const perfRepeat_t* repeat, double* us) {
  int64_t* messages = perfMessagesCreate(op, problem);
  if (messages == NULL) return false;
  const int64_t bytes = equalBytes(messages, me->nRanks);
  free(messages);
  *us = PERF_NOT_MEASURED;
  if (bytes == 0 || (kind == perfBaselineAllToAll && NCCL_VERSION_CODE < NCCL_WITH_ALL_TO_ALL)) return true;
  collective_t collective = {.comm = me->comm, .kind = kind, .type = ncclUint8, .elements = (size_t)bytes};
  if (kind == perfBaselineReduceScatter) {
    const perfType_t* type = me->options->type;
    collective.type = (ncclDataType_t)type->type; /* ulyx's codes of numbers are NCCL's */
    collective.elements = (size_t)(bytes / type->bytes);
  }
  const perfTask_t task = {enqueueCollective, NULL, &collective};
  return perfCudaTimeInWindows(me, bytes * me->nRanks, &task, collective.buffers, repeat, us);
}
