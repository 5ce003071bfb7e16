/* SPDX-License-Identifier: MIT
 *
 * Which part of each tensor a rank holds before and after an exchange and where it lies. */
#ifndef PERF_LAYOUT_H_
#define PERF_LAYOUT_H_

#include <stdbool.h>
#include <stdint.h>

#include "pattern.h"
#include "ranges.h"
#include "ulyx.h"

#define PERF_MAX_TENSORS 3
#define PERF_MAX_VIEWS (2 * PERF_MAX_TENSORS) /* one a run of tokens */

/* Tokens of a tensor in memory order: one run after the other, either of them may be empty. */
typedef struct perfTokens {
  ulyxRange_t runs[2];
} perfTokens_t;

/* One side of an exchange on one rank: up to three tensors in as many buffers, or packed in one. Its views have the
 * pattern; an op that checks its data otherwise has none. */
typedef struct perfLayout {
  perfView_t views[PERF_MAX_VIEWS];
  int nViews;
  int64_t bufferBytes[PERF_MAX_TENSORS];
  int nBuffers;
} perfLayout_t;

/* Adds a dense tensor [batch, tokens, heads, headBytes] in a buffer of its own: a view of the first run, and one of the
 * second where it has tokens. */
void perfLayoutAdd(perfLayout_t* layout, perfTensor_t tensor, int64_t batch, perfTokens_t tokens, ulyxRange_t heads,
                   int64_t headBytes);

/* Adds a buffer without a view. */
void perfLayoutAddBuffer(perfLayout_t* layout, int64_t bytes);

/* Puts the rows of all tensors side by side into one buffer. */
void perfLayoutPack(perfLayout_t* layout);

#endif /* PERF_LAYOUT_H_ */
