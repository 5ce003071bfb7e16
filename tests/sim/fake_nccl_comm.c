/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_nccl.h"

/* One GPU stands in for many in ulyx_onegpu; elsewhere NCCL refuses two ranks on one device. */
#ifdef FAKE_SHARED_DEVICE
static const bool sharedDevices = true;
#else
static const bool sharedDevices = false;
#endif

ncclResult_t ncclGetVersion(int* version) {
  FAKE_NCCL(ncclInternalError);
  if (version == NULL) return fakeRefuse(ncclInvalidArgument, "ncclGetVersion: version is NULL");
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int64_t serial;
  FAKE_NCCL(ncclSystemError);
  if (id == NULL) return fakeRefuse(ncclInvalidArgument, "ncclGetUniqueId: id is NULL");
  memset(id, 0, sizeof *id);
  fakeLock();
  snprintf(id->internal, sizeof id->internal, "fake world %lld", (long long)++serial);
  fakeUnlock();
  return ncclSuccess;
}

/* ---- Joining ----------------------------------------------------------------------------------------- */

static ncclResult_t checkConfig(const ncclConfig_t* config, const char* function) {
  static const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
  if (config == NULL) return ncclSuccess;
  if (config->magic != initial.magic || config->size > initial.size) {
    return fakeRefuse(ncclInvalidArgument, "%s: config does not come from NCCL_CONFIG_INITIALIZER", function);
  }
  return ncclSuccess;
}

/* What a communicator that does not block is asked for begins here and ends in settle(). */
static ncclResult_t begin(fakeOp op, ncclResult_t (*post)(fakeOp* op)) {
  fakeOp* const pending = malloc(sizeof *pending);
  if (pending == NULL) return ncclSystemError;
  const ncclResult_t result = post(&op);
  if (result != ncclSuccess) {
    free(pending);
    return result;
  }
  *pending = op;
  fakeLock();
  op.comm->patient = true;
  op.comm->pending = pending;
  op.comm->asyncError = ncclInProgress;
  if (op.kind == FAKE_OP_INIT) *op.newComm = op.comm;
  fakeUnlock();
  return ncclInProgress;
}

static ncclResult_t initRank(ncclComm_t* comm, int nRanks, ncclUniqueId id, int rank, bool patient,
                             const char* function) {
  if (comm == NULL) return fakeGroupFail(fakeRefuse(ncclInvalidArgument, "%s: comm is NULL", function));
  *comm = NULL;
  if (nRanks < 1 || nRanks > FAKE_MAX_RANKS || rank < 0 || rank >= nRanks) {
    return fakeGroupFail(fakeRefuse(ncclInvalidArgument, "%s: rank %d of %d", function, rank, nRanks));
  }
  if (id.internal[0] == 0) return fakeGroupFail(fakeRefuse(ncclInvalidArgument, "%s: an empty id", function));
  fakeOp op = {.kind = FAKE_OP_INIT, .operation = function, .newComm = comm, .id = id, .nRanks = nRanks, .rank = rank};
  fakeQuietBegin();
  const cudaError_t error = cudaGetDevice(&op.ticket.device);
  fakeQuietEnd();
  if (error != cudaSuccess) {
    return fakeGroupFail(
        fakeRefuse(ncclUnhandledCudaError, "%s: cudaGetDevice: %s", function, cudaGetErrorString(error)));
  }
  return patient ? begin(op, fakeInitPost) : fakeGroupAdd(&op);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nRanks, ncclUniqueId id, int rank) {
  FAKE_NCCL_GROUPED(ncclSystemError);
  return initRank(comm, nRanks, id, rank, false, __func__);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nRanks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  FAKE_NCCL_GROUPED(ncclSystemError);
  const ncclResult_t result = checkConfig(config, __func__);
  if (result != ncclSuccess) return fakeGroupFail(result);
  return initRank(comm, nRanks, id, rank, config != NULL && config->blocking == 0, __func__);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int nDevices, const int* devices) {
  FAKE_NCCL_GROUPED(ncclSystemError);
  if (comms == NULL || nDevices < 1) return fakeRefuse(ncclInvalidArgument, "%s: %d devices", __func__, nDevices);
  ncclUniqueId id;
  int before = 0;
  fakeQuietBegin();
  ncclResult_t result = ncclGetUniqueId(&id);
  cudaError_t error = cudaGetDevice(&before);
  fakeGroupBegin();
  for (int rank = 0; rank < nDevices && error == cudaSuccess && result == ncclSuccess; rank++) {
    error = cudaSetDevice(devices != NULL ? devices[rank] : rank);
    if (error == cudaSuccess) result = initRank(&comms[rank], nDevices, id, rank, false, __func__);
  }
  if (error != cudaSuccess) {
    fakeGroupFail(fakeRefuse(ncclUnhandledCudaError, "%s: %s", __func__, cudaGetErrorString(error)));
  }
  cudaSetDevice(before);
  fakeQuietEnd();
  return fakeGroupFinish();
}

static ncclResult_t joinWorld(fakeOp* op) {
  fakeWorld* world = fakeWorldOfId(&op->id);
  if (world == NULL) world = fakeWorldAdd(&op->id, op->nRanks, 0);
  if (world == NULL) return ncclSystemError;
  if (world->nRanks != op->nRanks) {
    return fakeRefuse(ncclInvalidUsage, "rank %d joins a world of %d ranks, others one of %d", op->rank, op->nRanks,
                      world->nRanks);
  }
  const fakeStep* step = world->steps;
  if (world->joined == op->nRanks || (step != NULL && step->tickets[op->rank].present)) {
    return fakeRefuse(ncclInvalidUsage, "rank %d joins a world of %d ranks a second time", op->rank, op->nRanks);
  }
  op->comm = fakeCommAdd(world, op->rank, op->ticket.device);
  if (op->comm == NULL) return ncclSystemError;
  world->joined++;
  op->step = fakeStepReach(op->comm, FAKE_STEP_INIT, op->ticket);
  if (op->step != NULL) return ncclSuccess;
  fakeCommRemove(op->comm);
  return ncclSystemError;
}

ncclResult_t fakeInitPost(fakeOp* op) {
  fakeLock();
  const ncclResult_t result = joinWorld(op);
  fakeUnlock();
  return result;
}

static ncclResult_t checkDevices(const fakeStep* step, int nRanks) {
  for (int a = 0; a < nRanks && !sharedDevices; a++) {
    for (int b = 0; b < a; b++) {
      if (step->tickets[a].device == step->tickets[b].device) {
        return fakeRefuse(ncclInvalidUsage, "ranks %d and %d are both on device %d", b, a, step->tickets[a].device);
      }
    }
  }
  return ncclSuccess;
}

ncclResult_t fakeInitComplete(fakeOp* op, int64_t deadline) {
  if (op->step == NULL) return ncclSuccess; /* its post said why */
  fakeLock();
  ncclResult_t result = fakeStepWait(op->comm, op->step, deadline);
  if (result == ncclSuccess) result = checkDevices(op->step, op->nRanks);
  fakeStepLeave(op->comm, op->step);
  if (result == ncclSuccess) {
    *op->newComm = op->comm;
  } else {
    fakeCommRemove(op->comm);
  }
  fakeUnlock();
  return result;
}

/* ---- Splitting --------------------------------------------------------------------------------------- */

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newComm, ncclConfig_t* config) {
  FAKE_NCCL_GROUPED(ncclSystemError);
  ncclResult_t result = fakeCheckComm(comm, __func__);
  if (result == ncclSuccess) result = checkConfig(config, __func__);
  if (result == ncclSuccess && (newComm == NULL || (color < 0 && color != NCCL_SPLIT_NOCOLOR))) {
    result = fakeRefuse(ncclInvalidArgument, "%s: color %d", __func__, color);
  }
  if (result != ncclSuccess) return fakeGroupFail(result);
  *newComm = NULL;
  const fakeOp op = {.kind = FAKE_OP_SPLIT,
                     .operation = __func__,
                     .comm = comm,
                     .newComm = newComm,
                     .ticket = {false, comm->device, color, key}};
  return comm->patient ? begin(op, fakeSplitPost) : fakeGroupAdd(&op);
}

ncclResult_t fakeSplitPost(fakeOp* op) {
  fakeLock();
  op->step = fakeStepReach(op->comm, FAKE_STEP_SPLIT, op->ticket);
  fakeUnlock();
  return op->step != NULL ? ncclSuccess : ncclInvalidUsage;
}

/* This rank's end of the child: its ranks are those of one color, ordered by key, then by rank. */
static ncclComm_t childOf(const fakeOp* op) {
  fakeStep* step = op->step;
  const fakeTicket mine = step->tickets[op->comm->rank];
  int first = -1, ranks = 0, rank = 0;
  for (int r = 0; r < op->comm->world->nRanks; r++) {
    const fakeTicket other = step->tickets[r];
    if (other.color != mine.color) continue;
    if (first < 0) first = r;
    ranks++;
    rank += other.key < mine.key || (other.key == mine.key && r < op->comm->rank);
  }
  if (step->children[first] == NULL) step->children[first] = fakeWorldAdd(NULL, ranks, ranks);
  return step->children[first] != NULL ? fakeCommAdd(step->children[first], rank, op->comm->device) : NULL;
}

ncclResult_t fakeSplitComplete(fakeOp* op, int64_t deadline) {
  if (op->step == NULL) return ncclSuccess; /* its post said why */
  fakeLock();
  ncclResult_t result = fakeStepWait(op->comm, op->step, deadline);
  if (result == ncclSuccess && op->ticket.color != NCCL_SPLIT_NOCOLOR) {
    *op->newComm = childOf(op);
    if (*op->newComm == NULL) result = ncclSystemError;
  }
  fakeStepLeave(op->comm, op->step);
  fakeUnlock();
  return result;
}

/* ---- Not blocking ------------------------------------------------------------------------------------- */

static ncclResult_t judge(const fakeOp* op) {
  if (op->step->broken) return fakeRefuse(ncclRemoteError, "%s: another rank gave up", op->operation);
  if (op->kind == FAKE_OP_INIT) return checkDevices(op->step, op->nRanks);
  if (op->ticket.color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  *op->newComm = childOf(op);
  return *op->newComm != NULL ? ncclSuccess : ncclSystemError;
}

/* With the lock held: ends what is pending if all have come, or, `abandon`, whether they have or not. Whoever waits for
 * this rank is not told, and waits on. */
static void settle(ncclComm_t comm, bool abandon) {
  fakeOp* const op = comm->pending;
  if (op == NULL || (!abandon && !op->step->broken && op->step->arrived < comm->world->nRanks)) return;
  comm->asyncError = abandon ? ncclInternalError : judge(op);
  comm->pending = NULL;
  fakeStepLeave(comm, op->step);
  fakeWakeAll();
  free(op);
}

/* ---- Graphs ------------------------------------------------------------------------------------------ */

static void CUDART_CB graphIsGone(void* argument) {
  const ncclComm_t comm = argument;
  fakeLock();
  comm->inGraphs--;
  fakeWakeAll();
  fakeUnlock();
}

static cudaError_t graphOf(cudaStream_t stream, cudaGraph_t* graph) {
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
#if CUDART_VERSION >= 13000
  return cudaStreamGetCaptureInfo(stream, &status, NULL, graph, NULL, NULL, NULL);
#else
  return cudaStreamGetCaptureInfo_v2(stream, &status, NULL, graph, NULL, NULL);
#endif
}

void fakeGraphHolds(const fakeOp* op) {
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = NULL;
  cudaUserObject_t share = NULL;
  if (op->kind != FAKE_OP_SEND && op->kind != FAKE_OP_RECV) return;
  fakeQuietBegin();
  cudaError_t error = cudaStreamIsCapturing(op->stream, &status);
  if (error == cudaSuccess && status == cudaStreamCaptureStatusActive) {
    error = graphOf(op->stream, &graph);
    if (error == cudaSuccess) {
      error = cudaUserObjectCreate(&share, op->comm, graphIsGone, 1, cudaUserObjectNoDestructorSync);
    }
    if (error == cudaSuccess) error = cudaGraphRetainUserObject(graph, share, 1, cudaGraphUserObjectMove);
    fakeLock();
    if (error == cudaSuccess) op->comm->inGraphs++;
    fakeUnlock();
  }
  fakeQuietEnd();
  if (error != cudaSuccess) fakeViolation("a graph could not hold %s: %s", op->operation, cudaGetErrorString(error));
}

/* ---- Leaving ----------------------------------------------------------------------------------------- */

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  FAKE_NCCL(ncclSystemError);
  const ncclResult_t result = fakeCheckComm(comm, __func__);
  if (result != ncclSuccess) return result;
  fakeLock();
  comm->finalized = true;
  fakeUnlock();
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  FAKE_NCCL_RELEASE(ncclSystemError);
  if (comm == NULL) return struck;
  const ncclResult_t result = fakeCheckComm(comm, __func__);
  if (result != ncclSuccess) return result;
  fakeLock();
  if (comm->windows > 0) {
    fakeViolation("%s: rank %d still has %d windows registered", __func__, comm->rank, comm->windows);
  }
  if (comm->users > 0) fakeViolation("%s: rank %d is in a group", __func__, comm->rank);
  if (comm->inGraphs > 0) fakeViolation("%s: rank %d would wait for its graphs for ever", __func__, comm->rank);
  settle(comm, true);
  fakeWindowsDrop(comm);
  fakeCommRemove(comm);
  fakeUnlock();
  fakeReleaseUnseen();
  return struck;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  FAKE_NCCL_RELEASE(ncclSystemError);
  if (comm == NULL) return struck;
  const ncclResult_t result = fakeCheckComm(comm, __func__);
  if (result != ncclSuccess) return result;
  fakeLock();
  comm->aborted = true;
  settle(comm, true);
  fakeWakeAll();
  fakeSetHanging(0);
  fakeCount(FAKE_COUNTER(aborts), 1);
  const int lasts = fakeAbortMs();
  if (lasts == 0) fakeWindowsDrop(comm);
  /* Another thread that waits in a group of this communicator gives up now; it must be out first, and graphs gone. */
  while (comm->users > 0 || comm->inGraphs > 0) fakeWaitPatiently();
  fakeUnlock();
  nanosleep(&(struct timespec){.tv_sec = lasts / 1000, .tv_nsec = lasts % 1000 * 1000000}, NULL);
  fakeLock();
  fakeWindowsDrop(comm);
  fakeCommRemove(comm);
  fakeUnlock();
  fakeReleaseUnseen();
  return struck;
}

/* ---- Asking ------------------------------------------------------------------------------------------ */

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  FAKE_NCCL(ncclInternalError);
  const ncclResult_t result = fakeCheckComm(comm, __func__);
  if (result == ncclSuccess) *count = comm->world->nRanks;
  return result;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  FAKE_NCCL(ncclInternalError);
  const ncclResult_t result = fakeCheckComm(comm, __func__);
  if (result == ncclSuccess) *device = comm->device;
  return result;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  FAKE_NCCL(ncclInternalError);
  const ncclResult_t result = fakeCheckComm(comm, __func__);
  if (result == ncclSuccess) *rank = comm->rank;
  return result;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  FAKE_NCCL(ncclInternalError);
  const ncclResult_t result = fakeCheckComm(comm, __func__);
  if (result != ncclSuccess) return result;
  fakeLock();
  settle(comm, false);
  *asyncError = comm->asyncError == ncclSuccess ? (ncclResult_t)fakeNcclFailure() : comm->asyncError;
  fakeUnlock();
  return ncclSuccess;
}
