/* SPDX-License-Identifier: MIT
 *
 * Who holds which tokens and heads of an attention exchange, and how that lies in memory. */
#ifndef PERF_GEOMETRY_H_
#define PERF_GEOMETRY_H_

#include <stdbool.h>
#include <stdint.h>

#include "layout.h"
#include "ulyx.h"

/* One rank's part of a shape. */
typedef struct perfGeometry {
  int64_t batch;
  int64_t tokens; /* of the heads side: those that are split over the ranks, and replicated ones */
  int64_t heads;
  int64_t kvHeads;
  int64_t headBytes;      /* of one query or key head */
  int64_t valueBytes;     /* of one value head */
  ulyxRange_t tokenRange; /* this rank's, as the heads side counts them */
  ulyxRange_t replicated; /* what every rank has besides, likewise */
  ulyxRange_t headRange;
  ulyxRange_t kvHeadRange;
  bool packedIn;
  bool packedOut;
} perfGeometry_t;

/* All nRanks ranks of a shape that ulyxShapeGetRanges accepts, in a new array. NULL: a failure has been reported. */
perfGeometry_t* perfGeometriesCreate(const ulyxShape_t* shape, int nRanks);

perfLayout_t perfLayoutQkvSeqSide(const perfGeometry_t* geometry);
perfLayout_t perfLayoutQkvHeadsSide(const perfGeometry_t* geometry);
perfLayout_t perfLayoutOSeqSide(const perfGeometry_t* geometry);
perfLayout_t perfLayoutOHeadsSide(const perfGeometry_t* geometry);

#endif /* PERF_GEOMETRY_H_ */
