/* SPDX-License-Identifier: MIT */
#include "agreement.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "partition.h"
#include "status.h"

enum {
  wordResult,
  wordArenaNeeded,
  wordArenaThere,
  wordSignature,
  wordType,
  wordElementBytes,
  wordTokens,
  wordHeads,
  wordKvHeads,
  wordHeadDim,
  wordValueDim,
  wordBatch,
  wordSeqOrder,
  wordHeadsOrder,
  wordPackedIn,
  wordPackedOut,
  wordStrides,
  wordCount = wordStrides + ulyxSideCount * ulyxRoleCount * 3
};

static const char* const fieldNames[wordStrides] = {
    NULL,      NULL,      NULL,       NULL,    "type",     "elementBytes", "tokens",   "heads",
    "kvHeads", "headDim", "valueDim", "batch", "seqOrder", "headsOrder",   "packedIn", "packedOut"};

int ulyxAgreementWords(int nRanks) {
  return nRanks * 2 > wordCount ? nRanks * 2 : wordCount;
}

static void state(const ulyxTransport* transport, ulyxResult_t mine, const ulyxGeometry* geometry, int64_t arenaNeeded,
                  int64_t* words) {
  memset(words, 0, wordCount * sizeof *words);
  words[wordResult] = mine;
  if (mine != ulyxSuccess && mine != ulyxArenaTooSmall) return;
  words[wordArenaNeeded] = arenaNeeded;
  words[wordArenaThere] = transport->arenaBytes;
  words[wordSignature] = (int64_t)geometry->signature;
  words[wordType] = geometry->type;
  words[wordElementBytes] = geometry->elementBytes;
  words[wordTokens] = geometry->tokens;
  words[wordHeads] = geometry->heads;
  words[wordKvHeads] = geometry->kvHeads;
  words[wordHeadDim] = geometry->headDim;
  words[wordValueDim] = geometry->valueDim;
  words[wordBatch] = geometry->batch;
  words[wordSeqOrder] = geometry->order[ulyxSideSeq];
  words[wordHeadsOrder] = geometry->order[ulyxSideHeads];
  words[wordPackedIn] = geometry->packed[ulyxSideSeq];
  words[wordPackedOut] = geometry->packed[ulyxSideHeads];
  memcpy(words + wordStrides, geometry->strides, sizeof geometry->strides);
}

/* A rank that refused: its own error stays its own, the others learn whose it is. */
static ulyxResult_t compareResults(const ulyxTransport* transport, ulyxResult_t mine, const int64_t* all) {
  for (int rank = 0; rank < transport->nRanks; ++rank) {
    const int64_t* const words = all + (int64_t)rank * wordCount;
    const ulyxResult_t theirs = (ulyxResult_t)words[wordResult];
    if (theirs == ulyxArenaTooSmall) {
      return ulyxFail(ulyxArenaTooSmall,
                      "the plan stages %" PRId64 " bytes on rank %d, whose arena has %" PRId64
                      "; call ulyxRuntimeReserve",
                      words[wordArenaNeeded], rank, words[wordArenaThere]);
    }
    if (theirs != ulyxSuccess && mine == ulyxSuccess) {
      return ulyxFail(ulyxMismatch, "rank %d refused its shape (%s; its last error says why), rank %d accepts its own",
                      rank, ulyxGetErrorString(theirs), transport->rank);
    }
  }
  return mine;
}

static ulyxResult_t compareFields(const ulyxTransport* transport, const int64_t* all) {
  static const char* const tensors[ulyxSideCount * ulyxRoleCount] = {"qIn",  "kIn",  "vIn",  "oOut",
                                                                     "qOut", "kOut", "vOut", "oIn"};
  static const char* const axes[3] = {"batch", "token", "head"};
  for (int rank = 1; rank < transport->nRanks; ++rank) {
    const int64_t* const theirs = all + (int64_t)rank * wordCount;
    for (int word = wordType; word < wordCount; ++word) {
      if (theirs[word] == all[word]) continue;
      if (word < wordStrides) {
        return ulyxFail(ulyxMismatch, "shape.%s is %" PRId64 " on rank 0 and %" PRId64 " on rank %d", fieldNames[word],
                        all[word], theirs[word], rank);
      }
      const int stride = word - wordStrides;
      return ulyxFail(ulyxMismatch, "shape.%s.%s is %" PRId64 " on rank 0 and %" PRId64 " on rank %d",
                      tensors[stride / 3], axes[stride % 3], all[word], theirs[word], rank);
    }
  }
  return ulyxSuccess;
}

static ulyxResult_t compareCounts(const ulyxTransport* transport, const int64_t* all) {
  const int nRanks = transport->nRanks;
  for (int rank = 1; rank < nRanks; ++rank) {
    const int64_t* const theirs = all + (int64_t)rank * 2 * nRanks;
    for (int i = 0; i < 2 * nRanks; ++i) {
      if (theirs[i] == all[i]) continue;
      return ulyxFail(ulyxMismatch, "rank 0 gives rank %d %" PRId64 " %s, rank %d gives it %" PRId64, i % nRanks,
                      all[i], i < nRanks ? "tokens" : "heads", rank, theirs[i]);
    }
  }
  return ulyxFail(ulyxInternalError, "the ranks' signatures differ, their shapes do not");
}

static bool signaturesDiffer(const ulyxTransport* transport, const int64_t* all) {
  for (int rank = 1; rank < transport->nRanks; ++rank) {
    if (all[(int64_t)rank * wordCount + wordSignature] != all[wordSignature]) return true;
  }
  return false;
}

/* Every rank sees the same words, so every rank takes the same way through. */
static ulyxResult_t agree(ulyxTransport* transport, ulyxResult_t mine, const ulyxGeometry* geometry,
                          int64_t arenaNeeded, int64_t* words, int64_t* all) {
  state(transport, mine, geometry, arenaNeeded, words);
  char message[ULYX_MESSAGE_BYTES];
  strcpy(message, ulyxThreadMessage());
  ULYX_TRY(transport->ops->gather(transport, words, wordCount, all));
  const ulyxResult_t result = compareResults(transport, mine, all);
  if (result != ulyxSuccess) {
    return result == mine && mine != ulyxArenaTooSmall ? ulyxFail(mine, "%s", message) : result;
  }
  ULYX_TRY(compareFields(transport, all));
  if (!signaturesDiffer(transport, all)) return ulyxSuccess;
  for (int rank = 0; rank < transport->nRanks; ++rank) {
    words[rank] = ulyxRangeLength(geometry->tokenRanges[rank]);
    words[transport->nRanks + rank] = ulyxRangeLength(geometry->headRanges[rank]);
  }
  ULYX_TRY(transport->ops->gather(transport, words, 2 * transport->nRanks, all));
  return compareCounts(transport, all);
}

ulyxResult_t ulyxAgree(ulyxTransport* transport, ulyxResult_t mine, const ulyxGeometry* geometry, int64_t arenaNeeded) {
  const size_t count = (size_t)ulyxAgreementWords(transport->nRanks);
  void* words = NULL;
  ULYX_TRY(ulyxAllocate(&words, count * ((size_t)transport->nRanks + 1), sizeof(int64_t), "an agreement"));
  int64_t* const all = (int64_t*)words + count;
  const ulyxResult_t result = agree(transport, mine, geometry, arenaNeeded, words, all);
  free(words);
  return result;
}
