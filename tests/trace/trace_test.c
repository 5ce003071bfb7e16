/* SPDX-License-Identifier: MIT
 *
 * Three simulated ranks make every operation on every transport of GPUs, with a tool attached to NVTX, or without one,
 * or with ULYX_NVTX=0, or with a tool that does not know payloads (TRACE_TOOL_WITHOUT_PAYLOADS, see trace_tool.c):
 *
 *   trace_test [<the tool's library>]
 *
 * What an exchange moves is written down here as numbers of rows or heads, and counted again by nobody.
 *
 * Ends with 'n passed, m failed'. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ulyx.h"

#define RANKS 3
#define TENSOR_BYTES 4096
#define ROW_ELEMENTS 3
#define ROW_BYTES (ROW_ELEMENTS * 4)
#define HEAD_BYTES 10                         /* of one token: headDim 5 of bfloat16 */
#define STATE_BYTES (2 * 4 * (4 * 8 + 4 * 4)) /* S and M of two heads, keyDim 4 and valueDim 8, as floats */

static int passed, failed;
static atomic_int made;
static ulyxRuntime_t runtimes[RANKS];

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

/* A rank's memory for one exchange; `taken` of it are in use. */
static _Thread_local void* memory[6];
static _Thread_local int taken;

static void give(ulyxTensor_t* tensor) {
  if (memory[taken] == NULL && cudaMalloc(&memory[taken], TENSOR_BYTES) != cudaSuccess) exit(1);
  tensor->data = memory[taken++];
}

static ulyxPlan_t exchangePlan(ulyxRuntime_t rt) {
  ulyxShape_t shape = ULYX_SHAPE_INITIALIZER;
  ulyxPlan_t plan = NULL;
  shape.tokens = 10; /* 4, 3 and 3 of them */
  shape.heads = 5;   /* 2, 2 and 1 of them */
  shape.headDim = 5;
  MUST(ulyxPlanCreate(rt, &shape, &plan));
  return plan;
}

static ulyxResult_t seqToHeads(ulyxRuntime_t rt, int rank) {
  ulyxQkv_t in = ULYX_QKV_INITIALIZER, out = ULYX_QKV_INITIALIZER;
  ulyxTensor_t* const tensors[] = {&in.q, &in.k, &in.v, &out.q, &out.k, &out.v};
  const ulyxPlan_t plan = exchangePlan(rt);
  (void)rank;
  MUST(ulyxPlanGetQkv(plan, &in, &out));
  for (int i = 0; i < 6; ++i) give(tensors[i]);
  return ulyxSeqToHeads(plan, &in, &out, NULL);
}

static ulyxResult_t headsToSeq(ulyxRuntime_t rt, int rank) {
  ulyxTensor_t in = ULYX_TENSOR_INITIALIZER, out = ULYX_TENSOR_INITIALIZER;
  const ulyxPlan_t plan = exchangePlan(rt);
  (void)rank;
  MUST(ulyxPlanGetOutput(plan, &in, &out));
  give(&in);
  give(&out);
  return ulyxHeadsToSeq(plan, &in, &out, NULL);
}

typedef ulyxResult_t (*Rows)(ulyxPlan_t, const ulyxTensor_t*, const ulyxTensor_t*, ulyxStream_t);

static ulyxResult_t rows(ulyxRuntime_t rt, int rank, ulyxRowsOp_t op, Rows run) {
  static const int64_t counts[] = {4, 0, 2};
  static const int64_t to[RANKS][RANKS] = {{5, 1, 0}, {0, 0, 0}, {3, 2, 1}};
  static const int64_t from[RANKS][RANKS] = {{5, 0, 3}, {1, 0, 2}, {0, 0, 1}};
  ulyxRowsShape_t shape = ULYX_ROWS_SHAPE_INITIALIZER;
  ulyxTensor_t in = ULYX_TENSOR_INITIALIZER, out = ULYX_TENSOR_INITIALIZER;
  ulyxPlan_t plan = NULL;
  shape.op = op;
  shape.type = ulyxFloat32;
  shape.rowElements = ROW_ELEMENTS;
  shape.counts = op == ulyxRowsAllToAll ? NULL : counts;
  shape.sendCounts = op == ulyxRowsAllToAll ? to[rank] : NULL;
  shape.recvCounts = op == ulyxRowsAllToAll ? from[rank] : NULL;
  MUST(ulyxRowsPlanCreate(rt, &shape, &plan));
  MUST(ulyxPlanGetRows(plan, &in, &out));
  give(&in);
  give(&out);
  return run(plan, &in, &out, NULL);
}

static ulyxResult_t allGather(ulyxRuntime_t rt, int rank) {
  return rows(rt, rank, ulyxRowsAllGather, ulyxAllGatherRows);
}
static ulyxResult_t reduceScatter(ulyxRuntime_t rt, int rank) {
  return rows(rt, rank, ulyxRowsReduceScatter, ulyxReduceScatterRows);
}
static ulyxResult_t allToAll(ulyxRuntime_t rt, int rank) {
  return rows(rt, rank, ulyxRowsAllToAll, ulyxAllToAllRows);
}

/* Tokens 0 1 | 2 3 | 4 5; the second sequence starts at token 1. */
static ulyxContext_t contextOf(ulyxRuntime_t rt) {
  static const int64_t cuSeqlens[] = {0, 1, 6};
  ulyxContext_t context = NULL;
  MUST(ulyxRuntimeGetContext(rt, cuSeqlens, 3, ulyxInt64, ulyxSplitBalanced, 4, &context));
  return context;
}

static ulyxResult_t halo(ulyxRuntime_t rt, int backward) {
  ulyxHaloShape_t shape = ULYX_HALO_SHAPE_INITIALIZER;
  ulyxTensor_t local = ULYX_TENSOR_INITIALIZER, before = ULYX_TENSOR_INITIALIZER;
  ulyxPlan_t plan = NULL;
  shape.context = contextOf(rt);
  shape.rowElements = ROW_ELEMENTS;
  shape.type = ulyxFloat32;
  MUST(ulyxHaloPlanCreate(rt, &shape, &plan));
  MUST(ulyxContextDestroy(shape.context));
  MUST(ulyxPlanGetHalo(plan, &local, &before));
  give(&local);
  give(&before);
  return backward ? ulyxConvHaloBackward(plan, &before, &local, NULL) : ulyxConvHalo(plan, &local, &before, NULL);
}

static ulyxResult_t haloForward(ulyxRuntime_t rt, int rank) {
  (void)rank;
  return halo(rt, 0);
}
static ulyxResult_t haloBackward(ulyxRuntime_t rt, int rank) {
  (void)rank;
  return halo(rt, 1);
}

static ulyxResult_t chain(ulyxRuntime_t rt, int backward) {
  ulyxStateShape_t shape = ULYX_STATE_SHAPE_INITIALIZER;
  ulyxStates_t states;
  ulyxPlan_t plan = NULL;
  shape.context = contextOf(rt);
  shape.heads = 2;
  shape.keyDim = 4;
  shape.valueDim = 8;
  MUST(ulyxStatePlanCreate(rt, &shape, &plan));
  MUST(ulyxContextDestroy(shape.context));
  MUST(ulyxPlanGetStates(plan, &states));
  give(&states.state);
  give(&states.transition);
  give(&states.received);
  return backward ? ulyxStateChainBackward(plan, &states, NULL) : ulyxStateChain(plan, &states, NULL);
}

static ulyxResult_t chainForward(ulyxRuntime_t rt, int rank) {
  (void)rank;
  return chain(rt, 0);
}
static ulyxResult_t chainBackward(ulyxRuntime_t rt, int rank) {
  (void)rank;
  return chain(rt, 1);
}

/* Units of so many bytes from each rank to each, its own left out. */
static const struct {
  const char* name;
  ulyxResult_t (*run)(ulyxRuntime_t rt, int rank);
  int64_t bytes;
  int64_t units[RANKS][RANKS];
} operations[] = {
    /* the sender's tokens times the receiver's heads, of q, k and v; and the other way round */
    {"seq_to_heads", seqToHeads, 3 * HEAD_BYTES, {{0, 4 * 2, 4 * 1}, {3 * 2, 0, 3 * 1}, {3 * 2, 3 * 2, 0}}},
    {"heads_to_seq", headsToSeq, HEAD_BYTES, {{0, 2 * 3, 2 * 3}, {2 * 4, 0, 2 * 3}, {1 * 4, 1 * 3, 0}}},
    {"all_gather_rows", allGather, ROW_BYTES, {{0, 4, 4}, {0, 0, 0}, {2, 2, 0}}},
    {"reduce_scatter_rows", reduceScatter, ROW_BYTES, {{0, 0, 2}, {4, 0, 2}, {4, 0, 0}}},
    {"all_to_all_rows", allToAll, ROW_BYTES, {{0, 1, 0}, {0, 0, 0}, {3, 2, 0}}},
    {"conv_halo", haloForward, ROW_BYTES, {{0, 1, 1}, {0, 0, 2}, {0, 0, 0}}},
    {"conv_halo_backward", haloBackward, ROW_BYTES, {{0, 0, 0}, {1, 0, 0}, {1, 2, 0}}},
    {"state_chain", chainForward, STATE_BYTES, {{0, 1, 1}, {0, 0, 1}, {0, 0, 0}}},
    {"state_chain_backward", chainBackward, STATE_BYTES, {{0, 0, 0}, {1, 0, 0}, {1, 1, 0}}},
};
#define OPERATIONS ((int)(sizeof operations / sizeof *operations))

static const ulyxTransport_t transports[] = {ulyxTransportNccl, ulyxTransportDirect, ulyxTransportCopyEngine};
#define TRANSPORTS ((int)(sizeof transports / sizeof *transports))
#define EXCHANGES (TRANSPORTS * RANKS * OPERATIONS)

static void* drive(void* argument) {
  const ulyxRuntime_t rt = *(ulyxRuntime_t*)argument;
  const int rank = (int)((ulyxRuntime_t*)argument - runtimes);
  if (cudaSetDevice(rank) != cudaSuccess) exit(1);
  for (int i = 0; i < OPERATIONS; ++i) {
    taken = 0;
    if (operations[i].run(rt, rank) == ulyxSuccess) {
      ++made;
    } else {
      fprintf(stderr, "%s: %s\n", operations[i].name, ulyxGetLastError(rt));
    }
  }
  if (cudaDeviceSynchronize() != cudaSuccess) exit(1);
  for (int i = 0; i < (int)(sizeof memory / sizeof *memory); ++i) cudaFree(memory[i]);
  return NULL;
}

static void runOn(ulyxTransport_t transport) {
  pthread_t threads[RANKS];
  const int devices[RANKS] = {0, 1, 2};
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.transport = transport;
  config.arenaBytes = 1 << 20;
  MUST(ulyxRuntimeCreateLocal(&config, RANKS, devices, runtimes));
  for (int rank = 0; rank < RANKS; ++rank) {
    if (pthread_create(&threads[rank], NULL, drive, &runtimes[rank]) != 0) exit(1);
  }
  for (int rank = 0; rank < RANKS; ++rank) pthread_join(threads[rank], NULL);
  for (int rank = 0; rank < RANKS; ++rank) MUST(ulyxRuntimeDestroy(&runtimes[rank]));
}

static int countOf(const char* text, const char* words) {
  int count = 0;
  for (const char* at = strstr(text, words); at != NULL; at = strstr(at + 1, words)) ++count;
  return count;
}

/* An all-to-all by copy_engine is direct: a rank cannot know where the rows of others would land. */
static ulyxTransport_t takenOf(int which, int transport) {
  const int isAllToAll = operations[which].run == allToAll;
  return isAllToAll && transports[transport] == ulyxTransportCopyEngine ? ulyxTransportDirect : transports[transport];
}

/* What the tool is to write for an exchange. */
static void describe(int which, int rank, int transport, int withPayload, char* line, size_t size) {
  int64_t sent = 0, received = 0;
  int peers = 0;
  for (int peer = 0; peer < RANKS; ++peer) {
    const int64_t to = operations[which].units[rank][peer], from = operations[which].units[peer][rank];
    sent += to * operations[which].bytes;
    received += from * operations[which].bytes;
    peers += to + from > 0;
  }
  if (withPayload) {
    (void)snprintf(line, size,
                   "push %s exchange %d sent %" PRId64 " received %" PRId64 " rank %d peers %d transport %d\n",
                   operations[which].name, which + 1, sent, received, rank, peers, (int)takenOf(which, transport));
  } else {
    (void)snprintf(line, size, "push %s sent %" PRId64 "\n", operations[which].name, sent);
  }
}

static void checkRanges(const char* text, int withPayload) {
  static char lines[EXCHANGES][128];
  for (int i = 0; i < EXCHANGES; ++i) {
    describe(i % OPERATIONS, i / OPERATIONS % RANKS, i / OPERATIONS / RANKS, withPayload, lines[i], sizeof lines[i]);
  }
  for (int i = 0; i < EXCHANGES; ++i) {
    int same = 0; /* without payloads, or by the same transport after all, exchanges look alike */
    for (int j = 0; j < EXCHANGES; ++j) same += strcmp(lines[i], lines[j]) == 0;
    expect(countOf(text, lines[i]) == same, lines[i]);
  }
  expect(countOf(text, "push ") == EXCHANGES, "no other range");
  expect(countOf(text, "pop to 0\n") == EXCHANGES && countOf(text, "pop to") == EXCHANGES,
         "every range ends, by itself");
}

static void checkDomain(const char* text, int withPayload) {
  expect(countOf(text, "domain ulyx\n") == 1 && countOf(text, "domain") == 1,
         "all runtimes have one domain, which stays");
  expect(countOf(text, "enum ulyxTransport_t: auto=0 loopback=1 nccl=2 direct=3 copy_engine=4\n") == withPayload,
         "transports have names");
  expect(countOf(text,
                 "schema ulyx exchange of 40 bytes: exchange@0 sentBytes@8 receivedBytes@16 rank@24 peers@28 "
                 "transport@32(enum)\n") == withPayload,
         "the payload's layout is registered");
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
  const int withPayload = getenv("TRACE_TOOL_WITHOUT_PAYLOADS") == NULL;
  if (path != NULL && setenv("NVTX_INJECTION64_PATH", path, 1) != 0) return 1;
  for (int i = 0; i < TRANSPORTS; ++i) runOn(transports[i]);
  expect(made == EXCHANGES, "every exchange is made");
  if (path != NULL) {
    const char* const text = logOf(path);
    if (wanted != NULL && strcmp(wanted, "0") == 0) {
      expect(strcmp(text, "") == 0, "ULYX_NVTX=0 tells a tool nothing");
    } else {
      checkDomain(text, withPayload);
      checkRanges(text, withPayload);
    }
    if (failed > 0) fputs(text, stderr);
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed > 0;
}
