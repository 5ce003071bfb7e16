/* SPDX-License-Identifier: MIT
 *
 * What the host hands the sum kernel: row i of dst = the addends that cover row i, added in fp32 in the order
 * given and rounded once. It travels by value as a kernel parameter. */
#ifndef ULYX_SUM_LAYOUT_H_
#define ULYX_SUM_LAYOUT_H_

#include <stdint.h>

#include "verdict_layout.h"

#define ULYX_SUM_THREADS 256
#define ULYX_SUM_MAX_ADDENDS 512
#define ULYX_SUM_FEW_ADDENDS 32

typedef struct ulyxSumAddend {
  const unsigned char* data; /* its first row */
  int64_t pitch;             /* bytes from row to row */
  int64_t firstRow, rowCount;
} ulyxSumAddend;

#define ULYX_SUM_FIELDS(n)                                                             \
  unsigned char* dst;                                                                  \
  int64_t dstPitch;                                                                    \
  int64_t rows;                                                                        \
  int64_t rowElements;                                                                 \
  int32_t type; /* ulyxDataType_t */                                                   \
  int32_t wide; /* 1: every address, pitch and row is a multiple of 16 bytes */        \
  int32_t count;                                                                       \
  int32_t reserved;                                                                    \
  const ulyxVerdict* skip; /* device memory; not NULL, and lost or void: do nothing */ \
  ulyxSumAddend addends[n]

typedef struct ulyxSumBatch {
  ULYX_SUM_FIELDS(ULYX_SUM_MAX_ADDENDS);
} ulyxSumBatch;

#ifdef __cplusplus
static_assert(sizeof(ulyxSumAddend) == 32, "the layout is shared by two compilers");
static_assert(sizeof(ulyxSumBatch) <= 32764, "a batch must fit in kernel parameters");
#else
_Static_assert(sizeof(ulyxSumAddend) == 32, "the layout is shared by two compilers");
_Static_assert(sizeof(ulyxSumBatch) <= 32764, "a batch must fit in kernel parameters");
#endif

#endif /* ULYX_SUM_LAYOUT_H_ */
