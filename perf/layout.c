/* SPDX-License-Identifier: MIT */
#include "layout.h"

void perfLayoutAdd(perfLayout_t* layout, perfTensor_t tensor, int64_t batch, ulyxRange_t tokens, ulyxRange_t heads,
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
  perfLayoutAddBuffer(layout, batch * batchPitch);
}

void perfLayoutAddBuffer(perfLayout_t* layout, int64_t bytes) {
  layout->bufferBytes[layout->nBuffers++] = bytes;
}

void perfLayoutPack(perfLayout_t* layout) {
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
