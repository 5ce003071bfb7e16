/* SPDX-License-Identifier: MIT */
#include "geometry.h"

#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "element.h"
#include "partition.h"
#include "sequences.h"
#include "status.h"

static ulyxResult_t checkAtLeast(const char* field, int64_t given, int64_t least) {
  if (given >= least) return ulyxSuccess;
  return ulyxFail(ulyxInvalidArgument, "shape.%s is %" PRId64 ", expected %" PRId64 " or more", field, given, least);
}

static ulyxResult_t checkFlag(const char* field, int given) {
  if (given == 0 || given == 1) return ulyxSuccess;
  return ulyxFail(ulyxInvalidArgument, "shape.%s is %d, expected 0 or 1", field, given);
}

static ulyxResult_t resolveExtents(const ulyxShape_t* shape, ulyxGeometry* geometry) {
  ULYX_TRY(checkAtLeast("tokens", shape->tokens, 0));
  ULYX_TRY(checkAtLeast("heads", shape->heads, 1));
  ULYX_TRY(checkAtLeast("kvHeads", shape->kvHeads, 0));
  ULYX_TRY(checkAtLeast("headDim", shape->headDim, 1));
  ULYX_TRY(checkAtLeast("valueDim", shape->valueDim, 0));
  ULYX_TRY(checkAtLeast("batch", shape->batch, 0));
  ULYX_TRY(checkAtLeast("replicatedTokens", shape->replicatedTokens, 0));
  ULYX_TRY(checkFlag("seqOrder", shape->seqOrder));
  ULYX_TRY(checkFlag("headsOrder", shape->headsOrder));
  ULYX_TRY(checkFlag("packedIn", shape->packedIn));
  ULYX_TRY(checkFlag("packedOut", shape->packedOut));
  ULYX_TRY(checkFlag("replicatedPlace", shape->replicatedPlace));
  if (shape->reserved != 0) {
    return ulyxFail(ulyxInvalidArgument, "shape.reserved is %d, expected 0", shape->reserved);
  }
  geometry->tokens = shape->tokens;
  geometry->heads = shape->heads;
  geometry->kvHeads = shape->kvHeads != 0 ? shape->kvHeads : shape->heads;
  geometry->headDim = shape->headDim;
  geometry->valueDim = shape->valueDim != 0 ? shape->valueDim : shape->headDim;
  geometry->batch = shape->batch != 0 ? shape->batch : 1;
  geometry->replicatedTokens = shape->replicatedTokens;
  geometry->replicatedLast = shape->replicatedPlace == ulyxReplicatedLast;
  geometry->order[ulyxSideSeq] = shape->seqOrder;
  geometry->order[ulyxSideHeads] = shape->headsOrder;
  geometry->packed[ulyxSideSeq] = shape->packedIn == 1;
  geometry->packed[ulyxSideHeads] = shape->packedOut == 1;
  if (geometry->heads % geometry->kvHeads != 0) {
    return ulyxFail(ulyxInvalidArgument,
                    "shape.heads is %" PRId64 ", which shape.kvHeads = %" PRId64
                    " does not divide: every key/value head serves the same number of query heads",
                    geometry->heads, geometry->kvHeads);
  }
  return ulyxSuccess;
}

static ulyxResult_t resolveRanges(const ulyxShape_t* shape, ulyxGeometry* geometry) {
  const int nRanks = geometry->nRanks;
  if (shape->tokenCounts != NULL) {
    ULYX_TRY(ulyxPartitionCounts(shape->tokenCounts, nRanks, "tokens", geometry->tokenRanges));
    const int64_t sum = geometry->tokenRanges[nRanks - 1].stop;
    if (shape->tokens != 0 && shape->tokens != sum) {
      return ulyxFail(ulyxInvalidArgument, "shape.tokens is %" PRId64 ", but tokenCounts add up to %" PRId64,
                      shape->tokens, sum);
    }
    geometry->tokens = sum;
  } else {
    ULYX_TRY(ulyxPartitionBalanced(geometry->tokens, nRanks, "tokens", geometry->tokenRanges));
  }
  if (shape->headCounts != NULL) {
    ULYX_TRY(ulyxPartitionCounts(shape->headCounts, nRanks, "heads", geometry->headRanges));
    const int64_t sum = geometry->headRanges[nRanks - 1].stop;
    if (sum != geometry->heads) {
      return ulyxFail(ulyxInvalidArgument, "shape.heads is %" PRId64 ", but headCounts add up to %" PRId64,
                      geometry->heads, sum);
    }
  } else {
    ULYX_TRY(ulyxPartitionBalanced(geometry->heads, nRanks, "heads", geometry->headRanges));
  }
  for (int rank = 0; rank < nRanks; ++rank) {
    geometry->kvHeadRanges[rank] = ulyxPartitionKvHeads(geometry->heads, geometry->kvHeads, geometry->headRanges[rank]);
    geometry->counts[rank] = ulyxRangeLength(geometry->tokenRanges[rank]);
    geometry->counts[nRanks + rank] = ulyxRangeLength(geometry->headRanges[rank]);
    geometry->counts[2 * nRanks + rank] = ulyxRangeLength(geometry->kvHeadRanges[rank]);
  }
  return ulyxSuccess;
}

static ulyxResult_t resolveSequences(const ulyxShape_t* shape, ulyxGeometry* geometry) {
  int64_t all = 0;
  if (!ulyxAddFits(geometry->tokens, geometry->replicatedTokens, &all)) {
    return ulyxFail(ulyxInvalidArgument, "shape: %" PRId64 " tokens and %" PRId64 " replicated ones pass 2^63",
                    geometry->tokens, geometry->replicatedTokens);
  }
  if (shape->sequences == NULL) return ulyxSuccess;
  ULYX_TRY(ulyxSequencesCheckHandle(shape->sequences));
  const int64_t total = ulyxSequencesTotal(shape->sequences);
  if (total != all) {
    return ulyxFail(ulyxInvalidArgument,
                    "shape.sequences have %" PRId64 " tokens, the shape %" PRId64 " (%" PRId64
                    " split over the ranks and %" PRId64 " replicated)",
                    total, all, geometry->tokens, geometry->replicatedTokens);
  }
  if (total > INT32_MAX) {
    return ulyxFail(ulyxInvalidArgument,
                    "shape.sequences have %" PRId64 " tokens, expected at most %d: cu_seqlens are int32", total,
                    INT32_MAX);
  }
  if (geometry->batch != 1) {
    return ulyxFail(ulyxInvalidArgument,
                    "shape.batch is %" PRId64 ", expected 1 with shape.sequences, which stand in one run of tokens",
                    geometry->batch);
  }
  geometry->sequences = ulyxSequencesTake(shape->sequences);
  return ulyxSuccess;
}

static const char* const strideNames[ulyxSideCount][ulyxRoleCount] = {{"qIn", "kIn", "vIn", "oOut"},
                                                                      {"qOut", "kOut", "vOut", "oIn"}};

static ulyxResult_t resolveStrides(const ulyxShape_t* shape, ulyxGeometry* geometry) {
  const ulyxStrides_t given[ulyxSideCount][ulyxRoleCount] = {{shape->qIn, shape->kIn, shape->vIn, shape->oOut},
                                                             {shape->qOut, shape->kOut, shape->vOut, shape->oIn}};
  memcpy(geometry->strides, given, sizeof given);
  for (int side = 0; side < ulyxSideCount; ++side) {
    for (int role = 0; role < ulyxRoleCount; ++role) {
      const ulyxStrides_t strides = given[side][role];
      const int64_t smallest = ulyxMin64(strides.batch, ulyxMin64(strides.token, strides.head));
      if (smallest < 0) {
        return ulyxFail(ulyxInvalidArgument, "shape.%s has a stride of %" PRId64 ", expected 0 (dense) or more",
                        strideNames[side][role], smallest);
      }
    }
  }
  return ulyxSuccess;
}

static int64_t roleDim(const ulyxGeometry* geometry, ulyxRole role) {
  return role == ulyxRoleQ || role == ulyxRoleK ? geometry->headDim : geometry->valueDim;
}

static bool isKv(ulyxRole role) {
  return role == ulyxRoleK || role == ulyxRoleV;
}

ulyxRange_t ulyxGeometryHeadRange(const ulyxGeometry* geometry, ulyxRole role, int rank) {
  return isKv(role) ? geometry->kvHeadRanges[rank] : geometry->headRanges[rank];
}

static int64_t headsOnSide(const ulyxGeometry* geometry, ulyxSide side, ulyxRole role, int rank) {
  if (side == ulyxSideHeads) return ulyxRangeLength(ulyxGeometryHeadRange(geometry, role, rank));
  return isKv(role) ? geometry->kvHeads : geometry->heads;
}

/* Those that are split over the ranks. */
static int64_t splitTokensOnSide(const ulyxGeometry* geometry, ulyxSide side, int rank) {
  return side == ulyxSideHeads ? geometry->tokens : ulyxRangeLength(geometry->tokenRanges[rank]);
}

static int64_t tokensOnSide(const ulyxGeometry* geometry, ulyxSide side, int rank) {
  return splitTokensOnSide(geometry, side, rank) + geometry->replicatedTokens;
}

ulyxRange_t ulyxGeometryReplicated(const ulyxGeometry* geometry, ulyxSide side, int rank) {
  const int64_t first = geometry->replicatedLast ? splitTokensOnSide(geometry, side, rank) : 0;
  return (ulyxRange_t){first, first + geometry->replicatedTokens};
}

int64_t ulyxGeometryFirstRow(const ulyxGeometry* geometry) {
  return geometry->replicatedLast ? 0 : geometry->replicatedTokens;
}

static bool isPacked(const ulyxGeometry* geometry, ulyxSide side, ulyxRole role) {
  return geometry->packed[side] && role != ulyxRoleO;
}

/* A packed row seen as one head. */
static int64_t packedRowBytes(const ulyxGeometry* geometry, ulyxSide side, int rank) {
  const int64_t queryBytes = headsOnSide(geometry, side, ulyxRoleQ, rank) * geometry->headDim;
  const int64_t kvBytes = headsOnSide(geometry, side, ulyxRoleK, rank) * (geometry->headDim + geometry->valueDim);
  return (queryBytes + kvBytes) * geometry->elementBytes;
}

/* Fills strides that the shape leaves at 0. False on overflow. */
static bool fillStrides(const ulyxGeometry* geometry, ulyxSide side, ulyxStrides_t given, int64_t rowBytes,
                        ulyxView* view) {
  const int64_t bytes = geometry->elementBytes;
  view->batchStride = view->tokenStride = 0;
  if (!ulyxMulFits(given.token, bytes, &view->tokenStride)) return false;
  if (!ulyxMulFits(given.batch, bytes, &view->batchStride)) return false;
  if (geometry->order[side] == ulyxBatchFirst) {
    if (given.token == 0) view->tokenStride = rowBytes;
    if (given.batch == 0 && !ulyxMulFits(view->tokens, view->tokenStride, &view->batchStride)) return false;
  } else {
    if (given.batch == 0) view->batchStride = rowBytes;
    if (given.token == 0 && !ulyxMulFits(view->batches, view->batchStride, &view->tokenStride)) return false;
  }
  return true;
}

/* A packed tensor as a whole: one head as wide as its row. */
static bool packedView(const ulyxGeometry* geometry, ulyxSide side, int rank, ulyxView* view) {
  const int64_t rowBytes = packedRowBytes(geometry, side, rank);
  *view = (ulyxView){.batches = geometry->batch,
                     .tokens = tokensOnSide(geometry, side, rank),
                     .heads = rowBytes > 0 ? 1 : 0,
                     .headBytes = rowBytes,
                     .headStride = rowBytes};
  return fillStrides(geometry, side, geometry->strides[side][ulyxRoleQ], rowBytes, view);
}

static bool makeView(const ulyxGeometry* geometry, ulyxSide side, ulyxRole role, int rank, ulyxView* view) {
  const int64_t bytes = geometry->elementBytes;
  const int64_t headBytes = roleDim(geometry, role) * bytes;
  *view = (ulyxView){.batches = geometry->batch,
                     .tokens = tokensOnSide(geometry, side, rank),
                     .heads = headsOnSide(geometry, side, role, rank),
                     .headBytes = headBytes,
                     .headStride = headBytes};
  if (isPacked(geometry, side, role)) {
    const int64_t queryBytes = headsOnSide(geometry, side, ulyxRoleQ, rank) * geometry->headDim * bytes;
    const int64_t keyBytes = headsOnSide(geometry, side, ulyxRoleK, rank) * geometry->headDim * bytes;
    view->offset = role == ulyxRoleQ ? 0 : role == ulyxRoleK ? queryBytes : queryBytes + keyBytes;
    return fillStrides(geometry, side, geometry->strides[side][ulyxRoleQ], packedRowBytes(geometry, side, rank), view);
  }
  view->buffer = role == ulyxRoleO ? 0 : (int)role;
  const ulyxStrides_t given = geometry->strides[side][role];
  if (given.head != 0 && !ulyxMulFits(given.head, bytes, &view->headStride)) return false;
  int64_t rowBytes = 0;
  if (!ulyxMulFits(view->heads, view->headStride, &rowBytes)) return false;
  return fillStrides(geometry, side, given, rowBytes, view);
}

ulyxView ulyxGeometryView(const ulyxGeometry* geometry, ulyxSide side, ulyxRole role, int rank) {
  ulyxView view;
  (void)makeView(geometry, side, role, rank, &view); /* resolving has seen that it fits */
  return view;
}

typedef struct Dimension {
  const char* name;
  int64_t extent, stride;
} Dimension;

/* Bytes to the end of a view's last element; refuses elements that share memory. */
static ulyxResult_t viewSpan(const ulyxView* view, const char* name, int rank, int64_t* spanBytes) {
  *spanBytes = 0;
  if (view->batches == 0 || view->tokens == 0 || view->heads == 0) return ulyxSuccess;
  Dimension dims[3] = {{"head", view->heads, view->headStride},
                       {"token", view->tokens, view->tokenStride},
                       {"batch", view->batches, view->batchStride}};
  for (int i = 1; i < 3; ++i) { /* innermost first */
    for (int j = i; j > 0 && dims[j].stride < dims[j - 1].stride; --j) {
      const Dimension swapped = dims[j];
      dims[j] = dims[j - 1];
      dims[j - 1] = swapped;
    }
  }
  int64_t span = view->headBytes;
  for (int i = 0; i < 3; ++i) {
    if (dims[i].extent == 1) continue;
    if (dims[i].stride < span) {
      return ulyxFail(ulyxInvalidArgument,
                      "shape.%s: on rank %d the %s stride is %" PRId64 " bytes, but what it steps over has %" PRId64
                      "; elements of one tensor must not share memory",
                      name, rank, dims[i].name, dims[i].stride, span);
    }
    int64_t outer = 0;
    if (!ulyxMulFits(dims[i].extent - 1, dims[i].stride, &outer) || !ulyxAddFits(span, outer, &span)) {
      return ulyxFail(ulyxInvalidArgument, "shape.%s: rank %d's tensor passes 2^63 bytes", name, rank);
    }
  }
  *spanBytes = span;
  return ulyxSuccess;
}

static ulyxResult_t checkSpans(const ulyxGeometry* geometry) {
  int64_t total = 0;
  for (int side = 0; side < ulyxSideCount; ++side) {
    for (int role = 0; role < ulyxRoleCount; ++role) {
      const bool packed = isPacked(geometry, (ulyxSide)side, (ulyxRole)role);
      if (packed && role != ulyxRoleQ) continue; /* counted with q */
      const char* const name = strideNames[side][role];
      for (int rank = 0; rank < geometry->nRanks; ++rank) {
        ulyxView view;
        const bool fits = packed ? packedView(geometry, (ulyxSide)side, rank, &view)
                                 : makeView(geometry, (ulyxSide)side, (ulyxRole)role, rank, &view);
        if (!fits) return ulyxFail(ulyxInvalidArgument, "shape.%s: rank %d's tensor passes 2^63 bytes", name, rank);
        int64_t span = 0;
        ULYX_TRY(viewSpan(&view, name, rank, &span));
        if (span > ULYX_MAX_TOTAL_BYTES - total) {
          return ulyxFail(ulyxInvalidArgument,
                          "shape: its tensors pass %" PRId64 " bytes over all ranks (%s of rank %d)",
                          ULYX_MAX_TOTAL_BYTES, name, rank);
        }
        total += span;
      }
    }
  }
  return ulyxSuccess;
}

int64_t ulyxGeometrySpanBytes(const ulyxGeometry* geometry, ulyxSide side, ulyxRole role, int rank) {
  const bool packed = isPacked(geometry, side, role);
  if (packed && role != ulyxRoleQ) return 0;
  ulyxView view;
  (void)(packed ? packedView(geometry, side, rank, &view) : makeView(geometry, side, role, rank, &view));
  int64_t span = 0;
  (void)viewSpan(&view, strideNames[side][role], rank, &span); /* resolving has seen that it fits */
  return span;
}

/* The widest row: every head of every role. Checked first, so that later products of heads and dims fit. */
static ulyxResult_t checkRow(const ulyxGeometry* geometry) {
  int64_t elements = 0, kvElements = 0, bothDims = 0, bytes = 0;
  const bool fits =
      ulyxAddFits(geometry->headDim, geometry->valueDim, &bothDims) &&
      ulyxMulFits(geometry->heads, bothDims, &elements) && ulyxMulFits(geometry->kvHeads, bothDims, &kvElements) &&
      ulyxAddFits(elements, kvElements, &elements) && ulyxMulFits(elements, geometry->elementBytes, &bytes);
  if (fits && bytes <= ULYX_MAX_TOTAL_BYTES) return ulyxSuccess;
  return ulyxFail(ulyxInvalidArgument,
                  "shape: heads %" PRId64 " + kvHeads %" PRId64 " of dims %" PRId64 " and %" PRId64 " x %" PRId64
                  " bytes make a token of more than %" PRId64 " bytes",
                  geometry->heads, geometry->kvHeads, geometry->headDim, geometry->valueDim, geometry->elementBytes,
                  ULYX_MAX_TOTAL_BYTES);
}

/* Names of the fields in errors. */
#define STRIDE_NAMES(tensor) \
  { "shape." tensor ".batch", "shape." tensor ".token", "shape." tensor ".head" }
static const char* const strideFields[ulyxSideCount][ulyxRoleCount][3] = {
    {STRIDE_NAMES("qIn"), STRIDE_NAMES("kIn"), STRIDE_NAMES("vIn"), STRIDE_NAMES("oOut")},
    {STRIDE_NAMES("qOut"), STRIDE_NAMES("kOut"), STRIDE_NAMES("vOut"), STRIDE_NAMES("oIn")}};

static int64_t sequenceCount(const ulyxGeometry* geometry) {
  return geometry->sequences != NULL ? geometry->sequences->count : 0;
}

static int64_t hashOfSequences(const ulyxGeometry* geometry) {
  uint64_t hash = ULYX_HASH_START;
  for (int64_t i = 0; i < sequenceCount(geometry); ++i) {
    hash = ulyxHashWord(hash, geometry->sequences->bounds[i + 1]);
  }
  return (int64_t)(hash >> 1);
}

ulyxStatement ulyxGeometryState(const ulyxGeometry* geometry) {
  ulyxStatement statement = {.operation = "an exchange",
                             .rule = ulyxCountsEqual,
                             .countCount = 2 * geometry->nRanks,
                             .counts = geometry->counts,
                             .countNames = {"tokens", "heads"}};
  ulyxStatementAdd(&statement, "shape.type", geometry->type);
  ulyxStatementAdd(&statement, "shape.elementBytes", geometry->elementBytes);
  ulyxStatementAdd(&statement, "shape.tokens", geometry->tokens);
  ulyxStatementAdd(&statement, "shape.heads", geometry->heads);
  ulyxStatementAdd(&statement, "shape.kvHeads", geometry->kvHeads);
  ulyxStatementAdd(&statement, "shape.headDim", geometry->headDim);
  ulyxStatementAdd(&statement, "shape.valueDim", geometry->valueDim);
  ulyxStatementAdd(&statement, "shape.batch", geometry->batch);
  ulyxStatementAdd(&statement, "shape.seqOrder", geometry->order[ulyxSideSeq]);
  ulyxStatementAdd(&statement, "shape.headsOrder", geometry->order[ulyxSideHeads]);
  ulyxStatementAdd(&statement, "shape.packedIn", geometry->packed[ulyxSideSeq]);
  ulyxStatementAdd(&statement, "shape.packedOut", geometry->packed[ulyxSideHeads]);
  ulyxStatementAdd(&statement, "shape.replicatedTokens", geometry->replicatedTokens);
  ulyxStatementAdd(&statement, "shape.replicatedPlace", geometry->replicatedLast);
  ulyxStatementAdd(&statement, "the number of shape.sequences", sequenceCount(geometry));
  ulyxStatementAdd(&statement, "a hash of shape.sequences", hashOfSequences(geometry));
  for (int side = 0; side < ulyxSideCount; ++side) {
    for (int role = 0; role < ulyxRoleCount; ++role) {
      const ulyxStrides_t strides = geometry->strides[side][role];
      ulyxStatementAdd(&statement, strideFields[side][role][0], strides.batch);
      ulyxStatementAdd(&statement, strideFields[side][role][1], strides.token);
      ulyxStatementAdd(&statement, strideFields[side][role][2], strides.head);
    }
  }
  ulyxStatementSign(&statement);
  return statement;
}

ulyxResult_t ulyxGeometryResolve(const ulyxShape_t* shape, int nRanks, ulyxGeometry* geometry) {
  ULYX_TRY(ulyxCheckStruct(shape, sizeof *shape, ULYX_SHAPE_MAGIC, "shape"));
  if (nRanks < 1) return ulyxFail(ulyxInvalidArgument, "nRanks is %d, expected 1 or more", nRanks);
  ulyxGeometryClear(geometry);
  geometry->nRanks = nRanks;
  ULYX_TRY(ulyxElementBytes("shape", shape->type, shape->elementBytes, &geometry->elementBytes));
  geometry->type = shape->type;
  ULYX_TRY(resolveExtents(shape, geometry));
  ULYX_TRY(checkRow(geometry));
  ULYX_TRY(resolveStrides(shape, geometry));
  const size_t bytesEach = 3 * sizeof(ulyxRange_t) + 3 * sizeof(int64_t);
  ULYX_TRY(ulyxStorageEnsure(&geometry->memory, (size_t)nRanks, bytesEach, "ranges"));
  geometry->tokenRanges = geometry->memory.data;
  geometry->headRanges = geometry->tokenRanges + nRanks;
  geometry->kvHeadRanges = geometry->headRanges + nRanks;
  geometry->counts = (int64_t*)(geometry->kvHeadRanges + nRanks);
  ULYX_TRY(resolveRanges(shape, geometry));
  ULYX_TRY(resolveSequences(shape, geometry));
  return checkSpans(geometry);
}

void ulyxGeometryClear(ulyxGeometry* geometry) {
  if (geometry->sequences != NULL) ulyxSequencesRelease(geometry->sequences);
  *geometry = (ulyxGeometry){.memory = geometry->memory};
}

void ulyxGeometryFree(ulyxGeometry* geometry) {
  ulyxGeometryClear(geometry);
  ulyxStorageFree(&geometry->memory);
}
