/* SPDX-License-Identifier: MIT
 *
 * A phase is this rank's part of one operation: the copies it sends to every peer (itself included), those that
 * every other rank sends to it, and what it does with the data once it is there. No transport appears here. */
#ifndef ULYX_RUNTIME_PLAN_H_
#define ULYX_RUNTIME_PLAN_H_

#include "copy.h"
#include "local_op.h"

/* What every rank knows of a phase alike, so that all choose alike. */
typedef struct ulyxPhaseFacts {
  int64_t remoteBytes;               /* of the busiest rank's busier direction; -1: not known to all */
  int64_t rowBytes;                  /* the shortest row that crosses the wire */
  int64_t copiesPerPeer;             /* about how many copies a rank makes to a peer */
  int64_t writtenPitch;              /* bytes from one row that peers write to the next; 0: they write densely */
  int64_t dstSpan[ULYX_MAX_BUFFERS]; /* the most bytes that any rank's output has, where peers write into it; 0: they
                                        write elsewhere; -1: not known to all */
  bool startsAreTheReceivers;        /* copies to a peer are listed from 0: it alone knows where they start */
  bool someDstEmpty;                 /* a rank has nothing of an output that peers write into on others */
} ulyxPhaseFacts;

/* What a phase's arrays lie in. */
typedef struct ulyxPhaseMemory {
  ulyxStorage copies, starts, addends;
} ulyxPhaseMemory;

/* Copies to peer p are [sendStart[p], sendStart[p + 1]); copies from p are [recvStart[p], recvStart[p + 1]).
 * Own copies stand among the sends only. */
typedef struct ulyxPhase {
  int rank, nRanks;
  const ulyxCopy* copies;
  const int64_t* sendStart; /* [nRanks + 1] */
  const int64_t* recvStart; /* [nRanks + 1] */
  int64_t scratchBytes;     /* of destination buffer ULYX_SCRATCH */
  ulyxLocalOp after;
  ulyxPhaseFacts facts;
  ulyxPhaseMemory memory;
} ulyxPhase;

/* Lists the copies; scratch, the local operation and the facts are the caller's to add. `phase` is all zeros or has
 * been built before, and its memory is used again; it is the caller's to free, also after a failure. */
ulyxResult_t ulyxPhaseBuild(const void* subject, ulyxLister list, int rank, int nRanks, ulyxPhase* phase);
void ulyxPhaseFree(ulyxPhase* phase);

#endif /* ULYX_RUNTIME_PLAN_H_ */
