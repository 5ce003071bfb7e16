/* SPDX-License-Identifier: MIT
 *
 * Entry points that say what the plans of rows, halos and states stage, before any runtime exists. */
#include "chain.h"
#include "check.h"
#include "element.h"
#include "footprint.h"
#include "halo.h"
#include "rows.h"
#include "status.h"

ulyxResult_t ulyxRowsShapeGetArenaBytes(const ulyxRowsShape_t* shape, int nRanks, int rank, int64_t* bytes) {
  ulyxRows rows;
  ulyxPhase phase;
  if (bytes == NULL) return ulyxFail(ulyxInvalidArgument, "bytes is NULL");
  if (nRanks < 1) return ulyxFail(ulyxInvalidArgument, "nRanks is %d, expected 1 or more", nRanks);
  if (rank < 0 || rank >= nRanks) {
    return ulyxFail(ulyxInvalidArgument, "rank is %d of %d, expected 0 to %d", rank, nRanks, nRanks - 1);
  }
  ULYX_TRY(ulyxRowsResolve(shape, nRanks, rank, &rows));
  ulyxResult_t result = ulyxRowsPhase(&rows, &phase);
  if (result == ulyxSuccess) {
    result = ulyxFootprintPhase(&phase, bytes);
    ulyxPhaseFree(&phase);
  }
  ulyxRowsFree(&rows);
  return result;
}

static ulyxResult_t checkContext(ulyxContext_t context, const int64_t* bytes) {
  if (bytes == NULL) return ulyxFail(ulyxInvalidArgument, "bytes is NULL");
  return ulyxContextCheckHandle(context);
}

ulyxResult_t ulyxHaloShapeGetArenaBytes(const ulyxHaloShape_t* shape, int64_t* bytes) {
  ulyxHalo halo;
  int64_t largest = 0;
  ULYX_TRY(ulyxCheckStruct(shape, sizeof *shape, ULYX_HALO_SHAPE_MAGIC, "halo"));
  ULYX_TRY(checkContext(shape->context, bytes));
  ULYX_TRY(ulyxHaloResolve(shape, shape->context->info.nRanks, shape->context->info.rank, &halo));
  ulyxResult_t result = ulyxSuccess;
  const int ops = ulyxElementIsSummed(halo.type) ? 2 : 1;
  for (int op = 0; op < ops && result == ulyxSuccess; ++op) {
    ulyxPhase phase;
    int64_t needed = 0;
    result = op == 0 ? ulyxHaloForward(&halo, &phase) : ulyxHaloBackward(&halo, &phase);
    if (result != ulyxSuccess) break;
    result = ulyxFootprintPhase(&phase, &needed);
    ulyxPhaseFree(&phase);
    largest = ulyxMax64(largest, needed);
  }
  ulyxHaloFree(&halo);
  if (result == ulyxSuccess) *bytes = largest;
  return result;
}

ulyxResult_t ulyxStateShapeGetArenaBytes(const ulyxStateShape_t* shape, int64_t* bytes) {
  ulyxStateChainPlan chain;
  int64_t largest = 0;
  ULYX_TRY(ulyxCheckStruct(shape, sizeof *shape, ULYX_STATE_SHAPE_MAGIC, "states"));
  ULYX_TRY(checkContext(shape->context, bytes));
  ULYX_TRY(ulyxChainResolve(shape, shape->context->info.nRanks, shape->context->info.rank, &chain));
  ulyxResult_t result = ulyxSuccess;
  for (int op = 0; op < 2 && result == ulyxSuccess; ++op) {
    ulyxPhase phase;
    int64_t needed = 0;
    result = ulyxChainPhase(&chain, op == 1, &phase);
    if (result != ulyxSuccess) break;
    result = ulyxFootprintPhase(&phase, &needed);
    ulyxPhaseFree(&phase);
    largest = ulyxMax64(largest, needed);
  }
  ulyxChainFree(&chain);
  if (result == ulyxSuccess) *bytes = largest;
  return result;
}
