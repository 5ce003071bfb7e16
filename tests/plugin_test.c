/* SPDX-License-Identifier: MIT
 *
 * A server that knows ulyx_plugin.h and no more loads libulyx.so, makes two ranks as threads and exchanges q, k, v and
 * an output between them; then everything that is refused, and what the logger hears of it.
 *
 * usage: plugin_test LIBRARY */
#include "ulyx_plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int passed, failed;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int check(int condition, const char* what, int line) {
  pthread_mutex_lock(&mutex);
  if (condition) {
    ++passed;
  } else {
    ++failed;
    printf("FAILED: line %d: %s\n", line, what);
  }
  pthread_mutex_unlock(&mutex);
  return condition;
}
#define CHECK(condition) check((condition) != 0, #condition, __LINE__)

/* What was logged, one after another. */
typedef struct Log {
  char text[16384];
  int messages;
} Log;

static void listen(void* user, int32_t level, const char* message) {
  Log* const log = user;
  pthread_mutex_lock(&mutex);
  const size_t used = strlen(log->text);
  snprintf(log->text + used, sizeof log->text - used, "%d %s\n", (int)level, message);
  ++log->messages;
  pthread_mutex_unlock(&mutex);
}

static int heard(Log* log, const char* words) {
  pthread_mutex_lock(&mutex);
  const int found = strstr(log->text, words) != NULL;
  if (!found) printf("not heard: %s\n%s", words, log->text);
  pthread_mutex_unlock(&mutex);
  return found;
}

enum { kRanks = 2, kTokens = 5, kHeads = 4, kKvHeads = 2, kDim = 2, kMost = kTokens * kHeads * kDim };

static const ulyxPlugin_v1_t* plugin;
static const int64_t kCuSeqlens[] = {0, 2, 5};

static ulyxPluginShape_v1_t smallShape(void) {
  ulyxPluginShape_v1_t shape = {.size = sizeof shape};
  shape.tokens = kTokens;
  shape.heads = kHeads;
  shape.kvHeads = kKvHeads;
  shape.headDim = kDim;
  shape.type = ulyxPluginInt32;
  shape.cuSeqlens = kCuSeqlens;
  shape.cuSeqlensCount = 3;
  return shape;
}

static int32_t element(int tensor, int64_t token, int64_t head, int64_t i) {
  return (int32_t)(((tensor * 10 + token) * 10 + head) * 10 + i);
}

static void fill(int tensor, const ulyxPluginTensor_v1_t* in, int64_t firstToken) {
  int32_t* at = in->data;
  for (int64_t token = 0; token < in->extents[1]; ++token) {
    for (int64_t head = 0; head < in->extents[2]; ++head) {
      for (int64_t i = 0; i < kDim; ++i) *at++ = element(tensor, firstToken + token, head, i);
    }
  }
}

static int holds(int tensor, const ulyxPluginTensor_v1_t* out, int64_t firstHead) {
  const int32_t* at = out->data;
  for (int64_t token = 0; token < out->extents[1]; ++token) {
    for (int64_t head = 0; head < out->extents[2]; ++head) {
      for (int64_t i = 0; i < kDim; ++i) {
        if (*at++ != element(tensor, token, firstHead + head, i)) return 0;
      }
    }
  }
  return out->extents[1] == kTokens;
}

static void exchange(ulyxPluginRuntime_t rt, ulyxPluginPlan_t plan, int rank) {
  ulyxPluginPlanInfo_v1_t info = {.size = sizeof info};
  ulyxPluginTensors_v1_t tensors = {.size = sizeof tensors};
  int32_t seq[4][kMost], heads[2][kMost], cuSeqlens[3];
  void* q = NULL;
  if (!CHECK(plugin->planGetInfo(rt, plan, &info) == ulyxPluginSuccess)) return;
  CHECK(info.tokenCounts[0] == 3 && info.tokenCounts[1] == 2 && info.headCounts[rank] == 2);
  CHECK(info.headRange.start == 2 * rank && info.kvHeadRange.start == rank && info.kvHeadRange.stop == rank + 1);
  CHECK(info.kvHeadOfHead[0] == 0 && info.kvHeadOfHead[1] == 0);
  CHECK(info.sequenceCount == 2 && info.longestSequence == 3);
  CHECK(info.seqToHeadsTransport == ulyxPluginTransportLoopback && info.seqToHeadsReason != NULL);
  if (!CHECK(plugin->planGetTensors(rt, plan, &tensors) == ulyxPluginSuccess)) return;
  if (!CHECK(plugin->memAlloc(rt, (int64_t)sizeof heads[0], &q) == ulyxPluginSuccess)) return;
  tensors.qIn.data = seq[0];
  tensors.kIn.data = seq[1];
  tensors.vIn.data = seq[2];
  tensors.qOut.data = q;
  tensors.kOut.data = heads[0];
  tensors.vOut.data = heads[1];
  tensors.oIn.data = q; /* as if attention had left q as it was */
  tensors.oOut.data = seq[3];
  fill(0, &tensors.qIn, info.tokenRange.start);
  fill(1, &tensors.kIn, info.tokenRange.start);
  fill(2, &tensors.vIn, info.tokenRange.start);
  CHECK(plugin->seqToHeads(rt, plan, &tensors, NULL) == ulyxPluginSuccess);
  CHECK(holds(0, &tensors.qOut, info.headRange.start));
  CHECK(holds(1, &tensors.kOut, info.kvHeadRange.start));
  CHECK(holds(2, &tensors.vOut, info.kvHeadRange.start));
  CHECK(plugin->headsToSeq(rt, plan, &tensors, NULL) == ulyxPluginSuccess);
  CHECK(memcmp(seq[3], seq[0], (size_t)info.tokenCounts[rank] * kHeads * kDim * sizeof(int32_t)) == 0);
  CHECK(plugin->planStoreCuSeqlens(rt, plan, cuSeqlens, NULL) == ulyxPluginSuccess);
  CHECK(cuSeqlens[0] == 0 && cuSeqlens[1] == 2 && cuSeqlens[2] == 5);
  CHECK(plugin->memFree(rt, q) == ulyxPluginSuccess);
}

/* Every rank is refused what one of them gets wrong, and the next plan works. */
static void refusals(ulyxPluginRuntime_t rt, int rank) {
  ulyxPluginShape_v1_t shape = smallShape();
  ulyxPluginPlan_t plan = NULL;
  int32_t error = -1;
  shape.heads = rank == 0 ? kHeads : 8;
  CHECK(plugin->planCreate(rt, &shape, &plan) == ulyxPluginMismatch && plan == NULL);
  CHECK(strcmp(plugin->lastError(), "shape.heads is 4 on rank 0 and 8 on rank 1") == 0);
  shape = smallShape();
  shape.size += rank == 0 ? 8 : 0; /* refused by the plugin itself; rank 1 is not left waiting */
  CHECK(plugin->planCreate(rt, &shape, &plan) == (rank == 0 ? ulyxPluginInvalidArgument : ulyxPluginMismatch));
  CHECK(strstr(plugin->lastError(), rank == 0 ? "shape: size is" : "rank 0") != NULL);
  CHECK(plan == NULL);
  CHECK(plugin->runtimeGetAsyncError(rt, &error) == ulyxPluginSuccess && error == ulyxPluginSuccess);
}

static void* rankMain(void* argument) {
  ulyxPluginRuntime_t const rt = argument;
  ulyxPluginRuntimeInfo_v1_t info = {.size = sizeof info};
  const ulyxPluginShape_v1_t shape = smallShape();
  ulyxPluginPlan_t plan = NULL;
  if (!CHECK(plugin->runtimeGetInfo(rt, &info) == ulyxPluginSuccess)) return NULL;
  CHECK(info.nRanks == kRanks && info.transport == ulyxPluginTransportLoopback && info.transportReason != NULL);
  CHECK(plugin->runtimeReserve(rt, 4096) == ulyxPluginSuccess);
  refusals(rt, info.rank);
  if (!CHECK(plugin->planCreate(rt, &shape, &plan) == ulyxPluginSuccess)) return NULL;
  exchange(rt, plan, info.rank);
  refusals(rt, info.rank); /* now with a record of what went before */
  CHECK(plugin->planDestroy(rt, plan) == ulyxPluginSuccess);
  CHECK(plugin->runtimeClose(rt) == ulyxPluginSuccess);
  CHECK(plugin->planCreate(rt, &shape, &plan) == ulyxPluginClosed);
  return NULL;
}

static void twoRanks(ulyxPluginContext_t context, Log* log) {
  ulyxPluginConfig_v1_t config = ULYX_PLUGIN_CONFIG_V1_INITIALIZER;
  ulyxPluginRuntime_t rts[kRanks];
  pthread_t threads[kRanks];
  config.transport = ulyxPluginTransportLoopback;
  config.timeoutMs = 20000;
  if (!CHECK(plugin->runtimeCreateLocal(context, &config, kRanks, NULL, rts) == ulyxPluginSuccess)) return;
  CHECK(plugin->finalize(context) == ulyxPluginSuccess); /* runtimes live on */
  for (int rank = 0; rank < kRanks; ++rank) {
    if (pthread_create(&threads[rank], NULL, rankMain, rts[rank]) != 0) abort();
  }
  for (int rank = 0; rank < kRanks; ++rank) pthread_join(threads[rank], NULL);
  for (int rank = 0; rank < kRanks; ++rank) CHECK(plugin->runtimeDestroy(rts[rank]) == ulyxPluginSuccess);
  CHECK(log->messages == (2 + 2 + 1 + 3) * kRanks);
  CHECK(heard(log, "3 rank 0 of 2: its last 2 exchanges of 2"));
  CHECK(heard(log, "3 exchange 2: heads_to_seq by loopback, enqueued"));
  CHECK(heard(log, "1 planCreate: mismatch: shape.heads is 4 on rank 0 and 8 on rank 1\n"));
  CHECK(heard(log, "1 planCreate: invalid argument: shape: size is"));
  CHECK(heard(log, "1 planCreate: runtime closed: the runtime of rank 1 was closed\n"));
}

/* NULL and sizes of other versions, wherever they can be handed in; outputs stay as they were. */
static void wrongArguments(ulyxPluginContext_t context, Log* log) {
  ulyxPluginContext_t none = NULL;
  ulyxPluginInit_v1_t init = {.size = sizeof init - 8, .log = listen, .user = log};
  ulyxPluginConfig_v1_t config = ULYX_PLUGIN_CONFIG_V1_INITIALIZER;
  ulyxPluginRuntimeInfo_v1_t info = {.size = sizeof info};
  ulyxPluginPlanInfo_v1_t planInfo = {.size = sizeof planInfo + 8};
  ulyxPluginTensors_v1_t tensors = {.size = sizeof tensors};
  ulyxPluginShape_v1_t shape = smallShape();
  ulyxPluginShapeBytes_v1_t bytes = {.size = sizeof bytes};
  ulyxPluginUniqueId_v1_t id = {{0}};
  ulyxPluginRuntime_t rt = NULL;
  ulyxPluginPlan_t plan = NULL;
  int32_t error = -1;
  void* ptr = NULL;
  CHECK(plugin->init(&init, &none) == ulyxPluginInvalidArgument && none == NULL);
  CHECK(plugin->init(NULL, &none) == ulyxPluginInvalidArgument);
  init.size = sizeof init;
  CHECK(plugin->init(&init, NULL) == ulyxPluginInvalidArgument);
  CHECK(plugin->finalize(NULL) == ulyxPluginSuccess);
  config.size -= 4;
  CHECK(plugin->runtimeCreateLocal(context, &config, 1, NULL, &rt) == ulyxPluginInvalidArgument && rt == NULL);
  CHECK(heard(log, "1 runtimeCreateLocal: invalid argument: config: size is 44, expected 48 in version 1\n"));
  CHECK(plugin->runtimeCreateLocal(context, NULL, 0, NULL, &rt) == ulyxPluginInvalidArgument);
  CHECK(plugin->runtimeCreateLocal(context, NULL, 65, NULL, &rt) == ulyxPluginInvalidArgument);
  CHECK(plugin->runtimeCreateLocal(context, NULL, 1, NULL, NULL) == ulyxPluginInvalidArgument);
  CHECK(plugin->runtimeCreateLocal(NULL, NULL, 1, NULL, &rt) == ulyxPluginInvalidArgument);
  CHECK(plugin->runtimeCreate(context, NULL, 1, NULL, 0, &rt) == ulyxPluginInvalidArgument);
  CHECK(plugin->runtimeCreate(context, NULL, 2, &id, 2, &rt) == ulyxPluginInvalidArgument);
  CHECK(plugin->runtimeCreateFromComm(context, NULL, NULL, &rt) == ulyxPluginInvalidArgument && rt == NULL);
  CHECK(plugin->getUniqueId(context, NULL) == ulyxPluginInvalidArgument);
  CHECK(plugin->runtimeGetInfo(NULL, &info) == ulyxPluginInvalidArgument);
  CHECK(plugin->runtimeReserve(NULL, 1) == ulyxPluginInvalidArgument);
  CHECK(plugin->runtimeGetAsyncError(NULL, &error) == ulyxPluginInvalidArgument && error == -1);
  CHECK(plugin->runtimeAbort(NULL) == ulyxPluginInvalidArgument);
  CHECK(plugin->runtimeClose(NULL) == ulyxPluginInvalidArgument);
  CHECK(plugin->runtimeDestroy(NULL) == ulyxPluginSuccess);
  CHECK(plugin->memAlloc(NULL, 1, &ptr) == ulyxPluginInvalidArgument && ptr == NULL);
  CHECK(plugin->memFree(NULL, NULL) == ulyxPluginInvalidArgument);
  CHECK(plugin->planCreate(NULL, &shape, &plan) == ulyxPluginInvalidArgument && plan == NULL);
  CHECK(plugin->planDestroy(NULL, NULL) == ulyxPluginSuccess);

  CHECK(plugin->shapeGetBytes(context, &shape, kRanks, 1, &bytes) == ulyxPluginSuccess);
  CHECK(bytes.qIn == 2 * kHeads * kDim * 4 && bytes.kOut == kTokens * kDim * 4 && bytes.arena > 0);
  CHECK(plugin->shapeGetBytes(context, NULL, kRanks, 1, &bytes) == ulyxPluginInvalidArgument);
  CHECK(strcmp(plugin->lastError(), "shape is NULL") == 0);

  if (!CHECK(plugin->runtimeCreateLocal(context, NULL, 1, NULL, &rt) == ulyxPluginSuccess)) return;
  CHECK(plugin->planCreate(rt, &shape, NULL) == ulyxPluginInvalidArgument);
  shape.cuSeqlensCount = 0; /* a first 0 is missing */
  CHECK(plugin->planCreate(rt, &shape, &plan) == ulyxPluginInvalidArgument && plan == NULL);
  CHECK(heard(log, "1 planCreate: invalid argument: count is 0"));
  shape = smallShape();
  if (!CHECK(plugin->planCreate(rt, &shape, &plan) == ulyxPluginSuccess)) return;
  ulyxPluginRuntime_t other = NULL; /* one that the plan is not of, and none */
  if (!CHECK(plugin->runtimeCreateLocal(context, NULL, 1, NULL, &other) == ulyxPluginSuccess)) return;
  CHECK(plugin->planGetTensors(other, plan, &tensors) == ulyxPluginInvalidArgument);
  CHECK(heard(log, "1 planGetTensors: invalid argument: the plan is of another runtime\n"));
  CHECK(plugin->seqToHeads(NULL, plan, &tensors, NULL) == ulyxPluginInvalidArgument);
  CHECK(plugin->planDestroy(other, plan) == ulyxPluginInvalidArgument);
  CHECK(plugin->runtimeDestroy(other) == ulyxPluginSuccess);
  CHECK(plugin->planGetInfo(rt, plan, &planInfo) == ulyxPluginInvalidArgument && planInfo.tokenCounts == NULL);
  CHECK(plugin->planGetInfo(rt, NULL, NULL) == ulyxPluginInvalidArgument);
  CHECK(plugin->planGetTensors(rt, plan, NULL) == ulyxPluginInvalidArgument);
  CHECK(plugin->seqToHeads(rt, plan, NULL, NULL) == ulyxPluginInvalidArgument);
  CHECK(plugin->seqToHeads(rt, plan, &tensors, NULL) != ulyxPluginSuccess); /* not as planGetTensors fills it */
  CHECK(heard(log, "1 seqToHeads: "));
  CHECK(plugin->runtimeGetAsyncError(rt, NULL) == ulyxPluginInvalidArgument);
  CHECK(plugin->runtimeDestroy(rt) == ulyxPluginSuccess); /* and the plan with it */
}

int main(int argc, char** argv) {
  Log log = {{0}, 0}, other = {{0}, 0};
  ulyxPluginInit_v1_t init = {.size = sizeof init, .log = listen, .user = &log};
  ulyxPluginContext_t context = NULL, second = NULL, silent = NULL;
  void* const library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library == NULL) {
    fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: plugin_test LIBRARY");
    return 1;
  }
  plugin = dlsym(library, ULYX_PLUGIN_SYMBOL);
  if (!CHECK(plugin != NULL && dlsym(library, "ulyxPlugin_v1") == plugin)) return 1;
  CHECK(dlsym(library, "ulyxPlugin_v0") == NULL && dlsym(library, "ulyxPlugin_v2") == NULL);
  CHECK(plugin->size == sizeof *plugin && strcmp(plugin->name, "ulyx") == 0 && plugin->libraryVersion >= 100);
  for (size_t at = offsetof(ulyxPlugin_v1_t, init); at < sizeof *plugin; at += sizeof(void*)) {
    void* function;
    memcpy(&function, (const char*)plugin + at, sizeof function);
    CHECK(function != NULL);
  }
  CHECK(strcmp(plugin->errorString(ulyxPluginMismatch), "mismatch") == 0 && plugin->errorString(-7) != NULL);
  CHECK(plugin->init(&init, &context) == ulyxPluginSuccess);
  init.user = &other;
  CHECK(plugin->init(&init, &second) == ulyxPluginSuccess);
  init.log = NULL;
  CHECK(plugin->init(&init, &silent) == ulyxPluginSuccess);
  if (context != NULL) twoRanks(context, &log);
  CHECK(other.messages == 0); /* each context has its own logger */
  wrongArguments(second, &other);
  CHECK(plugin->shapeGetBytes(silent, NULL, 1, 0, NULL) == ulyxPluginInvalidArgument);
  CHECK(plugin->finalize(second) == ulyxPluginSuccess && plugin->finalize(silent) == ulyxPluginSuccess);
  CHECK(dlclose(library) == 0);
  printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
