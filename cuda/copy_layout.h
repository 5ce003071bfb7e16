/* SPDX-License-Identifier: MIT
 *
 * What the host hands the copy kernel: a batch of 2-D copies in device memory, cut into tiles of equal
 * numbers of units so that thread blocks share the work evenly whatever the copies' sizes.
 *
 * A unit is 1, 2, 4, 8 or 16 bytes: the widest that both addresses, both pitches and the row allow. Unit u of
 * a copy lies in row u / unitsPerRow; the division is a multiplication by `magic` and a shift by `shift`
 * (runtime/copy_batch.c), exact for every u below 2^31. Batches travel by value as kernel parameters, so a
 * captured graph owns what it replays. */
#ifndef ULYX_COPY_LAYOUT_H_
#define ULYX_COPY_LAYOUT_H_

#include <stdint.h>

#include "verdict_layout.h"

#define ULYX_COPY_THREADS 256
#define ULYX_COPY_UNITS_PER_THREAD 4
#define ULYX_COPY_TILE_UNITS (ULYX_COPY_THREADS * ULYX_COPY_UNITS_PER_THREAD)

/* One copy's bytes, so that its units can be counted in 31 bits at any width. */
#define ULYX_COPY_MAX_BYTES (INT64_C(1) << 30)

typedef struct ulyxCopyDesc {
  const unsigned char* src;
  unsigned char* dst;
  int64_t srcPitch; /* bytes from row to row */
  int64_t dstPitch;
  uint32_t units; /* rows * unitsPerRow, below 2^31 */
  uint32_t unitsPerRow;
  uint32_t magic;
  uint16_t shift;
  uint16_t unitBytesLog2;
  uint32_t firstTile; /* tiles of the copies before it in the batch */
  uint32_t target;    /* of the exchange kernel (exchange_layout.h); 0: dst is an address */
} ulyxCopyDesc;

/* Two sizes, so that the usual handful of copies does not pay for passing many. Kernel parameters hold
 * 32,764 bytes from CUDA 12.1 on. */
#define ULYX_COPY_BATCH_SMALL 64
#define ULYX_COPY_BATCH_LARGE 512

#define ULYX_COPY_BATCH_FIELDS(n)                                                      \
  uint32_t count;                                                                      \
  uint32_t tiles;                                                                      \
  uint32_t streaming; /* 1: loads and stores leave the L2 cache to others */           \
  uint32_t reserved;                                                                   \
  const ulyxVerdict* skip; /* device memory; not NULL, and lost or void: do nothing */ \
  ulyxCopyDesc desc[n]

typedef struct ulyxCopyBatchSmall {
  ULYX_COPY_BATCH_FIELDS(ULYX_COPY_BATCH_SMALL);
} ulyxCopyBatchSmall;

/* A small batch is a prefix of a large one: the host fills a large one and launches by its count. */
typedef struct ulyxCopyBatch {
  ULYX_COPY_BATCH_FIELDS(ULYX_COPY_BATCH_LARGE);
} ulyxCopyBatch;

#ifdef __cplusplus
static_assert(sizeof(ulyxCopyDesc) == 56, "the layout is shared by two compilers");
static_assert(sizeof(ulyxCopyBatch) <= 32764, "a batch must fit in kernel parameters");
#else
_Static_assert(sizeof(ulyxCopyDesc) == 56, "the layout is shared by two compilers");
_Static_assert(sizeof(ulyxCopyBatch) <= 32764, "a batch must fit in kernel parameters");
#endif

#endif /* ULYX_COPY_LAYOUT_H_ */
