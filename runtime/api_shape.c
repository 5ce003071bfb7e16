/* SPDX-License-Identifier: MIT
 *
 * Entry points that need no runtime: version, errors, partitions, shapes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cost.h"
#include "footprint.h"
#include "partition.h"
#include "status.h"

ulyxResult_t ulyxGetVersion(int* version) {
  if (version == NULL) return ulyxFail(ulyxInvalidArgument, "version is NULL");
  *version = ULYX_VERSION_CODE;
  return ulyxSuccess;
}

const char* ulyxGetErrorString(ulyxResult_t result) {
  switch (result) {
    case ulyxSuccess:
      return "no error";
    case ulyxUnhandledCudaError:
      return "CUDA error";
    case ulyxSystemError:
      return "system error";
    case ulyxInternalError:
      return "internal error";
    case ulyxInvalidArgument:
      return "invalid argument";
    case ulyxInvalidUsage:
      return "invalid usage";
    case ulyxRemoteError:
      return "remote error";
    case ulyxInProgress:
      return "in progress";
    case ulyxMismatch:
      return "mismatch";
    case ulyxTimeout:
      return "timeout";
    case ulyxArenaTooSmall:
      return "arena too small";
    case ulyxClosed:
      return "runtime closed";
    case ulyxUnsupported:
      return "unsupported";
  }
  return "unknown result code";
}

ulyxResult_t ulyxBalancedRanges(int64_t total, int parts, ulyxRange_t* ranges) {
  if (ranges == NULL) return ulyxFail(ulyxInvalidArgument, "ranges is NULL");
  return ulyxPartitionBalanced(total, parts, "items", ranges);
}

ulyxResult_t ulyxRangesFromCounts(const int64_t* counts, int parts, ulyxRange_t* ranges) {
  if (counts == NULL || ranges == NULL) {
    return ulyxFail(ulyxInvalidArgument, "%s is NULL", counts == NULL ? "counts" : "ranges");
  }
  return ulyxPartitionCounts(counts, parts, "items", ranges);
}

ulyxResult_t ulyxRangeLengths(const ulyxRange_t* ranges, int parts, int64_t* lengths) {
  if (ranges == NULL || lengths == NULL) {
    return ulyxFail(ulyxInvalidArgument, "%s is NULL", ranges == NULL ? "ranges" : "lengths");
  }
  if (parts < 1) return ulyxFail(ulyxInvalidArgument, "parts is %d, expected 1 or more", parts);
  for (int part = 0; part < parts; ++part) {
    if (ranges[part].start < 0 || ranges[part].stop < ranges[part].start) {
      return ulyxFail(ulyxInvalidArgument, "range %d is [%" PRId64 ", %" PRId64 ")", part, ranges[part].start,
                      ranges[part].stop);
    }
  }
  for (int part = 0; part < parts; ++part) lengths[part] = ulyxRangeLength(ranges[part]);
  return ulyxSuccess;
}

ulyxResult_t ulyxKvHeadRange(int64_t heads, int64_t kvHeads, ulyxRange_t headRange, ulyxRange_t* kvHeadRange) {
  if (kvHeadRange == NULL) return ulyxFail(ulyxInvalidArgument, "kvHeadRange is NULL");
  if (heads < 1 || kvHeads < 1 || heads % kvHeads != 0) {
    return ulyxFail(ulyxInvalidArgument, "heads is %" PRId64 ", expected a multiple of kvHeads = %" PRId64, heads,
                    kvHeads);
  }
  if (headRange.start < 0 || headRange.stop < headRange.start || headRange.stop > heads) {
    return ulyxFail(ulyxInvalidArgument, "headRange is [%" PRId64 ", %" PRId64 "), expected within [0, %" PRId64 ")",
                    headRange.start, headRange.stop, heads);
  }
  *kvHeadRange = ulyxPartitionKvHeads(heads, kvHeads, headRange);
  return ulyxSuccess;
}

ulyxResult_t ulyxShapeGetRanges(const ulyxShape_t* shape, int nRanks, ulyxRange_t* tokenRanges, ulyxRange_t* headRanges,
                                ulyxRange_t* kvHeadRanges) {
  ulyxGeometry geometry = {0};
  ulyxResult_t result = ulyxSuccess;
  ULYX_TRY_GOTO(ulyxGeometryResolve(shape, nRanks, &geometry), freeGeometry);
  for (int rank = 0; rank < nRanks; ++rank) {
    if (tokenRanges != NULL) tokenRanges[rank] = geometry.tokenRanges[rank];
    if (headRanges != NULL) headRanges[rank] = geometry.headRanges[rank];
    if (kvHeadRanges != NULL) kvHeadRanges[rank] = geometry.kvHeadRanges[rank];
  }

freeGeometry:
  ulyxGeometryFree(&geometry);
  return result;
}

static ulyxResult_t checkOp(ulyxOp_t op) {
  if (op == ulyxOpSeqToHeads || op == ulyxOpHeadsToSeq) return ulyxSuccess;
  return ulyxFail(ulyxInvalidArgument, "op is %d, expected 0 to %d", (int)op, ULYX_OP_COUNT - 1);
}

ulyxResult_t ulyxShapeGetTraffic(const ulyxShape_t* shape, int nRanks, ulyxOp_t op, int64_t* bytes) {
  if (bytes == NULL) return ulyxFail(ulyxInvalidArgument, "bytes is NULL");
  ULYX_TRY(checkOp(op));
  ulyxGeometry geometry = {0};
  ulyxResult_t result = ulyxSuccess;
  void* memory = NULL; /* the last pair may be refused, and then nothing is written */
  ULYX_TRY_GOTO(ulyxGeometryResolve(shape, nRanks, &geometry), freeGeometry);
  const size_t count = (size_t)nRanks * (size_t)nRanks;
  ULYX_TRY_GOTO(ulyxAllocate(&memory, count, sizeof *bytes, "a matrix of traffic"), freeGeometry);
  int64_t* const found = memory;
  for (int src = 0; src < nRanks; ++src) {
    for (int dst = 0; dst < nRanks; ++dst) {
      ULYX_TRY_GOTO(ulyxFootprintPairBytes(&geometry, op, src, dst, &found[(int64_t)src * nRanks + dst]), freeGeometry);
    }
  }
  memcpy(bytes, found, count * sizeof *bytes);

freeGeometry:
  free(memory);
  ulyxGeometryFree(&geometry);
  return result;
}

ulyxResult_t ulyxShapeGetBytes(const ulyxShape_t* shape, int nRanks, int rank, ulyxShapeBytes_t* bytes) {
  ULYX_TRY(ulyxCheckStruct(bytes, sizeof *bytes, ULYX_SHAPE_BYTES_MAGIC, "bytes"));
  ulyxGeometry geometry = {0};
  ulyxResult_t result = ulyxSuccess;
  ULYX_TRY_GOTO(ulyxGeometryResolve(shape, nRanks, &geometry), freeGeometry);
  if (rank < 0 || rank >= nRanks) {
    result = ulyxFail(ulyxInvalidArgument, "rank is %d, expected 0 to %d", rank, nRanks - 1);
    goto freeGeometry;
  }
  int64_t arena = 0;
  ULYX_TRY_GOTO(ulyxFootprintArenaBytes(&geometry, rank, &arena), freeGeometry);
  bytes->qIn = ulyxGeometrySpanBytes(&geometry, ulyxSideSeq, ulyxRoleQ, rank);
  bytes->kIn = ulyxGeometrySpanBytes(&geometry, ulyxSideSeq, ulyxRoleK, rank);
  bytes->vIn = ulyxGeometrySpanBytes(&geometry, ulyxSideSeq, ulyxRoleV, rank);
  bytes->qOut = ulyxGeometrySpanBytes(&geometry, ulyxSideHeads, ulyxRoleQ, rank);
  bytes->kOut = ulyxGeometrySpanBytes(&geometry, ulyxSideHeads, ulyxRoleK, rank);
  bytes->vOut = ulyxGeometrySpanBytes(&geometry, ulyxSideHeads, ulyxRoleV, rank);
  bytes->oIn = ulyxGeometrySpanBytes(&geometry, ulyxSideHeads, ulyxRoleO, rank);
  bytes->oOut = ulyxGeometrySpanBytes(&geometry, ulyxSideSeq, ulyxRoleO, rank);
  bytes->arena = arena;

freeGeometry:
  ulyxGeometryFree(&geometry);
  return result;
}

ulyxResult_t ulyxShapeGetTimes(const ulyxShape_t* shape, int nRanks, ulyxOp_t op, ulyxShapeTimes_t* times) {
  ULYX_TRY(ulyxCheckStruct(times, sizeof *times, ULYX_SHAPE_TIMES_MAGIC, "times"));
  ULYX_TRY(checkOp(op));
  ulyxGeometry geometry = {0};
  ulyxResult_t result = ulyxSuccess;
  ULYX_TRY_GOTO(ulyxGeometryResolve(shape, nRanks, &geometry), freeGeometry);
  const ulyxPhaseFacts facts = ulyxExchangeFacts(&geometry, &ulyxOperations[op]);
  const ulyxCost cost = ulyxCostOf(&facts, nRanks);
  times->remoteBytes = facts.remoteBytes;
  times->limitUs = cost.limit;
  times->directUs = cost.direct;
  times->copyEngineUs = cost.copyEngine;

freeGeometry:
  ulyxGeometryFree(&geometry);
  return result;
}
