/* SPDX-License-Identifier: MIT */
#include "footprint.h"

#include "check.h"
#include "landing.h"
#include "status.h"
#include "wire.h"

ulyxResult_t ulyxFootprintPairBytes(const ulyxGeometry* geometry, ulyxOp_t op, int src, int dst, int64_t* bytes) {
  ulyxCopyList list = {0};
  const ulyxResult_t result = ulyxOperations[op].list(geometry, src, dst, &list);
  if (result == ulyxSuccess) *bytes = ulyxCopiesBytes(list.copies, list.count);
  ulyxCopyListFree(&list);
  return result;
}

ulyxResult_t ulyxFootprintPhase(const ulyxPhase* phase, int64_t* bytes) {
  ulyxWire wire = {0};
  const ulyxResult_t result = ulyxWireBuild(phase, &wire);
  if (result == ulyxSuccess) {
    *bytes = ulyxMax64(wire.arenaBytes + phase->scratchBytes, ulyxLandingMake(phase).bytes);
  }
  ulyxWireFree(&wire);
  return result;
}

static ulyxResult_t operationArenaBytes(const ulyxGeometry* geometry, int op, int rank, int64_t* bytes) {
  ulyxPhase phase = {0};
  ulyxResult_t result = ulyxSuccess;
  ULYX_TRY_GOTO(ulyxPhaseBuild(geometry, ulyxOperations[op].list, rank, geometry->nRanks, &phase), freePhase);
  phase.facts = ulyxExchangeFacts(geometry, &ulyxOperations[op]);
  ULYX_TRY_GOTO(ulyxFootprintPhase(&phase, bytes), freePhase);

freePhase:
  ulyxPhaseFree(&phase);
  return result;
}

ulyxResult_t ulyxFootprintArenaBytes(const ulyxGeometry* geometry, int rank, int64_t* bytes) {
  int64_t largest = 0;
  for (int op = 0; op < ULYX_OP_COUNT; ++op) {
    int64_t needed = 0;
    ULYX_TRY(operationArenaBytes(geometry, op, rank, &needed));
    largest = ulyxMax64(largest, needed);
  }
  *bytes = largest;
  return ulyxSuccess;
}
