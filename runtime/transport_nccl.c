/* SPDX-License-Identifier: MIT
 *
 * The nccl transport's object: made over a communicator, owning the staging arena and the memory that
 * ulyxMemAlloc gave. Exchanges are in nccl_exchange.c. */
#include "transport_nccl.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "kernels.h"

/* NCCL's kernel has at most 32 blocks of up to 640 threads in clusters of 4: own copies that run beside it
 * leave this many multiprocessors alone. */
#define SMS_FOR_NCCL 40

static ulyxResult_t run(ulyxTransport* transport, const ulyxExchange* exchange) {
  int previous = 0;
  ULYX_TRY(ulyxDeviceEnter(transport->device, &previous));
  const ulyxResult_t result = ulyxNcclExchange((ulyxNccl*)transport, exchange);
  ulyxDeviceLeave(transport->device, previous);
  return result;
}

static ulyxResult_t prepare(const ulyxPhase* phase, void** prepared, int64_t* arenaBytes) {
  void* memory = NULL;
  ULYX_TRY(ulyxAllocate(&memory, 1, sizeof(ulyxNcclPrepared), "messages"));
  ulyxNcclPrepared* const made = memory;
  const ulyxResult_t result = ulyxWireBuild(phase, &made->wire);
  if (result != ulyxSuccess) {
    free(memory);
    return result;
  }
  made->scratchOffset = made->wire.arenaBytes;
  *prepared = made;
  *arenaBytes = made->scratchOffset + phase->scratchBytes;
  return ulyxSuccess;
}

static void unprepare(void* prepared) {
  if (prepared == NULL) return;
  ulyxWireFree(&((ulyxNcclPrepared*)prepared)->wire);
  free(prepared);
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
  int previous = 0;
  ULYX_TRY(ulyxDeviceEnter(transport->device, &previous));
  const ulyxResult_t result = ulyxNcclWorldGather(&((ulyxNccl*)transport)->world, mine, count, all);
  ulyxDeviceLeave(transport->device, previous);
  return result;
}

static ulyxResult_t memAlloc(ulyxTransport* transport, int64_t bytes, void** data) {
  ulyxNccl* const self = (ulyxNccl*)transport;
  ulyxArena* block = NULL;
  int previous = 0;
  ULYX_TRY(ulyxDeviceEnter(transport->device, &previous));
  const ulyxResult_t result = ulyxArenaCreate(&self->world, bytes, &block);
  ulyxDeviceLeave(transport->device, previous);
  if (result != ulyxSuccess) return result;
  block->next = self->blocks;
  self->blocks = block;
  *data = block->data;
  return ulyxSuccess;
}

static ulyxResult_t memFree(ulyxTransport* transport, void* data) {
  ulyxNccl* const self = (ulyxNccl*)transport;
  ulyxArena** link = &self->blocks;
  while (*link != NULL && (*link)->data != data) link = &(*link)->next;
  ulyxArena* const block = *link;
  if (block == NULL) {
    return ulyxFail(ulyxInvalidArgument, "%p is no memory from ulyxMemAlloc of this runtime", data);
  }
  int previous = 0;
  ULYX_TRY(ulyxDeviceEnter(transport->device, &previous));
  ulyxResult_t result = ulyxNcclWorldDrain(&self->world);
  if (result == ulyxSuccess) {
    *link = block->next;
    result = ulyxArenaDestroy(&self->world, block);
  }
  ulyxDeviceLeave(transport->device, previous);
  return result;
}

/* Arenas are equal on all ranks, so all find alike whether the present one is enough. */
static ulyxResult_t reserveOnDevice(ulyxNccl* self, int64_t bytes) {
  int64_t largest = 0;
  ulyxArena* arena = NULL;
  ULYX_TRY(ulyxNcclWorldLargest(&self->world, bytes, &largest));
  if (self->arena != NULL && self->arena->bytes >= largest) return ulyxSuccess;
  ULYX_TRY(ulyxNcclWorldDrain(&self->world));
  ULYX_TRY(ulyxArenaCreate(&self->world, largest, &arena));
  ulyxArena* const old = self->arena;
  self->arena = arena;
  self->base.arenaBytes = arena->bytes;
  return old != NULL ? ulyxArenaDestroy(&self->world, old) : ulyxSuccess;
}

static ulyxResult_t reserve(ulyxTransport* transport, int64_t bytes) {
  int previous = 0;
  ULYX_TRY(ulyxDeviceEnter(transport->device, &previous));
  const ulyxResult_t result = reserveOnDevice((ulyxNccl*)transport, bytes);
  ulyxDeviceLeave(transport->device, previous);
  return result;
}

static ulyxResult_t destroyOnDevice(ulyxNccl* self) {
  ulyxResult_t result = ulyxSuccess;
  while (self->blocks != NULL) {
    ulyxArena* const block = self->blocks;
    self->blocks = block->next;
    ulyxKeepFirst(&result, ulyxArenaDestroy(&self->world, block));
  }
  if (self->arena != NULL) ulyxKeepFirst(&result, ulyxArenaDestroy(&self->world, self->arena));
  if (self->beside != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaStreamDestroy(self->beside)));
  if (self->join != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaEventDestroy(self->join)));
  if (self->fork != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaEventDestroy(self->fork)));
  ulyxKeepFirst(&result, ulyxNcclWorldDestroy(&self->world));
  return result;
}

/* CUDA has gone: what it owned went with it. */
static void forgetDevice(ulyxNccl* self) {
  while (self->blocks != NULL) {
    ulyxArena* const block = self->blocks;
    self->blocks = block->next;
    free(block);
  }
  free(self->arena);
}

static ulyxResult_t destroy(ulyxTransport* transport) {
  ulyxNccl* const self = (ulyxNccl*)transport;
  ulyxResult_t result = ulyxSuccess;
  int previous = 0;
  const ulyxResult_t entered = ulyxDeviceEnter(transport->device, &previous);
  const cudaError_t drained = cudaDeviceSynchronize(); /* replayed graphs are known to the device alone */
  if (ulyxCudaIsGone(drained)) {
    forgetDevice(self);
  } else { /* also on the wrong device: what can be freed is freed */
    result = destroyOnDevice(self);
    ulyxKeepFirst(&result, entered);
    ulyxKeepFirst(&result, ulyxCudaResult(drained, "cudaDeviceSynchronize"));
    if (entered == ulyxSuccess) ulyxDeviceLeave(transport->device, previous);
  }
  free(self);
  return result;
}

static const ulyxTransportOps ncclOps = {
    .kind = ulyxTransportNccl,
    .prepare = prepare,
    .unprepare = unprepare,
    .run = run,
    .gather = gather,
    .checkMemory = checkMemory,
    .store = store,
    .memAlloc = memAlloc,
    .memFree = memFree,
    .reserve = reserve,
    .destroy = destroy,
};

static ulyxResult_t setUp(ulyxNccl* self, const ulyxSettings* settings) {
  int sms = 0;
  ULYX_TRY(ULYX_CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, self->world.device)));
  const int besideCtas = sms > 2 * SMS_FOR_NCCL ? sms - SMS_FOR_NCCL : sms / 2 + 1;
  self->maxCtas = settings->maxCtas;
  self->besideCtas = self->maxCtas > 0 && self->maxCtas < besideCtas ? self->maxCtas : besideCtas;
  ULYX_TRY(ULYX_CUDA(cudaStreamCreateWithFlags(&self->beside, cudaStreamNonBlocking)));
  ULYX_TRY(ULYX_CUDA(cudaEventCreateWithFlags(&self->fork, cudaEventDisableTiming)));
  ULYX_TRY(ULYX_CUDA(cudaEventCreateWithFlags(&self->join, cudaEventDisableTiming)));
  ULYX_TRY(ULYX_CUDA(ulyxLoadCopies()));
  ULYX_TRY(ULYX_CUDA(ulyxLoadSum()));
  ULYX_TRY(ULYX_CUDA(ulyxLoadChain()));
  ULYX_TRY(ULYX_CUDA(ulyxLoadStore()));
  ULYX_TRY(ULYX_NCCL(self->world.comm, ncclGetVersion(&self->base.ncclVersion)));
  return reserveOnDevice(self, settings->arenaBytes);
}

ulyxResult_t ulyxNcclTransportCreate(const ulyxSettings* settings, ncclComm_t comm, ulyxTransport** transport) {
  void* memory = NULL;
  char message[ULYX_MESSAGE_BYTES];
  ulyxResult_t result = ulyxAllocate(&memory, 1, sizeof(ulyxNccl), "an nccl rank");
  if (result != ulyxSuccess) {
    (void)ncclCommDestroy(comm);
    return result;
  }
  ulyxNccl* const self = memory;
  ULYX_TRY_GOTO(ulyxNcclWorldCreate(comm, &self->world), freeSelf);
  self->base = (ulyxTransport){.ops = &ncclOps,
                               .rank = self->world.rank,
                               .nRanks = self->world.nRanks,
                               .device = self->world.device,
                               .reason = "the ranks have GPUs"};
  ULYX_TRY_GOTO(setUp(self, settings), destroyDevice);
  *transport = &self->base;
  return ulyxSuccess;

destroyDevice:
  strcpy(message, ulyxThreadMessage());
  (void)destroyOnDevice(self);
  (void)ulyxFail(result, "%s", message); /* not what freeing may have said */
freeSelf:
  free(self);
  return result;
}
