/* SPDX-License-Identifier: MIT
 *
 * One rank on a GPU: the memory it owns, its streams, the order of its exchanges. What moves a phase is one of three
 * carriers, chosen per phase (choice.h); the rest is the same for all. */
#ifndef ULYX_RUNTIME_GPU_H_
#define ULYX_RUNTIME_GPU_H_

#include "choice.h"
#include "copy_batch.h"
#include "graphs.h"
#include "labels.h"
#include "landing.h"
#include "meeting.h"
#include "trace.h"
#include "transport.h"
#include "wire.h"

/* A stream of our own that part of an exchange runs on, between a fork from the caller's stream and a join to it;
 * part of a capture while one is open. */
typedef struct ulyxBranch {
  cudaStream_t stream;
  cudaEvent_t end;
} ulyxBranch;

typedef struct ulyxGpu {
  ulyxTransport base;
  ulyxWorldFacts facts;
  ulyxNcclWorld world;
  ulyxWindows windows;
  ulyxMeetings meetings;
  ulyxLabels labels;
  ulyxGraphs* graphs;
  ulyxTrace trace;
  ulyxArena* arena;    /* staging */
  ulyxArena* blocks;   /* from ulyxMemAlloc */
  cudaEvent_t fork;    /* where branches begin */
  ulyxBranch beside;   /* own copies while the wire works */
  ulyxBranch* engines; /* [engineCount]: copies to peers by copy engine */
  int engineCount;
  int maxCtas;                /* of any kernel; 0: no cap */
  int besideCtas;             /* of a kernel that runs beside NCCL's */
  int directCtas;             /* of the exchange kernel; all are resident at once */
  ulyxCopyBatch batch;        /* being filled; empty between launches */
  ulyxExchangeBatch exchange; /* the same for the exchange kernel */
} ulyxGpu;

/* What an exchange needs besides its phase. */
typedef struct ulyxGpuPrepared {
  ulyxChoice_t choice;
  ulyxWire wire;         /* nccl */
  int64_t scratchOffset; /* in the arena */
  ulyxLanding landing;   /* direct and copy_engine */
} ulyxGpuPrepared;

/* One rank over a communicator, which it takes over, also on failure. The current device is the communicator's.
 * Collective. */
ulyxResult_t ulyxGpuCreate(const ulyxSettings* settings, ncclComm_t comm, ulyxTransport** transport);

/* The carriers: each enqueues an exchange's copies on its stream; dst includes scratch. A failure of one that writes
 * into peers' memory is always half-way. */
ulyxResult_t ulyxNcclCarry(ulyxGpu* gpu, const ulyxExchange* exchange, bool* halfWay);
ulyxResult_t ulyxDirectCarry(ulyxGpu* gpu, const ulyxExchange* exchange);
ulyxResult_t ulyxCopyEngineCarry(ulyxGpu* gpu, const ulyxExchange* exchange);

/* ---- What carriers share (gpu_copies.c) ---------------------------------------------------------------- */

static inline unsigned char* ulyxAt(void* base, int64_t offset) {
  return (unsigned char*)base + offset;
}

/* A rank that has enqueued a part of an exchange alone is out of step with the others: loses the world. */
void ulyxGpuLoseHalfWay(ulyxGpu* gpu);

/* Adds a copy to the batch, which is launched with at most maxCtas blocks where it is full. */
ulyxResult_t ulyxGpuAddStrip(ulyxGpu* gpu, ulyxStrip strip, int maxCtas, cudaStream_t stream);
/* Launches what was added; the batch is empty after, also on failure. */
ulyxResult_t ulyxGpuFlush(ulyxGpu* gpu, int maxCtas, cudaStream_t stream);
/* The copies of a rank to itself. */
ulyxResult_t ulyxGpuAddOwn(ulyxGpu* gpu, const ulyxExchange* exchange, int maxCtas, cudaStream_t stream);

/* The arena or ulyxMemAlloc block that holds these bytes, else NULL. */
const ulyxArena* ulyxGpuArenaOf(const ulyxGpu* gpu, const void* data, int64_t bytes);

/* Where this rank's outputs are as peers know them. Those that peers cannot write land in the arena first. */
typedef struct ulyxOutputs {
  const ulyxArena* arena[ULYX_ALL_BUFFERS]; /* NULL: peers do not write it */
  int64_t offset[ULYX_ALL_BUFFERS];
  bool lands[ULYX_ALL_BUFFERS];
} ulyxOutputs;

/* sameEverywhere: the choice between in place and landing must come out alike on ranks whose outputs lie alike. */
ulyxOutputs ulyxGpuFindOutputs(const ulyxGpu* gpu, const ulyxExchange* exchange, bool sameEverywhere);
/* The outputs' places, for a meeting. */
void ulyxGpuWritePlaces(const ulyxOutputs* outputs, ulyxMeeting* meeting);
/* Brings home what landed in the arena. */
ulyxResult_t ulyxGpuBringHome(ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxOutputs* outputs);

/* The branch runs after what the fork event saw. */
ulyxResult_t ulyxBranchFork(const ulyxGpu* gpu, const ulyxBranch* branch);
/* The stream goes on after the branch's work so far. */
ulyxResult_t ulyxBranchJoin(const ulyxBranch* branch, cudaStream_t stream);

#endif /* ULYX_RUNTIME_GPU_H_ */
