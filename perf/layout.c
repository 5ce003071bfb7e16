/* SPDX-License-Identifier: MIT */
#include "layout.h"

void perfLayoutAdd(perfLayout_t* layout, perfTensor_t tensor, int64_t batch, perfTokens_t tokens, ulyxRange_t heads,
                   int64_t headBytes) {
  const int64_t tokenPitch = perfRangeLength(heads) * headBytes;
  const int64_t firstLength = perfRangeLength(tokens.runs[0]);
  const int64_t batchPitch = (firstLength + perfRangeLength(tokens.runs[1])) * tokenPitch;
  for (int i = 0; i < 2; i++) {
    const ulyxRange_t run = tokens.runs[i];
    if (i > 0 && perfRangeLength(run) == 0) continue;
    layout->views[layout->nViews++] = (perfView_t){
        .tensor = (int32_t)tensor,
        .buffer = (int32_t)layout->nBuffers,
        .batch = batch,
        .tokens = perfRangeLength(run),
        .heads = perfRangeLength(heads),
        .headBytes = headBytes,
        .firstToken = run.start,
        .firstHead = heads.start,
        .offset = i * firstLength * tokenPitch,
        .batchPitch = batchPitch,
        .tokenPitch = tokenPitch,
    };
  }
  perfLayoutAddBuffer(layout, batch * batchPitch);
}

void perfLayoutAddBuffer(perfLayout_t* layout, int64_t bytes) {
  layout->bufferBytes[layout->nBuffers++] = bytes;
}

/* True if a view is the first of its tensor. */
static bool beginsTensor(const perfLayout_t* layout, int i) {
  return i == 0 || layout->views[i - 1].tensor != layout->views[i].tensor;
}

void perfLayoutPack(perfLayout_t* layout) {
  int64_t rowBytes = 0;
  int64_t rows = 0; /* all tensors have the same */
  for (int i = 0; i < layout->nViews; i++) {
    if (layout->views[i].buffer == 0) rows += layout->views[i].tokens;
    if (beginsTensor(layout, i)) rowBytes += layout->views[i].tokenPitch;
  }
  int64_t column = 0;
  int64_t nextColumn = 0;
  int64_t row = 0;
  for (int i = 0; i < layout->nViews; i++) {
    perfView_t* view = &layout->views[i];
    if (beginsTensor(layout, i)) {
      column = nextColumn;
      nextColumn += view->tokenPitch;
      row = 0;
    }
    view->buffer = 0;
    view->offset = row * rowBytes + column;
    view->tokenPitch = rowBytes;
    view->batchPitch = rows * rowBytes;
    row += view->tokens;
  }
  layout->bufferBytes[0] = layout->views[0].batch * rows * rowBytes;
  layout->nBuffers = 1;
}
