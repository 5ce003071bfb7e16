/* SPDX-License-Identifier: MIT
 *
 * A rank on a GPU: made over a communicator, owning the staging arena, the memory that ulyxMemAlloc gave and the
 * branches that exchanges run on. Exchanges are in gpu_run.c. */
#include "gpu.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "gpu_run.h"
#include "kernels.h"

/* NCCL's kernel has at most 32 blocks of up to 640 threads in clusters of 4: own copies that run beside it
 * leave this many multiprocessors alone. */
#define SMS_FOR_NCCL 40

/* Blocks of the exchange kernel on each multiprocessor: what it takes to fill NVLink. */
#define DIRECT_CTAS_PER_SM 2

/* How long CUDA may take to tell that a graph is gone. */
#define GRAPH_PATIENCE_MS 200

static ulyxResult_t run(ulyxTransport* transport, const ulyxExchange* exchange) {
  ulyxGpu* const self = (ulyxGpu*)transport;
  int previous = 0;
  ULYX_TRY(ulyxDeviceEnter(transport->device, &previous));
  ulyxTraceBegin(&self->trace, exchange, ((const ulyxGpuPrepared*)exchange->prepared)->choice.transport);
  const ulyxResult_t result = ulyxGpuRun(self, exchange);
  ulyxTraceEnd(&self->trace);
  ulyxDeviceLeave(transport->device, previous);
  return result;
}

static ulyxResult_t prepare(const ulyxTransport* transport, const ulyxPhase* phase, void** prepared,
                            int64_t* arenaBytes) {
  if (*prepared == NULL) ULYX_TRY(ulyxAllocate(prepared, 1, sizeof(ulyxGpuPrepared), "messages"));
  ulyxGpuPrepared* const made = *prepared;
  made->choice = ulyxChoose(&((const ulyxGpu*)transport)->facts, &phase->facts);
  if (made->choice.transport == ulyxTransportNccl) {
    ULYX_TRY(ulyxWireBuild(phase, &made->wire));
    made->scratchOffset = made->wire.arenaBytes;
    *arenaBytes = made->scratchOffset + phase->scratchBytes;
  } else {
    made->landing = ulyxLandingMake(phase);
    made->scratchOffset = made->landing.offset[ULYX_SCRATCH];
    *arenaBytes = made->landing.bytes;
  }
  return ulyxSuccess;
}

static void unprepare(void* prepared) {
  if (prepared == NULL) return;
  ulyxWireFree(&((ulyxGpuPrepared*)prepared)->wire);
  free(prepared);
}

static ulyxChoice_t choice(const ulyxTransport* transport, const void* prepared) {
  (void)transport;
  return ((const ulyxGpuPrepared*)prepared)->choice;
}

static ulyxResult_t found(ulyxTransport* transport) {
  ulyxGpu* const self = (ulyxGpu*)transport;
  ULYX_TRY(ulyxMeetingsPassing(&self->meetings));
  ULYX_TRY(ulyxGuardFound(&self->world.guard)); /* which has the labels' words where an exchange did not end */
  return ulyxLabelsPassing(&self->labels);
}

static bool hasEnded(const ulyxTransport* transport) {
  const ulyxNcclWorld* const world = &((const ulyxGpu*)transport)->world;
  enum cudaStreamCaptureMode mode = ulyxRelaxCapture();
  const cudaError_t state = world->doneRecorded ? cudaEventQuery(world->done) : cudaSuccess;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  if (state == cudaErrorNotReady) (void)cudaGetLastError(); /* no error */
  return state == cudaSuccess;
}

static ulyxResult_t checkMemory(ulyxTransport* transport, const void* data, const char* name) {
  struct cudaPointerAttributes attributes;
  ULYX_TRY(ULYX_CUDA(cudaPointerGetAttributes(&attributes, data)));
  if (attributes.type == cudaMemoryTypeManaged) return ulyxSuccess;
  if (attributes.type != cudaMemoryTypeDevice) {
    return ulyxFail(ulyxInvalidArgument, "%s: data is host memory, expected memory of CUDA device %d", name,
                    transport->device);
  }
  if (attributes.device != transport->device) {
    return ulyxFail(ulyxInvalidArgument, "%s: data is memory of CUDA device %d, expected device %d", name,
                    attributes.device, transport->device);
  }
  return ulyxSuccess;
}

static ulyxResult_t storeOnDevice(const int32_t* values, int64_t count, int32_t* data, ulyxStream_t stream) {
  ulyxStoreBatch batch;
  for (int64_t done = 0; done < count; done += batch.count) {
    batch.dst = data + done;
    batch.count = ulyxMin64(count - done, ULYX_STORE_MANY);
    memcpy(batch.values, values + done, (size_t)batch.count * sizeof *values);
    ULYX_TRY(ulyxCudaResult(ulyxLaunchStore(&batch, stream), "launch of the store kernel"));
  }
  return ulyxSuccess;
}

static ulyxResult_t store(ulyxTransport* transport, const int32_t* values, int64_t count, int32_t* data,
                          ulyxStream_t stream) {
  int previous = 0;
  ULYX_TRY(ulyxDeviceEnter(transport->device, &previous));
  const ulyxResult_t result = storeOnDevice(values, count, data, stream);
  ulyxDeviceLeave(transport->device, previous);
  return result;
}

static ulyxResult_t gather(ulyxTransport* transport, const int64_t* mine, int count, int64_t* all) {
  ulyxGpu* const self = (ulyxGpu*)transport;
  int previous = 0;
  ULYX_TRY(ulyxGuardFound(&self->world.guard));
  ULYX_TRY(ulyxDeviceEnter(transport->device, &previous));
  const ulyxResult_t result = ulyxNcclWorldGather(&self->world, mine, count, all);
  ulyxDeviceLeave(transport->device, previous);
  return result;
}

/* After it nothing of this rank is running. */
static cudaError_t drain(ulyxGpu* self) {
  ulyxUndoBegin();
  (void)ulyxGuardFound(&self->world.guard);
  ulyxUndoEnd();
  return ulyxNcclWorldDrain(&self->world);
}

static ulyxResult_t checkUnused(ulyxTransport* transport) {
  const int64_t held = ulyxGraphsCount(((ulyxGpu*)transport)->graphs, GRAPH_PATIENCE_MS);
  if (held == 0) return ulyxSuccess;
  return ulyxFail(ulyxInvalidUsage,
                  "captured graphs still hold %lld exchanges of this runtime (rank %d); destroy them, and what was "
                  "instantiated from them, first",
                  (long long)held, transport->rank);
}

static ulyxResult_t memAlloc(ulyxTransport* transport, int64_t bytes, void** data) {
  ulyxGpu* const self = (ulyxGpu*)transport;
  ulyxArena* block = NULL;
  int previous = 0;
  ULYX_TRY(ulyxGuardFound(&self->world.guard));
  ULYX_TRY(ulyxDeviceEnter(transport->device, &previous));
  const ulyxResult_t result = ulyxArenaCreate(&self->world, &self->windows, bytes, &block);
  ulyxDeviceLeave(transport->device, previous);
  if (result != ulyxSuccess) return result;
  block->next = self->blocks;
  self->blocks = block;
  *data = block->data;
  return ulyxSuccess;
}

static ulyxResult_t memFree(ulyxTransport* transport, void* data) {
  ulyxGpu* const self = (ulyxGpu*)transport;
  ulyxArena** link = &self->blocks;
  while (*link != NULL && (*link)->data != data) link = &(*link)->next;
  ulyxArena* const block = *link;
  if (block == NULL) {
    return ulyxFail(ulyxInvalidArgument, "%p is no memory from ulyxMemAlloc of this runtime", data);
  }
  /* NCCL keeps what a lost world has mapped until the graphs are gone that hold its work, and they write it */
  ulyxUndoBegin();
  const bool lost = ulyxGuardFound(&self->world.guard) != ulyxSuccess;
  ulyxUndoEnd();
  if (lost) ULYX_TRY(checkUnused(transport));
  int previous = 0;
  ULYX_TRY(ulyxDeviceEnter(transport->device, &previous));
  ulyxResult_t result = ULYX_CUDA(drain(self));
  if (result == ulyxSuccess) {
    ulyxArena* const next = block->next;
    result = ulyxArenaDestroy(&self->world, &self->windows, block);
    if (result != ulyxInvalidUsage) *link = next; /* else it is there as before */
  }
  ulyxDeviceLeave(transport->device, previous);
  return result;
}

/* Graphs have the arena's address. Ranks find out together, so that none is left waiting for the others' arenas. */
static ulyxResult_t checkNoGraph(ulyxGpu* self) {
  int64_t* held = NULL;
  const int64_t patienceMs = ulyxMin64(GRAPH_PATIENCE_MS, self->meetings.timeoutMs / 2 + 1); /* the others wait */
  ULYX_TRY(ulyxNcclWorldGatherWord(&self->world, ulyxGraphsCount(self->graphs, patienceMs), &held));
  ulyxResult_t result = ulyxSuccess;
  for (int rank = 0; result == ulyxSuccess && rank < self->world.nRanks; ++rank) {
    if (held[rank] == 0) continue;
    result = ulyxFail(ulyxInvalidUsage,
                      "the arena cannot grow: captured graphs still hold %lld exchanges of rank %d's runtime; destroy "
                      "them, and what was instantiated from them, or reserve before capturing",
                      (long long)held[rank], rank);
  }
  free(held);
  return result;
}

/* Arenas are equal on all ranks, so all find alike whether the present one is enough. */
static ulyxResult_t reserveOnDevice(ulyxGpu* self, int64_t bytes) {
  int64_t largest = 0;
  ulyxArena* arena = NULL;
  ULYX_TRY(ulyxGuardFound(&self->world.guard));
  ULYX_TRY(ulyxNcclWorldLargest(&self->world, bytes, &largest));
  if (self->arena != NULL && self->arena->bytes >= largest) return ulyxSuccess;
  if (self->arena != NULL) ULYX_TRY(checkNoGraph(self));
  ULYX_TRY(ULYX_CUDA(drain(self)));
  ULYX_TRY(ulyxArenaCreate(&self->world, &self->windows, largest, &arena));
  if (self->windows.reachable && arena->number == ULYX_NO_WINDOW) { /* on every rank alike */
    (void)ulyxArenaDestroy(&self->world, &self->windows, arena);
    return ulyxFail(ulyxUnsupported, "peers cannot write the staging arena of %lld bytes: %s", (long long)largest,
                    self->windows.why);
  }
  ulyxArena* const old = self->arena;
  self->arena = arena;
  self->base.arenaBytes = arena->bytes;
  return old != NULL ? ulyxArenaDestroy(&self->world, &self->windows, old) : ulyxSuccess;
}

static ulyxResult_t reserve(ulyxTransport* transport, int64_t bytes) {
  int previous = 0;
  ULYX_TRY(ulyxDeviceEnter(transport->device, &previous));
  const ulyxResult_t result = reserveOnDevice((ulyxGpu*)transport, bytes);
  ulyxDeviceLeave(transport->device, previous);
  return result;
}

static ulyxResult_t createBranch(const ulyxSettings* settings, ulyxBranch* branch) {
  int least = 0, greatest = 0; /* the greatest priority is the smallest number */
  ULYX_TRY(ULYX_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest)));
  const int wanted = settings->streamPriority;
  const int priority = wanted > least ? least : wanted < greatest ? greatest : wanted;
  ULYX_TRY(ULYX_CUDA(cudaStreamCreateWithPriority(&branch->stream, cudaStreamNonBlocking, priority)));
  return ULYX_CUDA(cudaEventCreateWithFlags(&branch->end, cudaEventDisableTiming));
}

static ulyxResult_t reported(void* self) {
  const ulyxGpu* const gpu = self;
  ULYX_TRY(ulyxMeetingsLost(&gpu->meetings));
  return ulyxLabelsLost(&gpu->labels);
}

static ulyxResult_t tell(void* self) {
  ulyxGpu* const gpu = self;
  int previous = 0;
  ULYX_TRY(ulyxDeviceEnter(gpu->base.device, &previous));
  enum cudaStreamCaptureMode mode = ulyxRelaxCapture();
  ulyxResult_t told = ulyxMeetingsGiveUp(&gpu->meetings);
  ulyxKeepFirst(&told, ulyxMeetingsTellPeers(&gpu->meetings, &gpu->windows, &gpu->world));
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  ulyxDeviceLeave(gpu->base.device, previous);
  return told;
}

static void explain(void* self, const ulyxGuardExchange* exchange, char* text, size_t bytes) {
  ulyxLabelsExplain(&((const ulyxGpu*)self)->labels, exchange, text, bytes);
}

/* Kernels that are replayed cannot be asked about: they get the whole moment. */
static void settleDown(void* self) {
  ulyxGpu* const gpu = self;
  if (!gpu->windows.reachable) return;
  const cudaStream_t telling = gpu->meetings.abortStream;
  const bool replays = ulyxGraphsHeld(gpu->graphs) > 0;
  const int64_t startNs = ulyxNowNs();
  while (ulyxNowNs() - startNs < ULYX_GRACE_MS * ULYX_NS_A_MS &&
         (replays || (telling != NULL && cudaStreamQuery(telling) == cudaErrorNotReady) ||
          cudaEventQuery(gpu->world.done) == cudaErrorNotReady)) {
    ulyxSleepUs(1000);
  }
}

static ulyxResult_t lose(ulyxTransport* transport) {
  return ulyxGuardAbort(&((ulyxGpu*)transport)->world.guard, "rank %d was aborted; destroy the runtime",
                        transport->rank);
}

static ulyxResult_t destroyBranch(ulyxBranch* branch) {
  ulyxResult_t result = ulyxSuccess;
  if (branch->stream != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaStreamDestroy(branch->stream)));
  if (branch->end != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaEventDestroy(branch->end)));
  return result;
}

static ulyxResult_t destroyOnDevice(ulyxGpu* self) {
  ulyxResult_t result = ulyxSuccess;
  ulyxGuardDisown(&self->world.guard);
  while (self->blocks != NULL) {
    ulyxArena* const block = self->blocks;
    self->blocks = block->next;
    ulyxKeepFirst(&result, ulyxArenaDestroy(&self->world, &self->windows, block));
  }
  if (self->arena != NULL) ulyxKeepFirst(&result, ulyxArenaDestroy(&self->world, &self->windows, self->arena));
  for (int i = 0; i < self->engineCount; ++i) ulyxKeepFirst(&result, destroyBranch(&self->engines[i]));
  free(self->engines);
  ulyxKeepFirst(&result, destroyBranch(&self->beside));
  if (self->fork != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaEventDestroy(self->fork)));
  ulyxGraphsRelease(self->graphs);
  ulyxKeepFirst(&result, ulyxLabelsDestroy(&self->labels));
  ulyxKeepFirst(&result, ulyxMeetingsDestroy(&self->world, &self->windows, &self->meetings));
  ulyxKeepFirst(&result, ulyxWindowsDestroy(&self->windows));
  ulyxKeepFirst(&result, ulyxNcclWorldDestroy(&self->world));
  return result;
}

/* CUDA has gone: what it owned went with it. Whether the object itself may go. */
static bool forgetDevice(ulyxGpu* self) {
  while (self->blocks != NULL) {
    ulyxArena* const block = self->blocks;
    self->blocks = block->next;
    free(block);
  }
  free(self->arena);
  free(self->engines);
  ulyxGraphsRelease(self->graphs);
  free(self->meetings.records);
  ulyxWindowsForget(&self->windows);
  return ulyxGuardForget(&self->world.guard);
}

static ulyxResult_t destroy(ulyxTransport* transport) {
  ulyxGpu* const self = (ulyxGpu*)transport;
  ulyxResult_t result = ulyxSuccess;
  int previous = 0;
  const ulyxResult_t entered = ulyxDeviceEnter(transport->device, &previous);
  const cudaError_t drained = drain(self);
  bool unused = true;
  if (ulyxCudaIsGone(drained)) {
    unused = forgetDevice(self);
  } else { /* also on the wrong device: what can be freed is freed */
    result = destroyOnDevice(self);
    ulyxKeepFirst(&result, entered);
    ulyxKeepFirst(&result, ulyxCudaResult(drained, "cudaDeviceSynchronize"));
    if (entered == ulyxSuccess) ulyxDeviceLeave(transport->device, previous);
  }
  if (unused) free(self);
  return result;
}

static const ulyxTransportOps gpuOps = {
    .prepare = prepare,
    .unprepare = unprepare,
    .choice = choice,
    .found = found,
    .hasEnded = hasEnded,
    .run = run,
    .gather = gather,
    .checkMemory = checkMemory,
    .store = store,
    .memAlloc = memAlloc,
    .memFree = memFree,
    .reserve = reserve,
    .abort = lose,
    .checkUnused = checkUnused,
    .destroy = destroy,
};

static ulyxResult_t createEngines(ulyxGpu* self, const ulyxSettings* settings) {
  void* memory = NULL;
  const int peers = self->world.nRanks - 1;
  const int count = settings->copyStreams > 0 && settings->copyStreams < peers ? settings->copyStreams : peers;
  ULYX_TRY(ulyxAllocate(&memory, (size_t)count, sizeof(ulyxBranch), "streams of copy engines"));
  self->engines = memory;
  self->engineCount = count;
  for (int i = 0; i < count; ++i) ULYX_TRY(createBranch(settings, &self->engines[i]));
  return ulyxSuccess;
}

/* The first copies of their kinds load what the driver copies with, which could wait for kernels that wait for peers.
 * The arena has room for them, and nothing of worth. */
static ulyxResult_t warmEngines(const ulyxGpu* self) {
  char* const from = self->arena->data;
  char* const to = from + NCCL_WIN_REQUIRED_ALIGNMENT / 2;
  const cudaStream_t stream = self->engines[0].stream;
  ULYX_TRY(ULYX_CUDA(cudaMemcpyAsync(to, from, 1024, cudaMemcpyDefault, stream)));
  ULYX_TRY(ULYX_CUDA(cudaMemcpyAsync(to + 1, from + 2, 3, cudaMemcpyDefault, stream)));
  ULYX_TRY(ULYX_CUDA(cudaMemcpy2DAsync(to, 64, from, 128, 32, 8, cudaMemcpyDefault, stream)));
  ULYX_TRY(ULYX_CUDA(cudaMemcpy2DAsync(to + 1, 63, from + 2, 65, 3, 5, cudaMemcpyDefault, stream)));
  return ULYX_CUDA(cudaStreamSynchronize(stream));
}

static ulyxResult_t loadKernels(void) {
  ULYX_TRY(ULYX_CUDA(ulyxLoadCopies()));
  ULYX_TRY(ULYX_CUDA(ulyxLoadExchange()));
  ULYX_TRY(ULYX_CUDA(ulyxLoadSum()));
  ULYX_TRY(ULYX_CUDA(ulyxLoadChain()));
  ULYX_TRY(ULYX_CUDA(ulyxLoadLabels()));
  return ULYX_CUDA(ulyxLoadStore());
}

static ulyxResult_t setCtas(ulyxGpu* self, const ulyxSettings* settings) {
  int sms = 0;
  ULYX_TRY(ULYX_CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, self->world.device)));
  const int besideCtas = sms > 2 * SMS_FOR_NCCL ? sms - SMS_FOR_NCCL : sms / 2 + 1;
  const int directCtas = sms * DIRECT_CTAS_PER_SM;
  self->maxCtas = settings->maxCtas;
  self->besideCtas = self->maxCtas > 0 && self->maxCtas < besideCtas ? self->maxCtas : besideCtas;
  self->directCtas = self->maxCtas > 0 && self->maxCtas < directCtas ? self->maxCtas : directCtas;
  return ulyxSuccess;
}

/* What the configuration asks for, and what there is. */
static ulyxResult_t settle(ulyxGpu* self, const ulyxSettings* settings) {
  const bool fixed = settings->transport != ulyxTransportAuto;
  self->facts = (ulyxWorldFacts){.nRanks = self->world.nRanks,
                                 .fixed = settings->transport,
                                 .reachable = self->windows.reachable,
                                 .undisturbed = settings->undisturbed};
  self->base.kind = self->windows.reachable ? settings->transport : ulyxTransportNccl;
  self->base.reason = self->world.nRanks == 1   ? "one rank has no peers"
                      : fixed                   ? "the configuration asks for it"
                      : self->windows.reachable ? "NVLink reaches every peer"
                                                : self->windows.why;
  if (!fixed || settings->transport == ulyxTransportNccl || self->windows.reachable || self->world.nRanks == 1) {
    return ulyxSuccess;
  }
  return ulyxFail(ulyxUnsupported, "transport %s needs NVLink between all ranks: %s",
                  ulyxTransportName(settings->transport), self->windows.why);
}

/* All choices come from the first two, and whether exchanges have labels from the third. */
static ulyxResult_t agreeSettings(ulyxGpu* self, const ulyxSettings* settings) {
  int64_t* all = NULL;
  ulyxResult_t result = ulyxSuccess;
  const int64_t mine = ((int64_t)settings->transport * 2 + settings->undisturbed) * 2 + settings->agreePlans;
  ULYX_TRY(ulyxNcclWorldGatherWord(&self->world, mine, &all));
  for (int rank = 1; rank < self->world.nRanks && result == ulyxSuccess; ++rank) {
    if (all[rank] == all[0]) continue;
    result =
        ulyxFail(ulyxMismatch,
                 "rank 0 has transport %s, undisturbed %d and agreePlans %d, rank %d has %s, %d and %d; configure "
                 "them alike",
                 ulyxTransportName((ulyxTransport_t)(all[0] / 4)), (int)(all[0] / 2 % 2), (int)(all[0] % 2), rank,
                 ulyxTransportName((ulyxTransport_t)(all[rank] / 4)), (int)(all[rank] / 2 % 2), (int)(all[rank] % 2));
  }
  free(all);
  return result;
}

static ulyxResult_t setUp(ulyxGpu* self, const ulyxSettings* settings) {
  self->trace = ulyxTraceGet(settings->traced);
  ULYX_TRY(ulyxGraphsCreate(&self->graphs));
  ULYX_TRY(agreeSettings(self, settings));
  ULYX_TRY(setCtas(self, settings));
  ULYX_TRY(loadKernels());
  ULYX_TRY(createBranch(settings, &self->beside));
  ULYX_TRY(ULYX_CUDA(cudaEventCreateWithFlags(&self->fork, cudaEventDisableTiming)));
  ULYX_TRY(ULYX_NCCL(NULL, ncclGetVersion(&self->base.ncclVersion)));
  ULYX_TRY(ulyxWindowsCreate(&self->world, settings->transport != ulyxTransportNccl, &self->windows));
  ULYX_TRY(ulyxMeetingsCreate(&self->world, &self->windows, settings, &self->meetings));
  if (settings->agreePlans && self->world.nRanks > 1) {
    ULYX_TRY(ulyxLabelsCreate(self->world.nRanks, self->world.rank, &self->labels));
  }
  ULYX_TRY(settle(self, settings));
  ULYX_TRY(reserveOnDevice(self, settings->arenaBytes));
  if (!self->windows.reachable) return ulyxSuccess;
  ULYX_TRY(createEngines(self, settings));
  return warmEngines(self);
}

ulyxResult_t ulyxGpuCreate(const ulyxSettings* settings, ncclComm_t comm, ulyxTransport** transport) {
  void* memory = NULL;
  ulyxResult_t result = ulyxAllocate(&memory, 1, sizeof(ulyxGpu), "a rank on a GPU");
  if (result != ulyxSuccess) {
    (void)ncclCommDestroy(comm);
    return result;
  }
  ulyxGpu* const self = memory;
  ULYX_TRY_GOTO(ulyxNcclWorldCreate(comm, settings->timeoutMs, &self->world), freeSelf);
  self->base = (ulyxTransport){
      .ops = &gpuOps, .rank = self->world.rank, .nRanks = self->world.nRanks, .device = self->world.device};
  ulyxGuardOwner owner = {self, NULL, tell, settleDown, explain};
  ulyxGuardSetOwner(&self->world.guard, owner);
  ULYX_TRY_GOTO(setUp(self, settings), destroyDevice);
  owner.reported = reported; /* devices report exchanges, of which there was none, in what has just been made */
  ulyxGuardSetOwner(&self->world.guard, owner);
  *transport = &self->base;
  return ulyxSuccess;

destroyDevice:
  ulyxUndoBegin();
  (void)destroyOnDevice(self);
  ulyxUndoEnd();
freeSelf:
  free(self);
  return result;
}
