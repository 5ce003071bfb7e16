/* SPDX-License-Identifier: MIT */
#include "sequences.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bulk.h"
#include "check.h"
#include "references.h"
#include "status.h"

#define SEQUENCES_MAGIC 0x756c7971u
#define PIECE 2048 /* values that are loaded and checked at a time */

ulyxResult_t ulyxSequencesCheckSource(const void* cuSeqlens, int64_t count, int type) {
  if (cuSeqlens == NULL) return ulyxFail(ulyxInvalidArgument, "cuSeqlens is NULL");
  if (count < 1) {
    return ulyxFail(ulyxInvalidArgument, "count is %" PRId64 ", expected 1 or more: cuSeqlens begins with a 0", count);
  }
  if (type != ulyxInt32 && type != ulyxInt64) {
    return ulyxFail(ulyxInvalidArgument, "type is %d, expected %d (ulyxInt32) or %d (ulyxInt64)", type, (int)ulyxInt32,
                    (int)ulyxInt64);
  }
  return ulyxSuccess;
}

void ulyxSequencesLoad(const void* cuSeqlens, int type, int64_t first, int64_t n, int64_t* bounds) {
  if (type == ulyxInt64) {
    memcpy(bounds, (const char*)cuSeqlens + first * (int64_t)sizeof(int64_t), (size_t)n * sizeof(int64_t));
    return;
  }
  const char* const source = (const char*)cuSeqlens + first * (int64_t)sizeof(int32_t);
  for (int64_t i = 0; i < n; ++i) {
    int32_t value; /* copied out, so that the array may lie at any address */
    memcpy(&value, source + i * (int64_t)sizeof value, sizeof value);
    bounds[i] = value;
  }
}

/* Checks bounds[first, stop) against one another and what stands before them. */
static ulyxResult_t checkBounds(const int64_t* bounds, int64_t first, int64_t stop) {
  if (bounds[0] != 0) return ulyxFail(ulyxInvalidArgument, "cuSeqlens[0] is %" PRId64 ", expected 0", bounds[0]);
  const int64_t second = ulyxMax64(first, 1);
  bool falls = false; /* no early exit: the common case is a loop without branches */
  for (int64_t i = second; i < stop; ++i) falls |= bounds[i] < bounds[i - 1];
  if (!falls) return ulyxSuccess;
  int64_t fault = second;
  while (bounds[fault] >= bounds[fault - 1]) ++fault;
  return ulyxFail(ulyxInvalidArgument,
                  "cuSeqlens[%" PRId64 "] is %" PRId64 ", less than cuSeqlens[%" PRId64 "], which is %" PRId64, fault,
                  bounds[fault], fault - 1, bounds[fault - 1]);
}

/* Each piece is checked while the cache holds it. What is checked is the copy. */
static ulyxResult_t loadBounds(const void* cuSeqlens, int64_t count, int type, int64_t* bounds) {
  for (int64_t first = 0; first < count; first += PIECE) {
    const int64_t n = ulyxMin64(PIECE, count - first);
    ulyxSequencesLoad(cuSeqlens, type, first, n, bounds + first);
    ULYX_TRY(checkBounds(bounds, first, first + n));
  }
  return ulyxSuccess;
}

ulyxResult_t ulyxSequencesBuild(const void* cuSeqlens, int64_t count, int type, ulyxSequences_t* built) {
  ulyxResult_t result = ulyxSuccess;
  void* object = NULL;
  void* bounds = NULL;
  ULYX_TRY(ulyxAllocate(&object, 1, sizeof(struct ulyxSequences), "sequences"));
  ULYX_TRY_GOTO(ulyxAllocateBulk(&bounds, (size_t)count, sizeof(int64_t), "cu_seqlens"), freeObject);
  ULYX_TRY_GOTO(loadBounds(cuSeqlens, count, type, bounds), freeBounds);
  ulyxSequences_t const sequences = object;
  *sequences = (struct ulyxSequences){SEQUENCES_MAGIC, 1, count - 1, bounds};
  *built = sequences;
  return ulyxSuccess;

freeBounds:
  free(bounds);
freeObject:
  free(object);
  return result;
}

ulyxResult_t ulyxSequencesCheckHandle(ulyxSequences_t sequences) {
  if (sequences == NULL) return ulyxFail(ulyxInvalidArgument, "sequences is NULL");
  if (sequences->magic != SEQUENCES_MAGIC) {
    return ulyxFail(ulyxInvalidArgument, "%p are no sequences: they were destroyed or never made", (void*)sequences);
  }
  return ulyxSuccess;
}

ulyxSequences_t ulyxSequencesTake(ulyxSequences_t sequences) {
  ulyxReferencesTake(&sequences->references);
  return sequences;
}

void ulyxSequencesRelease(ulyxSequences_t sequences) {
  if (!ulyxReferencesDrop(&sequences->references)) return;
  ulyxForgetMagic(&sequences->magic);
  free(sequences->bounds);
  free(sequences);
}

int64_t ulyxSequencesAt(const struct ulyxSequences* sequences, int64_t token) {
  int64_t low = 0, high = sequences->count - 1; /* the first sequence that ends behind the token is in [low, high] */
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (sequences->bounds[middle + 1] > token) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

int64_t ulyxSequencesLongest(const struct ulyxSequences* sequences) {
  int64_t longest = 0;
  for (int64_t i = 0; i < sequences->count; ++i) {
    longest = ulyxMax64(longest, sequences->bounds[i + 1] - sequences->bounds[i]);
  }
  return longest;
}
