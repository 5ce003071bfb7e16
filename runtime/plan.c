/* SPDX-License-Identifier: MIT */
#include "plan.h"

#include <stdlib.h>

#include "status.h"

ulyxResult_t ulyxPhaseBuild(const void* subject, ulyxLister list, int rank, int nRanks, ulyxPhase* phase) {
  ulyxResult_t result = ulyxSuccess;
  ulyxCopyList copies = {0};
  void* starts = NULL;
  ULYX_TRY(ulyxAllocate(&starts, 2 * ((size_t)nRanks + 1), sizeof(int64_t), "copy offsets"));
  int64_t* const sendStart = starts;
  int64_t* const recvStart = sendStart + nRanks + 1;
  for (int peer = 0; peer < nRanks; ++peer) {
    sendStart[peer] = copies.count;
    ULYX_TRY_GOTO(list(subject, rank, peer, &copies), freeCopies);
  }
  sendStart[nRanks] = copies.count;
  for (int peer = 0; peer < nRanks; ++peer) {
    recvStart[peer] = copies.count;
    if (peer != rank) ULYX_TRY_GOTO(list(subject, peer, rank, &copies), freeCopies);
  }
  recvStart[nRanks] = copies.count;
  *phase = (ulyxPhase){
      .rank = rank, .nRanks = nRanks, .copies = copies.copies, .sendStart = sendStart, .recvStart = recvStart};
  return ulyxSuccess;

freeCopies:
  ulyxCopyListFree(&copies);
  free(starts);
  return result;
}

void ulyxPhaseFree(ulyxPhase* phase) {
  free((void*)phase->copies);
  free((void*)phase->sendStart);
  free(phase->after.sum.addends);
  *phase = (ulyxPhase){0};
}
