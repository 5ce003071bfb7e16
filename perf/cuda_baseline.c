/* SPDX-License-Identifier: MIT
 *
 * What NCCL alone takes for the same remote bytes: registered buffers, one group of sends and receives, no
 * packing and no own bytes. One message a peer, or one a peer and tensor, as a caller without packing would
 * send them. */
#include <stdlib.h>
#include <string.h>

#include "cuda_backend.h"
#include "report.h"

#define MESSAGE_ALIGNMENT 256 /* at its best: no message begins at an odd address */

typedef struct message {
  int peer;
  int64_t offset;
  int64_t bytes;
} message_t;

typedef struct transfer {
  ncclComm_t comm;
  unsigned char* sendBuffer;
  unsigned char* recvBuffer;
  message_t* sends;
  message_t* recvs;
  int nSends;
  int nRecvs;
} transfer_t;

static int64_t aligned(int64_t bytes) {
  return (bytes + MESSAGE_ALIGNMENT - 1) / MESSAGE_ALIGNMENT * MESSAGE_ALIGNMENT;
}

/* Appends what `from` sends to `to` to a list of messages with that peer; returns the offset behind them. */
static int64_t appendMessages(const perfOp_t* op, const perfGeometry_t* from, const perfGeometry_t* to, bool joined,
                              int peer, int64_t offset, message_t* messages, int* count) {
  int64_t bytes[PERF_MAX_TENSORS] = {0, 0, 0};
  int n = op->messageBytes(from, to, bytes);
  if (joined) {
    for (int i = 1; i < n; i++) bytes[0] += bytes[i];
    n = 1;
  }
  for (int i = 0; i < n; i++) {
    if (bytes[i] == 0) continue;
    messages[(*count)++] = (message_t){peer, offset, bytes[i]};
    offset += aligned(bytes[i]);
  }
  return offset;
}

/* Lists one rank's messages and returns the bytes that its larger buffer needs. */
static int64_t listMessages(const perfOp_t* op, const perfGeometry_t* geometries, int nRanks, int rank, bool joined,
                            transfer_t* transfer) {
  int64_t sendBytes = 0;
  int64_t recvBytes = 0;
  transfer->nSends = 0;
  transfer->nRecvs = 0;
  for (int i = 1; i < nRanks; i++) {
    const int to = (rank + i) % nRanks;
    const int from = (rank + nRanks - i) % nRanks;
    sendBytes = appendMessages(op, &geometries[rank], &geometries[to], joined, to, sendBytes, transfer->sends,
                               &transfer->nSends);
    recvBytes = appendMessages(op, &geometries[from], &geometries[rank], joined, from, recvBytes, transfer->recvs,
                               &transfer->nRecvs);
  }
  return sendBytes > recvBytes ? sendBytes : recvBytes;
}

static bool enqueueMessages(const transfer_t* t, ulyxStream_t stream) {
  for (int i = 0; i < t->nSends; i++) {
    const message_t* m = &t->sends[i];
    if (!perfNcclOk(ncclSend(t->sendBuffer + m->offset, (size_t)m->bytes, ncclUint8, m->peer, t->comm, stream),
                    "ncclSend")) {
      return false;
    }
  }
  for (int i = 0; i < t->nRecvs; i++) {
    const message_t* m = &t->recvs[i];
    if (!perfNcclOk(ncclRecv(t->recvBuffer + m->offset, (size_t)m->bytes, ncclUint8, m->peer, t->comm, stream),
                    "ncclRecv")) {
      return false;
    }
  }
  return true;
}

static bool enqueueTransfer(void* state, ulyxStream_t stream) {
  const transfer_t* transfer = state;
  if (!perfNcclOk(ncclGroupStart(), "ncclGroupStart")) return false;
  const bool enqueued = enqueueMessages(transfer, stream);
  return perfNcclOk(ncclGroupEnd(), "ncclGroupEnd") && enqueued;
}

/* Windows are of one size on every rank: the most that any needs. */
static bool timeInWindows(perfRank_t* me, transfer_t* transfer, int64_t bytes, const perfRepeat_t* repeat, double* us) {
  bool ok = false;
  void* buffers[2] = {NULL, NULL};
  ncclWindow_t windows[2] = {NULL, NULL};
  for (int i = 0; i < 2; i++) {
    if (!perfNcclOk(ncclMemAlloc(&buffers[i], (size_t)bytes), "ncclMemAlloc")) goto freeWindows;
    if (!perfNcclOk(ncclCommWindowRegister(me->comm, buffers[i], (size_t)bytes, &windows[i], NCCL_WIN_DEFAULT),
                    "ncclCommWindowRegister")) {
      goto freeWindows;
    }
  }
  transfer->comm = me->comm;
  transfer->sendBuffer = buffers[0];
  transfer->recvBuffer = buffers[1];
  const perfTask_t task = {enqueueTransfer, NULL, transfer};
  perfTimes_t times;
  if (!perfCudaTime(me, &task, repeat, &times)) goto freeWindows;
  *us = times.medianUs;
  ok = true;

freeWindows:
  for (int i = 1; i >= 0; i--) {
    if (windows[i] != NULL && !perfNcclOk(ncclCommWindowDeregister(me->comm, windows[i]), "ncclCommWindowDeregister")) {
      ok = false;
    }
    if (buffers[i] != NULL && !perfNcclOk(ncclMemFree(buffers[i]), "ncclMemFree")) ok = false;
  }
  return ok;
}

static bool timeMessages(perfRank_t* me, const perfOp_t* op, const perfGeometry_t* geometries, bool joined,
                         const perfRepeat_t* repeat, transfer_t* transfer, double* us) {
  int64_t bytes = MESSAGE_ALIGNMENT; /* a window of nothing is refused */
  for (int rank = 0; rank < me->nRanks; rank++) {
    const int64_t needed = listMessages(op, geometries, me->nRanks, rank, joined, transfer);
    if (needed > bytes) bytes = needed;
  }
  (void)listMessages(op, geometries, me->nRanks, me->rank, joined, transfer);
  return timeInWindows(me, transfer, bytes, repeat, us);
}

bool perfCudaTimeBaseline(perfRank_t* me, const perfOp_t* op, const perfStep_t* step, const perfRepeat_t* repeat,
                          perfBaseline_t* baseline) {
  bool ok = false;
  transfer_t transfer;
  memset(&transfer, 0, sizeof(transfer));
  const size_t mostMessages = (size_t)me->nRanks * PERF_MAX_TENSORS;
  perfGeometry_t* geometries = calloc((size_t)me->nRanks, sizeof(*geometries));
  transfer.sends = calloc(mostMessages, sizeof(*transfer.sends));
  transfer.recvs = calloc(mostMessages, sizeof(*transfer.recvs));
  if (geometries == NULL || transfer.sends == NULL || transfer.recvs == NULL) {
    perfError("out of memory for the messages of %d ranks", me->nRanks);
    goto freeMessages;
  }
  if (!perfGeometriesOfShape(&step->shape, me->nRanks, geometries)) goto freeMessages;
  if (!timeMessages(me, op, geometries, true, repeat, &transfer, &baseline->oneMessageUs)) goto freeMessages;
  baseline->threeMessagesUs = PERF_NOT_MEASURED;
  int64_t bytes[PERF_MAX_TENSORS];
  if (op->messageBytes(&geometries[0], &geometries[0], bytes) > 1 &&
      !timeMessages(me, op, geometries, false, repeat, &transfer, &baseline->threeMessagesUs)) {
    goto freeMessages;
  }
  ok = true;

freeMessages:
  free(transfer.recvs);
  free(transfer.sends);
  free(geometries);
  return ok;
}
