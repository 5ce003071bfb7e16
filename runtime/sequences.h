/* SPDX-License-Identifier: MIT
 *
 * A caller's cu_seqlens, checked once and kept as 64-bit: sequence i is tokens [bounds[i], bounds[i + 1]). It
 * starts at 0 and never falls; equal neighbours are sequences without tokens. */
#ifndef ULYX_RUNTIME_SEQUENCES_H_
#define ULYX_RUNTIME_SEQUENCES_H_

#include "ulyx.h"

struct ulyxSequences {
  unsigned int magic;
  int64_t references;
  int64_t count;   /* sequences */
  int64_t* bounds; /* [count + 1] */
};

/* Whether cuSeqlens[count] can be read at all; its values are not looked at. */
ulyxResult_t ulyxSequencesCheckSource(const void* cuSeqlens, int64_t count, int type);

/* bounds[0, n) = cuSeqlens[first, first + n): the only place that knows the types. */
void ulyxSequencesLoad(const void* cuSeqlens, int type, int64_t first, int64_t n, int64_t* bounds);

/* The source has been checked. The object starts with one reference. */
ulyxResult_t ulyxSequencesBuild(const void* cuSeqlens, int64_t count, int type, ulyxSequences_t* sequences);
ulyxResult_t ulyxSequencesCheckHandle(ulyxSequences_t sequences);
ulyxSequences_t ulyxSequencesTake(ulyxSequences_t sequences);
void ulyxSequencesRelease(ulyxSequences_t sequences);

static inline int64_t ulyxSequencesTotal(const struct ulyxSequences* sequences) {
  return sequences->bounds[sequences->count];
}

/* Tokens of the longest sequence; 0 without any. */
int64_t ulyxSequencesLongest(const struct ulyxSequences* sequences);

/* The sequence that holds a token of [0, total), by binary search; never one without tokens. */
int64_t ulyxSequencesAt(const struct ulyxSequences* sequences, int64_t token);

#endif /* ULYX_RUNTIME_SEQUENCES_H_ */
