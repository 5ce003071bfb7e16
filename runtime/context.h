/* SPDX-License-Identifier: MIT
 *
 * Sequences under a split, as one rank sees them. A shard is cut out of the run of tokens wherever its split puts
 * it; all that matters is which sequence holds its first token and which its last. Ranks between the owner of a
 * sequence's first token and the owner of its last are never empty, because only the last ranks of a split can be:
 * a distance between ranks is the number of hops. */
#ifndef ULYX_RUNTIME_CONTEXT_H_
#define ULYX_RUNTIME_CONTEXT_H_

#include "sequences.h"
#include "split.h"

struct ulyxContext {
  unsigned int magic;
  int64_t references;
  ulyxSequences_t sequences; /* one reference */
  ulyxTokenSplit split;
  ulyxContextInfo_t info; /* what ulyxContextGetInfo answers; its arrays are one allocation, at sequenceIndices */
};

/* How one rank's shard lies among the sequences. An empty shard has firstSequence 0, lastSequence -1 and zeros. */
typedef struct ulyxShardView {
  ulyxRange_t tokens;
  int64_t firstSequence, lastSequence; /* those that hold the first and the last token */
  int64_t preNumConvTokens, haloTokens;
  int64_t preNumRanks, postNumRanks; /* hops to the owners of the first sequence's start and the last one's end */
} ulyxShardView;

ulyxResult_t ulyxContextBuild(ulyxSequences_t sequences, int nRanks, int rank, int split, int convKernel,
                              ulyxContext_t* context);
ulyxResult_t ulyxContextDuplicate(ulyxContext_t context, ulyxContext_t* copy);
ulyxResult_t ulyxContextCheckHandle(ulyxContext_t context);
ulyxContext_t ulyxContextTake(ulyxContext_t context);
void ulyxContextRelease(ulyxContext_t context);

/* For what moves data along a context. Every rank can compute every rank's view, in O(log sequences). */
ulyxShardView ulyxContextViewRank(const struct ulyxContext* context, int rank);

/* ranges[nRanks] is written. */
void ulyxContextTokenRanges(const struct ulyxContext* context, ulyxRange_t* ranges);

/* Where the sequence that holds a token of [0, total) starts. */
int64_t ulyxContextSequenceStart(const struct ulyxContext* context, int64_t token);

/* Refuses a context that is not `rank`'s in a world of nRanks. */
ulyxResult_t ulyxContextCheckWorld(ulyxContext_t context, int nRanks, int rank);

/* Refuses, on every rank alike, a context whose dropped tail begins inside a sequence: the ranks that should
 * hold its end do not exist. */
ulyxResult_t ulyxContextCheckChain(const struct ulyxContext* context);

#endif /* ULYX_RUNTIME_CONTEXT_H_ */
