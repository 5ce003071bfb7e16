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
  ulyxRows rows = {0};
  ulyxPhase phase = {0};
  if (bytes == NULL) return ulyxFail(ulyxInvalidArgument, "bytes is NULL");
  if (nRanks < 1) return ulyxFail(ulyxInvalidArgument, "nRanks is %d, expected 1 or more", nRanks);
  if (rank < 0 || rank >= nRanks) {
    return ulyxFail(ulyxInvalidArgument, "rank is %d of %d, expected 0 to %d", rank, nRanks, nRanks - 1);
  }
  ulyxResult_t result = ulyxSuccess;
  ULYX_TRY_GOTO(ulyxRowsResolve(shape, nRanks, rank, &rows), freeRows);
  ULYX_TRY_GOTO(ulyxRowsPhase(&rows, &phase), freeRows);
  ULYX_TRY_GOTO(ulyxFootprintPhase(&phase, bytes), freeRows);

freeRows:
  ulyxPhaseFree(&phase);
  ulyxRowsFree(&rows);
  return result;
}

static ulyxResult_t checkContext(ulyxContext_t context, const int64_t* bytes) {
  if (bytes == NULL) return ulyxFail(ulyxInvalidArgument, "bytes is NULL");
  return ulyxContextCheckHandle(context);
}

ulyxResult_t ulyxHaloShapeGetArenaBytes(const ulyxHaloShape_t* shape, int64_t* bytes) {
  ulyxHalo halo = {0};
  ulyxPhase phase = {0};
  int64_t largest = 0;
  ULYX_TRY(ulyxCheckStruct(shape, sizeof *shape, ULYX_HALO_SHAPE_MAGIC, "halo"));
  ULYX_TRY(checkContext(shape->context, bytes));
  ulyxResult_t result = ulyxSuccess;
  ULYX_TRY_GOTO(ulyxHaloResolve(shape, shape->context->info.nRanks, shape->context->info.rank, &halo), freeHalo);
  const int ops = ulyxElementIsSummed(halo.type) ? 2 : 1;
  for (int op = 0; op < ops; ++op) {
    int64_t needed = 0;
    ULYX_TRY_GOTO(op == 0 ? ulyxHaloForward(&halo, &phase) : ulyxHaloBackward(&halo, &phase), freeHalo);
    ULYX_TRY_GOTO(ulyxFootprintPhase(&phase, &needed), freeHalo);
    largest = ulyxMax64(largest, needed);
  }
  *bytes = largest;

freeHalo:
  ulyxPhaseFree(&phase);
  ulyxHaloFree(&halo);
  return result;
}

ulyxResult_t ulyxStateShapeGetArenaBytes(const ulyxStateShape_t* shape, int64_t* bytes) {
  ulyxStateChainPlan chain = {0};
  ulyxPhase phase = {0};
  int64_t largest = 0;
  ULYX_TRY(ulyxCheckStruct(shape, sizeof *shape, ULYX_STATE_SHAPE_MAGIC, "states"));
  ULYX_TRY(checkContext(shape->context, bytes));
  ulyxResult_t result = ulyxSuccess;
  ULYX_TRY_GOTO(ulyxChainResolve(shape, shape->context->info.nRanks, shape->context->info.rank, &chain), freeChain);
  for (int op = 0; op < 2; ++op) {
    int64_t needed = 0;
    ULYX_TRY_GOTO(ulyxChainPhase(&chain, op == 1, &phase), freeChain);
    ULYX_TRY_GOTO(ulyxFootprintPhase(&phase, &needed), freeChain);
    largest = ulyxMax64(largest, needed);
  }
  *bytes = largest;

freeChain:
  ulyxPhaseFree(&phase);
  ulyxChainFree(&chain);
  return result;
}
