/* SPDX-License-Identifier: MIT */
#include "agreement.h"

#include <inttypes.h>
#include <string.h>

#include "status.h"

enum {
  wordResult,
  wordArenaNeeded,
  wordArenaThere,
  wordOperation, /* the first eight characters of its name, and how long it is */
  wordOperationLength,
  wordSignature,
  wordFields,
  wordCount = wordFields + ULYX_STATEMENT_FIELDS
};

int ulyxAgreementWords(int nRanks) {
  return nRanks * 2 > wordCount ? nRanks * 2 : wordCount;
}

static void state(const ulyxTransport* transport, ulyxResult_t mine, const ulyxStatement* statement,
                  int64_t arenaNeeded, int64_t* words) {
  memset(words, 0, wordCount * sizeof *words);
  words[wordResult] = mine;
  if (mine != ulyxSuccess && mine != ulyxArenaTooSmall) return;
  words[wordArenaNeeded] = arenaNeeded;
  words[wordArenaThere] = transport->arenaBytes;
  words[wordOperationLength] = (int64_t)strlen(statement->operation);
  strncpy((char*)&words[wordOperation], statement->operation, sizeof words[wordOperation]);
  words[wordSignature] = (int64_t)statement->signature;
  for (int i = 0; i < statement->fieldCount; ++i) words[wordFields + i] = statement->fields[i].value;
}

/* A rank that refused: the others learn whose refusal it is. A small arena comes first, since all can mend it. */
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

static ulyxResult_t compareFields(const ulyxTransport* transport, const ulyxStatement* statement, const int64_t* all) {
  for (int rank = 1; rank < transport->nRanks; ++rank) {
    const int64_t* const theirs = all + (int64_t)rank * wordCount;
    if (theirs[wordOperation] != all[wordOperation] || theirs[wordOperationLength] != all[wordOperationLength]) {
      return ulyxFail(ulyxMismatch, "rank 0 plans %.8s..., rank %d %.8s...", (const char*)&all[wordOperation], rank,
                      (const char*)&theirs[wordOperation]);
    }
    for (int i = 0; i < statement->fieldCount; ++i) {
      if (theirs[wordFields + i] == all[wordFields + i]) continue;
      return ulyxFail(ulyxMismatch, "%s is %" PRId64 " on rank 0 and %" PRId64 " on rank %d", statement->fields[i].name,
                      all[wordFields + i], theirs[wordFields + i], rank);
    }
  }
  return ulyxSuccess;
}

static ulyxResult_t compareEqual(const ulyxTransport* transport, const ulyxStatement* statement, const int64_t* all) {
  const int nRanks = transport->nRanks;
  for (int rank = 1; rank < nRanks; ++rank) {
    const int64_t* const theirs = all + (int64_t)rank * statement->countCount;
    for (int i = 0; i < statement->countCount; ++i) {
      if (theirs[i] == all[i]) continue;
      return ulyxFail(ulyxMismatch, "rank 0 gives rank %d %" PRId64 " %s, rank %d gives it %" PRId64, i % nRanks,
                      all[i], statement->countNames[i / nRanks], rank, theirs[i]);
    }
  }
  return ulyxFail(ulyxInternalError, "the ranks' signatures differ, their plans do not");
}

static ulyxResult_t comparePaired(const ulyxTransport* transport, const ulyxStatement* statement, const int64_t* all) {
  const int nRanks = transport->nRanks;
  for (int src = 0; src < nRanks; ++src) {
    for (int dst = 0; dst < nRanks; ++dst) {
      const int64_t sent = all[(int64_t)src * statement->countCount + dst];
      const int64_t expected = all[(int64_t)dst * statement->countCount + nRanks + src];
      if (sent == expected) continue;
      return ulyxFail(ulyxMismatch, "rank %d sends %" PRId64 " %s to rank %d, which expects %" PRId64, src, sent,
                      statement->countNames[0], dst, expected);
    }
  }
  return ulyxSuccess;
}

static bool signaturesDiffer(const ulyxTransport* transport, const int64_t* all) {
  for (int rank = 1; rank < transport->nRanks; ++rank) {
    if (all[(int64_t)rank * wordCount + wordSignature] != all[wordSignature]) return true;
  }
  return false;
}

/* Every rank sees the same words, so every rank takes the same way through. */
static ulyxResult_t agree(ulyxTransport* transport, ulyxResult_t mine, const ulyxStatement* statement,
                          int64_t arenaNeeded, int64_t* words, int64_t* all) {
  state(transport, mine, statement, arenaNeeded, words);
  char message[ULYX_MESSAGE_BYTES];
  strcpy(message, ulyxThreadMessage());
  ULYX_TRY(transport->ops->gather(transport, words, wordCount, all));
  const ulyxResult_t result = compareResults(transport, mine, all);
  if (result != ulyxSuccess) {
    return result == mine && mine != ulyxArenaTooSmall ? ulyxFail(mine, "%s", message) : result;
  }
  ULYX_TRY(compareFields(transport, statement, all));
  if (statement->rule == ulyxCountsEqual && !signaturesDiffer(transport, all)) return ulyxSuccess;
  ULYX_TRY(transport->ops->gather(transport, statement->counts, statement->countCount, all));
  return statement->rule == ulyxCountsEqual ? compareEqual(transport, statement, all)
                                            : comparePaired(transport, statement, all);
}

ulyxResult_t ulyxAgree(ulyxTransport* transport, ulyxResult_t mine, const ulyxStatement* statement, int64_t arenaNeeded,
                       ulyxStorage* memory) {
  const size_t count = (size_t)ulyxAgreementWords(transport->nRanks);
  ULYX_TRY(ulyxStorageEnsure(memory, count * ((size_t)transport->nRanks + 1), sizeof(int64_t), "an agreement"));
  int64_t* const words = memory->data;
  return agree(transport, mine, statement, arenaNeeded, words, words + count);
}
