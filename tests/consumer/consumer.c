/* SPDX-License-Identifier: MIT
 *
 * Two ranks as two threads on the CPU hand q, k and v on, and each looks at one value that the other sent. */
#include <pthread.h>
#include <stdio.h>

#include <ulyx.h>

enum { kRanks = 2, kTokens = 4, kHeads = 2 };

static int failed(const char* call, ulyxResult_t result) {
  if (result == ulyxSuccess) return 0;
  fprintf(stderr, "%s: %s: %s\n", call, ulyxGetErrorString(result), ulyxGetLastError(NULL));
  return 1;
}

/* NULL where all went well. */
static void* rankMain(void* argument) {
  const ulyxRuntime_t rt = argument;
  ulyxRuntimeInfo_t info = ULYX_RUNTIME_INFO_INITIALIZER;
  ulyxShape_t shape = ULYX_SHAPE_INITIALIZER;
  ulyxPlan_t plan = NULL;
  ulyxQkv_t in, out;
  int32_t own[kTokens / kRanks][kHeads], all[3][kTokens][kHeads / kRanks];
  shape.tokens = kTokens;
  shape.heads = kHeads;
  shape.headDim = 1;
  shape.type = ulyxInt32;
  if (failed("ulyxRuntimeGetInfo", ulyxRuntimeGetInfo(rt, &info))) return argument;
  if (failed("ulyxPlanCreate", ulyxPlanCreate(rt, &shape, &plan))) return argument;
  if (failed("ulyxPlanGetQkv", ulyxPlanGetQkv(plan, &in, &out))) return argument;
  for (int token = 0; token < kTokens / kRanks; ++token) {
    for (int head = 0; head < kHeads; ++head) own[token][head] = 100 * (2 * info.rank + token) + head;
  }
  in.q.data = in.k.data = in.v.data = own;
  out.q.data = all[0];
  out.k.data = all[1];
  out.v.data = all[2];
  if (failed("ulyxSeqToHeads", ulyxSeqToHeads(plan, &in, &out, NULL))) return argument;
  if (failed("ulyxPlanDestroy", ulyxPlanDestroy(plan))) return argument;
  /* The other rank's last token, of this rank's head. */
  const int token = info.rank == 0 ? 3 : 1;
  const int32_t expected = 100 * token + info.rank;
  if (all[2][token][0] == expected) return NULL;
  fprintf(stderr, "rank %d: %d instead of %d\n", info.rank, (int)all[2][token][0], (int)expected);
  return argument;
}

int main(void) {
  ulyxRuntime_t rts[kRanks];
  pthread_t threads[kRanks];
  int version = 0, wrong = 0;
  if (failed("ulyxGetVersion", ulyxGetVersion(&version)) || version != ULYX_VERSION_CODE) return 1;
  if (failed("ulyxRuntimeCreateLocal", ulyxRuntimeCreateLocal(NULL, kRanks, NULL, rts))) return 1;
  for (int rank = 0; rank < kRanks; ++rank) {
    if (pthread_create(&threads[rank], NULL, rankMain, rts[rank]) != 0) return 1;
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    void* failure = NULL;
    pthread_join(threads[rank], &failure);
    wrong |= failure != NULL;
  }
  for (int rank = 0; rank < kRanks; ++rank) wrong |= failed("ulyxRuntimeDestroy", ulyxRuntimeDestroy(&rts[rank]));
  if (!wrong) printf("ulyx %d: right\n", version);
  return wrong;
}
