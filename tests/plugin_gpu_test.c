/* SPDX-License-Identifier: MIT
 *
 * The plugin on GPUs, as a server has them: libulyx.so and CUDA's runtime are both loaded by name, memory comes from
 * the plugin, a rank is a thread and a device. Two ranks, or one where there is one GPU.
 *
 * usage: plugin_gpu_test LIBRARY CUDART...      the first CUDA runtime that loads */
#include "ulyx_plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { kMostRanks = 2, kTokens = 1001, kHeads = 7, kDim = 64, kMost = kTokens * kHeads * kDim };

static const ulyxPlugin_v1_t* plugin;
static int (*countDevices)(int* count);
static int (*setDevice)(int device);
static int (*copyMemory)(void* to, const void* from, size_t bytes, int kind);
static int (*synchronize)(void);
enum { kToDevice = 1, kToHost = 2 }; /* cudaMemcpyKind */

static int passed, failed;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int check(int condition, const char* what, int line) {
  pthread_mutex_lock(&mutex);
  *(condition ? &passed : &failed) += 1;
  if (!condition) printf("FAILED: line %d: %s (%s)\n", line, what, plugin->lastError());
  pthread_mutex_unlock(&mutex);
  return condition;
}
#define CHECK(condition) check((condition) != 0, #condition, __LINE__)

/* POSIX lets dlsym's result be a function; ISO C wants it said this way. */
#define FIND(library, name, function) (*(void**)&(function) = dlsym((library), (name)))

static int32_t element(int tensor, int64_t token, int64_t head, int64_t i) {
  return (int32_t)(((tensor * kTokens + token) * kHeads + head) * kDim + i);
}

/* Tokens from firstToken on, heads from firstHead on, of a whole tensor. */
static void fill(int tensor, const ulyxPluginTensor_v1_t* of, int64_t firstToken, int64_t firstHead, int32_t* at) {
  for (int64_t token = 0; token < of->extents[1]; ++token) {
    for (int64_t head = 0; head < of->extents[2]; ++head) {
      for (int64_t i = 0; i < kDim; ++i) *at++ = element(tensor, firstToken + token, firstHead + head, i);
    }
  }
}

static size_t bytesOf(const ulyxPluginTensor_v1_t* of) {
  return (size_t)(of->extents[1] * of->extents[2] * kDim) * sizeof(int32_t);
}

static int holds(int tensor, const ulyxPluginTensor_v1_t* out, int64_t firstToken, int64_t firstHead, int32_t* found,
                 int32_t* expected) {
  const int64_t count = (int64_t)(bytesOf(out) / sizeof *found);
  fill(tensor, out, firstToken, firstHead, expected);
  for (int64_t i = 0; i < count; ++i) found[i] = -1;
  if (copyMemory(found, out->data, bytesOf(out), kToHost) != 0) return 0;
  for (int64_t i = 0; i < count; ++i) {
    if (found[i] != expected[i]) return 0;
  }
  return count > 0;
}

static void exchange(ulyxPluginRuntime_t rt, ulyxPluginPlan_t plan, int32_t* found, int32_t* values) {
  ulyxPluginPlanInfo_v1_t info = {.size = sizeof info};
  ulyxPluginTensors_v1_t tensors = {.size = sizeof tensors};
  if (!CHECK(plugin->planGetInfo(rt, plan, &info) == ulyxPluginSuccess)) return;
  if (!CHECK(plugin->planGetTensors(rt, plan, &tensors) == ulyxPluginSuccess)) return;
  ulyxPluginTensor_v1_t* const in[] = {&tensors.qIn, &tensors.kIn, &tensors.vIn};
  ulyxPluginTensor_v1_t* const out[] = {&tensors.qOut, &tensors.kOut, &tensors.vOut};
  const int64_t firstToken = info.tokenRange.start, firstHead = info.headRange.start;
  for (int i = 0; i < 3; ++i) {
    if (!CHECK(plugin->memAlloc(rt, (int64_t)bytesOf(in[i]), &in[i]->data) == ulyxPluginSuccess)) return;
    if (!CHECK(plugin->memAlloc(rt, (int64_t)bytesOf(out[i]), &out[i]->data) == ulyxPluginSuccess)) return;
    fill(i, in[i], firstToken, 0, values);
    CHECK(copyMemory(in[i]->data, values, bytesOf(in[i]), kToDevice) == 0);
  }
  tensors.oIn.data = tensors.vOut.data; /* as if attention had left v as it was */
  if (!CHECK(plugin->memAlloc(rt, (int64_t)bytesOf(&tensors.oOut), &tensors.oOut.data) == ulyxPluginSuccess)) return;
  CHECK(plugin->seqToHeads(rt, plan, &tensors, NULL) == ulyxPluginSuccess);
  CHECK(plugin->headsToSeq(rt, plan, &tensors, NULL) == ulyxPluginSuccess);
  CHECK(synchronize() == 0);
  for (int i = 0; i < 3; ++i) CHECK(holds(i, out[i], 0, firstHead, found, values));
  CHECK(holds(2, &tensors.oOut, firstToken, 0, found, values));
}

static void* rankMain(void* argument) {
  ulyxPluginRuntime_t const rt = argument;
  ulyxPluginRuntimeInfo_v1_t info = {.size = sizeof info};
  ulyxPluginShape_v1_t shape = {.size = sizeof shape, .tokens = kTokens, .heads = kHeads, .headDim = kDim};
  ulyxPluginPlan_t plan = NULL;
  int32_t error = -1;
  int32_t* const values = malloc(2 * kMost * sizeof *values);
  shape.type = ulyxPluginInt32;
  if (values == NULL) abort();
  if (CHECK(plugin->runtimeGetInfo(rt, &info) == ulyxPluginSuccess) && CHECK(setDevice(info.device) == 0) &&
      CHECK(plugin->runtimeReserve(rt, (int64_t)1 << 22) == ulyxPluginSuccess) &&
      CHECK(plugin->planCreate(rt, &shape, &plan) == ulyxPluginSuccess)) {
    printf("rank %d of %d on device %d: %s\n", (int)info.rank, (int)info.nRanks, (int)info.device,
           info.transportReason);
    exchange(rt, plan, values, values + kMost);
    CHECK(plugin->planDestroy(rt, plan) == ulyxPluginSuccess);
  }
  CHECK(plugin->runtimeGetAsyncError(rt, &error) == ulyxPluginSuccess && error == ulyxPluginSuccess);
  free(values);
  return NULL;
}

static int load(int argc, char** argv) {
  void* const library = argc > 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  void* cudart = NULL;
  for (int i = 2; i < argc && cudart == NULL; ++i) cudart = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL || (plugin = dlsym(library, "ulyxPlugin_v1")) == NULL) return 0;
  return cudart != NULL && FIND(cudart, "cudaGetDeviceCount", countDevices) != NULL &&
         FIND(cudart, "cudaSetDevice", setDevice) != NULL && FIND(cudart, "cudaMemcpy", copyMemory) != NULL &&
         FIND(cudart, "cudaDeviceSynchronize", synchronize) != NULL;
}

int main(int argc, char** argv) {
  const ulyxPluginInit_v1_t init = {.size = sizeof init};
  const int32_t devices[kMostRanks] = {0, 1};
  ulyxPluginContext_t context = NULL;
  ulyxPluginRuntime_t rts[kMostRanks] = {NULL};
  pthread_t threads[kMostRanks];
  int count = 0;
  if (!load(argc, argv)) {
    fprintf(stderr, "usage: plugin_gpu_test LIBRARY CUDART...\n");
    return 2;
  }
  if (countDevices(&count) != 0 || count == 0) {
    printf("0 passed, 0 failed, 1 skipped\n");
    return 77;
  }
  const int nRanks = count < kMostRanks ? count : kMostRanks;
  if (CHECK(plugin->init(&init, &context) == ulyxPluginSuccess) &&
      CHECK(plugin->runtimeCreateLocal(context, NULL, nRanks, devices, rts) == ulyxPluginSuccess)) {
    for (int rank = 0; rank < nRanks; ++rank) {
      if (pthread_create(&threads[rank], NULL, rankMain, rts[rank]) != 0) abort();
    }
    for (int rank = 0; rank < nRanks; ++rank) pthread_join(threads[rank], NULL);
    for (int rank = 0; rank < nRanks; ++rank) CHECK(plugin->runtimeDestroy(rts[rank]) == ulyxPluginSuccess);
  }
  CHECK(plugin->finalize(context) == ulyxPluginSuccess);
  printf("%d passed, %d failed, 0 skipped\n", passed, failed);
  return failed != 0;
}
