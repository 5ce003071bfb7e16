/* SPDX-License-Identifier: MIT
 *
 * A plan is a geometry and, for each operation, this rank's part of the copies: what it sends to every peer
 * (itself included) and what every other rank sends to it. No transport appears here. */
#ifndef ULYX_RUNTIME_PLAN_H_
#define ULYX_RUNTIME_PLAN_H_

#include "copy.h"
#include "exchange.h"

#define ULYX_OP_COUNT 2

/* Copies to peer p are [sendStart[p], sendStart[p + 1]); copies from p are [recvStart[p], recvStart[p + 1]).
 * Own copies stand among the sends only. */
typedef struct ulyxPhase {
  int rank, nRanks;
  const ulyxCopy* copies;
  const int64_t* sendStart; /* [nRanks + 1] */
  const int64_t* recvStart; /* [nRanks + 1] */
} ulyxPhase;

typedef struct ulyxOperation {
  const char* name;
  ulyxLister list;
  ulyxSide from, to;
  ulyxRole firstRole, lastRole; /* the tensors that it moves */
} ulyxOperation;

/* By ulyxOp_t. */
extern const ulyxOperation ulyxOperations[ULYX_OP_COUNT];

ulyxResult_t ulyxPhaseBuild(const ulyxGeometry* geometry, ulyxLister list, int rank, ulyxPhase* phase);
void ulyxPhaseFree(ulyxPhase* phase);

#endif /* ULYX_RUNTIME_PLAN_H_ */
