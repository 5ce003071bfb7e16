/* SPDX-License-Identifier: MIT
 *
 * Fills the copy kernel's batches: picks the widest unit that a copy's addresses, pitches and row allow, and
 * cuts copies that are too long for 31-bit unit counts. Pointers are numbers here; nothing is read. */
#ifndef ULYX_RUNTIME_COPY_BATCH_H_
#define ULYX_RUNTIME_COPY_BATCH_H_

#include <stdbool.h>

#include "../cuda/copy_layout.h"

/* A 2-D copy in memory. */
typedef struct ulyxStrip {
  const unsigned char* src;
  unsigned char* dst;
  int64_t rows, rowBytes;
  int64_t srcPitch, dstPitch;
  int64_t column; /* bytes of the first row already taken; 0 to begin with */
} ulyxStrip;

void ulyxCopyBatchReset(ulyxCopyBatch* batch);

static inline bool ulyxCopyBatchIsFull(const ulyxCopyBatch* batch) {
  return batch->count == ULYX_COPY_BATCH_LARGE;
}

/* Makes one descriptor of what it can hold of the strip, takes that off the strip, and counts its tiles. */
void ulyxCopyDescTake(ulyxCopyDesc* desc, uint32_t* tiles, ulyxStrip* strip);

/* Adds what one descriptor can hold of the strip to a batch that is not full, and takes it off the strip. The
 * strip is done when rows is 0. */
void ulyxCopyBatchTake(ulyxCopyBatch* batch, ulyxStrip* strip);

#endif /* ULYX_RUNTIME_COPY_BATCH_H_ */
