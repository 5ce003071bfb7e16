/* SPDX-License-Identifier: MIT
 *
 * A message: the sender records an event after its stream's earlier work and posts where the bytes are. The
 * receiver takes the oldest message from that rank, makes its stream wait for the event, copies, and records a
 * second event, for which the sender's stream waits before its later work. Collectives are messages of their
 * own class, so that they never match a send or a receive. */
#include <stdlib.h>
#include <string.h>

#include "fake_nccl.h"

static const size_t typeBytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

/* ---- Calls ------------------------------------------------------------------------------------------- */

static ncclResult_t checkArguments(ncclComm_t comm, size_t count, ncclDataType_t type, int peer, const char* function) {
  const ncclResult_t result = fakeCheckComm(comm, function);
  if (result != ncclSuccess) return result;
  if (comm->finalized) return fakeRefuse(ncclInvalidUsage, "%s after ncclCommFinalize", function);
  if ((unsigned int)type >= (unsigned int)ncclNumTypes) {
    return fakeRefuse(ncclInvalidArgument, "%s: type %d", function, (int)type);
  }
  if (peer < 0 || peer >= comm->world->nRanks) {
    return fakeRefuse(ncclInvalidArgument, "%s: rank %d names rank %d of %d", function, comm->rank, peer,
                      comm->world->nRanks);
  }
  if (count > SIZE_MAX / typeBytes[type]) return fakeRefuse(ncclInvalidArgument, "%s: %zu elements", function, count);
  return ncclSuccess;
}

/* NCCL's own check (NCCL_CHECK_POINTERS=1): memory of the communicator's device. */
static ncclResult_t checkMemory(ncclComm_t comm, const void* data, size_t bytes, const char* function) {
  if (bytes == 0) return ncclSuccess;
  if (data == NULL) return fakeRefuse(ncclInvalidArgument, "%s: NULL with %zu bytes", function, bytes);
  struct cudaPointerAttributes attributes;
  fakeQuietBegin();
  const cudaError_t error = cudaPointerGetAttributes(&attributes, data);
  fakeQuietEnd();
  if (error != cudaSuccess || attributes.devicePointer == NULL) {
    return fakeRefuse(ncclInvalidArgument, "%s: rank %d: %p is not memory that a GPU can reach", function, comm->rank,
                      data);
  }
  if (attributes.type == cudaMemoryTypeDevice && attributes.device != comm->device) {
    return fakeRefuse(ncclInvalidArgument, "%s: rank %d is on device %d, %p on device %d", function, comm->rank,
                      comm->device, data, attributes.device);
  }
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  FAKE_NCCL_GROUPED(ncclSystemError);
  ncclResult_t result = checkArguments(comm, count, type, peer, __func__);
  if (result == ncclSuccess) result = checkMemory(comm, data, count * typeBytes[type], __func__);
  if (result != ncclSuccess) return fakeGroupFail(result);
  const fakeOp op = {.kind = FAKE_OP_SEND,
                     .operation = __func__,
                     .comm = comm,
                     .source = data,
                     .bytes = count * typeBytes[type],
                     .type = type,
                     .peer = peer,
                     .stream = stream};
  return fakeGroupAdd(&op);
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  FAKE_NCCL_GROUPED(ncclSystemError);
  ncclResult_t result = checkArguments(comm, count, type, peer, __func__);
  if (result == ncclSuccess) result = checkMemory(comm, data, count * typeBytes[type], __func__);
  if (result != ncclSuccess) return fakeGroupFail(result);
  const fakeOp op = {.kind = FAKE_OP_RECV,
                     .operation = __func__,
                     .comm = comm,
                     .data = data,
                     .bytes = count * typeBytes[type],
                     .type = type,
                     .peer = peer,
                     .stream = stream};
  return fakeGroupAdd(&op);
}

static void addCollectiveSends(fakeOp op) {
  op.kind = FAKE_OP_SEND;
  for (op.peer = 0; op.peer < op.comm->world->nRanks; op.peer++) {
    if (op.peer != op.comm->rank) fakeGroupAdd(&op);
  }
}

static void addCollectiveReceive(fakeOp op, int from, void* data) {
  op.kind = FAKE_OP_RECV;
  op.peer = from;
  op.data = data;
  fakeGroupAdd(&op);
}

static void addOwnCopy(fakeOp op, void* data) {
  op.kind = FAKE_OP_COPY;
  op.data = data;
  if (data != op.source) fakeGroupAdd(&op);
}

ncclResult_t ncclAllGather(const void* source, void* data, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  FAKE_NCCL_GROUPED(ncclSystemError);
  ncclResult_t result = checkArguments(comm, count, type, 0, __func__);
  if (result == ncclSuccess) result = checkMemory(comm, source, count * typeBytes[type], __func__);
  if (result == ncclSuccess) result = checkMemory(comm, data, count * typeBytes[type], __func__);
  if (result != ncclSuccess) return fakeGroupFail(result);
  fakeCount(FAKE_COUNTER(collectives), 1);
  if (count == 0) return ncclSuccess;
  const fakeOp op = {.operation = __func__,
                     .comm = comm,
                     .source = source,
                     .bytes = count * typeBytes[type],
                     .type = type,
                     .collective = true,
                     .stream = stream};
  fakeGroupBegin();
  addCollectiveSends(op);
  for (int rank = 0; rank < comm->world->nRanks; rank++) {
    char* slice = (char*)data + (size_t)rank * op.bytes;
    if (rank == comm->rank) {
      addOwnCopy(op, slice);
    } else {
      addCollectiveReceive(op, rank, slice);
    }
  }
  return fakeGroupFinish();
}

ncclResult_t ncclBroadcast(const void* source, void* data, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  FAKE_NCCL_GROUPED(ncclSystemError);
  ncclResult_t result = checkArguments(comm, count, type, root, __func__);
  if (result == ncclSuccess && comm->rank == root) {
    result = checkMemory(comm, source, count * typeBytes[type], __func__);
  }
  if (result == ncclSuccess) result = checkMemory(comm, data, count * typeBytes[type], __func__);
  if (result != ncclSuccess) return fakeGroupFail(result);
  fakeCount(FAKE_COUNTER(collectives), 1);
  if (count == 0) return ncclSuccess;
  const fakeOp op = {.operation = __func__,
                     .comm = comm,
                     .source = source,
                     .bytes = count * typeBytes[type],
                     .type = type,
                     .collective = true,
                     .stream = stream};
  fakeGroupBegin();
  if (comm->rank == root) {
    addCollectiveSends(op);
    addOwnCopy(op, data);
  } else {
    addCollectiveReceive(op, root, data);
  }
  return fakeGroupFinish();
}

/* ---- Work on streams --------------------------------------------------------------------------------- */

/* Between the two, the communicator's device is current and calls are the fake's own. */
static int enterDevice(ncclComm_t comm) {
  int before = comm->device;
  fakeQuietBegin();
  cudaGetDevice(&before);
  cudaSetDevice(comm->device);
  return before;
}

static void leaveDevice(int before) {
  cudaSetDevice(before);
  fakeQuietEnd();
}

static ncclResult_t judge(cudaError_t error, const fakeOp* op) {
  if (error == cudaSuccess) return ncclSuccess;
  return fakeRefuse(ncclUnhandledCudaError, "%s: rank %d: %s", op->operation, op->comm->rank,
                    cudaGetErrorString(error));
}

/* A new event after the stream's work so far; NULL if it cannot be had. */
static cudaError_t mark(cudaStream_t stream, cudaEvent_t* event) {
  cudaError_t error = cudaEventCreateWithFlags(event, cudaEventDisableTiming);
  if (error != cudaSuccess) return error;
  error = cudaEventRecord(*event, stream);
  if (error == cudaSuccess) return cudaSuccess;
  cudaEventDestroy(*event);
  *event = NULL;
  return error;
}

ncclResult_t fakeCopyComplete(fakeOp* op) {
  const int before = enterDevice(op->comm);
  const cudaError_t error = cudaMemcpyAsync(op->data, op->source, op->bytes, cudaMemcpyDefault, op->stream);
  leaveDevice(before);
  return judge(error, op);
}

static void appendMessage(fakeWorld* world, fakeMessage* message) {
  fakeMessage** link = &world->messages;
  while (*link != NULL) link = &(*link)->next;
  *link = message;
}

static void unlinkMessage(fakeWorld* world, const fakeMessage* message) {
  fakeMessage** link = &world->messages;
  while (*link != message) link = &(*link)->next;
  *link = message->next;
}

ncclResult_t fakeSendPost(fakeOp* op) {
  fakeMessage* message = calloc(1, sizeof *message);
  if (message == NULL) return ncclSystemError;
  message->operation = op->operation;
  message->src = op->comm->rank;
  message->dst = op->peer;
  message->type = op->type;
  message->data = op->source;
  message->bytes = op->bytes;
  message->collective = op->collective;
  const int before = enterDevice(op->comm);
  const cudaError_t error = mark(op->stream, &message->ready);
  leaveDevice(before);
  if (error != cudaSuccess) {
    free(message);
    return judge(error, op);
  }
  op->message = message;
  fakeLock();
  appendMessage(op->comm->world, message);
  fakeWakeAll();
  fakeUnlock();
  return ncclSuccess;
}

static fakeMessage* oldestFor(const fakeOp* op) {
  for (fakeMessage* message = op->comm->world->messages; message != NULL; message = message->next) {
    if (message->src == op->peer && message->dst == op->comm->rank && message->collective == op->collective &&
        !message->taken) {
      return message;
    }
  }
  return NULL;
}

static ncclResult_t takeMessage(fakeOp* op, int64_t deadline) {
  while ((op->message = oldestFor(op)) == NULL) {
    if (fakeWaitChange(op->comm, deadline)) continue;
    if (op->comm->aborted) return fakeRefuse(ncclInternalError, "rank %d was aborted", op->comm->rank);
    if ((op->message = oldestFor(op)) != NULL) break;
    return fakeRefuse(ncclSystemError, "rank %d waited %d ms for %zu bytes (%s) from rank %d", op->comm->rank,
                      fakeDeadlineMs(), op->bytes, op->operation, op->peer);
  }
  op->message->taken = true;
  return ncclSuccess;
}

static bool matches(const fakeOp* op) {
  const fakeMessage* message = op->message;
  return message->bytes == op->bytes && message->type == op->type &&
         (!op->collective || strcmp(message->operation, op->operation) == 0);
}

/* The rest of a receive: from here on its sender waits without a deadline, so it always ends. */
static ncclResult_t copyMessage(fakeOp* op, cudaEvent_t* consumed) {
  const fakeMessage* message = op->message;
  if (!matches(op)) {
    return fakeRefuse(ncclInvalidUsage,
                      "rank %d sends %zu bytes of type %d (%s) to rank %d, which expects %zu of type %d (%s)", op->peer,
                      message->bytes, (int)message->type, message->operation, op->comm->rank, op->bytes, (int)op->type,
                      op->operation);
  }
  const int before = enterDevice(op->comm);
  cudaError_t error = cudaStreamWaitEvent(op->stream, message->ready, 0);
  if (error == cudaSuccess && op->bytes > 0 && !op->undefined) {
    error = cudaMemcpyAsync(op->data, message->data, op->bytes, cudaMemcpyDefault, op->stream);
  }
  if (error == cudaSuccess) error = mark(op->stream, consumed);
  leaveDevice(before);
  return judge(error, op);
}

ncclResult_t fakeRecvComplete(fakeOp* op, int64_t deadline) {
  fakeLock();
  ncclResult_t result = takeMessage(op, deadline);
  fakeUnlock();
  if (result != ncclSuccess) return result;
  cudaEvent_t consumed = NULL;
  result = copyMessage(op, &consumed);
  fakeLock();
  op->message->consumed = consumed;
  op->message->done = true;
  fakeWakeAll();
  fakeUnlock();
  return result;
}

ncclResult_t fakeSendComplete(fakeOp* op, int64_t deadline) {
  fakeMessage* message = op->message;
  if (message == NULL) return ncclSuccess;
  ncclResult_t result = ncclSuccess;
  fakeLock();
  while (!message->done) {
    if (message->taken) {
      fakeWaitPatiently();
      continue;
    }
    if (fakeWaitChange(op->comm, deadline) || message->taken) continue;
    result = op->comm->aborted
                 ? fakeRefuse(ncclInternalError, "rank %d was aborted", op->comm->rank)
                 : fakeRefuse(ncclSystemError, "rank %d waited %d ms for rank %d to receive %zu bytes (%s)",
                              op->comm->rank, fakeDeadlineMs(), op->peer, message->bytes, op->operation);
    break;
  }
  unlinkMessage(op->comm->world, message);
  fakeUnlock();
  const int before = enterDevice(op->comm);
  cudaError_t error = cudaSuccess;
  if (message->consumed != NULL) {
    error = cudaStreamWaitEvent(op->stream, message->consumed, 0);
    cudaEventDestroy(message->consumed);
  }
  cudaEventDestroy(message->ready);
  leaveDevice(before);
  free(message);
  return result != ncclSuccess ? result : judge(error, op);
}
