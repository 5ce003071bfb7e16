/* SPDX-License-Identifier: MIT
 *
 * The hand-off of recurrent state. A rank whose first sequence began on earlier ranks receives what each of them
 * contributes, S and M, into scratch in chain order, and merges: one step of communication whatever the chain's
 * length, and only between ranks of one chain. Backward is the mirror image. */
#ifndef ULYX_RUNTIME_CHAIN_H_
#define ULYX_RUNTIME_CHAIN_H_

#include "../cuda/chain_layout.h"
#include "context.h"
#include "plan.h"
#include "statement.h"
#include "tensor.h"

/* One rank's place in its chains. */
typedef struct ulyxChainLink {
  int64_t before, after; /* ranks before it in its first sequence, after it in its last */
  bool holdsTokens;
  bool oneSequence; /* its first sequence is its last */
} ulyxChainLink;

typedef struct ulyxStateChainPlan {
  int rank, nRanks;
  int64_t heads, keyDim, valueDim;
  bool hasInitial, wantsFinal;
  int64_t stateBytes, matrixBytes; /* of all heads */
  ulyxChainLink* links;            /* [nRanks] */
  int64_t* counts;                 /* [2 * nRanks]: before, after */
  ulyxStorage memory;              /* of both */
} ulyxStateChainPlan;

/* One direction of a plan: the subject of its lister. */
typedef struct ulyxChainDirection {
  const ulyxStateChainPlan* plan;
  bool backward;
} ulyxChainDirection;

/* Checks a shape and resolves it for one rank. `chain` is all zeros or has been resolved before, and its memory is used
 * again; it is the caller's to free, also after a failure. */
ulyxResult_t ulyxChainResolve(const ulyxStateShape_t* shape, int nRanks, int rank, ulyxStateChainPlan* chain);
void ulyxChainFree(ulyxStateChainPlan* chain);
/* Buffers: in 0 state, 1 transition, 2 initial; out 0 received, 1 final. `phase` as for ulyxPhaseBuild. */
ulyxResult_t ulyxChainPhase(const ulyxStateChainPlan* chain, bool backward, ulyxPhase* phase);
/* Whether this rank itself reads `initial`: the sequence that it contributes to starts on it. Without tokens there is
 * none. */
bool ulyxChainReadsInitial(const ulyxStateChainPlan* chain, bool backward);
ulyxStatement ulyxChainState(const ulyxStateChainPlan* chain);
/* columns: valueDim or keyDim. */
ulyxExpected ulyxChainExpect(const ulyxStateChainPlan* chain, int64_t columns);

/* Turns places into addresses, and the same merge on the host, bit for bit. */
void ulyxChainArgsFill(const ulyxChain* chain, void* const* src, void* const* dst, ulyxChainArgs* args);
void ulyxChainOnHost(const ulyxChainArgs* args);

#endif /* ULYX_RUNTIME_CHAIN_H_ */
