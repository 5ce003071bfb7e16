/* SPDX-License-Identifier: MIT */
#include "layout.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "types.h"

bool perfGeometriesOfShape(const ulyxShape_t* shape, int nRanks, perfGeometry_t* geometries) {
  bool ok = false;
  ulyxRange_t* ranges = calloc(3 * (size_t)nRanks, sizeof(*ranges));
  if (ranges == NULL) {
    perfError("out of memory for the ranges of %d ranks", nRanks);
    return false;
  }
  ulyxRange_t* tokenRanges = ranges;
  ulyxRange_t* headRanges = ranges + nRanks;
  ulyxRange_t* kvHeadRanges = ranges + 2 * (size_t)nRanks;
  if (!perfUlyxOk(ulyxShapeGetRanges(shape, nRanks, tokenRanges, headRanges, kvHeadRanges), NULL,
                  "ulyxShapeGetRanges")) {
    goto freeRanges;
  }
  const int64_t elementBytes = perfTypeByCode(shape->type)->bytes;
  for (int rank = 0; rank < nRanks; rank++) {
    geometries[rank] = (perfGeometry_t){
        .batch = shape->batch,
        .tokens = tokenRanges[nRanks - 1].stop,
        .heads = shape->heads,
        .kvHeads = shape->kvHeads > 0 ? shape->kvHeads : shape->heads,
        .headBytes = shape->headDim * elementBytes,
        .valueBytes = (shape->valueDim > 0 ? shape->valueDim : shape->headDim) * elementBytes,
        .tokenRange = tokenRanges[rank],
        .headRange = headRanges[rank],
        .kvHeadRange = kvHeadRanges[rank],
        .packedIn = shape->packedIn != 0,
        .packedOut = shape->packedOut != 0,
    };
  }
  ok = true;

freeRanges:
  free(ranges);
  return ok;
}

/* Adds a dense tensor [batch, tokens, heads, headBytes] in a buffer of its own. */
static void add(perfLayout_t* layout, perfTensor_t tensor, int64_t batch, ulyxRange_t tokens, ulyxRange_t heads,
                int64_t headBytes) {
  const int64_t tokenPitch = perfRangeLength(heads) * headBytes;
  const int64_t batchPitch = perfRangeLength(tokens) * tokenPitch;
  layout->views[layout->nViews++] = (perfView_t){
      .tensor = (int32_t)tensor,
      .buffer = (int32_t)layout->nBuffers,
      .batch = batch,
      .tokens = perfRangeLength(tokens),
      .heads = perfRangeLength(heads),
      .headBytes = headBytes,
      .firstToken = tokens.start,
      .firstHead = heads.start,
      .offset = 0,
      .batchPitch = batchPitch,
      .tokenPitch = tokenPitch,
  };
  layout->bufferBytes[layout->nBuffers++] = batch * batchPitch;
}

/* Puts the rows of all tensors side by side into one buffer. */
static void pack(perfLayout_t* layout) {
  int64_t rowBytes = 0;
  for (int i = 0; i < layout->nViews; i++) {
    layout->views[i].buffer = 0;
    layout->views[i].offset = rowBytes;
    rowBytes += layout->views[i].tokenPitch;
  }
  const perfView_t* first = &layout->views[0];
  layout->bufferBytes[0] = first->batch * first->tokens * rowBytes;
  layout->nBuffers = 1;
  for (int i = 0; i < layout->nViews; i++) {
    layout->views[i].tokenPitch = rowBytes;
    layout->views[i].batchPitch = layout->views[i].tokens * rowBytes;
  }
}

static perfLayout_t layOutQkv(const perfGeometry_t* g, ulyxRange_t tokens, ulyxRange_t heads, ulyxRange_t kvHeads,
                              bool packed) {
  perfLayout_t layout;
  memset(&layout, 0, sizeof(layout));
  add(&layout, perfTensorQ, g->batch, tokens, heads, g->headBytes);
  add(&layout, perfTensorK, g->batch, tokens, kvHeads, g->headBytes);
  add(&layout, perfTensorV, g->batch, tokens, kvHeads, g->valueBytes);
  if (packed) pack(&layout);
  return layout;
}

static perfLayout_t layOutO(const perfGeometry_t* g, ulyxRange_t tokens, ulyxRange_t heads) {
  perfLayout_t layout;
  memset(&layout, 0, sizeof(layout));
  add(&layout, perfTensorO, g->batch, tokens, heads, g->valueBytes);
  return layout;
}

perfLayout_t perfLayoutQkvSeqSide(const perfGeometry_t* g) {
  return layOutQkv(g, g->tokenRange, (ulyxRange_t){0, g->heads}, (ulyxRange_t){0, g->kvHeads}, g->packedIn);
}

perfLayout_t perfLayoutQkvHeadsSide(const perfGeometry_t* g) {
  return layOutQkv(g, (ulyxRange_t){0, g->tokens}, g->headRange, g->kvHeadRange, g->packedOut);
}

perfLayout_t perfLayoutOSeqSide(const perfGeometry_t* g) {
  return layOutO(g, g->tokenRange, (ulyxRange_t){0, g->heads});
}

perfLayout_t perfLayoutOHeadsSide(const perfGeometry_t* g) {
  return layOutO(g, (ulyxRange_t){0, g->tokens}, g->headRange);
}
