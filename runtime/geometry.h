/* SPDX-License-Identifier: MIT
 *
 * A shape resolved over a world: ranges of tokens and heads, and for every tensor of every rank a view, its
 * extents and byte strides. Resolving is where numbers are refused and overflow is looked for; a geometry
 * holds only offsets that fit.
 *
 * The two exchanges are the same move between the two sides, for different tensors: q, k and v go from the
 * sequence side to the heads side, o goes back. */
#ifndef ULYX_RUNTIME_GEOMETRY_H_
#define ULYX_RUNTIME_GEOMETRY_H_

#include <stdbool.h>

#include "statement.h"
#include "storage.h"
#include "ulyx.h"

/* One rank's bytes of one tensor are counted in 63 bits, and so are all ranks' together. */
typedef enum { ulyxRoleQ, ulyxRoleK, ulyxRoleV, ulyxRoleO, ulyxRoleCount } ulyxRole;
typedef enum { ulyxSideSeq, ulyxSideHeads, ulyxSideCount } ulyxSide;

/* Where one rank holds one role: [batch, tokens, heads, dim] with byte strides; the dim is dense. Packed
 * roles share buffer 0 and differ in `offset`. */
typedef struct ulyxView {
  int buffer; /* of the operation's tensors: 0 q or o or packed, 1 k, 2 v */
  int64_t offset;
  int64_t batches, tokens, heads;
  int64_t headBytes; /* one head's dim */
  int64_t batchStride, tokenStride, headStride;
} ulyxView;

typedef struct ulyxGeometry {
  int nRanks;
  int type;
  int64_t elementBytes;
  int64_t tokens, heads, kvHeads, headDim, valueDim, batch;
  int64_t replicatedTokens; /* on both sides besides the tokens above */
  bool replicatedLast;      /* behind them, not before */
  int order[ulyxSideCount];
  bool packed[ulyxSideCount];                          /* of q, k and v; o is never packed */
  ulyxStrides_t strides[ulyxSideCount][ulyxRoleCount]; /* as given, in elements, 0: dense */
  ulyxRange_t* tokenRanges;                            /* [nRanks], and so the next two */
  ulyxRange_t* headRanges;
  ulyxRange_t* kvHeadRanges;
  int64_t* counts;           /* [3 * nRanks]: lengths of the three */
  ulyxSequences_t sequences; /* of the heads side, a reference; NULL: not told */
  ulyxStorage memory;        /* of ranges and counts */
} ulyxGeometry;

/* Checks a shape and resolves it over nRanks ranks. `geometry` is all zeros or has been resolved before, and its memory
 * is used again; it is the caller's to free, also after a failure. */
ulyxResult_t ulyxGeometryResolve(const ulyxShape_t* shape, int nRanks, ulyxGeometry* geometry);
/* Leaves it empty, but with its memory. */
void ulyxGeometryClear(ulyxGeometry* geometry);
void ulyxGeometryFree(ulyxGeometry* geometry);

ulyxView ulyxGeometryView(const ulyxGeometry* geometry, ulyxSide side, ulyxRole role, int rank);

/* Bytes from the data pointer to the end of the last element, 0 if there is none. */
int64_t ulyxGeometrySpanBytes(const ulyxGeometry* geometry, ulyxSide side, ulyxRole role, int rank);

/* The heads of a role that a rank owns on the heads side: query heads for q and o, key/value heads else. */
ulyxRange_t ulyxGeometryHeadRange(const ulyxGeometry* geometry, ulyxRole role, int rank);

/* The rows of a side's tensors that replicated tokens take, and the first row of the others. */
ulyxRange_t ulyxGeometryReplicated(const ulyxGeometry* geometry, ulyxSide side, int rank);
int64_t ulyxGeometryFirstRow(const ulyxGeometry* geometry);

/* What the ranks compare. Points into the geometry. */
ulyxStatement ulyxGeometryState(const ulyxGeometry* geometry);

#endif /* ULYX_RUNTIME_GEOMETRY_H_ */
