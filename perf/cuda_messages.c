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
  void* buffers[2]; /* what is sent, what is received */
  message_t* sends;
  message_t* recvs;
  int nSends;
  int nRecvs;
} transfer_t;

static int64_t aligned(int64_t bytes) {
  return (bytes + MESSAGE_ALIGNMENT - 1) / MESSAGE_ALIGNMENT * MESSAGE_ALIGNMENT;
}

/* Appends what one pair sends, bytes[PERF_MAX_TENSORS], to a list of messages with a peer; returns the offset behind
 * them. */
static int64_t appendMessages(const int64_t* bytes, bool joined, int peer, int64_t offset, message_t* messages,
                              int* count) {
  int64_t joinedBytes = 0;
  for (int i = 0; i < PERF_MAX_TENSORS; i++) {
    joinedBytes += bytes[i];
    if (joined || bytes[i] == 0) continue;
    messages[(*count)++] = (message_t){peer, offset, bytes[i]};
    offset += aligned(bytes[i]);
  }
  if (!joined || joinedBytes == 0) return offset;
  messages[(*count)++] = (message_t){peer, offset, joinedBytes};
  return offset + aligned(joinedBytes);
}

/* Lists one rank's messages and returns the bytes that its larger buffer needs. */
static int64_t listMessages(const int64_t* bytes, int nRanks, int rank, bool joined, transfer_t* transfer) {
  int64_t sendBytes = 0;
  int64_t recvBytes = 0;
  transfer->nSends = 0;
  transfer->nRecvs = 0;
  for (int i = 1; i < nRanks; i++) {
    const int to = (rank + i) % nRanks;
    const int from = (rank + nRanks - i) % nRanks;
    const int64_t* sent = bytes + ((size_t)rank * (size_t)nRanks + (size_t)to) * PERF_MAX_TENSORS;
    const int64_t* received = bytes + ((size_t)from * (size_t)nRanks + (size_t)rank) * PERF_MAX_TENSORS;
    sendBytes = appendMessages(sent, joined, to, sendBytes, transfer->sends, &transfer->nSends);
    recvBytes = appendMessages(received, joined, from, recvBytes, transfer->recvs, &transfer->nRecvs);
  }
  return sendBytes > recvBytes ? sendBytes : recvBytes;
}

static bool enqueueMessages(const transfer_t* t, ulyxStream_t stream) {
  for (int i = 0; i < t->nSends; i++) {
    const message_t* m = &t->sends[i];
    const unsigned char* from = (const unsigned char*)t->buffers[0] + m->offset;
    if (!perfNcclOk(ncclSend(from, (size_t)m->bytes, ncclUint8, m->peer, t->comm, stream), "ncclSend")) return false;
  }
  for (int i = 0; i < t->nRecvs; i++) {
    const message_t* m = &t->recvs[i];
    unsigned char* to = (unsigned char*)t->buffers[1] + m->offset;
    if (!perfNcclOk(ncclRecv(to, (size_t)m->bytes, ncclUint8, m->peer, t->comm, stream), "ncclRecv")) return false;
  }
  return true;
}

static bool enqueueTransfer(void* state, ulyxStream_t stream) {
  const transfer_t* transfer = state;
  if (!perfNcclOk(ncclGroupStart(), "ncclGroupStart")) return false;
  const bool enqueued = enqueueMessages(transfer, stream);
  return perfNcclOk(ncclGroupEnd(), "ncclGroupEnd") && enqueued;
}

bool perfCudaTimeMessages(perfRank_t* me, const perfOp_t* op, const perfProblem_t* problem, bool joined,
                          const perfRepeat_t* repeat, double* us) {
  bool ok = false;
  transfer_t transfer;
  memset(&transfer, 0, sizeof(transfer));
  transfer.comm = me->comm;
  const size_t mostMessages = (size_t)me->nRanks * PERF_MAX_TENSORS;
  transfer.sends = calloc(mostMessages, sizeof(*transfer.sends));
  transfer.recvs = calloc(mostMessages, sizeof(*transfer.recvs));
  int64_t* bytes = perfMessagesCreate(op, problem);
  if (bytes == NULL) goto freeMessages;
  if (transfer.sends == NULL || transfer.recvs == NULL) {
    perfError("out of memory for the messages of %d ranks", me->nRanks);
    goto freeMessages;
  }
  /* Windows are of one size on every rank: the most that any needs, and a window of nothing is refused. */
  int64_t windowBytes = MESSAGE_ALIGNMENT;
  for (int rank = 0; rank < me->nRanks; rank++) {
    const int64_t needed = listMessages(bytes, me->nRanks, rank, joined, &transfer);
    if (needed > windowBytes) windowBytes = needed;
  }
  (void)listMessages(bytes, me->nRanks, me->rank, joined, &transfer);
  const perfTask_t task = {enqueueTransfer, NULL, &transfer};
  ok = perfCudaTimeInWindows(me, windowBytes, &task, transfer.buffers, repeat, us);

freeMessages:
  free(bytes);
  free(transfer.recvs);
  free(transfer.sends);
  return ok;
}
