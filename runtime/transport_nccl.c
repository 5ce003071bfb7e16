/* SPDX-License-Identifier: MIT
 *
 * One exchange over NCCL: one kernel packs what is not already a message into the arena, sends and receives go
 * in one group, one kernel unpacks what is not already in place. A rank's own copies never go through the
 * wire: small ones ride with the pack kernel, large ones run on a stream of our own while the wire works.
 * Where ranks compare labels, these go ahead of the messages, and all else stands between writing and comparing.
 *
 * Order on the caller's stream: [previous exchange's end] label, pack, fork, groups, unpack, join, compare. */
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

typedef ulyxResult_t (*Post)(const ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxMessage* message,
                             ncclComm_t comm);

static ulyxResult_t sendMessage(const ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxMessage* message,
                                ncclComm_t comm) {
  const char* data = inPlace(gpu, message, exchange->src);
  if (data == NULL) data = gpu->arena->data + message->arenaOffset;
  return ULYX_NCCL(comm, ncclSend(data, (size_t)message->bytes, ncclUint8, message->peer, comm, exchange->stream));
}

static ulyxResult_t receiveMessage(const ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxMessage* message,
                                   ncclComm_t comm) {
  char* data = inPlace(gpu, message, exchange->dst);
  if (data == NULL) data = gpu->arena->data + message->arenaOffset;
  return ULYX_NCCL(comm, ncclRecv(data, (size_t)message->bytes, ncclUint8, message->peer, comm, exchange->stream));
}

/* Of the messages of a pair the first alone has one. */
static ulyxResult_t sendLabel(const ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxMessage* message,
                              ncclComm_t comm) {
  const ulyxLabel* const own = &gpu->labels.device[ULYX_LABEL_OWN];
  if (!message->isFirst) return ulyxSuccess;
  return ULYX_NCCL(comm, ncclSend(own, sizeof *own, ncclUint8, message->peer, comm, exchange->stream));
}

static ulyxResult_t receiveLabel(const ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxMessage* message,
                                 ncclComm_t comm) {
  ulyxLabel* const from = &gpu->labels.device[ULYX_LABEL_FROM(message->peer)];
  if (!message->isFirst) return ulyxSuccess;
  return ULYX_NCCL(comm, ncclRecv(from, sizeof *from, ncclUint8, message->peer, comm, exchange->stream));
}

/* Moves `next` past the messages of one group, posting each. */
static ulyxResult_t postGroup(const ulyxGpu* gpu, const ulyxExchange* exchange, Post send, Post receive,
                              ncclComm_t comm, int group, int64_t* nextSend, int64_t* nextRecv) {
  const ulyxWire* const wire = &((const ulyxGpuPrepared*)exchange->prepared)->wire;
  for (; *nextSend < wire->sendCount && wire->sends[*nextSend].group == group; ++*nextSend) {
    ULYX_TRY(send(gpu, exchange, &wire->sends[*nextSend], comm));
  }
  for (; *nextRecv < wire->recvCount && wire->recvs[*nextRecv].group == group; ++*nextRecv) {
    ULYX_TRY(receive(gpu, exchange, &wire->recvs[*nextRecv], comm));
  }
  return ulyxSuccess;
}

static ulyxResult_t postAll(const ulyxGpu* gpu, const ulyxExchange* exchange, Post send, Post receive,
                            ncclComm_t comm) {
  int64_t nextSend = 0, nextRecv = 0;
  const int groups = ((const ulyxGpuPrepared*)exchange->prepared)->wire.groups;
  for (int group = 0; group < groups; ++group) {
    ULYX_TRY(ULYX_NCCL(comm, ncclGroupStart()));
    const ulyxResult_t posted = postGroup(gpu, exchange, send, receive, comm, group, &nextSend, &nextRecv);
    const ncclResult_t ended = ncclGroupEnd(); /* on every path: the group is the thread's */
    if (posted != ulyxSuccess) return posted;
    ULYX_TRY(ulyxNcclResult(comm, ended, "ncclGroupEnd"));
  }
  return ulyxSuccess;
}

/* *sent: another rank may have got something. Labels go in groups of their own: where a pair means different numbers of
 * bytes, NCCL's proxies of a network give up as soon as too many come, with all that is under way; where both send, the
 * one that sends too many has the other's label by then. */
static ulyxResult_t communicate(ulyxGpu* gpu, const ulyxExchange* exchange, bool* sent) {
  ncclComm_t comm = NULL;
  const bool labelled = gpu->labels.device != NULL;
  ULYX_TRY(ulyxGuardEnterToEnqueue(&gpu->world.guard, "an exchange", &comm));
  *sent = true;
  ulyxResult_t result = labelled ? postAll(gpu, exchange, sendLabel, receiveLabel, comm) : ulyxSuccess;
  if (result == ulyxSuccess) result = postAll(gpu, exchange, sendMessage, receiveMessage, comm);
  return ulyxGuardLeave(&gpu->world.guard, result);
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

static ulyxResult_t runForked(ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxWire* wire, int64_t ownBytes,
                              bool* sent) {
  ULYX_TRY(ULYX_CUDA(cudaEventRecord(gpu->fork, exchange->stream)));
  ULYX_TRY(ulyxBranchFork(gpu, &gpu->beside));
  ulyxResult_t result = ulyxSuccess;
  ULYX_TRY_GOTO(communicate(gpu, exchange, sent), joinSide);
  ULYX_TRY_GOTO(copyBeside(gpu, exchange, wire, ownBytes), joinSide);
  ULYX_TRY_GOTO(addUnpack(gpu, exchange, wire), joinSide);
  ULYX_TRY_GOTO(ulyxGpuFlush(gpu, gpu->maxCtas, exchange->stream), joinSide);

joinSide: /* on every path: a capture with an unjoined stream could not be ended */
  ulyxCopyBatchReset(&gpu->batch);
  ulyxKeepFirst(&result, ulyxBranchJoin(&gpu->beside, exchange->stream));
  return result;
}

static ulyxResult_t runInline(ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxWire* wire, bool* sent) {
  ULYX_TRY(communicate(gpu, exchange, sent));
  ULYX_TRY(addUnpack(gpu, exchange, wire));
  return ulyxGpuFlush(gpu, gpu->maxCtas, exchange->stream);
}

static ulyxResult_t run(ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxWire* wire, bool wired, bool* sent) {
  const ulyxPhase* const phase = exchange->phase;
  const int64_t* const own = &phase->sendStart[phase->rank];
  const int64_t ownBytes = ulyxCopiesBytes(phase->copies + own[0], own[1] - own[0]);
  const bool forks = wired && ownBytes >= FORK_BYTES;
  ulyxCopyBatchReset(&gpu->batch);
  ULYX_TRY(addPack(gpu, exchange, wire)); /* first in the batch: the wire waits for it */
  if (!forks) ULYX_TRY(ulyxGpuAddOwn(gpu, exchange, gpu->maxCtas, exchange->stream));
  ULYX_TRY(ulyxGpuFlush(gpu, gpu->maxCtas, exchange->stream));
  if (!wired) return ulyxSuccess;
  return forks ? runForked(gpu, exchange, wire, ownBytes, sent) : runInline(gpu, exchange, wire, sent);
}

ulyxResult_t ulyxNcclCarry(ulyxGpu* gpu, const ulyxExchange* exchange, bool* halfWay) {
  const ulyxWire* const wire = &((const ulyxGpuPrepared*)exchange->prepared)->wire;
  const bool wired = wire->sendCount + wire->recvCount > 0;
  const bool labelled = wired && gpu->labels.device != NULL;
  bool sent = false;
  if (labelled) ULYX_TRY(ulyxLabelsWrite(&gpu->labels, exchange));
  ulyxResult_t result = run(gpu, exchange, wire, wired, &sent);
  const ulyxResult_t compared = labelled ? ulyxLabelsCompare(&gpu->labels, exchange) : ulyxSuccess;
  ulyxKeepFirst(&result, compared);
  *halfWay = result != ulyxSuccess && (sent || compared != ulyxSuccess); /* the next would find it running */
  return result;
}
