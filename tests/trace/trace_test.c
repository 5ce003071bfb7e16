/* SPDX-License-Identifier: MIT
 *
 * Two simulated ranks make an exchange each way with a tool attached to NVTX, or without one, or with ULYX_NVTX=0:
 *
 *   trace_test <the tool's library, or nothing>
 *
 * Ends with 'n passed, m failed'. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ulyx.h"

#define RANKS 2

static int passed, failed;
static ulyxRuntime_t runtimes[RANKS];
static int64_t sent[RANKS], received[RANKS];

static void expect(int holds, const char* what) {
  holds ? ++passed : ++failed;
  if (!holds) fprintf(stderr, "FAILED: %s\n", what);
}

static void must(ulyxResult_t result, const char* call) {
  if (result == ulyxSuccess) return;
  fprintf(stderr, "%s: %s\n", call, ulyxGetLastError(NULL));
  exit(1);
}
#define MUST(call) must((call), #call)

static void* allocate(int64_t bytes) {
  void* memory = NULL;
  if (cudaMalloc(&memory, (size_t)bytes + 1) != cudaSuccess) exit(1);
  return memory;
}

static void* exchange(void* argument) {
  const int rank = (int)((const ulyxRuntime_t*)argument - runtimes);
  ulyxShape_t shape = ULYX_SHAPE_INITIALIZER;
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
  ulyxPlan_t plan = NULL;
  ulyxTensor_t in = ULYX_TENSOR_INITIALIZER, out = ULYX_TENSOR_INITIALIZER;
  if (cudaSetDevice(rank) != cudaSuccess) exit(1);
  shape.tokens = 9;
  shape.heads = 5;
  shape.headDim = 8;
  MUST(ulyxShapeGetBytes(&shape, RANKS, rank, &bytes));
  MUST(ulyxRuntimeReserve(runtimes[rank], bytes.arena));
  MUST(ulyxPlanCreate(runtimes[rank], &shape, &plan));
  MUST(ulyxPlanGetInfo(plan, &info));
  sent[rank] = info.headsToSeqSendBytes[1 - rank];
  received[rank] = info.headsToSeqRecvBytes[1 - rank];
  MUST(ulyxPlanGetOutput(plan, &in, &out));
  in.data = allocate(bytes.oIn);
  out.data = allocate(bytes.oOut);
  for (int i = 0; i < 2; ++i) MUST(ulyxHeadsToSeq(plan, &in, &out, NULL));
  cudaFree(in.data);
  cudaFree(out.data);
  return NULL;
}

static void run(void) {
  pthread_t threads[RANKS];
  const int devices[RANKS] = {0, 1};
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.transport = ulyxTransportDirect;
  MUST(ulyxRuntimeCreateLocal(&config, RANKS, devices, runtimes));
  for (int rank = 0; rank < RANKS; ++rank) {
    if (pthread_create(&threads[rank], NULL, exchange, &runtimes[rank]) != 0) exit(1);
  }
  for (int rank = 0; rank < RANKS; ++rank) pthread_join(threads[rank], NULL);
  for (int rank = 0; rank < RANKS; ++rank) MUST(ulyxRuntimeDestroy(&runtimes[rank]));
}

static int countOf(const char* text, const char* words) {
  int count = 0;
  for (const char* at = strstr(text, words); at != NULL; at = strstr(at + 1, words)) ++count;
  return count;
}

static const char* logOf(const char* path) {
  const char* (*log)(void) = NULL;
  void* const tool = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (tool == NULL) return ""; /* NVTX was never asked for */
  *(void**)&log = dlsym(tool, "traceToolLog");
  return log != NULL ? log() : "";
}

int main(int argc, char** argv) {
  const char* const path = argc > 1 ? argv[1] : NULL;
  const char* const wanted = getenv("ULYX_NVTX");
  if (path != NULL && setenv("NVTX_INJECTION64_PATH", path, 1) != 0) return 1;
  run();
  expect(1, "exchanges work");
  if (path == NULL) {
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
  }
  const char* const text = logOf(path);
  if (wanted != NULL && strcmp(wanted, "0") == 0) {
    expect(strcmp(text, "") == 0, "ULYX_NVTX=0 tells a tool nothing");
  } else {
    char line[256];
    expect(countOf(text, "domain ulyx\n") == RANKS, "a domain \"ulyx\" a runtime");
    expect(countOf(text, "end of domain\n") == RANKS, "which goes with it");
    expect(countOf(text, "enum ulyxTransport_t: auto=0 loopback=1 nccl=2 direct=3 copy_engine=4\n") == RANKS,
           "transports have names");
    expect(countOf(text,
                   "schema ulyx exchange of 40 bytes: exchange@0 sentBytes@8 receivedBytes@16 rank@24 peers@28 "
                   "transport@32(enum)\n") == RANKS,
           "the payload's layout is registered");
    for (int rank = 0; rank < RANKS; ++rank) {
      for (int number = 1; number <= 2; ++number) {
        (void)snprintf(line, sizeof line,
                       "push heads_to_seq exchange %d sent %" PRId64 " received %" PRId64
                       " rank %d peers 1 transport 3\n",
                       number, sent[rank], received[rank], rank);
        expect(countOf(text, line) == 1, line);
      }
    }
    expect(countOf(text, "push") == 2 * RANKS && countOf(text, "pop\n") == 2 * RANKS, "every range ends");
    if (failed > 0) fputs(text, stderr);
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed > 0;
}
