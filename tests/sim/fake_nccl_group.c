/* SPDX-License-Identifier: MIT
 *
 * A thread's group: operations are collected; the end that balances the first start runs them all. */
#include <stdlib.h>

#include "fake_nccl.h"

typedef struct fakeGroup {
  int depth;
  ncclResult_t error; /* of the first call that was refused inside */
  fakeOp* ops;
  int count, capacity;
} fakeGroup;

static _Thread_local fakeGroup group;

void fakeGroupBegin(void) {
  group.depth++;
}

ncclResult_t fakeGroupFail(ncclResult_t code) {
  if (group.depth > 0 && group.error == ncclSuccess) group.error = code;
  return code;
}

static ncclResult_t append(const fakeOp* op) {
  if (group.count == group.capacity) {
    const int capacity = group.capacity > 0 ? 2 * group.capacity : 16;
    fakeOp* ops = realloc(group.ops, (size_t)capacity * sizeof *ops);
    if (ops == NULL) return fakeGroupFail(ncclSystemError);
    group.ops = ops;
    group.capacity = capacity;
  }
  group.ops[group.count++] = *op;
  return ncclSuccess;
}

ncclResult_t fakeGroupAdd(const fakeOp* op) {
  fakeGroupBegin();
  append(op);
  return fakeGroupFinish();
}

/* A rank may send to itself only what the same group receives from itself. */
static ncclResult_t checkSelfSends(const fakeOp* ops, int count) {
  for (int i = 0; i < count; i++) {
    if (ops[i].kind != FAKE_OP_SEND || ops[i].peer != ops[i].comm->rank) continue;
    int balance = 0;
    for (int j = 0; j < count; j++) {
      if (ops[j].comm != ops[i].comm || ops[j].peer != ops[i].peer) continue;
      balance += (ops[j].kind == FAKE_OP_SEND) - (ops[j].kind == FAKE_OP_RECV);
    }
    if (balance != 0) {
      return fakeRefuse(ncclInvalidUsage, "rank %d sends to itself without a matching receive", ops[i].peer);
    }
  }
  return ncclSuccess;
}

static void countMessages(const fakeOp* ops, int count) {
  int sends = 0, receives = 0;
  for (int i = 0; i < count; i++) {
    if ((ops[i].kind != FAKE_OP_SEND && ops[i].kind != FAKE_OP_RECV) || ops[i].collective) continue;
    if (ops[i].bytes == 0) fakeCount(FAKE_COUNTER(zeroByteMessages), 1);
    if (ops[i].kind == FAKE_OP_SEND) {
      sends++;
      fakeCountSent(ops[i].comm->rank, ops[i].peer, (int64_t)ops[i].bytes);
    } else {
      receives++;
    }
  }
  if (sends + receives == 0) return;
  fakeCount(FAKE_COUNTER(groups), 1);
  fakeCount(FAKE_COUNTER(sends), sends);
  fakeCount(FAKE_COUNTER(receives), receives);
  fakeCountMax(FAKE_COUNTER(maxGroupMessages), sends + receives);
}

static bool overlap(const void* a, size_t aBytes, const void* b, size_t bBytes) {
  return (uintptr_t)a < (uintptr_t)b + bBytes && (uintptr_t)b < (uintptr_t)a + aBytes;
}

/* NCCL lets a group receive into memory that it sends from, with undefined contents. A peer may be reading
 * there, so such a receive copies nothing. */
static void markOverlaps(fakeOp* ops, int count) {
  for (int i = 0; i < count; i++) {
    if (ops[i].kind != FAKE_OP_RECV) continue;
    bool received = false;
    for (int j = 0; j < count; j++) {
      if (ops[j].kind == FAKE_OP_SEND && overlap(ops[i].data, ops[i].bytes, ops[j].source, ops[j].bytes)) {
        ops[i].undefined = true;
      }
      received |= j < i && ops[j].kind == FAKE_OP_RECV && overlap(ops[i].data, ops[i].bytes, ops[j].data, ops[j].bytes);
    }
    if (ops[i].undefined || received) fakeCount(FAKE_COUNTER(overlaps), 1);
  }
}

static ncclResult_t post(fakeOp* op) {
  switch (op->kind) {
    case FAKE_OP_INIT:
      return fakeInitPost(op);
    case FAKE_OP_SPLIT:
      return fakeSplitPost(op);
    case FAKE_OP_WINDOW:
      return fakeWindowPost(op);
    case FAKE_OP_SEND:
      return fakeSendPost(op);
    default:
      return ncclSuccess;
  }
}

/* What may wait for other ranks, but not for their own waiting: a send is done once its receiver came to the
 * second round of its group. */
static ncclResult_t completeFirst(fakeOp* op, int64_t deadline) {
  switch (op->kind) {
    case FAKE_OP_INIT:
      return fakeInitComplete(op, deadline);
    case FAKE_OP_SPLIT:
      return fakeSplitComplete(op, deadline);
    case FAKE_OP_WINDOW:
      return fakeWindowComplete(op, deadline);
    case FAKE_OP_RECV:
      return fakeRecvComplete(op, deadline);
    case FAKE_OP_COPY:
      return fakeCopyComplete(op);
    default:
      return ncclSuccess;
  }
}

static void useComms(fakeOp* ops, int count, int step) {
  fakeLock();
  for (int i = 0; i < count; i++) {
    if (ops[i].kind != FAKE_OP_INIT) ops[i].comm->users += step;
  }
  if (step < 0) fakeWakeAll();
  fakeUnlock();
}

static void keepAsyncError(const fakeOp* op, ncclResult_t result) {
  if (result == ncclSuccess || op->kind == FAKE_OP_INIT) return;
  fakeLock();
  if (op->comm->asyncError == ncclSuccess) op->comm->asyncError = result;
  fakeUnlock();
}

/* The first failure is the group's; the rest still runs, so that no peer waits for a rank that gave up. */
static ncclResult_t run(fakeOp* ops, int count) {
  ncclResult_t result = checkSelfSends(ops, count);
  if (result != ncclSuccess) return result;
  countMessages(ops, count);
  markOverlaps(ops, count);
  useComms(ops, count, 1);
  for (int i = 0; i < count; i++) fakeGraphHolds(&ops[i]);
  const int64_t deadline = fakeDeadline();
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < count; i++) {
      ncclResult_t one = ncclSuccess;
      if (round == 0) {
        one = post(&ops[i]);
      } else if (round == 1) {
        one = completeFirst(&ops[i], deadline);
      } else if (ops[i].kind == FAKE_OP_SEND) {
        one = fakeSendComplete(&ops[i], deadline);
      }
      keepAsyncError(&ops[i], one);
      if (result == ncclSuccess) result = one;
    }
  }
  useComms(ops, count, -1);
  return result;
}

ncclResult_t fakeGroupFinish(void) {
  if (--group.depth > 0) return ncclSuccess;
  const fakeGroup ended = group;
  group = (fakeGroup){0};
  const ncclResult_t result = ended.error != ncclSuccess ? ended.error : run(ended.ops, ended.count);
  free(ended.ops);
  return result;
}

/* nccl.h declares the two without a prototype. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void) {
  FAKE_NCCL(ncclSystemError);
  fakeCount(FAKE_COUNTER(openGroups), 1);
  fakeGroupBegin();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
  FAKE_NCCL_RELEASE(ncclSystemError);
  if (group.depth == 0) return fakeRefuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  fakeCount(FAKE_COUNTER(openGroups), -1);
  fakeGroupFail(struck);
  return fakeGroupFinish();
}
