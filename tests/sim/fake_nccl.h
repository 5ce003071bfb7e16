/* SPDX-License-Identifier: MIT
 *
 * The fake NCCL's parts:
 *
 *   fake_nccl_world.c   worlds (the ranks of one communicator), communicators, and steps: points that every
 *                       rank of a world reaches in the same order, bringing a few numbers
 *   fake_nccl_comm.c    ncclComm*: joining, splitting, leaving
 *   fake_nccl_group.c   groups: operations are collected, at the end all are posted, then all are completed
 *   fake_nccl_p2p.c     messages: posting and completing sends and receives, and collectives made of them
 *   fake_nccl_memory.c  ncclMemAlloc, windows, registrations
 *
 * One mutex guards worlds, messages, communicators' states and memory; waiting is on one condition. Data is
 * copied outside it. Every operation has a post that does not wait and a completion that may: a thread
 * posts all before it completes any, so any number of ranks may share a thread. Only CUDA runtime calls move
 * data, so that the same files serve with real GPUs. */
#ifndef ULYX_TESTS_SIM_FAKE_NCCL_H_
#define ULYX_TESTS_SIM_FAKE_NCCL_H_

#include <nccl.h>

#include "fake_state.h"

/* ---- Worlds (fake_nccl_world.c) ---------------------------------------------------------------------- */

typedef enum { FAKE_STEP_INIT, FAKE_STEP_SPLIT, FAKE_STEP_WINDOW } fakeStepKind;

/* What a rank brings to a step. */
typedef struct fakeTicket {
  bool present;
  int device;
  int color, key;
  void* data; /* of a window */
} fakeTicket;

typedef struct fakeWorld fakeWorld;

typedef struct fakeStep {
  struct fakeStep* next;
  int64_t number;
  fakeStepKind kind;
  int arrived, left;
  bool broken; /* a rank gave up waiting */
  fakeTicket tickets[FAKE_MAX_RANKS];
  fakeWorld* children[FAKE_MAX_RANKS]; /* of a split, by their lowest rank in the parent */
} fakeStep;

/* A send that waits to be received. Its sender owns it. */
typedef struct fakeMessage {
  struct fakeMessage* next;
  const char* operation;
  int src, dst;
  ncclDataType_t type;
  const void* data;
  size_t bytes;
  cudaEvent_t ready;    /* the data may be read */
  cudaEvent_t consumed; /* the data has been read; NULL where it never was */
  bool collective;      /* matched apart from sends and receives */
  bool taken, done;
} fakeMessage;

struct fakeWorld {
  struct fakeWorld* next;
  ncclUniqueId id; /* while ranks are joining; all zeros in a split's child */
  int nRanks;
  int joined, gone; /* ranks; the world goes when all that joined have gone */
  fakeStep* steps;
  fakeMessage* messages; /* oldest first */
};

#define FAKE_COMM_MAGIC 0x66616b65u

struct ncclComm {
  uint32_t magic;
  int rank, device;
  fakeWorld* world;
  int64_t nextStep;
  int users; /* groups that are at work on it */
  int windows;
  int inGraphs; /* operations that a captured graph holds */
  bool finalized, aborted;
  bool patient;           /* does not block: who asks for its state finds out how far it is */
  struct fakeOp* pending; /* what it was asked to do and has not done yet */
  ncclResult_t asyncError;
  int64_t birth;
};

void fakeLock(void);
void fakeUnlock(void);
void fakeWakeAll(void);

/* The moment at which waiting that starts now ends. */
int64_t fakeDeadline(void);
/* Releases the lock until something changed. false at the deadline, or at once if comm was aborted. */
bool fakeWaitChange(const struct ncclComm* comm, int64_t deadline);
/* The same for what is sure to come. */
void fakeWaitPatiently(void);

/* A refusal: kept for ncclGetLastError, printed, and returned. */
__attribute__((format(printf, 2, 3))) ncclResult_t fakeRefuse(ncclResult_t code, const char* format, ...);

/* ncclSuccess, or `whenStruck` if a test wants this call to fail. Every call that can fail starts with it. */
ncclResult_t fakeNcclEnter(const char* function, ncclResult_t whenStruck);

#define FAKE_NCCL(whenStruck)                                           \
  do {                                                                  \
    const ncclResult_t refused = fakeNcclEnter(__func__, (whenStruck)); \
    if (refused != ncclSuccess) return refused;                         \
  } while (0)

/* The same for a call that a group may hold: NCCL fails the whole group after it. */
#define FAKE_NCCL_GROUPED(whenStruck)                                   \
  do {                                                                  \
    const ncclResult_t refused = fakeNcclEnter(__func__, (whenStruck)); \
    if (refused != ncclSuccess) return fakeGroupFail(refused);          \
  } while (0)

/* The same for a call that releases something: `struck` is what to return after the work is done. */
#define FAKE_NCCL_RELEASE(whenStruck) const ncclResult_t struck = fakeNcclEnter(__func__, (whenStruck))

ncclResult_t fakeCheckComm(ncclComm_t comm, const char* function);

/* All below: the lock is held. */
fakeWorld* fakeWorldOfId(const ncclUniqueId* id);
fakeWorld* fakeWorldAdd(const ncclUniqueId* id, int nRanks, int joined);
/* For a rank that the world's `joined` counts already. */
ncclComm_t fakeCommAdd(fakeWorld* world, int rank, int device);
void fakeCommRemove(ncclComm_t comm);

/* Brings a ticket to the communicator's next step; NULL (and said why) if the others' step is another kind. */
fakeStep* fakeStepReach(ncclComm_t comm, fakeStepKind kind, fakeTicket ticket);
/* Waits until every rank has reached it. */
ncclResult_t fakeStepWait(ncclComm_t comm, fakeStep* step, int64_t deadline);
/* The step goes with the last rank that leaves it. */
void fakeStepLeave(ncclComm_t comm, fakeStep* step);

/* ---- Groups (fake_nccl_group.c) ---------------------------------------------------------------------- */

typedef enum { FAKE_OP_INIT, FAKE_OP_SPLIT, FAKE_OP_WINDOW, FAKE_OP_SEND, FAKE_OP_RECV, FAKE_OP_COPY } fakeOpKind;

typedef struct fakeOp {
  fakeOpKind kind;
  const char* operation; /* for errors */
  ncclComm_t comm;       /* of a split: the parent */
  /* Joining, splitting, registering. */
  ncclComm_t* newComm;
  ncclWindow_t* newWindow;
  ncclUniqueId id;
  int nRanks, rank;
  fakeTicket ticket;
  fakeStep* step;
  /* Moving data. */
  void* data; /* the window's memory; the copy's destination */
  const void* source;
  size_t bytes;
  ncclDataType_t type;
  int peer;
  bool collective;
  bool undefined; /* a receive over what its group sends: nothing is copied */
  cudaStream_t stream;
  fakeMessage* message;
} fakeOp;

void fakeGroupBegin(void);
/* Adds an operation to the calling thread's group. */
ncclResult_t fakeGroupAdd(const fakeOp* op);
/* Makes the group fail at its end, as NCCL does after a refused call inside it; returns the code. */
ncclResult_t fakeGroupFail(ncclResult_t code);
ncclResult_t fakeGroupFinish(void);

/* If the operation's stream is being captured, the graph holds it from now on. */
void fakeGraphHolds(const fakeOp* op);

/* ---- Posts and completions, called by a group with the lock not held ---------------------------------- */

ncclResult_t fakeInitPost(fakeOp* op);
ncclResult_t fakeInitComplete(fakeOp* op, int64_t deadline);
ncclResult_t fakeSplitPost(fakeOp* op);
ncclResult_t fakeSplitComplete(fakeOp* op, int64_t deadline);
ncclResult_t fakeWindowPost(fakeOp* op);
ncclResult_t fakeWindowComplete(fakeOp* op, int64_t deadline);
ncclResult_t fakeSendPost(fakeOp* op);
ncclResult_t fakeRecvComplete(fakeOp* op, int64_t deadline);
ncclResult_t fakeSendComplete(fakeOp* op, int64_t deadline);
ncclResult_t fakeCopyComplete(fakeOp* op);

/* Releases the windows of a communicator that goes. The lock is held. */
void fakeWindowsDrop(ncclComm_t comm);
/* Frees what its owner freed and no window sees any more. The lock is not held. */
void fakeReleaseUnseen(void);

#endif /* ULYX_TESTS_SIM_FAKE_NCCL_H_ */
