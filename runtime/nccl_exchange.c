/* SPDX-License-Identifier: MIT
 *
 * One exchange over NCCL: one kernel packs what is not already a message into the arena, sends and receives go
 * in one group, one kernel unpacks what is not already in place. A rank's own copies never go through the
 * wire: small ones ride with the pack kernel, large ones run on a stream of our own while the wire works.
 *
 * Order on the caller's stream: [previous exchange's end] pack, fork, group, unpack, join. */
#include <string.h>

#include "chain.h"
#include "check.h"
#include "copy_batch.h"
#include "kernels.h"
#include "sum.h"
#include "transport_nccl.h"

/* Below this, own copies add less to the pack kernel than a fork and a join cost. */
#define FORK_BYTES (INT64_C(4) << 20)

/* Thread blocks that copy within the device as fast as NVLink 4 brings bytes: 32 were measured at 490 GB/s. */
#define CTAS_AT_WIRE_SPEED 32

static bool isRegistered(const ulyxNccl* self, const void* data, int64_t bytes) {
  if (ulyxArenaHolds(self->arena, data, bytes)) return true; /* scratch */
  for (const ulyxArena* block = self->blocks; block != NULL; block = block->next) {
    if (ulyxArenaHolds(block, data, bytes)) return true;
  }
  return false;
}

/* The tensor's own memory where it holds the message's image and may go on the wire, else NULL. */
static char* inPlace(const ulyxNccl* self, const ulyxMessage* message, void* const* buffers) {
  if (message->buffer < 0) return NULL;
  char* const data = (char*)buffers[message->buffer] + message->bufferOffset;
  return isRegistered(self, data, message->bytes) ? data : NULL;
}

static ulyxResult_t flush(ulyxNccl* self, int ctas, cudaStream_t stream) {
  const cudaError_t error = ulyxLaunchCopies(&self->batch, ctas, stream);
  const uint32_t streaming = self->batch.streaming;
  ulyxCopyBatchReset(&self->batch);
  self->batch.streaming = streaming;
  return ulyxCudaResult(error, "launch of the copy kernel");
}

static ulyxResult_t addStrip(ulyxNccl* self, ulyxStrip strip, int ctas, cudaStream_t stream) {
  while (strip.rows > 0) {
    if (ulyxCopyBatchIsFull(&self->batch)) ULYX_TRY(flush(self, ctas, stream));
    ulyxCopyBatchTake(&self->batch, &strip);
  }
  return ulyxSuccess;
}

static unsigned char* at(void* base, int64_t offset) {
  return (unsigned char*)base + offset;
}

/* Packs what cannot be sent from where it lies. */
static ulyxResult_t addPack(ulyxNccl* self, const ulyxExchange* exchange, const ulyxWire* wire) {
  for (int64_t i = 0; i < wire->sendCount; ++i) {
    const ulyxMessage* const message = &wire->sends[i];
    if (inPlace(self, message, exchange->src) != NULL) continue;
    for (int64_t c = message->firstCopy; c < message->firstCopy + message->copyCount; ++c) {
      const ulyxCopy* const copy = &exchange->phase->copies[c];
      const ulyxWirePlace place = wire->places[c];
      const ulyxStrip strip = {.src = at(exchange->src[copy->srcBuffer], copy->srcOffset),
                               .dst = at(self->arena->data, message->arenaOffset + place.offset),
                               .rows = copy->rows,
                               .rowBytes = copy->rowBytes,
                               .srcPitch = copy->srcPitch,
                               .dstPitch = place.pitch};
      ULYX_TRY(addStrip(self, strip, self->maxCtas, exchange->stream));
    }
  }
  return ulyxSuccess;
}

/* Unpacks what was not received where it belongs. */
static ulyxResult_t addUnpack(ulyxNccl* self, const ulyxExchange* exchange, const ulyxWire* wire) {
  for (int64_t i = 0; i < wire->recvCount; ++i) {
    const ulyxMessage* const message = &wire->recvs[i];
    if (inPlace(self, message, exchange->dst) != NULL) continue;
    for (int64_t c = message->firstCopy; c < message->firstCopy + message->copyCount; ++c) {
      const ulyxCopy* const copy = &exchange->phase->copies[c];
      const ulyxWirePlace place = wire->places[c];
      const ulyxStrip strip = {.src = at(self->arena->data, message->arenaOffset + place.offset),
                               .dst = at(exchange->dst[copy->dstBuffer], copy->dstOffset),
                               .rows = copy->rows,
                               .rowBytes = copy->rowBytes,
                               .srcPitch = place.pitch,
                               .dstPitch = copy->dstPitch};
      ULYX_TRY(addStrip(self, strip, self->maxCtas, exchange->stream));
    }
  }
  return ulyxSuccess;
}

static ulyxResult_t addOwn(ulyxNccl* self, const ulyxExchange* exchange, int ctas, cudaStream_t stream) {
  const ulyxPhase* const phase = exchange->phase;
  for (int64_t c = phase->sendStart[phase->rank]; c < phase->sendStart[phase->rank + 1]; ++c) {
    const ulyxCopy* const copy = &phase->copies[c];
    const ulyxStrip strip = {.src = at(exchange->src[copy->srcBuffer], copy->srcOffset),
                             .dst = at(exchange->dst[copy->dstBuffer], copy->dstOffset),
                             .rows = copy->rows,
                             .rowBytes = copy->rowBytes,
                             .srcPitch = copy->srcPitch,
                             .dstPitch = copy->dstPitch};
    ULYX_TRY(addStrip(self, strip, ctas, stream));
  }
  return ulyxSuccess;
}

/* Moves `next` past the messages of one group, posting each. */
static ulyxResult_t postGroup(ulyxNccl* self, const ulyxExchange* exchange, const ulyxWire* wire, int group,
                              int64_t* nextSend, int64_t* nextRecv) {
  const ncclComm_t comm = self->world.comm;
  for (; *nextSend < wire->sendCount && wire->sends[*nextSend].group == group; ++*nextSend) {
    const ulyxMessage* const message = &wire->sends[*nextSend];
    const char* data = inPlace(self, message, exchange->src);
    if (data == NULL) data = self->arena->data + message->arenaOffset;
    ULYX_TRY(ULYX_NCCL(comm, ncclSend(data, (size_t)message->bytes, ncclUint8, message->peer, comm, exchange->stream)));
  }
  for (; *nextRecv < wire->recvCount && wire->recvs[*nextRecv].group == group; ++*nextRecv) {
    const ulyxMessage* const message = &wire->recvs[*nextRecv];
    char* data = inPlace(self, message, exchange->dst);
    if (data == NULL) data = self->arena->data + message->arenaOffset;
    ULYX_TRY(ULYX_NCCL(comm, ncclRecv(data, (size_t)message->bytes, ncclUint8, message->peer, comm, exchange->stream)));
  }
  return ulyxSuccess;
}

static ulyxResult_t communicate(ulyxNccl* self, const ulyxExchange* exchange, const ulyxWire* wire) {
  int64_t nextSend = 0, nextRecv = 0;
  for (int group = 0; group < wire->groups; ++group) {
    ULYX_TRY(ULYX_NCCL(self->world.comm, ncclGroupStart()));
    const ulyxResult_t posted = postGroup(self, exchange, wire, group, &nextSend, &nextRecv);
    const ncclResult_t ended = ncclGroupEnd(); /* on every path: the group is the thread's */
    if (posted != ulyxSuccess) return posted;
    ULYX_TRY(ulyxNcclResult(self->world.comm, ended, "ncclGroupEnd"));
  }
  return ulyxSuccess;
}

static int64_t messageBytes(const ulyxMessage* messages, int64_t count) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < count; ++i) bytes += messages[i].bytes;
  return bytes;
}

/* Own copies on our own stream, after what the fork event saw. They get the blocks they need to end with the
 * wire: more would take multiprocessors and memory from NCCL's kernel for nothing. */
static ulyxResult_t copyBeside(ulyxNccl* self, const ulyxExchange* exchange, const ulyxWire* wire, int64_t ownBytes) {
  const cudaStream_t side = self->beside;
  const int64_t wireBytes =
      ulyxMax64(messageBytes(wire->sends, wire->sendCount), messageBytes(wire->recvs, wire->recvCount));
  const int64_t needed = ulyxMax64(1, ownBytes / ulyxMax64(1, wireBytes / CTAS_AT_WIRE_SPEED) + 1);
  const int ctas = (int)ulyxMin64(self->besideCtas, needed);
  self->batch.streaming = 1; /* what was packed stays in the cache for NCCL's kernel */
  ULYX_TRY(addOwn(self, exchange, ctas, side));
  ULYX_TRY(flush(self, ctas, side));
  self->batch.streaming = 0;
  return ulyxSuccess;
}

static ulyxResult_t runForked(ulyxNccl* self, const ulyxExchange* exchange, const ulyxWire* wire, int64_t ownBytes) {
  const cudaStream_t side = self->beside;
  ULYX_TRY(ULYX_CUDA(cudaEventRecord(self->fork, exchange->stream)));
  ULYX_TRY(ULYX_CUDA(cudaStreamWaitEvent(side, self->fork, 0)));
  ulyxResult_t result = ulyxSuccess;
  ULYX_TRY_GOTO(communicate(self, exchange, wire), joinSide);
  ULYX_TRY_GOTO(copyBeside(self, exchange, wire, ownBytes), joinSide);
  ULYX_TRY_GOTO(addUnpack(self, exchange, wire), joinSide);
  ULYX_TRY_GOTO(flush(self, self->maxCtas, exchange->stream), joinSide);

joinSide: /* on every path: a capture with an unjoined stream could not be ended */
  ulyxCopyBatchReset(&self->batch);
  const cudaError_t recorded = cudaEventRecord(self->join, side);
  const cudaError_t joined = recorded != cudaSuccess ? recorded : cudaStreamWaitEvent(exchange->stream, self->join, 0);
  return result != ulyxSuccess ? result : ulyxCudaResult(joined, "join of the own-rank copies");
}

static ulyxResult_t runInline(ulyxNccl* self, const ulyxExchange* exchange, const ulyxWire* wire) {
  ULYX_TRY(communicate(self, exchange, wire));
  ULYX_TRY(addUnpack(self, exchange, wire));
  return flush(self, self->maxCtas, exchange->stream);
}

static ulyxResult_t move(ulyxNccl* self, const ulyxExchange* exchange, const ulyxWire* wire) {
  const ulyxPhase* const phase = exchange->phase;
  const int64_t* const own = &phase->sendStart[phase->rank];
  const bool wired = wire->sendCount + wire->recvCount > 0;
  const int64_t ownBytes = ulyxCopiesBytes(phase->copies + own[0], own[1] - own[0]);
  const bool forks = wired && ownBytes >= FORK_BYTES;
  ulyxCopyBatchReset(&self->batch);
  ULYX_TRY(addPack(self, exchange, wire)); /* first in the batch: the wire waits for it */
  if (!forks) ULYX_TRY(addOwn(self, exchange, self->maxCtas, exchange->stream));
  ULYX_TRY(flush(self, self->maxCtas, exchange->stream));
  if (!wired) return ulyxSuccess;
  return forks ? runForked(self, exchange, wire, ownBytes) : runInline(self, exchange, wire);
}

static ulyxResult_t finishSum(ulyxNccl* self, const ulyxExchange* exchange) {
  ulyxSumBatch batch;
  ulyxSumBatchFill(&exchange->phase->after.sum, exchange->src, exchange->dst, &batch);
  return ulyxCudaResult(ulyxLaunchSum(&batch, self->maxCtas, exchange->stream), "launch of the sum kernel");
}

static ulyxResult_t finishChain(const ulyxNccl* self, const ulyxExchange* exchange) {
  ulyxChainArgs args;
  ulyxChainArgsFill(&exchange->phase->after.chain, exchange->src, exchange->dst, &args);
  return ulyxCudaResult(ulyxLaunchChain(&args, self->maxCtas, exchange->stream), "launch of the chain kernel");
}

/* What this rank does by itself once everything has arrived. */
static ulyxResult_t finish(ulyxNccl* self, const ulyxExchange* exchange) {
  switch (exchange->phase->after.kind) {
    case ulyxLocalSum:
      return finishSum(self, exchange);
    case ulyxLocalChain:
      return finishChain(self, exchange);
    case ulyxLocalNothing:
      break;
  }
  return ulyxSuccess;
}

static ulyxResult_t enqueue(ulyxNccl* self, const ulyxExchange* given) {
  const ulyxNcclPrepared* const prepared = given->prepared;
  void* dst[ULYX_ALL_BUFFERS];
  memcpy(dst, given->dst, ULYX_MAX_BUFFERS * sizeof *dst);
  dst[ULYX_SCRATCH] = self->arena->data + prepared->scratchOffset;
  ulyxExchange exchange = *given;
  exchange.dst = dst;
  ULYX_TRY(move(self, &exchange, &prepared->wire));
  return finish(self, &exchange);
}

static ulyxResult_t checkStream(const ulyxNccl* self, ulyxStream_t stream, bool* captured) {
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ULYX_TRY(ULYX_CUDA(cudaStreamIsCapturing(stream, &status)));
  *captured = status != cudaStreamCaptureStatusNone;
#if CUDART_VERSION >= 12080
  int device = self->base.device;
  if (stream != NULL && !*captured) { /* CUDA does not say while capturing */
    ULYX_TRY(ULYX_CUDA(cudaStreamGetDevice(stream, &device)));
  }
  if (device != self->base.device) {
    return ulyxFail(ulyxInvalidArgument, "the stream is on CUDA device %d, the runtime on %d", device,
                    self->base.device);
  }
#endif
  return ulyxSuccess;
}

ulyxResult_t ulyxNcclExchange(ulyxNccl* self, const ulyxExchange* exchange) {
  ulyxNcclWorld* const world = &self->world;
  bool captured = false;
  ULYX_TRY(checkStream(self, exchange->stream, &captured));
  if (!captured && world->doneRecorded) { /* the arena is free once the exchange before has run */
    ULYX_TRY(ULYX_CUDA(cudaStreamWaitEvent(exchange->stream, world->done, 0)));
  }
  ulyxResult_t result = enqueue(self, exchange);
  if (captured) return result;
  /* also of an exchange that failed half-way: what it launched still uses the arena */
  const ulyxResult_t recorded = ULYX_CUDA(cudaEventRecord(world->done, exchange->stream));
  if (recorded == ulyxSuccess) world->doneRecorded = true;
  ulyxKeepFirst(&result, recorded);
  return result;
}
