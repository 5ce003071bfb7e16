/* SPDX-License-Identifier: MIT
 *
 * The ranks: one that survives, or waits for nobody, and one that is lost. */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peer_loss.h"

#define TOKENS 4099
#define HEADS 7
#define DIM 64

static _Noreturn void die(const char* what, const char* why) {
  fprintf(stderr, "peer_loss: %s: %s\n", what, why);
  _exit(3);
}

static void must(ulyxResult_t result, const char* what) {
  if (result != ulyxSuccess) die(what, ulyxGetLastError(NULL));
}

static void mustCuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) die(what, cudaGetErrorString(error));
}

/* One world's exchange of this rank. */
typedef struct Rank {
  ulyxRuntime_t rt;
  ulyxPlan_t plan, otherPlan;
  ulyxTensor_t in, out, otherIn, otherOut;
  int64_t outBytes;
  unsigned char* found; /* on the host */
  int nRanks, rank;
  cudaStream_t stream;
} Rank;

static void fill(unsigned char* bytes, int64_t count, int rank) {
  for (int64_t i = 0; i < count; ++i) bytes[i] = (unsigned char)(i * 7 + rank * 31 + 1);
}

static void setUp(const Options* options, Rank* self, const ulyxUniqueId_t* id, int nRanks, int rank) {
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  ulyxShape_t shape = ULYX_SHAPE_INITIALIZER;
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  config.transport = nRanks > 1 ? options->transport : ulyxTransportAuto;
  shape.tokens = TOKENS;
  shape.heads = HEADS;
  shape.headDim = DIM;
  *self = (Rank){.nRanks = nRanks, .rank = rank};
  config.timeoutMs = options->timeoutMs;
  must(ulyxRuntimeCreate(&config, nRanks, *id, rank, &self->rt), "ulyxRuntimeCreate");
  must(ulyxShapeGetBytes(&shape, nRanks, rank, &bytes), "ulyxShapeGetBytes");
  must(ulyxRuntimeReserve(self->rt, bytes.arena), "ulyxRuntimeReserve");
  must(ulyxPlanCreate(self->rt, &shape, &self->plan), "ulyxPlanCreate");
  must(ulyxPlanGetOutput(self->plan, &self->in, &self->out), "ulyxPlanGetOutput");
  shape.headDim = DIM / 2;
  must(ulyxPlanCreate(self->rt, &shape, &self->otherPlan), "ulyxPlanCreate of another plan");
  must(ulyxPlanGetOutput(self->otherPlan, &self->otherIn, &self->otherOut), "ulyxPlanGetOutput of another plan");
  unsigned char* const data = malloc((size_t)bytes.oIn);
  self->found = malloc((size_t)bytes.oOut);
  if (data == NULL || self->found == NULL) die("malloc", strerror(errno));
  fill(data, bytes.oIn, rank);
  mustCuda(cudaMalloc(&self->in.data, (size_t)bytes.oIn), "cudaMalloc");
  must(ulyxMemAlloc(self->rt, bytes.oOut, &self->out.data), "ulyxMemAlloc");
  self->otherIn.data = self->in.data;
  self->otherOut.data = self->out.data;
  mustCuda(cudaMemcpy(self->in.data, data, (size_t)bytes.oIn, cudaMemcpyHostToDevice), "cudaMemcpy");
  mustCuda(cudaStreamCreateWithFlags(&self->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  self->outBytes = bytes.oOut;
  free(data);
}

/* Heads of rank r of this rank's tokens, as rank r has filled them. */
static bool isRight(const Rank* self) {
  const int64_t rowBytes = HEADS * DIM * 2, tokens = self->out.extents[1];
  const int64_t firstToken = self->rank == 0 ? 0 : TOKENS - tokens;
  for (int64_t at = 0; at < self->outBytes; ++at) {
    const int64_t token = at / rowBytes, byte = at % rowBytes, head = byte / (DIM * 2);
    const int64_t split = self->nRanks == 1 ? HEADS : (HEADS + 1) / 2;
    const int owner = head < split ? 0 : 1;
    const int64_t heads = owner == 0 ? split : HEADS - split;
    const int64_t column = byte - (owner == 0 ? 0 : split * DIM * 2);
    const int64_t there = (firstToken + token) * heads * DIM * 2 + column;
    if (self->found[at] != (unsigned char)(there * 7 + owner * 31 + 1)) return false;
  }
  return true;
}

/* One exchange, checked now and then. */
static ulyxResult_t exchange(Rank* self, int64_t number) {
  ulyxResult_t result = ulyxHeadsToSeq(self->plan, &self->in, &self->out, self->stream);
  if (result != ulyxSuccess) return result;
  mustCuda(cudaStreamSynchronize(self->stream), "cudaStreamSynchronize");
  must(ulyxRuntimeGetAsyncError(self->rt, &result), "ulyxRuntimeGetAsyncError");
  if (result != ulyxSuccess || number % 16 != 0) return result;
  mustCuda(cudaMemcpyAsync(self->found, self->out.data, (size_t)self->outBytes, cudaMemcpyDeviceToHost, self->stream),
           "cudaMemcpyAsync");
  mustCuda(cudaStreamSynchronize(self->stream), "cudaStreamSynchronize");
  if (!isRight(self)) die("exchange", "wrong data");
  return ulyxSuccess;
}

/* Ranks that share a GPU share it with kernels of stopped ones, which spin for as long as these are stopped. */
static void goOnAlone(const Options* given) {
  ulyxUniqueId_t id;
  Rank alone;
  Options patient = *given;
  const Options* const options = &patient;
  if (given->hosts) patient.timeoutMs = 30000;
  must(ulyxGetUniqueId(&id), "ulyxGetUniqueId of the next world");
  setUp(options, &alone, &id, 1, 0);
  must(exchange(&alone, 0), "exchange of the next world");
  must(ulyxRuntimeDestroy(&alone.rt), "ulyxRuntimeDestroy of the next world");
}

/* Before NCCL is asked for anything, since it takes its host's name once. */
static void settle(const Options* options, int rank) {
  char host[32];
  (void)snprintf(host, sizeof host, "peer_loss-%d", rank);
  if (options->hosts && setenv("NCCL_HOSTID", host, 1) != 0) die("setenv", strerror(errno));
  mustCuda(cudaSetDevice(rank % options->gpus), "cudaSetDevice");
  mustCuda(cudaFree(NULL), "cudaFree");
}

static void join(const Options* options, Trial* trial, Rank* self, int rank) {
  setUp(options, self, &trial->id, 2, rank);
  trial->joined[rank] = 1;
  while (!trial->go) sleepMs(1);
}

static void keepWords(Trial* trial, const Rank* self) {
  ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
  must(ulyxPlanGetInfo(self->plan, &info), "ulyxPlanGetInfo");
  (void)snprintf(trial->plans[self->rank], sizeof trial->plans[0], "%016llx", (unsigned long long)info.signature);
  (void)snprintf(trial->said[self->rank], sizeof trial->said[0], "%s", ulyxGetLastError(self->rt));
}

/* Joining must end by the deadline. */
_Noreturn void waitForNobody(const Options* options, Trial* trial) {
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  ulyxRuntime_t rt = NULL;
  ulyxUniqueId_t id;
  settle(options, 0);
  must(ulyxGetUniqueId(&id), "ulyxGetUniqueId");
  config.transport = options->transport;
  config.timeoutMs = options->timeoutMs;
  trial->struckNs = nowNs();
  trial->result = (int)ulyxRuntimeCreate(&config, 2, id, 0, &rt);
  trial->errorMs = (nowNs() - trial->struckNs) / 1000000;
  (void)snprintf(trial->said[0], sizeof trial->said[0], "%s", ulyxGetLastError(NULL));
  goOnAlone(options);
  _exit(0);
}

_Noreturn void survive(const Options* options, Trial* trial) {
  Rank self;
  settle(options, 0);
  must(ulyxGetUniqueId(&trial->id), "ulyxGetUniqueId");
  __atomic_store_n(&trial->idReady, 1, __ATOMIC_RELEASE);
  join(options, trial, &self, 0);
  ulyxResult_t result = ulyxSuccess;
  for (int64_t number = 0; result == ulyxSuccess && (options->signal != REST || number < EXCHANGES_BEFORE); ++number) {
    result = exchange(&self, number);
    trial->exchanges[0] = number + (result == ulyxSuccess ? 1 : 0);
  }
  while (options->signal == REST && trial->struckNs == 0) sleepMs(1);
  trial->errorMs = (nowNs() - trial->struckNs) / 1000000;
  trial->result = (int)result;
  keepWords(trial, &self);
  if (options->signal != REST && ulyxHeadsToSeq(self.plan, &self.in, &self.out, self.stream) == ulyxSuccess) {
    die("survivor", "was not refused");
  }
  const int64_t destroyNs = nowNs();
  (void)ulyxRuntimeDestroy(&self.rt); /* it may say what was lost */
  trial->destroyMs = (nowNs() - destroyNs) / 1000000;
  goOnAlone(options);
  _exit(0);
}

static cudaGraphExec_t capture(const Rank* self) {
  cudaGraph_t graph = NULL;
  cudaGraphExec_t made = NULL;
  mustCuda(cudaStreamBeginCapture(self->stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  must(ulyxHeadsToSeq(self->plan, &self->in, &self->out, self->stream), "a captured exchange");
  mustCuda(cudaStreamEndCapture(self->stream, &graph), "cudaStreamEndCapture");
  mustCuda(cudaGraphInstantiate(&made, graph, 0), "cudaGraphInstantiate");
  mustCuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return made;
}

/* Of each two replays one begins before the other has ended, since the peer has yet to come for either. As a caller who
 * asks nothing before both have ended. Returns what the runtime then says. */
static ulyxResult_t overlap(const Rank* self) {
  cudaStream_t streams[] = {self->stream, NULL};
  const cudaGraphExec_t graphs[] = {capture(self), capture(self)};
  ulyxResult_t result = ulyxSuccess;
  mustCuda(cudaStreamCreateWithFlags(&streams[1], cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  while (result == ulyxSuccess) {
    for (int i = 0; i < 2; ++i) mustCuda(cudaGraphLaunch(graphs[i], streams[i]), "cudaGraphLaunch");
    for (int i = 0; i < 2; ++i) mustCuda(cudaStreamSynchronize(streams[i]), "cudaStreamSynchronize");
    must(ulyxRuntimeGetAsyncError(self->rt, &result), "ulyxRuntimeGetAsyncError");
  }
  return result;
}

_Noreturn void beLost(const Options* options, Trial* trial) {
  Rank self;
  settle(options, 1);
  while (!__atomic_load_n(&trial->idReady, __ATOMIC_ACQUIRE)) sleepMs(1);
  join(options, trial, &self, 1);
  ulyxResult_t result = ulyxSuccess;
  for (int64_t number = 1; result == ulyxSuccess; ++number) {
    if (options->signal == ORDER && trial->struckNs != 0) {
      self.plan = self.otherPlan;
      self.in = self.otherIn;
      self.out = self.otherOut;
      number = 1; /* what comes of it is not looked at */
    }
    const bool overlaps = options->signal == OVERLAP && trial->struckNs != 0;
    result = overlaps ? overlap(&self) : exchange(&self, number);
    trial->exchanges[1] += result == ulyxSuccess ? 1 : 0;
    while (options->signal == REST && trial->exchanges[1] == EXCHANGES_BEFORE) pause(); /* killed there */
  }
  keepWords(trial, &self);
  __atomic_store_n(&trial->otherSaid, 1, __ATOMIC_RELEASE);
  for (;;) pause(); /* killed by the parent */
}
