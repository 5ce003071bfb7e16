/* SPDX-License-Identifier: MIT */
#include "copy_batch.h"

#include <stddef.h>

#include "check.h"

void ulyxCopyBatchReset(ulyxCopyBatch* batch) {
  batch->count = batch->tiles = 0;
  batch->streaming = batch->reserved = 0;
  batch->skip = NULL;
}

/* The most rows that a descriptor can hold, or the most bytes of a row too long for one; taken off the strip. */
static ulyxStrip takePart(ulyxStrip* strip) {
  ulyxStrip part = *strip;
  if (strip->rowBytes <= ULYX_COPY_MAX_BYTES) {
    part.rows = ulyxMin64(strip->rows, ULYX_COPY_MAX_BYTES / strip->rowBytes);
  } else {
    part.rows = 1;
    part.rowBytes = ulyxMin64(strip->rowBytes - strip->column, ULYX_COPY_MAX_BYTES);
    part.src += strip->column;
    part.dst += strip->column;
    strip->column += part.rowBytes;
    if (strip->column < strip->rowBytes) return part;
    strip->column = 0;
  }
  strip->rows -= part.rows;
  strip->src += part.rows * strip->srcPitch;
  strip->dst += part.rows * strip->dstPitch;
  return part;
}

static unsigned int unitBytesLog2(const ulyxStrip* strip) {
  uint64_t bits = (uintptr_t)strip->src | (uintptr_t)strip->dst | (uint64_t)strip->rowBytes | 16;
  if (strip->rows > 1) bits |= (uint64_t)strip->srcPitch | (uint64_t)strip->dstPitch;
  return (unsigned int)__builtin_ctzll(bits);
}

/* For d = unitsPerRow and s = ceil(log2 d): magic = ceil(2^(31 + s) / d) fits 32 bits, and
 * (u * magic) >> (31 + s) is u / d for every u below 2^31, since magic * d - 2^(31 + s) < d <= 2^s. */
static void setUnits(ulyxCopyDesc* desc, uint32_t unitsPerRow, uint32_t rows) {
  const unsigned int log2 = unitsPerRow > 1 ? 32u - (unsigned int)__builtin_clz(unitsPerRow - 1) : 0;
  desc->unitsPerRow = unitsPerRow;
  desc->units = unitsPerRow * rows;
  desc->shift = (uint16_t)(31 + log2);
  desc->magic = (uint32_t)(((UINT64_C(1) << desc->shift) + unitsPerRow - 1) / unitsPerRow);
}

void ulyxCopyDescTake(ulyxCopyDesc* desc, uint32_t* tiles, ulyxStrip* strip) {
  const ulyxStrip part = takePart(strip);
  const unsigned int log2 = unitBytesLog2(&part);
  *desc = (ulyxCopyDesc){.src = part.src,
                         .dst = part.dst,
                         .srcPitch = part.srcPitch,
                         .dstPitch = part.dstPitch,
                         .unitBytesLog2 = (uint16_t)log2,
                         .firstTile = *tiles};
  setUnits(desc, (uint32_t)(part.rowBytes >> log2), (uint32_t)part.rows);
  *tiles += (desc->units + ULYX_COPY_TILE_UNITS - 1) / ULYX_COPY_TILE_UNITS;
}

void ulyxCopyBatchTake(ulyxCopyBatch* batch, ulyxStrip* strip) {
  ulyxCopyDescTake(&batch->desc[batch->count++], &batch->tiles, strip);
}
