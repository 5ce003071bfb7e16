/* SPDX-License-Identifier: MIT */
#include "copy.h"

#include "status.h"

ulyxResult_t ulyxCopyListAppend(ulyxCopyList* list, ulyxCopy copy) {
  ULYX_TRY(ulyxStorageEnsure(&list->memory, (size_t)list->count + 1, sizeof copy, "copies"));
  list->copies = list->memory.data;
  list->copies[list->count++] = copy;
  return ulyxSuccess;
}

typedef struct Dimension {
  int64_t extent, srcStride, dstStride;
} Dimension;

/* Moves dimension i behind the last one kept. */
static void dropDimension(Dimension* dims, int* count, int i) {
  for (int j = i; j + 1 < *count; ++j) dims[j] = dims[j + 1];
  --*count;
}

/* Widens the row by every dimension that continues it on both sides. */
static int64_t mergeIntoRow(Dimension* dims, int* count, int64_t rowBytes) {
  for (int i = 0; i < *count;) {
    if (dims[i].srcStride == rowBytes && dims[i].dstStride == rowBytes) {
      rowBytes *= dims[i].extent;
      dropDimension(dims, count, i);
      i = 0;
    } else {
      ++i;
    }
  }
  return rowBytes;
}

/* Joins dimensions of which one continues the other on both sides. */
static void mergeDimensions(Dimension* dims, int* count) {
  for (int inner = 0; inner < *count; ++inner) {
    for (int outer = 0; outer < *count; ++outer) {
      if (outer == inner || dims[outer].srcStride != dims[inner].srcStride * dims[inner].extent ||
          dims[outer].dstStride != dims[inner].dstStride * dims[inner].extent) {
        continue;
      }
      dims[inner].extent *= dims[outer].extent;
      dropDimension(dims, count, outer);
      inner = -1; /* look again from the start */
      break;
    }
  }
}

ulyxResult_t ulyxCopyListAppendBlock(ulyxCopyList* list, const ulyxView* src, int64_t srcOffset, const ulyxView* dst,
                                     int64_t dstOffset, int64_t tokens, int64_t heads) {
  if (src->batches == 0 || tokens == 0 || heads == 0) return ulyxSuccess;
  const Dimension all[3] = {{heads, src->headStride, dst->headStride},
                            {tokens, src->tokenStride, dst->tokenStride},
                            {src->batches, src->batchStride, dst->batchStride}};
  Dimension dims[3];
  int count = 0;
  for (int i = 0; i < 3; ++i) {
    if (all[i].extent > 1) dims[count++] = all[i];
  }
  const int64_t rowBytes = mergeIntoRow(dims, &count, src->headBytes);
  mergeDimensions(dims, &count);

  int rows = 0; /* the longest dimension becomes the rows, so that copies are few */
  for (int i = 1; i < count; ++i) {
    if (dims[i].extent > dims[rows].extent) rows = i;
  }
  ulyxCopy copy = {.srcBuffer = src->buffer,
                   .dstBuffer = dst->buffer,
                   .rows = count > 0 ? dims[rows].extent : 1,
                   .rowBytes = rowBytes,
                   .srcPitch = count > 0 ? dims[rows].srcStride : rowBytes,
                   .dstPitch = count > 0 ? dims[rows].dstStride : rowBytes};
  if (count > 0) dropDimension(dims, &count, rows);
  const Dimension none = {1, 0, 0};
  const Dimension middle = count > 0 ? dims[0] : none;
  const Dimension outer = count > 1 ? dims[1] : none;
  for (int64_t i = 0; i < outer.extent; ++i) {
    for (int64_t j = 0; j < middle.extent; ++j) {
      copy.srcOffset = srcOffset + i * outer.srcStride + j * middle.srcStride;
      copy.dstOffset = dstOffset + i * outer.dstStride + j * middle.dstStride;
      ULYX_TRY(ulyxCopyListAppend(list, copy));
    }
  }
  return ulyxSuccess;
}

void ulyxCopyListFree(ulyxCopyList* list) {
  ulyxStorageFree(&list->memory);
  *list = (ulyxCopyList){0};
}

int64_t ulyxCopiesBytes(const ulyxCopy* copies, int64_t count) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < count; ++i) bytes += copies[i].rows * copies[i].rowBytes;
  return bytes;
}
