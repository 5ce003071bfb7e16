/* SPDX-License-Identifier: MIT
 *
 * What a rank states of a plan so that the others can compare: named numbers that must be equal, and counts by
 * rank that are looked at only where something differs. */
#ifndef ULYX_RUNTIME_STATEMENT_H_
#define ULYX_RUNTIME_STATEMENT_H_

#include <stdint.h>

#define ULYX_STATEMENT_FIELDS 48

typedef enum {
  ulyxCountsEqual, /* every rank has the same counts */
  ulyxCountsPaired /* first what it sends to each rank, then what it receives from each: the two must meet */
} ulyxCountsRule;

typedef struct ulyxField {
  const char* name; /* as the caller wrote it: "shape.heads" */
  int64_t value;
} ulyxField;

typedef struct ulyxStatement {
  const char* operation; /* plans of different operations have different fields */
  uint64_t signature;    /* equal where fields are, and counts under ulyxCountsEqual */
  int fieldCount;
  ulyxField fields[ULYX_STATEMENT_FIELDS];
  ulyxCountsRule rule;
  int countCount; /* a multiple of nRanks */
  const int64_t* counts;
  const char* countNames[2]; /* of each nRanks counts: "tokens", "heads" */
} ulyxStatement;

static inline void ulyxStatementAdd(ulyxStatement* statement, const char* name, int64_t value) {
  statement->fields[statement->fieldCount++] = (ulyxField){name, value};
}

/* Mixes a word into a hash, to be chained; start from ULYX_HASH_START. */
#define ULYX_HASH_START UINT64_C(0xcbf29ce484222325)

static inline uint64_t ulyxHashWord(uint64_t hash, int64_t word) {
  hash = (hash ^ (uint64_t)word) * UINT64_C(0x9e3779b97f4a7c15);
  return hash ^ hash >> 32;
}

/* Fills in the signature from everything else. */
static inline void ulyxStatementSign(ulyxStatement* statement) {
  uint64_t hash = ULYX_HASH_START;
  for (const char* at = statement->operation; *at != '\0'; ++at) hash = ulyxHashWord(hash, *at);
  for (int i = 0; i < statement->fieldCount; ++i) hash = ulyxHashWord(hash, statement->fields[i].value);
  for (int i = 0; statement->rule == ulyxCountsEqual && i < statement->countCount; ++i) {
    hash = ulyxHashWord(hash, statement->counts[i]);
  }
  statement->signature = hash;
}

#endif /* ULYX_RUNTIME_STATEMENT_H_ */
