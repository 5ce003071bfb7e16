/* SPDX-License-Identifier: MIT */
#include "plan.h"

#include <stdlib.h>

#include "status.h"

const ulyxOperation ulyxOperations[ULYX_OP_COUNT] = {
    {"seq_to_heads", ulyxListSeqToHeads, ulyxSideSeq, ulyxSideHeads, ulyxRoleQ, ulyxRoleV},
    {"heads_to_seq", ulyxListHeadsToSeq, ulyxSideHeads, ulyxSideSeq, ulyxRoleO, ulyxRoleO},
};

ulyxResult_t ulyxPhaseBuild(const ulyxGeometry* geometry, ulyxLister list, int rank, ulyxPhase* phase) {
  const int nRanks = geometry->nRanks;
  ulyxResult_t result = ulyxSuccess;
  ulyxCopyList copies = {0};
  void* starts = NULL;
  ULYX_TRY(ulyxAllocate(&starts, 2 * ((size_t)nRanks + 1), sizeof(int64_t), "copy offsets"));
  int64_t* const sendStart = starts;
  int64_t* const recvStart = sendStart + nRanks + 1;
  for (int peer = 0; peer < nRanks; ++peer) {
    sendStart[peer] = copies.count;
    ULYX_TRY_GOTO(list(geometry, rank, peer, &copies), freeCopies);
  }
  sendStart[nRanks] = copies.count;
  for (int peer = 0; peer < nRanks; ++peer) {
    recvStart[peer] = copies.count;
    if (peer != rank) ULYX_TRY_GOTO(list(geometry, peer, rank, &copies), freeCopies);
  }
  recvStart[nRanks] = copies.count;
  *phase = (ulyxPhase){rank, nRanks, copies.copies, sendStart, recvStart};
  return ulyxSuccess;

freeCopies:
  ulyxCopyListFree(&copies);
  free(starts);
  return result;
}

void ulyxPhaseFree(ulyxPhase* phase) {
  free((void*)phase->copies);
  free((void*)phase->sendStart);
  *phase = (ulyxPhase){0};
}
