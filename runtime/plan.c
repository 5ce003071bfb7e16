/* SPDX-License-Identifier: MIT */
#include "plan.h"

#include "status.h"

/* Appends the copies of all pairs: of each peer those that go there, then of each other peer those that come. */
static ulyxResult_t listAll(const void* subject, ulyxLister list, const ulyxPhase* phase, int64_t* sendStart,
                            int64_t* recvStart, ulyxCopyList* copies) {
  for (int peer = 0; peer < phase->nRanks; ++peer) {
    sendStart[peer] = copies->count;
    ULYX_TRY(list(subject, phase->rank, peer, copies));
  }
  sendStart[phase->nRanks] = copies->count;
  for (int peer = 0; peer < phase->nRanks; ++peer) {
    recvStart[peer] = copies->count;
    if (peer != phase->rank) ULYX_TRY(list(subject, peer, phase->rank, copies));
  }
  recvStart[phase->nRanks] = copies->count;
  return ulyxSuccess;
}

ulyxResult_t ulyxPhaseBuild(const void* subject, ulyxLister list, int rank, int nRanks, ulyxPhase* phase) {
  *phase = (ulyxPhase){.rank = rank, .nRanks = nRanks, .memory = phase->memory};
  ulyxPhaseMemory* const memory = &phase->memory;
  ULYX_TRY(ulyxStorageEnsure(&memory->starts, 2 * ((size_t)nRanks + 1), sizeof(int64_t), "copy offsets"));
  int64_t* const sendStart = memory->starts.data;
  int64_t* const recvStart = sendStart + nRanks + 1;
  ulyxCopyList copies = {.memory = memory->copies};
  const ulyxResult_t result = listAll(subject, list, phase, sendStart, recvStart, &copies);
  memory->copies = copies.memory; /* it may have moved, whatever the result */
  phase->copies = copies.copies;
  phase->sendStart = sendStart;
  phase->recvStart = recvStart;
  return result;
}

void ulyxPhaseFree(ulyxPhase* phase) {
  ulyxStorageFree(&phase->memory.copies);
  ulyxStorageFree(&phase->memory.starts);
  ulyxStorageFree(&phase->memory.addends);
  *phase = (ulyxPhase){0};
}
