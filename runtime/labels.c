/* SPDX-License-Identifier: MIT */
#include "labels.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "kernels.h"

/* Of the ranks that did not come, so many are named. */
#define MOST_NAMED 8

static size_t labelBytes(const ulyxLabels* labels) {
  return (1 + (size_t)labels->nRanks) * sizeof(ulyxLabel);
}

static ulyxResult_t create(ulyxLabels* labels) {
  const size_t bytes = labelBytes(labels) + sizeof *labels->run;
  ULYX_TRY(ULYX_CUDA(cudaMalloc((void**)&labels->device, bytes)));
  labels->run = (ulyxLabelRun*)(void*)(labels->device + ULYX_LABEL_FROM(labels->nRanks));
  ULYX_TRY(ULYX_CUDA(cudaMallocHost((void**)&labels->found, sizeof *labels->found)));
  ULYX_TRY(ULYX_CUDA(cudaMallocHost((void**)&labels->overlap, sizeof *labels->overlap)));
  ULYX_TRY(ULYX_CUDA(cudaMallocHost((void**)&labels->seen, labelBytes(labels))));
  ULYX_TRY(ULYX_CUDA(cudaStreamCreateWithFlags(&labels->looking, cudaStreamNonBlocking)));
  memset(labels->found, 0, sizeof *labels->found);
  memset(labels->overlap, 0, sizeof *labels->overlap);
  memset(labels->seen, 0, labelBytes(labels));
  ULYX_TRY(ULYX_CUDA(cudaMemsetAsync(labels->device, 0, bytes, labels->looking)));
  return ULYX_CUDA(cudaStreamSynchronize(labels->looking));
}

ulyxResult_t ulyxLabelsCreate(int nRanks, int rank, ulyxLabels* labels) {
  *labels = (ulyxLabels){.nRanks = nRanks, .rank = rank};
  const ulyxResult_t result = create(labels);
  if (result != ulyxSuccess) {
    ulyxUndoBegin();
    (void)ulyxLabelsDestroy(labels);
    ulyxUndoEnd();
  }
  return result;
}

ulyxResult_t ulyxLabelsDestroy(ulyxLabels* labels) {
  ulyxResult_t result = ulyxSuccess;
  if (labels->looking != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaStreamDestroy(labels->looking)));
  if (labels->seen != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaFreeHost(labels->seen)));
  if (labels->overlap != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaFreeHost(labels->overlap)));
  if (labels->found != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaFreeHost(labels->found)));
  if (labels->device != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaFree(labels->device)));
  *labels = (ulyxLabels){0};
  return result;
}

/* ---- Around an exchange -------------------------------------------------------------------------------- */

ulyxResult_t ulyxLabelsWrite(const ulyxLabels* labels, const ulyxExchange* exchange) {
  ulyxLabelWrite write = {.labels = labels->device,
                          .run = labels->run,
                          .overlap = labels->overlap,
                          .own = {.state = ulyxLabelWritten,
                                  .signature = exchange->signature,
                                  .plan = exchange->plan,
                                  .number = (uint64_t)exchange->number}};
  (void)snprintf(write.own.operation, sizeof write.own.operation, "%s", exchange->operation);
  const int64_t* const start = exchange->phase->recvStart;
  const int last = (labels->nRanks - 1) / ULYX_LABEL_RANKS_A_LAUNCH * ULYX_LABEL_RANKS_A_LAUNCH;
  for (int first = last; first >= 0; first -= ULYX_LABEL_RANKS_A_LAUNCH) { /* 0 last: the exchange begins with it */
    write.firstRank = first;
    write.count = (int)ulyxMin64(labels->nRanks - first, ULYX_LABEL_RANKS_A_LAUNCH);
    memset(write.awaited, 0, sizeof write.awaited);
    for (int i = 0; i < write.count; ++i) {
      const int rank = first + i;
      if (rank != labels->rank && start[rank] < start[rank + 1]) write.awaited[i / 64] |= UINT64_C(1) << (i % 64);
    }
    ULYX_TRY(ulyxCudaResult(ulyxLaunchLabelWrite(&write, exchange->stream), "launch of the label kernel"));
  }
  return ulyxSuccess;
}

ulyxResult_t ulyxLabelsCompare(const ulyxLabels* labels, const ulyxExchange* exchange) {
  const ulyxLabelCompare compare = {
      .labels = labels->device, .run = labels->run, .found = labels->found, .nRanks = labels->nRanks};
  return ulyxCudaResult(ulyxLaunchLabelCompare(&compare, exchange->stream), "launch of the label kernel");
}

/* ---- What was found ------------------------------------------------------------------------------------ */

bool ulyxLabelsHavePassing(const ulyxLabels* labels) {
  return labels->found != NULL && __atomic_load_n(&labels->found->peer, __ATOMIC_ACQUIRE) != 0;
}

/* The device writes no other before this one is taken away. */
ulyxResult_t ulyxLabelsPassing(ulyxLabels* labels) {
  if (!ulyxLabelsHavePassing(labels)) return ulyxSuccess;
  const ulyxMislabelled found = *labels->found;
  __atomic_store_n(&labels->found->peer, 0, __ATOMIC_RELEASE);
  return ulyxFail(ulyxMismatch,
                  "exchange %" PRIu64 " by nccl is %s of plan %016" PRIx64 " here, rank %u sent exchange %" PRIu64
                  ", %.*s of plan %016" PRIx64
                  "; the output is void; every rank must make the same calls on equal plans in the same order",
                  found.mine.number, found.mine.operation, found.mine.plan, found.peer - 1, found.theirs.number,
                  ULYX_LABEL_NAME_BYTES - 1, found.theirs.operation, found.theirs.plan);
}

/* Both used one arena and one set of labels: neither output can be trusted, nor what the peers got. */
ulyxResult_t ulyxLabelsLost(const ulyxLabels* labels) {
  if (labels->overlap == NULL || __atomic_load_n(&labels->overlap->found, __ATOMIC_ACQUIRE) == 0) return ulyxSuccess;
  return ulyxFail(ulyxRemoteError,
                  "exchange %" PRIu64 " by nccl began while exchange %" PRIu64
                  " of this runtime (rank %d) was running: a graph replayed beside an exchange or another graph, or "
                  "exchanges on two branches of one; order them by events; destroy the runtime",
                  labels->overlap->number, labels->overlap->running, labels->rank);
}

/* ---- Why an exchange does not end ---------------------------------------------------------------------- */

static bool look(const ulyxLabels* labels) {
  const int64_t startNs = ulyxNowNs();
  if (cudaMemcpyAsync(labels->seen, labels->device, labelBytes(labels), cudaMemcpyDeviceToHost, labels->looking) !=
      cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  cudaError_t state = cudaErrorNotReady;
  while ((state = cudaStreamQuery(labels->looking)) == cudaErrorNotReady &&
         ulyxNowNs() - startNs < ULYX_GRACE_MS * ULYX_NS_A_MS) {
    ulyxSleepUs(200);
  }
  if (state != cudaSuccess) (void)cudaGetLastError();
  return state == cudaSuccess;
}

/* The lowest rank that came with another exchange; -1: none. */
static int findOther(const ulyxLabels* labels) {
  for (int rank = 0; rank < labels->nRanks; ++rank) {
    const ulyxLabel* const from = &labels->seen[ULYX_LABEL_FROM(rank)];
    if (from->state == ulyxLabelWritten && from->signature != labels->seen[ULYX_LABEL_OWN].signature) return rank;
  }
  return -1;
}

/* Returns how many there are; names the first ones. */
static int nameAbsent(const ulyxLabels* labels, char* text, size_t bytes) {
  int absent = 0;
  size_t used = 0;
  for (int rank = 0; rank < labels->nRanks; ++rank) {
    if (labels->seen[ULYX_LABEL_FROM(rank)].state != ulyxLabelAwaited || ++absent > MOST_NAMED) continue;
    used += (size_t)snprintf(text + used, bytes - used, "%s%d", absent == 1 ? "rank " : ", rank ", rank);
  }
  if (absent > MOST_NAMED) (void)snprintf(text + used, bytes - used, " and %d more", absent - MOST_NAMED);
  return absent;
}

static bool isSentSomething(const ulyxLabels* labels) {
  for (int rank = 0; rank < labels->nRanks; ++rank) {
    if (labels->seen[ULYX_LABEL_FROM(rank)].state != ulyxLabelNone) return true;
  }
  return false;
}

/* By the labels that have been looked at. */
static void explain(const ulyxLabels* labels, const ulyxGuardExchange* exchange, char* text, size_t bytes) {
  char absent[MOST_NAMED * 18 + 32];
  const ulyxLabel* const own = &labels->seen[ULYX_LABEL_OWN];
  const int other = findOther(labels);
  if (own->state != ulyxLabelWritten || own->number != (uint64_t)exchange->number) {
    (void)snprintf(text, bytes, "what precedes it on its stream has not ended");
  } else if (other >= 0) {
    const ulyxLabel* const from = &labels->seen[ULYX_LABEL_FROM(other)];
    (void)snprintf(text, bytes,
                   "rank %d came with exchange %" PRIu64 ", %.*s of plan %016" PRIx64
                   "; every rank must make the same calls on equal plans in the same order",
                   other, from->number, ULYX_LABEL_NAME_BYTES - 1, from->operation, from->plan);
  } else if (nameAbsent(labels, absent, sizeof absent) > 0) {
    (void)snprintf(text, bytes, "nothing came from %s", absent);
  } else if (isSentSomething(labels)) {
    (void)snprintf(text, bytes, "every rank that sends to this one came; one was lost since, or does not receive");
  } else {
    (void)snprintf(text, bytes, "this rank only sends, and a rank does not receive");
  }
}

void ulyxLabelsExplain(const ulyxLabels* labels, const ulyxGuardExchange* exchange, char* text, size_t bytes) {
  if (labels->device != NULL && look(labels)) {
    explain(labels, exchange, text, bytes);
  } else {
    (void)snprintf(text, bytes,
                   "a rank did not come, came with another exchange, as its own error would say, or what precedes it "
                   "on its stream takes longer");
  }
}
