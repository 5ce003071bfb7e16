/* SPDX-License-Identifier: MIT
 *
 * What one enqueue costs the host in ulyx itself, at 8 ranks on each transport of GPUs: CUDA and NCCL are replaced
 * by calls that return at once. Also what making a plan costs, by itself and with an agreement. Fails above the limits
 * given as arguments, and where a call that has been made before still allocates.
 *
 * What is held against a limit is the least of many means: a busy machine only adds, and a slow phase of it passes.
 *
 *   enqueue_cost [most us an enqueue] [most us a plan] */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "support/allocations.h"
#include "ulyx.h"

#define CALLS 2000
#define REPEATS 15
#define ATTEMPTS 5

/* Processor time of this thread, which a busy machine does not stretch: no call here waits for anything. */
static double nowUs(void) {
  struct timespec at;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
  return (double)at.tv_sec * 1e6 + (double)at.tv_nsec * 1e-3;
}

static void check(const char* call, ulyxResult_t result) {
  if (result == ulyxSuccess) return;
  fprintf(stderr, "%s: %s: %s\n", call, ulyxGetErrorString(result), ulyxGetLastError(NULL));
  exit(1);
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

typedef struct Bench {
  ulyxRuntime_t rt, agreeing; /* the other compares plans */
  ulyxShape_t shape;
  ulyxPlan_t plan;
  ulyxQkv_t in, out;
  ulyxTensor_t oIn, oOut;
} Bench;

static void seqToHeads(Bench* bench) {
  check("ulyxSeqToHeads", ulyxSeqToHeads(bench->plan, &bench->in, &bench->out, NULL));
}

static void headsToSeq(Bench* bench) {
  check("ulyxHeadsToSeq", ulyxHeadsToSeq(bench->plan, &bench->oIn, &bench->oOut, NULL));
}

static void planOn(ulyxRuntime_t rt, const ulyxShape_t* shape) {
  ulyxPlan_t plan = NULL;
  check("ulyxPlanCreate", ulyxPlanCreate(rt, shape, &plan));
  check("ulyxPlanDestroy", ulyxPlanDestroy(plan));
}

static void makePlan(Bench* bench) {
  planOn(bench->rt, &bench->shape);
}

static void agreeOnPlan(Bench* bench) {
  planOn(bench->agreeing, &bench->shape);
}

/* The means over calls, in microseconds, ascending. Returns how often was allocated. */
static int64_t timeRepeats(Bench* bench, void (*call)(Bench*), double* us) {
  const int64_t before = ulyxTestAllocations();
  for (int repeat = 0; repeat < REPEATS; ++repeat) {
    const double start = nowUs();
    for (int i = 0; i < CALLS; ++i) call(bench);
    us[repeat] = (nowUs() - start) / CALLS;
  }
  const int64_t allocations = ulyxTestAllocations() - before;
  qsort(us, REPEATS, sizeof us[0], ascending);
  return allocations;
}

/* Prints a line; returns 1 where the limit is passed. */
static int timeCalls(const char* transport, const char* name, Bench* bench, void (*call)(Bench*), double most) {
  double us[REPEATS];
  call(bench);
  int64_t allocations = timeRepeats(bench, call, us);
  for (int attempt = 1; attempt < ATTEMPTS && us[0] > most; ++attempt) {
    (void)nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    allocations += timeRepeats(bench, call, us);
  }
  const char* const verdict = us[0] > most ? "TOO SLOW" : allocations > 0 ? "ALLOCATES" : "OK";
  printf("%-12s %-14s 8 ranks  median %6.2f us  min %6.2f  max %6.2f  limit %6.2f  %s\n", transport, name,
         us[REPEATS / 2], us[0], us[REPEATS - 1], most, verdict);
  return us[0] <= most && allocations == 0 ? 0 : 1;
}

static char* carve(char** memory, int64_t bytes) {
  char* const at = *memory;
  *memory += (bytes + 255) / 256 * 256;
  return at;
}

static int measure(const char* name, int transport, double mostEnqueue, double mostPlan) {
  Bench bench = {.shape = ULYX_SHAPE_INITIALIZER};
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  const ulyxUniqueId_t id = {{0}};
  bench.shape.tokens = 4099;
  bench.shape.heads = 27;
  bench.shape.headDim = 128;
  config.transport = transport;
  config.agreePlans = 0;
  check("ulyxShapeGetBytes", ulyxShapeGetBytes(&bench.shape, 8, 0, &bytes));
  config.arenaBytes = bytes.arena;
  check("ulyxRuntimeCreate", ulyxRuntimeCreate(&config, 8, id, 0, &bench.rt));
  config.agreePlans = 1;
  check("ulyxRuntimeCreate", ulyxRuntimeCreate(&config, 8, id, 0, &bench.agreeing));
  check("ulyxPlanCreate", ulyxPlanCreate(bench.rt, &bench.shape, &bench.plan));
  check("ulyxPlanGetQkv", ulyxPlanGetQkv(bench.plan, &bench.in, &bench.out));
  check("ulyxPlanGetOutput", ulyxPlanGetOutput(bench.plan, &bench.oIn, &bench.oOut));
  void* symmetric = NULL;
  const int64_t total =
      bytes.qIn + bytes.kIn + bytes.vIn + bytes.qOut + bytes.kOut + bytes.vOut + bytes.oIn + bytes.oOut + 8 * 256;
  check("ulyxMemAlloc", ulyxMemAlloc(bench.rt, total, &symmetric));
  char* memory = symmetric;
  bench.in.q.data = carve(&memory, bytes.qIn);
  bench.in.k.data = carve(&memory, bytes.kIn);
  bench.in.v.data = carve(&memory, bytes.vIn);
  bench.out.q.data = carve(&memory, bytes.qOut);
  bench.out.k.data = carve(&memory, bytes.kOut);
  bench.out.v.data = carve(&memory, bytes.vOut);
  bench.oIn.data = carve(&memory, bytes.oIn);
  bench.oOut.data = carve(&memory, bytes.oOut);
  const int slow = timeCalls(name, "seq_to_heads", &bench, seqToHeads, mostEnqueue) +
                   timeCalls(name, "heads_to_seq", &bench, headsToSeq, mostEnqueue) +
                   timeCalls(name, "plan", &bench, makePlan, mostPlan) +
                   timeCalls(name, "plan, agreed", &bench, agreeOnPlan, mostPlan);
  check("ulyxRuntimeDestroy", ulyxRuntimeDestroy(&bench.agreeing));
  check("ulyxRuntimeDestroy", ulyxRuntimeDestroy(&bench.rt));
  return slow;
}

int main(int argc, char** argv) {
  const double mostEnqueue = argc > 1 ? atof(argv[1]) : 5.0;
  const double mostPlan = argc > 2 ? atof(argv[2]) : 20.0;
  const int slow = measure("nccl", ulyxTransportNccl, mostEnqueue, mostPlan) +
                   measure("direct", ulyxTransportDirect, mostEnqueue, mostPlan) +
                   measure("copy_engine", ulyxTransportCopyEngine, mostEnqueue, mostPlan);
  return slow > 0 ? 1 : 0;
}
