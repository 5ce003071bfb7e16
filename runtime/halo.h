/* SPDX-License-Identifier: MIT
 *
 * The rows of a sequence that precede a rank's shard, for a causal convolution: rank r needs tokens
 * [start(r) - halo(r), start(r)) from whoever holds them, which are several ranks where shards are shorter than
 * the halo. Backward, the gradients of those rows go back and are added up. */
#ifndef ULYX_RUNTIME_HALO_H_
#define ULYX_RUNTIME_HALO_H_

#include "context.h"
#include "plan.h"
#include "statement.h"
#include "tensor.h"

typedef struct ulyxHalo {
  int rank, nRanks;
  int type;
  int64_t elementBytes, rowElements, rowBytes, localPitch;
  ulyxRange_t* tokens; /* [nRanks]: every rank's shard */
  ulyxRange_t* halos;  /* [nRanks]: the tokens it needs */
  int64_t* counts;     /* [2 * nRanks]: lengths of both, for the ranks to compare */
  ulyxStorage memory;  /* of all three */
} ulyxHalo;

/* Checks a shape and resolves it for one rank. `halo` is all zeros or has been resolved before, and its memory is used
 * again; it is the caller's to free, also after a failure. */
ulyxResult_t ulyxHaloResolve(const ulyxHaloShape_t* shape, int nRanks, int rank, ulyxHalo* halo);
void ulyxHaloFree(ulyxHalo* halo);

/* Forward: local -> halo. Backward: halo -> local, which is also an addend. `phase` as for ulyxPhaseBuild. */
ulyxResult_t ulyxHaloForward(const ulyxHalo* halo, ulyxPhase* phase);
ulyxResult_t ulyxHaloBackward(const ulyxHalo* halo, ulyxPhase* phase);

ulyxStatement ulyxHaloState(const ulyxHalo* halo);
ulyxExpected ulyxHaloExpectLocal(const ulyxHalo* halo);
ulyxExpected ulyxHaloExpectHalo(const ulyxHalo* halo);

#endif /* ULYX_RUNTIME_HALO_H_ */
