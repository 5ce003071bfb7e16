/* SPDX-License-Identifier: MIT
 *
 * Which part of each tensor a rank holds before and after an exchange and where it lies, from ulyx.h's text
 * about shapes: the perf programs' own arithmetic, so that a check compares ulyx with what it promises. */
#ifndef PERF_LAYOUT_H_
#define PERF_LAYOUT_H_

#include <stdbool.h>
#include <stdint.h>

#include "pattern.h"
#include "ulyx.h"

#define PERF_MAX_TENSORS 3

/* One rank's part of a shape. */
typedef struct perfGeometry {
  int64_t batch;
  int64_t tokens; /* of the whole sequence */
  int64_t heads;
  int64_t kvHeads;
  int64_t headBytes;  /* of one query or key head */
  int64_t valueBytes; /* of one value head */
  ulyxRange_t tokenRange;
  ulyxRange_t headRange;
  ulyxRange_t kvHeadRange;
  bool packedIn;
  bool packedOut;
} perfGeometry_t;

/* geometries[nRanks] of a shape that ulyxShapeGetRanges accepts. A failure has been reported. */
bool perfGeometriesOfShape(const ulyxShape_t* shape, int nRanks, perfGeometry_t* geometries);

/* One side of an exchange on one rank: up to three tensors in as many buffers, or packed in one. */
typedef struct perfLayout {
  perfView_t views[PERF_MAX_TENSORS];
  int nViews;
  int64_t bufferBytes[PERF_MAX_TENSORS];
  int nBuffers;
} perfLayout_t;

perfLayout_t perfLayoutQkvSeqSide(const perfGeometry_t* geometry);
perfLayout_t perfLayoutQkvHeadsSide(const perfGeometry_t* geometry);
perfLayout_t perfLayoutOSeqSide(const perfGeometry_t* geometry);
perfLayout_t perfLayoutOHeadsSide(const perfGeometry_t* geometry);

static inline int64_t perfRangeLength(ulyxRange_t range) {
  return range.stop - range.start;
}

#endif /* PERF_LAYOUT_H_ */
