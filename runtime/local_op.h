/* SPDX-License-Identifier: MIT
 *
 * What a rank does with a phase's data once it has arrived: a sum in rank order, or a chain of states. Both are
 * defined here to the bit, so that every transport gives the same: fp32, in the order written, one rounding at
 * the end of a sum. Offsets and pitches are bytes from a buffer's start. */
#ifndef ULYX_RUNTIME_LOCAL_OP_H_
#define ULYX_RUNTIME_LOCAL_OP_H_

#include <stdbool.h>
#include <stdint.h>

#include "../cuda/sum_layout.h"

/* Buffers of a rank: those of its inputs, those of its outputs, and the transport's scratch, which is the last
 * destination of a phase. */
#define ULYX_MAX_BUFFERS 3
#define ULYX_SCRATCH ULYX_MAX_BUFFERS
#define ULYX_ALL_BUFFERS (ULYX_MAX_BUFFERS + 1)

typedef struct ulyxBufferPlace {
  enum { ulyxInSrc, ulyxInDst } in; /* scratch is dst[ULYX_SCRATCH] */
  int buffer;
  int64_t offset;
} ulyxBufferPlace;

/* One addend: rows [firstRow, firstRow + rowCount) of the sum. */
typedef struct ulyxAddend {
  ulyxBufferPlace place; /* of its first row */
  int64_t pitch;
  int64_t firstRow, rowCount;
} ulyxAddend;

/* dst row i = the addends that cover row i, added in order. Every row is covered by one at least. */
typedef struct ulyxSum {
  int type; /* ulyxFloat16, ulyxBfloat16 or ulyxFloat32 */
  int64_t rows, rowElements;
  ulyxBufferPlace dst;
  int64_t dstPitch;
  int addendCount;
  ulyxAddend* addends;
} ulyxSum;

/* A chain of states (cuda/chain_layout.h), in places instead of addresses. */
typedef struct ulyxChain {
  int64_t heads, keyDim, valueDim;
  int transposed;
  int hops;
  int64_t hopBytes;
  bool hasInitial, hasFinal;
  bool startsHere; /* final starts from ownStart, not from what was received */
  bool hasOwnStart;
  ulyxBufferPlace hop, initial, received, ownState, ownMatrix, ownStart, final;
} ulyxChain;

typedef struct ulyxLocalOp {
  enum { ulyxLocalNothing, ulyxLocalSum, ulyxLocalChain } kind;
  ulyxSum sum;
  ulyxChain chain;
} ulyxLocalOp;

#endif /* ULYX_RUNTIME_LOCAL_OP_H_ */
