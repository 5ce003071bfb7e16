/* SPDX-License-Identifier: MIT */
#include "rows.h"

#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "element.h"
#include "partition.h"
#include "status.h"

static const char* const operationNames[] = {"all_gather_rows", "reduce_scatter_rows", "all_to_all_rows"};

static ulyxResult_t checkNotNegative(const char* field, int64_t given) {
  if (given >= 0) return ulyxSuccess;
  return ulyxFail(ulyxInvalidArgument, "rows.%s is %" PRId64 ", expected 0 or more", field, given);
}

static ulyxResult_t resolveType(const ulyxRowsShape_t* shape, ulyxRows* rows) {
  ULYX_TRY(ulyxElementBytes("rows", shape->type, shape->elementBytes, &rows->elementBytes));
  rows->type = shape->type;
  if (shape->op != ulyxRowsReduceScatter || ulyxElementIsSummed(shape->type)) return ulyxSuccess;
  return ulyxFail(ulyxInvalidArgument, "rows.type is %s: a reduce-scatter sums float16, bfloat16 and float32 only",
                  ulyxElementName(shape->type));
}

/* Bytes from row to row, and that `count` of them fit. */
static ulyxResult_t resolvePitch(const ulyxRows* rows, const char* field, int64_t stride, int64_t count,
                                 int64_t* pitch) {
  int64_t span = 0;
  if (stride != 0 && stride < rows->rowElements) {
    return ulyxFail(ulyxInvalidArgument,
                    "rows.%s is %" PRId64 ", expected 0 (dense) or at least rowElements = %" PRId64, field, stride,
                    rows->rowElements);
  }
  if (!ulyxMulFits(stride != 0 ? stride : rows->rowElements, rows->elementBytes, pitch) ||
      !ulyxMulFits(*pitch, ulyxMax64(count, 1), &span) || span > ULYX_MAX_TOTAL_BYTES / rows->nRanks) {
    return ulyxFail(ulyxInvalidArgument,
                    "rows: %" PRId64 " rows of %" PRId64 " x %" PRId64 " bytes on %d ranks pass 2^60", count,
                    stride != 0 ? stride : rows->rowElements, rows->elementBytes, rows->nRanks);
  }
  return ulyxSuccess;
}

static ulyxResult_t resolveOwned(const ulyxRowsShape_t* shape, ulyxRows* rows) {
  ULYX_TRY(checkNotNegative("total", shape->total));
  if (shape->counts == NULL) {
    ULYX_TRY(ulyxPartitionBalanced(shape->total, rows->nRanks, "rows", rows->ranges));
  } else {
    ULYX_TRY(ulyxPartitionCounts(shape->counts, rows->nRanks, "rows", rows->ranges));
  }
  rows->total = rows->ranges[rows->nRanks - 1].stop;
  if (shape->total != 0 && shape->total != rows->total) {
    return ulyxFail(ulyxInvalidArgument, "rows.total is %" PRId64 ", but counts add up to %" PRId64, shape->total,
                    rows->total);
  }
  rows->target = shape->targeted == 1 ? shape->target : (ulyxRange_t){0, rows->total};
  if (rows->target.start < 0 || rows->target.stop < rows->target.start || rows->target.stop > rows->total) {
    return ulyxFail(ulyxInvalidArgument, "rows.target is [%" PRId64 ", %" PRId64 "), expected within [0, %" PRId64 ")",
                    rows->target.start, rows->target.stop, rows->total);
  }
  for (int rank = 0; rank < rows->nRanks; ++rank) rows->counts[rank] = ulyxRangeLength(rows->ranges[rank]);
  return ulyxSuccess;
}

/* The part of the target that a rank owns. */
static ulyxRange_t ownedTarget(const ulyxRows* rows, int rank) {
  const ulyxRange_t owned = rows->ranges[rank];
  const int64_t start = ulyxMax64(owned.start, rows->target.start);
  const int64_t stop = ulyxMin64(owned.stop, rows->target.stop);
  return start < stop ? (ulyxRange_t){start, stop} : (ulyxRange_t){start, start};
}

static ulyxResult_t resolveMatrix(const ulyxRowsShape_t* shape, ulyxRows* rows) {
  const int nRanks = rows->nRanks;
  if (shape->sendCounts == NULL || shape->recvCounts == NULL) {
    return ulyxFail(ulyxInvalidArgument, "rows.%s is NULL: an all-to-all needs both counts",
                    shape->sendCounts == NULL ? "sendCounts" : "recvCounts");
  }
  if (shape->sendCounts[rows->rank] != shape->recvCounts[rows->rank]) {
    return ulyxFail(ulyxInvalidArgument, "rank %d sends itself %" PRId64 " rows and expects %" PRId64, rows->rank,
                    shape->sendCounts[rows->rank], shape->recvCounts[rows->rank]);
  }
  /* ranges is only borrowed to check the counts; an all-to-all's rows have no owner. */
  ULYX_TRY(ulyxPartitionCounts(shape->recvCounts, nRanks, "rows received", rows->ranges));
  rows->outRows = rows->ranges[nRanks - 1].stop;
  ULYX_TRY(ulyxPartitionCounts(shape->sendCounts, nRanks, "rows sent", rows->ranges));
  rows->inRows = rows->ranges[nRanks - 1].stop;
  memcpy(rows->counts, shape->sendCounts, (size_t)nRanks * sizeof *rows->counts);
  memcpy(rows->counts + nRanks, shape->recvCounts, (size_t)nRanks * sizeof *rows->counts);
  return ulyxSuccess;
}

static ulyxResult_t resolveCounts(const ulyxRowsShape_t* shape, ulyxRows* rows) {
  if (rows->op == ulyxRowsAllToAll) return resolveMatrix(shape, rows);
  ULYX_TRY(resolveOwned(shape, rows));
  const int64_t own = rows->op == ulyxRowsAllGather ? ulyxRangeLength(ownedTarget(rows, rows->rank))
                                                    : ulyxRangeLength(rows->ranges[rows->rank]);
  const int64_t all = rows->op == ulyxRowsAllGather ? ulyxRangeLength(rows->target) : rows->total;
  rows->inRows = rows->op == ulyxRowsAllGather ? own : all;
  rows->outRows = rows->op == ulyxRowsAllGather ? all : own;
  return ulyxSuccess;
}

ulyxResult_t ulyxRowsResolve(const ulyxRowsShape_t* shape, int nRanks, int rank, ulyxRows* rows) {
  ULYX_TRY(ulyxCheckStruct(shape, sizeof *shape, ULYX_ROWS_SHAPE_MAGIC, "rows"));
  *rows = (ulyxRows){
      .op = shape->op, .rank = rank, .nRanks = nRanks, .rowElements = shape->rowElements, .memory = rows->memory};
  if (shape->op < ulyxRowsAllGather || shape->op > ulyxRowsAllToAll) {
    return ulyxFail(ulyxInvalidArgument, "rows.op is %d, expected 0 to %d", shape->op, ulyxRowsAllToAll);
  }
  if (shape->rowElements < 1) {
    return ulyxFail(ulyxInvalidArgument, "rows.rowElements is %" PRId64 ", expected 1 or more", shape->rowElements);
  }
  if (shape->targeted != 0 && (shape->targeted != 1 || shape->op != ulyxRowsAllGather)) {
    return ulyxFail(ulyxInvalidArgument, "rows.targeted is %d, expected 0, or 1 with an all-gather", shape->targeted);
  }
  ULYX_TRY(resolveType(shape, rows));
  ULYX_TRY(
      ulyxStorageEnsure(&rows->memory, (size_t)nRanks, sizeof(ulyxRange_t) + 2 * sizeof(int64_t), "ranges of rows"));
  rows->ranges = rows->memory.data;
  rows->counts = (int64_t*)(rows->ranges + nRanks);
  ULYX_TRY(resolveCounts(shape, rows));
  ULYX_TRY(resolvePitch(rows, "inStride", shape->inStride, ulyxMax64(rows->inRows, rows->total), &rows->inPitch));
  ULYX_TRY(resolvePitch(rows, "outStride", shape->outStride, ulyxMax64(rows->outRows, rows->total), &rows->outPitch));
  rows->rowBytes = rows->rowElements * rows->elementBytes;
  return ulyxSuccess;
}

void ulyxRowsFree(ulyxRows* rows) {
  ulyxStorageFree(&rows->memory);
  *rows = (ulyxRows){0};
}

/* `count` rows from row srcRow of the input to row dstRow of a destination buffer. */
static ulyxResult_t appendRows(ulyxCopyList* list, const ulyxRows* rows, int64_t srcRow, int64_t dstRow, int64_t count,
                               int dstBuffer, int64_t dstPitch) {
  if (count == 0) return ulyxSuccess;
  ulyxCopy copy = {.dstBuffer = dstBuffer,
                   .rows = count,
                   .rowBytes = rows->rowBytes,
                   .srcOffset = srcRow * rows->inPitch,
                   .srcPitch = rows->inPitch,
                   .dstOffset = dstRow * dstPitch,
                   .dstPitch = dstPitch};
  if (copy.srcPitch == copy.rowBytes && copy.dstPitch == copy.rowBytes) {
    copy.rowBytes *= copy.rows;
    copy.rows = 1;
    copy.srcPitch = copy.dstPitch = copy.rowBytes;
  }
  return ulyxCopyListAppend(list, copy);
}

static ulyxResult_t listAllGather(const void* subject, int src, int dst, ulyxCopyList* list) {
  (void)dst; /* everyone gets the same */
  const ulyxRows* const rows = subject;
  const ulyxRange_t owned = ownedTarget(rows, src);
  return appendRows(list, rows, 0, owned.start - rows->target.start, ulyxRangeLength(owned), 0, rows->outPitch);
}

/* Own partial sums are read where they lie; those of others arrive in scratch, in rank order without one's own. */
static ulyxResult_t listReduceScatter(const void* subject, int src, int dst, ulyxCopyList* list) {
  const ulyxRows* const rows = subject;
  const ulyxRange_t owned = rows->ranges[dst];
  const int64_t count = ulyxRangeLength(owned);
  if (src == dst) return ulyxSuccess;
  const int64_t slot = src < dst ? src : src - 1;
  return appendRows(list, rows, owned.start, slot * count, count, ULYX_SCRATCH, rows->rowBytes);
}

/* A rank knows its own row and column of the matrix, which is all that its pairs need. */
static ulyxResult_t listAllToAll(const void* subject, int src, int dst, ulyxCopyList* list) {
  const ulyxRows* const rows = subject;
  const int64_t* const sent = rows->counts;
  const int64_t* const received = rows->counts + rows->nRanks;
  int64_t srcRow = 0, dstRow = 0;
  for (int rank = 0; src == rows->rank && rank < dst; ++rank) srcRow += sent[rank];
  for (int rank = 0; dst == rows->rank && rank < src; ++rank) dstRow += received[rank];
  return appendRows(list, rows, srcRow, dstRow, src == rows->rank ? sent[dst] : received[src], 0, rows->outPitch);
}

/* This rank's rows are the sum of every rank's, in rank order. */
static ulyxResult_t addSum(const ulyxRows* rows, ulyxPhase* phase) {
  const int64_t count = rows->outRows;
  ulyxStorage* const addends = &phase->memory.addends;
  if (rows->nRanks > ULYX_SUM_MAX_ADDENDS) {
    return ulyxFail(ulyxUnsupported, "a reduce-scatter over %d ranks adds as many rows, at most %d", rows->nRanks,
                    ULYX_SUM_MAX_ADDENDS);
  }
  ULYX_TRY(ulyxStorageEnsure(addends, (size_t)rows->nRanks, sizeof(ulyxAddend), "addends"));
  ulyxSum* const sum = &phase->after.sum;
  *sum = (ulyxSum){.type = rows->type,
                   .rows = count,
                   .rowElements = rows->rowElements,
                   .dst = {ulyxInDst, 0, 0},
                   .dstPitch = rows->outPitch,
                   .addendCount = rows->nRanks,
                   .addends = addends->data};
  int64_t slot = 0;
  for (int rank = 0; rank < rows->nRanks; ++rank) {
    ulyxAddend* const addend = &sum->addends[rank];
    *addend = (ulyxAddend){.pitch = rows->rowBytes, .rowCount = count};
    if (rank == rows->rank) {
      addend->place = (ulyxBufferPlace){ulyxInSrc, 0, rows->ranges[rank].start * rows->inPitch};
      addend->pitch = rows->inPitch;
    } else {
      addend->place = (ulyxBufferPlace){ulyxInDst, ULYX_SCRATCH, slot++ * count * rows->rowBytes};
    }
  }
  phase->after.kind = ulyxLocalSum;
  phase->scratchBytes = slot * count * rows->rowBytes;
  return ulyxSuccess;
}

static int64_t spanOf(int64_t rows, int64_t pitch, int64_t rowBytes) {
  return rows > 0 ? (rows - 1) * pitch + rowBytes : 0;
}

/* Of an all-to-all a rank knows no more than its own row and column. */
static ulyxPhaseFacts factsOf(const ulyxRows* rows) {
  if (rows->op == ulyxRowsAllToAll)
    return (ulyxPhaseFacts){.remoteBytes = -1, .dstSpan = {-1}, .copiesPerPeer = 1, .startsAreTheReceivers = true};
  const bool gathers = rows->op == ulyxRowsAllGather;
  const bool dense = !gathers || rows->outPitch == rows->rowBytes; /* partial sums go to scratch */
  ulyxPhaseFacts facts = {.rowBytes = rows->rowBytes, .copiesPerPeer = 1, .writtenPitch = dense ? 0 : rows->outPitch};
  const int64_t all = gathers ? ulyxRangeLength(rows->target) : rows->total;
  for (int rank = 0; rank < rows->nRanks; ++rank) {
    const int64_t own = ulyxRangeLength(gathers ? ownedTarget(rows, rank) : rows->ranges[rank]);
    const int64_t toOthers = own * (rows->nRanks - 1), fromOthers = all - own;
    facts.remoteBytes = ulyxMax64(facts.remoteBytes, ulyxMax64(toOthers, fromOthers) * rows->rowBytes);
  }
  if (gathers) facts.dstSpan[0] = spanOf(all, rows->outPitch, rows->rowBytes);
  return facts;
}

ulyxResult_t ulyxRowsPhase(const ulyxRows* rows, ulyxPhase* phase) {
  static const ulyxLister listers[] = {listAllGather, listReduceScatter, listAllToAll};
  ULYX_TRY(ulyxPhaseBuild(rows, listers[rows->op], rows->rank, rows->nRanks, phase));
  phase->facts = factsOf(rows);
  return rows->op == ulyxRowsReduceScatter ? addSum(rows, phase) : ulyxSuccess;
}

ulyxStatement ulyxRowsState(const ulyxRows* rows) {
  const bool paired = rows->op == ulyxRowsAllToAll;
  ulyxStatement statement = {.operation = operationNames[rows->op],
                             .rule = paired ? ulyxCountsPaired : ulyxCountsEqual,
                             .countCount = paired ? 2 * rows->nRanks : rows->nRanks,
                             .counts = rows->counts,
                             .countNames = {"rows", "rows"}};
  ulyxStatementAdd(&statement, "rows.type", rows->type);
  ulyxStatementAdd(&statement, "rows.elementBytes", rows->elementBytes);
  ulyxStatementAdd(&statement, "rows.rowElements", rows->rowElements);
  ulyxStatementAdd(&statement, "rows.total", rows->total);
  ulyxStatementAdd(&statement, "rows.target.start", rows->target.start);
  ulyxStatementAdd(&statement, "rows.target.stop", rows->target.stop);
  ulyxStatementAdd(&statement, "the bytes from row to row of the input", rows->inPitch);
  ulyxStatementAdd(&statement, "the bytes from row to row of the output", rows->outPitch);
  ulyxStatementSign(&statement);
  return statement;
}

ulyxExpected ulyxRowsExpect(const ulyxRows* rows, bool input) {
  return ulyxTensorExpectRows(rows->type, rows->elementBytes, input ? rows->inRows : rows->outRows, rows->rowElements,
                              input ? rows->inPitch : rows->outPitch);
}
