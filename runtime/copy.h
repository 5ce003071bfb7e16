/* SPDX-License-Identifier: MIT
 *
 * The one currency: a copy is a 2-D block of bytes from a buffer of one rank to a buffer of another. Rank r's
 * copies to p and what p expects from r are listed by the same function, so they cannot disagree. */
#ifndef ULYX_RUNTIME_COPY_H_
#define ULYX_RUNTIME_COPY_H_

#include "geometry.h"
#include "storage.h"

typedef struct ulyxCopy {
  int srcBuffer, dstBuffer;
  int64_t rows, rowBytes;
  int64_t srcOffset, srcPitch; /* bytes from the buffer's start, and from row to row */
  int64_t dstOffset, dstPitch;
} ulyxCopy;

typedef struct ulyxCopyList {
  ulyxCopy* copies; /* in memory */
  int64_t count;
  ulyxStorage memory;
} ulyxCopyList;

ulyxResult_t ulyxCopyListAppend(ulyxCopyList* list, ulyxCopy copy);

/* Lists the copies that move [batch, tokens, heads, dim] from one view to another, starting at srcOffset and
 * dstOffset, in an order that depends on nothing but the arguments. Dimensions that are dense or evenly
 * spaced on both sides are merged, so a block costs as few copies as its strides allow. */
ulyxResult_t ulyxCopyListAppendBlock(ulyxCopyList* list, const ulyxView* src, int64_t srcOffset, const ulyxView* dst,
                                     int64_t dstOffset, int64_t tokens, int64_t heads);

/* Appends the copies from rank src to rank dst, in canonical order. The subject is what the operation is
 * about: a geometry, rows, a context. */
typedef ulyxResult_t (*ulyxLister)(const void* subject, int src, int dst, ulyxCopyList* list);

void ulyxCopyListFree(ulyxCopyList* list);

/* Bytes that a run of copies moves. */
int64_t ulyxCopiesBytes(const ulyxCopy* copies, int64_t count);

#endif /* ULYX_RUNTIME_COPY_H_ */
