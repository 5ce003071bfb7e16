/* SPDX-License-Identifier: MIT */
#include "halo.h"

#include <inttypes.h>

#include "check.h"
#include "element.h"
#include "partition.h"
#include "status.h"

static ulyxResult_t resolveRow(const ulyxHaloShape_t* shape, ulyxHalo* halo, int64_t total) {
  int64_t bytes = 0;
  if (shape->rowElements < 1) {
    return ulyxFail(ulyxInvalidArgument, "halo.rowElements is %" PRId64 ", expected 1 or more", shape->rowElements);
  }
  if (shape->localStride != 0 && shape->localStride < shape->rowElements) {
    return ulyxFail(ulyxInvalidArgument,
                    "halo.localStride is %" PRId64 ", expected 0 (dense) or at least rowElements = %" PRId64,
                    shape->localStride, shape->rowElements);
  }
  ULYX_TRY(ulyxElementBytes("halo", shape->type, shape->elementBytes, &halo->elementBytes));
  const int64_t stride = shape->localStride != 0 ? shape->localStride : shape->rowElements;
  if (!ulyxMulFits(stride, halo->elementBytes, &halo->localPitch) ||
      !ulyxMulFits(halo->localPitch, ulyxMax64(total, 1), &bytes) || bytes > ULYX_MAX_TOTAL_BYTES / halo->nRanks) {
    return ulyxFail(ulyxInvalidArgument,
                    "halo: %" PRId64 " rows of %" PRId64 " x %" PRId64 " bytes on %d ranks pass 2^60", total, stride,
                    halo->elementBytes, halo->nRanks);
  }
  halo->type = shape->type;
  halo->rowElements = shape->rowElements;
  halo->rowBytes = shape->rowElements * halo->elementBytes;
  return ulyxSuccess;
}

ulyxResult_t ulyxHaloResolve(const ulyxHaloShape_t* shape, int nRanks, int rank, ulyxHalo* halo) {
  ULYX_TRY(ulyxCheckStruct(shape, sizeof *shape, ULYX_HALO_SHAPE_MAGIC, "halo"));
  ULYX_TRY(ulyxContextCheckWorld(shape->context, nRanks, rank));
  ULYX_TRY(ulyxContextCheckChain(shape->context));
  *halo = (ulyxHalo){.rank = rank, .nRanks = nRanks, .memory = halo->memory};
  ULYX_TRY(resolveRow(shape, halo, ulyxSequencesTotal(shape->context->sequences)));
  ULYX_TRY(ulyxStorageEnsure(&halo->memory, (size_t)nRanks, 2 * sizeof(ulyxRange_t) + 2 * sizeof(int64_t), "halos"));
  halo->tokens = halo->memory.data;
  halo->halos = halo->tokens + nRanks;
  halo->counts = (int64_t*)(halo->halos + nRanks);
  for (int r = 0; r < nRanks; ++r) {
    const ulyxShardView view = ulyxContextViewRank(shape->context, r);
    halo->tokens[r] = view.tokens;
    halo->halos[r] = (ulyxRange_t){view.tokens.start - view.haloTokens, view.tokens.start};
    halo->counts[r] = ulyxRangeLength(view.tokens);
    halo->counts[nRanks + r] = view.haloTokens;
  }
  return ulyxSuccess;
}

void ulyxHaloFree(ulyxHalo* halo) {
  ulyxStorageFree(&halo->memory);
  *halo = (ulyxHalo){0};
}

/* The tokens of `needer`'s halo that `owner` holds. */
static ulyxRange_t shared(const ulyxHalo* halo, int needer, int owner) {
  const int64_t start = ulyxMax64(halo->halos[needer].start, halo->tokens[owner].start);
  const int64_t stop = ulyxMin64(halo->halos[needer].stop, halo->tokens[owner].stop);
  return start < stop ? (ulyxRange_t){start, stop} : (ulyxRange_t){start, start};
}

static ulyxResult_t listForward(const void* subject, int src, int dst, ulyxCopyList* list) {
  const ulyxHalo* const halo = subject;
  const ulyxRange_t rows = shared(halo, dst, src);
  if (rows.start == rows.stop) return ulyxSuccess;
  return ulyxCopyListAppend(list, (ulyxCopy){.rows = ulyxRangeLength(rows),
                                             .rowBytes = halo->rowBytes,
                                             .srcOffset = (rows.start - halo->tokens[src].start) * halo->localPitch,
                                             .srcPitch = halo->localPitch,
                                             .dstOffset = (rows.start - halo->halos[dst].start) * halo->rowBytes,
                                             .dstPitch = halo->rowBytes});
}

/* Rows of scratch on `owner` before those that come from `needer`: gradients lie in rank order. */
static int64_t scratchRow(const ulyxHalo* halo, int needer, int owner) {
  int64_t row = 0;
  for (int r = owner + 1; r < needer; ++r) row += ulyxRangeLength(shared(halo, r, owner));
  return row;
}

static ulyxResult_t listBackward(const void* subject, int src, int dst, ulyxCopyList* list) {
  const ulyxHalo* const halo = subject;
  const ulyxRange_t rows = shared(halo, src, dst);
  if (rows.start == rows.stop) return ulyxSuccess;
  return ulyxCopyListAppend(list, (ulyxCopy){.dstBuffer = ULYX_SCRATCH,
                                             .rows = ulyxRangeLength(rows),
                                             .rowBytes = halo->rowBytes,
                                             .srcOffset = (rows.start - halo->halos[src].start) * halo->rowBytes,
                                             .srcPitch = halo->rowBytes,
                                             .dstOffset = scratchRow(halo, src, dst) * halo->rowBytes,
                                             .dstPitch = halo->rowBytes});
}

/* A rank receives its own halo and sends what it holds of the others'; backward the other way round. */
static ulyxPhaseFacts factsOf(const ulyxHalo* halo) {
  ulyxPhaseFacts facts = {.rowBytes = halo->rowBytes, .copiesPerPeer = 1};
  for (int rank = 0; rank < halo->nRanks; ++rank) {
    const int64_t received = ulyxRangeLength(halo->halos[rank]);
    int64_t sent = 0;
    for (int other = rank + 1; other < halo->nRanks; ++other) {
      const ulyxRange_t rows = shared(halo, other, rank);
      sent += rows.stop > rows.start ? rows.stop - rows.start : 0;
    }
    facts.remoteBytes = ulyxMax64(facts.remoteBytes, ulyxMax64(sent, received) * halo->rowBytes);
    facts.dstSpan[0] = ulyxMax64(facts.dstSpan[0], received * halo->rowBytes);
    if (received == 0) facts.someDstEmpty = true;
  }
  return facts;
}

ulyxResult_t ulyxHaloForward(const ulyxHalo* halo, ulyxPhase* phase) {
  ULYX_TRY(ulyxPhaseBuild(halo, listForward, halo->rank, halo->nRanks, phase));
  phase->facts = factsOf(halo);
  return ulyxSuccess;
}

/* Own rows from the first that is in somebody's halo on: themselves, then every later rank's gradients. */
static ulyxResult_t addSum(const ulyxHalo* halo, ulyxPhase* phase) {
  const ulyxRange_t own = halo->tokens[halo->rank];
  int64_t first = own.stop;
  for (int r = halo->rank + 1; r < halo->nRanks; ++r) {
    const ulyxRange_t rows = shared(halo, r, halo->rank);
    if (rows.start < rows.stop) first = ulyxMin64(first, rows.start);
  }
  if (first == own.stop) return ulyxSuccess;
  int addendCount = 1;
  for (int r = halo->rank + 1; r < halo->nRanks; ++r) {
    const ulyxRange_t rows = shared(halo, r, halo->rank);
    if (rows.start < rows.stop) ++addendCount;
  }
  if (addendCount > ULYX_SUM_MAX_ADDENDS) {
    return ulyxFail(ulyxUnsupported, "the halos of %d ranks reach into rank %d's tokens, at most %d", addendCount - 1,
                    halo->rank, ULYX_SUM_MAX_ADDENDS - 1);
  }
  ulyxStorage* const addends = &phase->memory.addends;
  ULYX_TRY(ulyxStorageEnsure(addends, (size_t)addendCount, sizeof(ulyxAddend), "addends"));
  ulyxSum* const sum = &phase->after.sum;
  const int64_t offset = (first - own.start) * halo->localPitch;
  *sum = (ulyxSum){.type = halo->type,
                   .rows = own.stop - first,
                   .rowElements = halo->rowElements,
                   .dst = {ulyxInDst, 0, offset},
                   .dstPitch = halo->localPitch,
                   .addends = addends->data};
  sum->addends[sum->addendCount++] = (ulyxAddend){.place = sum->dst, .pitch = halo->localPitch, .rowCount = sum->rows};
  for (int r = halo->rank + 1; r < halo->nRanks; ++r) {
    const ulyxRange_t rows = shared(halo, r, halo->rank);
    if (rows.start == rows.stop) continue;
    const int64_t row = scratchRow(halo, r, halo->rank);
    sum->addends[sum->addendCount++] = (ulyxAddend){.place = {ulyxInDst, ULYX_SCRATCH, row * halo->rowBytes},
                                                    .pitch = halo->rowBytes,
                                                    .firstRow = rows.start - first,
                                                    .rowCount = ulyxRangeLength(rows)};
    phase->scratchBytes = (row + ulyxRangeLength(rows)) * halo->rowBytes;
  }
  phase->after.kind = ulyxLocalSum;
  return ulyxSuccess;
}

ulyxResult_t ulyxHaloBackward(const ulyxHalo* halo, ulyxPhase* phase) {
  ULYX_TRY(ulyxPhaseBuild(halo, listBackward, halo->rank, halo->nRanks, phase));
  phase->facts = factsOf(halo);
  phase->facts.dstSpan[0] = 0; /* gradients arrive in scratch */
  phase->facts.someDstEmpty = false;
  return addSum(halo, phase);
}

ulyxStatement ulyxHaloState(const ulyxHalo* halo) {
  ulyxStatement statement = {.operation = "conv_halo",
                             .rule = ulyxCountsEqual,
                             .countCount = 2 * halo->nRanks,
                             .counts = halo->counts,
                             .countNames = {"tokens", "halo tokens"}};
  ulyxStatementAdd(&statement, "halo.type", halo->type);
  ulyxStatementAdd(&statement, "halo.elementBytes", halo->elementBytes);
  ulyxStatementAdd(&statement, "halo.rowElements", halo->rowElements);
  ulyxStatementAdd(&statement, "the bytes from row to row of the local tensor", halo->localPitch);
  ulyxStatementSign(&statement);
  return statement;
}

ulyxExpected ulyxHaloExpectLocal(const ulyxHalo* halo) {
  return ulyxTensorExpectRows(halo->type, halo->elementBytes, ulyxRangeLength(halo->tokens[halo->rank]),
                              halo->rowElements, halo->localPitch);
}

ulyxExpected ulyxHaloExpectHalo(const ulyxHalo* halo) {
  return ulyxTensorExpectRows(halo->type, halo->elementBytes, ulyxRangeLength(halo->halos[halo->rank]),
                              halo->rowElements, halo->rowBytes);
}
