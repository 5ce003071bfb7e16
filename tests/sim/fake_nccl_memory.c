/* SPDX-License-Identifier: MIT
 *
 * Memory from ncclMemAlloc starts at a multiple of NCCL_WIN_REQUIRED_ALIGNMENT, as windows need, inside a
 * larger cudaMalloc. What is too much is poisoned under ASan where it is host memory. As with memory that CUDA shares
 * between processes, what its owner has freed stays until no peer's window sees it. */
#include <stdlib.h>

#include "fake_nccl.h"
#include "kernels.h"

#if defined(__SANITIZE_ADDRESS__) && !defined(FAKE_SHARED_DEVICE)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(start, bytes) ((void)(start), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(start, bytes) ((void)(start), (void)(bytes))
#endif

/* Real CUDA cannot tell a peer from the owner on one device. */
#ifdef FAKE_SHARED_DEVICE
#define FAKE_DISOWN(p) ((void)(p))
#else
#define FAKE_DISOWN(p) fakeDisown(p)
#endif

#define FAKE_WINDOW_MAGIC 0x77696e64u

typedef struct fakeBlock {
  struct fakeBlock* next;
  unsigned char* raw; /* what cudaMalloc gave: rawBytes */
  unsigned char* start;
  size_t rawBytes, bytes;
  int uses; /* windows and registrations */
  int64_t birth;
} fakeBlock;

struct ncclWindow_vidmem {
  ncclWindow_t next;
  uint32_t magic;
  ncclComm_t comm;
  fakeBlock* block;
  void* peers[FAKE_MAX_RANKS]; /* every rank's memory of this window */
  int64_t birth;
};

typedef struct fakeRegistration {
  fakeBlock* block; /* NULL: memory that is not ncclMemAlloc's */
  int64_t birth;
} fakeRegistration;

/* Guarded by fakeLock. */
static fakeBlock* blocks;
static fakeBlock* outlived; /* freed by their owners, seen by peers */
static ncclWindow_t windows;

static fakeBlock* blockOf(const void* p, size_t bytes) {
  for (fakeBlock* block = blocks; block != NULL; block = block->next) {
    const uintptr_t offset = (uintptr_t)p - (uintptr_t)block->start;
    if ((uintptr_t)p >= (uintptr_t)block->start && offset < block->bytes && bytes <= block->bytes - offset)
      return block;
  }
  return NULL;
}

ncclResult_t ncclMemAlloc(void** p, size_t bytes) {
  FAKE_NCCL(ncclUnhandledCudaError);
  if (p == NULL || bytes == 0 || bytes > SIZE_MAX / 2) {
    return fakeRefuse(ncclInvalidArgument, "ncclMemAlloc of %zu bytes", bytes);
  }
  fakeBlock* block = calloc(1, sizeof *block);
  if (block == NULL) return ncclSystemError;
  void* raw = NULL;
  fakeQuietBegin();
  const cudaError_t error = cudaMalloc(&raw, bytes + NCCL_WIN_REQUIRED_ALIGNMENT);
  fakeQuietEnd();
  if (error != cudaSuccess) {
    free(block);
    return fakeRefuse(ncclUnhandledCudaError, "ncclMemAlloc of %zu bytes: %s", bytes, cudaGetErrorString(error));
  }
  const size_t before = (size_t)(-(uintptr_t)raw % NCCL_WIN_REQUIRED_ALIGNMENT);
  block->raw = raw;
  block->rawBytes = bytes + NCCL_WIN_REQUIRED_ALIGNMENT;
  block->start = block->raw + before;
  block->bytes = bytes;
  block->birth = fakeBorn(FAKE_COUNTER(ncclAllocations));
  ASAN_POISON_MEMORY_REGION(block->raw, before);
  ASAN_POISON_MEMORY_REGION(block->start + bytes, block->rawBytes - before - bytes);
  fakeLock();
  block->next = blocks;
  blocks = block;
  fakeUnlock();
  *p = block->start;
  return ncclSuccess;
}

static bool isSeen(const fakeBlock* block) {
  for (ncclWindow_t window = windows; window != NULL; window = window->next) {
    for (int rank = 0; rank < window->comm->world->nRanks; rank++) {
      if (window->peers[rank] == block->start) return true;
    }
  }
  return false;
}

static fakeBlock* takeUnseen(void) {
  fakeBlock* unseen = NULL;
  for (fakeBlock** link = &outlived; *link != NULL;) {
    fakeBlock* block = *link;
    if (isSeen(block)) {
      link = &block->next;
      continue;
    }
    *link = block->next;
    block->next = unseen;
    unseen = block;
  }
  return unseen;
}

void fakeReleaseUnseen(void) {
  fakeLock();
  fakeBlock* unseen = takeUnseen();
  fakeUnlock();
  while (unseen != NULL) {
    fakeBlock* block = unseen;
    unseen = block->next;
    ASAN_UNPOISON_MEMORY_REGION(block->raw, block->rawBytes);
    fakeQuietBegin();
    const cudaError_t error = cudaFree(block->raw);
    fakeQuietEnd();
    if (error != cudaSuccess && !fakeCudaGone()) {
      fakeViolation("what no window sees could not be freed: %s", cudaGetErrorString(error));
    }
    free(block);
  }
}

/* Moves the block that starts at p to the outlived ones, if nothing uses it. */
static ncclResult_t outlive(const void* p) {
  fakeBlock** link = &blocks;
  while (*link != NULL && (*link)->start != p) link = &(*link)->next;
  fakeBlock* block = *link;
  if (block == NULL) {
    fakeViolation("ncclMemFree(%p): not from ncclMemAlloc", p);
    return ncclInvalidArgument;
  }
  if (block->uses > 0) {
    fakeViolation("ncclMemFree(%p): still in %d windows or registrations", p, block->uses);
    return ncclInvalidUsage;
  }
  *link = block->next;
  block->next = outlived;
  outlived = block;
  FAKE_DISOWN(block->raw);
  fakeDied(FAKE_COUNTER(ncclAllocations), block->birth);
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void* p) {
  FAKE_NCCL_RELEASE(ncclUnhandledCudaError);
  if (p == NULL || fakeCudaGone()) return struck;
  fakeLock();
  const ncclResult_t result = outlive(p);
  fakeUnlock();
  fakeReleaseUnseen();
  return result != ncclSuccess ? result : struck;
}

/* ---- Windows ----------------------------------------------------------------------------------------- */

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, size_t bytes, ncclWindow_t* window, int flags) {
  FAKE_NCCL_GROUPED(ncclSystemError);
  const ncclResult_t result = fakeCheckComm(comm, __func__);
  if (result != ncclSuccess) return fakeGroupFail(result);
  (void)flags;
  if (window == NULL || data == NULL || bytes == 0) {
    return fakeGroupFail(fakeRefuse(ncclInvalidArgument, "%s: %p with %zu bytes", __func__, data, bytes));
  }
  *window = NULL;
  if (!fakeWindowSupport()) return ncclSuccess;
  fakeLock();
  const bool ours = blockOf(data, bytes) != NULL;
  fakeUnlock();
  if (!ours || (uintptr_t)data % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
    return fakeGroupFail(fakeRefuse(ncclInvalidArgument, "%s: rank %d: %p with %zu bytes is not %s", __func__,
                                    comm->rank, data, bytes, ours ? "aligned" : "from ncclMemAlloc"));
  }
  const fakeOp op = {
      .kind = FAKE_OP_WINDOW, .operation = __func__, .comm = comm, .newWindow = window, .data = data, .bytes = bytes};
  return fakeGroupAdd(&op);
}

ncclResult_t fakeWindowPost(fakeOp* op) {
  fakeCountWindow((int64_t)op->bytes);
  op->ticket.data = op->data;
  fakeLock();
  op->step = fakeStepReach(op->comm, FAKE_STEP_WINDOW, op->ticket);
  fakeUnlock();
  return op->step != NULL ? ncclSuccess : ncclInvalidUsage;
}

static ncclResult_t makeWindow(fakeOp* op) {
  fakeBlock* block = blockOf(op->data, op->bytes);
  if (block == NULL) return fakeRefuse(ncclInvalidUsage, "%s: %p was freed", op->operation, op->data);
  ncclWindow_t window = calloc(1, sizeof *window);
  if (window == NULL) return ncclSystemError;
  *window = (struct ncclWindow_vidmem){.next = windows,
                                       .magic = FAKE_WINDOW_MAGIC,
                                       .comm = op->comm,
                                       .block = block,
                                       .birth = fakeBorn(FAKE_COUNTER(windows))};
  for (int rank = 0; rank < op->comm->world->nRanks; rank++) window->peers[rank] = op->step->tickets[rank].data;
  windows = window;
  block->uses++;
  op->comm->windows++;
  *op->newWindow = window;
  return ncclSuccess;
}

ncclResult_t fakeWindowComplete(fakeOp* op, int64_t deadline) {
  if (op->step == NULL) return ncclSuccess; /* its post said why */
  fakeLock();
  ncclResult_t result = fakeStepWait(op->comm, op->step, deadline);
  if (result == ncclSuccess) result = makeWindow(op);
  fakeStepLeave(op->comm, op->step);
  fakeUnlock();
  return result;
}

static void removeWindow(ncclWindow_t window) {
  ncclWindow_t* link = &windows;
  while (*link != window) link = &(*link)->next;
  *link = window->next;
  window->block->uses--;
  window->comm->windows--;
  fakeDied(FAKE_COUNTER(windows), window->birth);
  window->magic = 0;
  free(window);
}

void fakeWindowsDrop(ncclComm_t comm) {
  for (ncclWindow_t window = windows; window != NULL;) {
    const ncclWindow_t next = window->next;
    if (window->comm == comm) removeWindow(window);
    window = next;
  }
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  FAKE_NCCL_RELEASE(ncclSystemError);
  const ncclResult_t result = fakeCheckComm(comm, __func__);
  if (result != ncclSuccess) return result;
  if (window == NULL || fakeCudaGone()) return struck;
  if (window->magic != FAKE_WINDOW_MAGIC || window->comm != comm) {
    fakeViolation("%s: %p is not a window of this communicator", __func__, (void*)window);
    return ncclInvalidArgument;
  }
  fakeLock();
  removeWindow(window);
  fakeUnlock();
  fakeReleaseUnseen();
  return struck;
}

/* ---- Peers' addresses, in place of cuda/window.cu ------------------------------------------------------ */

int ulyxWindowsAreReadable(int ncclVersion) {
  return ncclVersion > 0;
}

cudaError_t ulyxWindowReadPeers(ncclWindow_t window, int nRanks, uint64_t* words, void** peers, cudaStream_t stream) {
  (void)words;
  (void)stream;
  if (fakeStrikes(__func__)) return cudaErrorUnknown;
  fakeLock();
  if (window->magic != FAKE_WINDOW_MAGIC) fakeViolation("%s: %p is not a window", __func__, (void*)window);
  for (int rank = 0; rank < nRanks; rank++) peers[rank] = window->peers[rank];
  fakeUnlock();
  return cudaSuccess;
}

/* ---- Registrations ----------------------------------------------------------------------------------- */

ncclResult_t ncclCommRegister(ncclComm_t comm, void* data, size_t bytes, void** handle) {
  FAKE_NCCL(ncclSystemError);
  const ncclResult_t result = fakeCheckComm(comm, __func__);
  if (result != ncclSuccess) return result;
  if (data == NULL || bytes == 0 || handle == NULL) {
    return fakeRefuse(ncclInvalidArgument, "%s: %p with %zu bytes", __func__, data, bytes);
  }
  fakeRegistration* registration = calloc(1, sizeof *registration);
  if (registration == NULL) return ncclSystemError;
  fakeLock();
  registration->block = blockOf(data, bytes);
  if (registration->block != NULL) registration->block->uses++;
  fakeUnlock();
  registration->birth = fakeBorn(FAKE_COUNTER(registrations));
  *handle = registration;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  FAKE_NCCL_RELEASE(ncclSystemError);
  const ncclResult_t result = fakeCheckComm(comm, __func__);
  if (result != ncclSuccess) return result;
  fakeRegistration* registration = handle;
  fakeLock();
  if (registration->block != NULL) registration->block->uses--;
  fakeUnlock();
  fakeDied(FAKE_COUNTER(registrations), registration->birth);
  free(registration);
  return struck;
}
