/* SPDX-License-Identifier: MIT
 *
 * What the host hands the chain kernel. Per head, S is keyDim x valueDim and M is keyDim x keyDim, row-major fp32,
 * heads one after another. S starts from `initial` (NULL: zero); hop h, `hopBytes` behind the one before, holds
 * all heads' S_h and then all heads' M_h, and makes S <- M_h S + S_h. The result goes to `received`; with `final`,
 * final = ownMatrix start + ownState, where start is `received`, or `ownStart` (NULL: zero) if startsHere. Each
 * element is fmaf over keyDim ascending, from S_h; a NaN is stored as 0x7fffffff. */
#ifndef ULYX_CHAIN_LAYOUT_H_
#define ULYX_CHAIN_LAYOUT_H_

#include <stdint.h>

#include "verdict_layout.h"

/* A thread block owns one head's columns [16 b, 16 b + 16): columns never meet. */
#define ULYX_CHAIN_COLUMNS 16
#define ULYX_CHAIN_ROWS 16 /* threads are ROWS x COLUMNS */

/* Two tiles of keyDim x 16 floats fit in 48 KB of shared memory. */
#define ULYX_CHAIN_MAX_KEY_DIM 384

typedef struct ulyxChainArgs {
  const unsigned char* hops;
  int64_t hopBytes;
  const float* initial;
  float* received;
  const float* ownState;
  const float* ownMatrix;
  const float* ownStart;
  float* final;
  int64_t heads, keyDim, valueDim;
  int32_t hopCount;
  int32_t transposed; /* 1: M^T */
  int32_t startsHere;
  int32_t reserved;
  const ulyxVerdict* skip; /* device memory; not NULL, and lost or void: do nothing */
} ulyxChainArgs;

#endif /* ULYX_CHAIN_LAYOUT_H_ */
