/* SPDX-License-Identifier: MIT
 *
 * The public header from plain C11: two ranks as two threads exchange q, k, v and an output on the CPU. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "ulyx.h"

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: %s is false; last error: %s\n", __FILE__, __LINE__, #condition, ulyxGetLastError(NULL)); \
      return NULL;                                                                                                     \
    }                                                                                                                  \
  } while (0)

enum { kRanks = 2, kTokens = 3, kHeads = 3, kDim = 2 };

/* One number for every element of a tensor of the whole sequence. */
static int32_t element(int tensor, int token, int head, int i) {
  return ((tensor * 10 + token) * 10 + head) * 10 + i;
}

static void* rankMain(void* argument) {
  ulyxRuntime_t const rt = argument;
  ulyxRuntimeInfo_t info = ULYX_RUNTIME_INFO_INITIALIZER;
  ulyxShape_t shape = ULYX_SHAPE_INITIALIZER;
  ulyxPlan_t plan = NULL;
  ulyxPlanInfo_t planInfo = ULYX_PLAN_INFO_INITIALIZER;
  ulyxQkv_t in, out;
  ulyxTensor_t outputIn, outputOut;
  int32_t seq[4][kTokens * kHeads * kDim], heads[4][kTokens * kHeads * kDim];
  shape.tokens = kTokens;
  shape.heads = kHeads;
  shape.headDim = kDim;
  shape.type = ulyxInt32;
  CHECK(ulyxRuntimeGetInfo(rt, &info) == ulyxSuccess && info.nRanks == kRanks);
  CHECK(ulyxPlanCreate(rt, &shape, &plan) == ulyxSuccess);
  CHECK(ulyxPlanGetInfo(plan, &planInfo) == ulyxSuccess);
  CHECK(planInfo.tokenCount == (info.rank == 0 ? 2 : 1) && planInfo.headCount == (info.rank == 0 ? 2 : 1));
  for (int tensor = 0; tensor < 4; ++tensor) {
    int at = 0;
    for (int token = (int)planInfo.tokenRange.start; token < planInfo.tokenRange.stop; ++token) {
      for (int head = 0; head < kHeads; ++head) {
        for (int i = 0; i < kDim; ++i) seq[tensor][at++] = element(tensor, token, head, i);
      }
    }
  }
  CHECK(ulyxPlanGetQkv(plan, &in, &out) == ulyxSuccess);
  CHECK(ulyxPlanGetOutput(plan, &outputIn, &outputOut) == ulyxSuccess);
  in.q.data = seq[0];
  in.k.data = seq[1];
  in.v.data = seq[2];
  out.q.data = heads[0];
  out.k.data = heads[1];
  out.v.data = heads[2];
  CHECK(ulyxSeqToHeads(plan, &in, &out, NULL) == ulyxSuccess);
  for (int tensor = 0; tensor < 3; ++tensor) {
    int at = 0;
    for (int token = 0; token < kTokens; ++token) {
      for (int head = (int)planInfo.headRange.start; head < planInfo.headRange.stop; ++head) {
        for (int i = 0; i < kDim; ++i) CHECK(heads[tensor][at++] == element(tensor, token, head, i));
      }
    }
  }
  outputIn.data = heads[0]; /* as if attention had left q as it was */
  outputOut.data = seq[3];
  CHECK(ulyxHeadsToSeq(plan, &outputIn, &outputOut, NULL) == ulyxSuccess);
  CHECK(memcmp(seq[3], seq[0], (size_t)planInfo.tokenCount * kHeads * kDim * sizeof(int32_t)) == 0);
  CHECK(ulyxPlanDestroy(plan) == ulyxSuccess);
  return rt; /* not NULL: passed */
}

/* Values that C++ may not hold. */
static int refusesUnknownNumbers(void) {
  ulyxShape_t shape = ULYX_SHAPE_INITIALIZER;
  int64_t bytes[4] = {-1, -1, -1, -1};
  shape.tokens = shape.heads = shape.headDim = 2;
  return ulyxShapeGetTraffic(&shape, 2, (ulyxOp_t)2, bytes) == ulyxInvalidArgument && bytes[0] == -1 &&
         strstr(ulyxGetLastError(NULL), "op is 2") != NULL;
}

int main(void) {
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  ulyxRuntime_t rts[kRanks];
  pthread_t threads[kRanks];
  int passed = refusesUnknownNumbers();
  config.transport = ulyxTransportLoopback;
  config.timeoutMs = 20000;
  if (ulyxRuntimeCreateLocal(&config, kRanks, NULL, rts) != ulyxSuccess) {
    fprintf(stderr, "%s\n", ulyxGetLastError(NULL));
    return 1;
  }
  for (int rank = 0; rank < kRanks; ++rank) pthread_create(&threads[rank], NULL, rankMain, rts[rank]);
  for (int rank = 0; rank < kRanks; ++rank) {
    void* result = NULL;
    pthread_join(threads[rank], &result);
    passed = passed && result != NULL;
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    passed = passed && ulyxRuntimeDestroy(&rts[rank]) == ulyxSuccess && rts[rank] == NULL;
  }
  return passed ? 0 : 1;
}
