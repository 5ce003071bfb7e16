/* SPDX-License-Identifier: MIT */
#include "geometry.h"

#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "types.h"

perfGeometry_t* perfGeometriesCreate(const ulyxShape_t* shape, int nRanks) {
  perfGeometry_t* created = NULL;
  ulyxRange_t* ranges = calloc(3 * (size_t)nRanks, sizeof(*ranges));
  perfGeometry_t* geometries = calloc((size_t)nRanks, sizeof(*geometries));
  if (ranges == NULL || geometries == NULL) {
    perfError("out of memory for the geometry of %d ranks", nRanks);
    goto freeArrays;
  }
  ulyxRange_t* tokenRanges = ranges;
  ulyxRange_t* headRanges = ranges + nRanks;
  ulyxRange_t* kvHeadRanges = ranges + 2 * (size_t)nRanks;
  if (!perfUlyxOk(ulyxShapeGetRanges(shape, nRanks, tokenRanges, headRanges, kvHeadRanges), NULL,
                  "ulyxShapeGetRanges")) {
    goto freeArrays;
  }
  const int64_t elementBytes = perfTypeByCode(shape->type)->bytes;
  const int64_t splitTokens = tokenRanges[nRanks - 1].stop;
  const bool last = shape->replicatedPlace == ulyxReplicatedLast;
  const int64_t before = last ? 0 : shape->replicatedTokens; /* replicated tokens before those that are split */
  for (int rank = 0; rank < nRanks; rank++) {
    geometries[rank] = (perfGeometry_t){
        .batch = shape->batch,
        .tokens = splitTokens + shape->replicatedTokens,
        .heads = shape->heads,
        .kvHeads = shape->kvHeads > 0 ? shape->kvHeads : shape->heads,
        .headBytes = shape->headDim * elementBytes,
        .valueBytes = (shape->valueDim > 0 ? shape->valueDim : shape->headDim) * elementBytes,
        .tokenRange = {before + tokenRanges[rank].start, before + tokenRanges[rank].stop},
        .replicated = {last ? splitTokens : 0, (last ? splitTokens : 0) + shape->replicatedTokens},
        .headRange = headRanges[rank],
        .kvHeadRange = kvHeadRanges[rank],
        .packedIn = shape->packedIn != 0,
        .packedOut = shape->packedOut != 0,
    };
  }
  created = geometries;
  geometries = NULL;

freeArrays:
  free(geometries);
  free(ranges);
  return created;
}

/* Both sides have their tokens in the same order. */
static perfTokens_t seqSideTokens(const perfGeometry_t* g) {
  if (g->replicated.start < g->tokenRange.start) return (perfTokens_t){{g->replicated, g->tokenRange}};
  return (perfTokens_t){{g->tokenRange, g->replicated}};
}

static perfTokens_t headsSideTokens(const perfGeometry_t* g) {
  return (perfTokens_t){{{0, g->tokens}, {0, 0}}};
}

static perfLayout_t layOutQkv(const perfGeometry_t* g, perfTokens_t tokens, ulyxRange_t heads, ulyxRange_t kvHeads,
                              bool packed) {
  perfLayout_t layout;
  memset(&layout, 0, sizeof(layout));
  perfLayoutAdd(&layout, perfTensorQ, g->batch, tokens, heads, g->headBytes);
  perfLayoutAdd(&layout, perfTensorK, g->batch, tokens, kvHeads, g->headBytes);
  perfLayoutAdd(&layout, perfTensorV, g->batch, tokens, kvHeads, g->valueBytes);
  if (packed) perfLayoutPack(&layout);
  return layout;
}

static perfLayout_t layOutO(const perfGeometry_t* g, perfTokens_t tokens, ulyxRange_t heads) {
  perfLayout_t layout;
  memset(&layout, 0, sizeof(layout));
  perfLayoutAdd(&layout, perfTensorO, g->batch, tokens, heads, g->valueBytes);
  return layout;
}

perfLayout_t perfLayoutQkvSeqSide(const perfGeometry_t* g) {
  return layOutQkv(g, seqSideTokens(g), (ulyxRange_t){0, g->heads}, (ulyxRange_t){0, g->kvHeads}, g->packedIn);
}

perfLayout_t perfLayoutQkvHeadsSide(const perfGeometry_t* g) {
  return layOutQkv(g, headsSideTokens(g), g->headRange, g->kvHeadRange, g->packedOut);
}

perfLayout_t perfLayoutOSeqSide(const perfGeometry_t* g) {
  return layOutO(g, seqSideTokens(g), (ulyxRange_t){0, g->heads});
}

perfLayout_t perfLayoutOHeadsSide(const perfGeometry_t* g) {
  return layOutO(g, headsSideTokens(g), g->headRange);
}
