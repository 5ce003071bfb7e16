/* SPDX-License-Identifier: MIT
 *
 * The smallest whole use of ulyx: four ranks as threads of this process, on the CPU. Each holds a shard of a
 * 10-token sequence over 6 heads, exchanges it for all tokens over its own heads, and sends "attention's
 * output" (here: Q itself) back.
 *
 *   cmake --preset cpu && cmake --build build/cpu && build/cpu/tests/exchange_example */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "ulyx.h"

#define RANKS 4

static int failed(const char* call, ulyxResult_t result) {
  if (result == ulyxSuccess) return 0;
  fprintf(stderr, "%s: %s: %s\n", call, ulyxGetErrorString(result), ulyxGetLastError(NULL));
  return 1;
}

static size_t elements(const ulyxTensor_t* tensor) {
  return (size_t)(tensor->extents[0] * tensor->extents[1] * tensor->extents[2] * tensor->extents[3]);
}

static int exchange(ulyxPlan_t plan) {
  ulyxQkv_t in, out;
  ulyxTensor_t back;
  ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
  if (failed("ulyxPlanGetInfo", ulyxPlanGetInfo(plan, &info))) return 1;
  if (failed("ulyxPlanGetQkv", ulyxPlanGetQkv(plan, &in, &out))) return 1;
  if (failed("ulyxPlanGetOutput", ulyxPlanGetOutput(plan, NULL, &back))) return 1;

  ulyxTensor_t* const given[] = {&in.q, &in.k, &in.v, &out.q, &out.k, &out.v, &back};
  int wrong = 0;
  for (int i = 0; i < 7; ++i) {
    given[i]->data = calloc(elements(given[i]) + 1, sizeof(float));
    if (given[i]->data == NULL) wrong = 1;
  }
  if (!wrong) { /* element i of Q on this rank says which global token, head and dim it is */
    float* const q = in.q.data;
    for (size_t i = 0; i < elements(&in.q); ++i) q[i] = (float)(info.tokenRange.start * 6 * 2 + (int64_t)i);
    wrong = failed("ulyxSeqToHeads", ulyxSeqToHeads(plan, &in, &out, NULL)) ||
            failed("ulyxHeadsToSeq", ulyxHeadsToSeq(plan, &out.q, &back, NULL));
  }
  for (size_t i = 0; !wrong && i < elements(&in.q); ++i) wrong = ((float*)back.data)[i] != ((float*)in.q.data)[i];
  printf("rank %d: tokens [%lld, %lld), heads [%lld, %lld): %s\n", info.rank, (long long)info.tokenRange.start,
         (long long)info.tokenRange.stop, (long long)info.headRange.start, (long long)info.headRange.stop,
         wrong ? "WRONG" : "there and back, exact");
  for (int i = 0; i < 7; ++i) free(given[i]->data);
  return wrong;
}

static void* rankMain(void* argument) {
  const ulyxRuntime_t rt = argument;
  ulyxShape_t shape = ULYX_SHAPE_INITIALIZER;
  ulyxPlan_t plan = NULL;
  shape.tokens = 10;
  shape.heads = 6;
  shape.headDim = 2;
  shape.type = ulyxFloat32;
  if (failed("ulyxPlanCreate", ulyxPlanCreate(rt, &shape, &plan))) return argument;
  const int wrong = exchange(plan);
  (void)ulyxPlanDestroy(plan);
  return wrong ? argument : NULL;
}

int main(void) {
  ulyxRuntime_t rts[RANKS];
  pthread_t threads[RANKS];
  int wrong = 0;
  if (failed("ulyxRuntimeCreateLocal", ulyxRuntimeCreateLocal(NULL, RANKS, NULL, rts))) return 1;
  for (int rank = 0; rank < RANKS; ++rank) {
    if (pthread_create(&threads[rank], NULL, rankMain, rts[rank]) != 0) abort();
  }
  for (int rank = 0; rank < RANKS; ++rank) {
    void* failure = NULL;
    pthread_join(threads[rank], &failure);
    wrong |= failure != NULL;
  }
  for (int rank = 0; rank < RANKS; ++rank) wrong |= failed("ulyxRuntimeDestroy", ulyxRuntimeDestroy(&rts[rank]));
  return wrong;
}
