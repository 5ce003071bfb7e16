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
  ulyxWire wire;
  ULYX_TRY(ulyxWireBuild(phase, &wire));
  *bytes = ulyxMax64(wire.arenaBytes + phase->scratchBytes, ulyxLandingMake(phase).bytes);
  ulyxWireFree(&wire);
  return ulyxSuccess;
}

static ulyxResult_t operationArenaBytes(const ulyxGeometry* geometry, int op, int rank, int64_t* bytes) {
  ulyxPhase phase;
  ULYX_TRY(ulyxPhaseBuild(geometry, ulyxOperations[op].list, rank, geometry->nRanks, &phase));
  phase.facts = ulyxExchangeFacts(geometry, &ulyxOperations[op]);
  const ulyxResult_t result = ulyxFootprintPhase(&phase, bytes);
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
