/* SPDX-License-Identifier: MIT
 *
 * One exchange over NCCL: one kernel packs what is not already a message into the arena, sends and receives go
 * in one group, one kernel unpacks what is not already in place. A rank's own copies never go through the
 * wire: small ones ride with the pack kernel, large ones run on a stream of our own while the wire works.
 * The first message of a pair is its label, where ranks compare them.
 *
 * Order on the caller's stream: [previous exchange's end] label, pack, fork, group, compare, unpack, join. */
#include "check.h"
#include "gpu.h"

/* Below this, own copies add less to the pack kernel than a fork and a join cost. */
#define FORK_BYTES (INT64_C(4) << 20)

/* Thread blocks that copy within the device as fast as NVLink 4 brings bytes: 32 were measured at 490 GB/s. */
#define CTAS_AT_WIRE_SPEED 32

/* The tensor's own memory where it holds the message's image and may go on the wire, else NULL. */
static char* inPlace(const ulyxGpu* gpu, const ulyxMessage* message, void* const* buffers) {
  if (message->buffer < 0) return NULL;
  char* const data = (char*)buffers[message->buffer] + message->bufferOffset;
  return ulyxGpuArenaOf(gpu, data, message->bytes) != NULL ? data : NULL;
}

/* Packs what cannot be sent from where it lies. */
static ulyxResult_t addPack(ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxWire* wire) {
  for (int64_t i = 0; i < wire->sendCount; ++i) {
    const ulyxMessage* const message = &wire->sends[i];
    if (inPlace(gpu, message, exchange->src) != NULL) continue;
    for (int64_t c = message->firstCopy; c < message->firstCopy + message->copyCount; ++c) {
      const ulyxCopy* const copy = &exchange->phase->copies[c];
      const ulyxWirePlace place = wire->places[c];
      const ulyxStrip strip = {.src = ulyxAt(exchange->src[copy->srcBuffer], copy->srcOffset),
                               .dst = ulyxAt(gpu->arena->data, message->arenaOffset + place.offset),
                               .rows = copy->rows,
                               .rowBytes = copy->rowBytes,
                               .srcPitch = copy->srcPitch,
                               .dstPitch = place.pitch};
      ULYX_TRY(ulyxGpuAddStrip(gpu, strip, gpu->maxCtas, exchange->stream));
    }
  }
  return ulyxSuccess;
}

/* Unpacks what was not received where it belongs. */
static ulyxResult_t addUnpack(ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxWire* wire) {
  for (int64_t i = 0; i < wire->recvCount; ++i) {
    const ulyxMessage* const message = &wire->recvs[i];
    if (inPlace(gpu, message, exchange->dst) != NULL) continue;
    for (int64_t c = message->firstCopy; c < message->firstCopy + message->copyCount; ++c) {
      const ulyxCopy* const copy = &exchange->phase->copies[c];
      const ulyxWirePlace place = wire->places[c];
      const ulyxStrip strip = {.src = ulyxAt(gpu->arena->data, message->arenaOffset + place.offset),
                               .dst = ulyxAt(exchange->dst[copy->dstBuffer], copy->dstOffset),
                               .rows = copy->rows,
                               .rowBytes = copy->rowBytes,
                               .srcPitch = place.pitch,
                               .dstPitch = copy->dstPitch};
      ULYX_TRY(ulyxGpuAddStrip(gpu, strip, gpu->maxCtas, exchange->stream));
    }
  }
  return ulyxSuccess;
}

static bool isFirstOfPair(const ulyxMessage* messages, int64_t index) {
  return index == 0 || messages[index - 1].peer != messages[index].peer;
}

static ulyxResult_t sendLabel(const ulyxGpu* gpu, ncclComm_t comm, int peer, cudaStream_t stream) {
  const ulyxLabel* const own = &gpu->labels.device[ULYX_LABEL_OWN];
  return ULYX_NCCL(comm, ncclSend(own, sizeof *own, ncclUint8, peer, comm, stream));
}

static ulyxResult_t receiveLabel(const ulyxGpu* gpu, ncclComm_t comm, int peer, cudaStream_t stream) {
  ulyxLabel* const from = &gpu->labels.device[ULYX_LABEL_FROM(peer)];
  return ULYX_NCCL(comm, ncclRecv(from, sizeof *from, ncclUint8, peer, comm, stream));
}

/* Moves `next` past the messages of one group, posting each. */
static ulyxResult_t postGroup(ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxWire* wire, ncclComm_t comm,
                              int group, int64_t* nextSend, int64_t* nextRecv) {
  const bool labelled = gpu->labels.device != NULL;
  for (; *nextSend < wire->sendCount && wire->sends[*nextSend].group == group; ++*nextSend) {
    const ulyxMessage* const message = &wire->sends[*nextSend];
    if (labelled && isFirstOfPair(wire->sends, *nextSend)) {
      ULYX_TRY(sendLabel(gpu, comm, message->peer, exchange->stream));
    }
    const char* data = inPlace(gpu, message, exchange->src);
    if (data == NULL) data = gpu->arena->data + message->arenaOffset;
    ULYX_TRY(ULYX_NCCL(comm, ncclSend(data, (size_t)message->bytes, ncclUint8, message->peer, comm, exchange->stream)));
  }
  for (; *nextRecv < wire->recvCount && wire->recvs[*nextRecv].group == group; ++*nextRecv) {
    const ulyxMessage* const message = &wire->recvs[*nextRecv];
    if (labelled && isFirstOfPair(wire->recvs, *nextRecv)) {
      ULYX_TRY(receiveLabel(gpu, comm, message->peer, exchange->stream));
    }
    char* data = inPlace(gpu, message, exchange->dst);
    if (data == NULL) data = gpu->arena->data + message->arenaOffset;
    ULYX_TRY(ULYX_NCCL(comm, ncclRecv(data, (size_t)message->bytes, ncclUint8, message->peer, comm, exchange->stream)));
  }
  return ulyxSuccess;
}

static ulyxResult_t postAll(ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxWire* wire, ncclComm_t comm) {
  int64_t nextSend = 0, nextRecv = 0;
  for (int group = 0; group < wire->groups; ++group) {
    ULYX_TRY(ULYX_NCCL(comm, ncclGroupStart()));
    const ulyxResult_t posted = postGroup(gpu, exchange, wire, comm, group, &nextSend, &nextRecv);
    const ncclResult_t ended = ncclGroupEnd(); /* on every path: the group is the thread's */
    if (posted != ulyxSuccess) return posted;
    ULYX_TRY(ulyxNcclResult(comm, ended, "ncclGroupEnd"));
  }
  return ulyxSuccess;
}

static ulyxResult_t communicate(ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxWire* wire) {
  ncclComm_t comm = NULL;
  ULYX_TRY(ulyxGuardEnterToEnqueue(&gpu->world.guard, "an exchange", &comm));
  ULYX_TRY(ulyxGuardLeave(&gpu->world.guard, postAll(gpu, exchange, wire, comm)));
  return gpu->labels.device != NULL && wire->recvCount > 0 ? ulyxLabelsCompare(&gpu->labels, exchange) : ulyxSuccess;
}

static int64_t messageBytes(const ulyxMessage* messages, int64_t count) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < count; ++i) bytes += messages[i].bytes;
  return bytes;
}

/* Own copies on our own stream, after what the fork event saw. They get the blocks they need to end with the
 * wire: more would take multiprocessors and memory from NCCL's kernel for nothing. */
static ulyxResult_t copyBeside(ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxWire* wire, int64_t ownBytes) {
  const cudaStream_t side = gpu->beside.stream;
  const int64_t wireBytes =
      ulyxMax64(messageBytes(wire->sends, wire->sendCount), messageBytes(wire->recvs, wire->recvCount));
  const int64_t needed = ulyxMax64(1, ownBytes / ulyxMax64(1, wireBytes / CTAS_AT_WIRE_SPEED) + 1);
  const int ctas = (int)ulyxMin64(gpu->besideCtas, needed);
  gpu->batch.streaming = 1; /* what was packed stays in the cache for NCCL's kernel */
  ULYX_TRY(ulyxGpuAddOwn(gpu, exchange, ctas, side));
  ULYX_TRY(ulyxGpuFlush(gpu, ctas, side));
  gpu->batch.streaming = 0;
  return ulyxSuccess;
}

static ulyxResult_t runForked(ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxWire* wire, int64_t ownBytes) {
  ULYX_TRY(ULYX_CUDA(cudaEventRecord(gpu->fork, exchange->stream)));
  ULYX_TRY(ulyxBranchFork(gpu, &gpu->beside));
  ulyxResult_t result = ulyxSuccess;
  ULYX_TRY_GOTO(communicate(gpu, exchange, wire), joinSide);
  ULYX_TRY_GOTO(copyBeside(gpu, exchange, wire, ownBytes), joinSide);
  ULYX_TRY_GOTO(addUnpack(gpu, exchange, wire), joinSide);
  ULYX_TRY_GOTO(ulyxGpuFlush(gpu, gpu->maxCtas, exchange->stream), joinSide);

joinSide: /* on every path: a capture with an unjoined stream could not be ended */
  ulyxCopyBatchReset(&gpu->batch);
  ulyxKeepFirst(&result, ulyxBranchJoin(&gpu->beside, exchange->stream));
  return result;
}

static ulyxResult_t runInline(ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxWire* wire) {
  ULYX_TRY(communicate(gpu, exchange, wire));
  ULYX_TRY(addUnpack(gpu, exchange, wire));
  return ulyxGpuFlush(gpu, gpu->maxCtas, exchange->stream);
}

ulyxResult_t ulyxNcclCarry(ulyxGpu* gpu, const ulyxExchange* exchange) {
  const ulyxWire* const wire = &((const ulyxGpuPrepared*)exchange->prepared)->wire;
  const ulyxPhase* const phase = exchange->phase;
  const int64_t* const own = &phase->sendStart[phase->rank];
  const bool wired = wire->sendCount + wire->recvCount > 0;
  const int64_t ownBytes = ulyxCopiesBytes(phase->copies + own[0], own[1] - own[0]);
  const bool forks = wired && ownBytes >= FORK_BYTES;
  ulyxCopyBatchReset(&gpu->batch);
  if (wired && gpu->labels.device != NULL) ULYX_TRY(ulyxLabelsWrite(&gpu->labels, exchange));
  ULYX_TRY(addPack(gpu, exchange, wire)); /* first in the batch: the wire waits for it */
  if (!forks) ULYX_TRY(ulyxGpuAddOwn(gpu, exchange, gpu->maxCtas, exchange->stream));
  ULYX_TRY(ulyxGpuFlush(gpu, gpu->maxCtas, exchange->stream));
  if (!wired) return ulyxSuccess;
  return forks ? runForked(gpu, exchange, wire, ownBytes) : runInline(gpu, exchange, wire);
}
