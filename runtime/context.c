/* SPDX-License-Identifier: MIT */
#include "context.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bulk.h"
#include "check.h"
#include "partition.h"
#include "references.h"
#include "status.h"

#define CONTEXT_MAGIC 0x756c7978u

static ulyxShardView viewShard(const struct ulyxSequences* sequences, const ulyxTokenSplit* split, int rank,
                               int convKernel) {
  const ulyxRange_t tokens = ulyxTokenSplitRange(split, rank);
  if (tokens.start == tokens.stop) return (ulyxShardView){tokens, 0, -1, 0, 0, 0, 0};
  const int64_t first = ulyxSequencesAt(sequences, tokens.start);
  const int64_t last = ulyxSequencesAt(sequences, tokens.stop - 1);
  const int64_t firstToken = sequences->bounds[first];
  const int64_t lastToken = sequences->bounds[last + 1] - 1;
  const int64_t before = tokens.start - firstToken;
  return (ulyxShardView){tokens,
                         first,
                         last,
                         before,
                         convKernel == 0 ? 0 : ulyxMin64(convKernel - 1, before),
                         rank - ulyxTokenSplitOwner(split, firstToken),
                         ulyxTokenSplitOwner(split, lastToken) - rank};
}

static bool cutsSequence(const struct ulyxSequences* sequences, const ulyxTokenSplit* split) {
  const int64_t kept = ulyxTokenSplitKept(split);
  if (kept == split->total) return false;
  return sequences->bounds[ulyxSequencesAt(sequences, kept)] < kept;
}

/* One allocation for `capacity` sequences: their indices, and behind them the local cu_seqlens. */
static ulyxResult_t allocateArrays(int64_t capacity, int64_t** indices, int32_t** cuSeqlens) {
  void* memory = NULL;
  ULYX_TRY(ulyxAllocateBulk(&memory, (size_t)capacity + 1, sizeof **indices + sizeof **cuSeqlens, "local sequences"));
  *indices = memory;
  *cuSeqlens = (int32_t*)(*indices + capacity);
  (*cuSeqlens)[0] = 0;
  return ulyxSuccess;
}

/* Speaks for the first local value that int32 cannot hold; there is one. */
static ulyxResult_t failPastInt32(const struct ulyxSequences* sequences, const ulyxShardView* view, int rank) {
  const int64_t* const bounds = sequences->bounds;
  const int64_t limit = view->tokens.start + INT32_MAX;
  int64_t local = 1; /* the place in local cu_seqlens of where sequence i ends */
  int64_t i = view->firstSequence;
  for (; ulyxMin64(bounds[i + 1], view->tokens.stop) <= limit; ++i) local += bounds[i + 1] > bounds[i];
  return ulyxFail(ulyxInvalidArgument,
                  "local cu_seqlens[%" PRId64 "] of rank %d would be %" PRId64 " (sequence %" PRId64
                  "), more than int32's %d; use more ranks",
                  local, rank, ulyxMin64(bounds[i + 1], view->tokens.stop) - view->tokens.start, i, INT32_MAX);
}

/* Fills in numSequences and both arrays. A sequence without tokens ends where the one before it did, and its place
 * is written over by the next; the last one has tokens. */
static ulyxResult_t localize(const struct ulyxSequences* sequences, const ulyxShardView* view,
                             ulyxContextInfo_t* info) {
  if (ulyxRangeLength(view->tokens) > INT32_MAX) return failPastInt32(sequences, view, info->rank);
  int64_t* indices = NULL;
  int32_t* cuSeqlens = NULL;
  ULYX_TRY(allocateArrays(view->lastSequence - view->firstSequence + 1, &indices, &cuSeqlens));
  int64_t count = 0;
  int32_t previous = 0;
  for (int64_t i = view->firstSequence; i <= view->lastSequence; ++i) {
    const int32_t stop = (int32_t)(ulyxMin64(sequences->bounds[i + 1], view->tokens.stop) - view->tokens.start);
    indices[count] = i;
    cuSeqlens[count + 1] = stop;
    count += stop > previous;
    previous = stop;
  }
  info->numSequences = count;
  info->sequenceIndices = indices;
  info->localCuSeqlens = cuSeqlens;
  return ulyxSuccess;
}

static ulyxResult_t checkRank(int nRanks, int rank, int convKernel) {
  if (rank < 0 || rank >= nRanks) {
    return ulyxFail(ulyxInvalidArgument, "rank is %d, expected 0 to %d", rank, nRanks - 1);
  }
  if (convKernel < 0) return ulyxFail(ulyxInvalidArgument, "convKernel is %d, expected 0 or more", convKernel);
  return ulyxSuccess;
}

/* Fills in everything but the arrays and their length. */
static ulyxResult_t describe(const struct ulyxSequences* sequences, const ulyxTokenSplit* split,
                             const ulyxShardView* view, ulyxContextInfo_t* info) {
  if (view->postNumRanks > INT_MAX) { /* a tail of nearly nRanks tokens, in shards of one */
    return ulyxFail(ulyxInvalidArgument, "the last sequence of rank %d would run on over %" PRId64 " ranks, at most %d",
                    info->rank, view->postNumRanks, INT_MAX);
  }
  info->nRanks = split->nRanks;
  info->isCpEnabled = split->nRanks > 1;
  info->isFirstRank = view->preNumRanks == 0;
  info->isLastRank = view->postNumRanks == 0;
  info->preNumRanks = (int)view->preNumRanks;
  info->postNumRanks = (int)view->postNumRanks;
  info->cutsSequence = cutsSequence(sequences, split);
  info->preNumConvTokens = view->preNumConvTokens;
  info->haloTokens = view->haloTokens;
  info->droppedTokens = split->total - ulyxTokenSplitKept(split);
  info->tokenRange = view->tokens;
  return ulyxSuccess;
}

ulyxResult_t ulyxContextBuild(ulyxSequences_t sequences, int nRanks, int rank, int split, int convKernel,
                              ulyxContext_t* built) {
  ulyxTokenSplit tokens;
  ULYX_TRY(ulyxTokenSplitResolve(ulyxSequencesTotal(sequences), nRanks, split, &tokens));
  ULYX_TRY(checkRank(nRanks, rank, convKernel));
  const ulyxShardView view = viewShard(sequences, &tokens, rank, convKernel);
  ulyxContextInfo_t info = ULYX_CONTEXT_INFO_INITIALIZER;
  info.rank = rank;
  info.split = split;
  info.convKernel = convKernel;
  ULYX_TRY(describe(sequences, &tokens, &view, &info));

  ulyxResult_t result = ulyxSuccess;
  void* memory = NULL;
  ULYX_TRY(ulyxAllocate(&memory, 1, sizeof(struct ulyxContext), "a context"));
  ULYX_TRY_GOTO(localize(sequences, &view, &info), freeContext);
  ulyxContext_t const context = memory;
  *context = (struct ulyxContext){CONTEXT_MAGIC, 1, ulyxSequencesTake(sequences), tokens, info};
  *built = context;
  return ulyxSuccess;

freeContext:
  free(memory);
  return result;
}

ulyxResult_t ulyxContextDuplicate(ulyxContext_t context, ulyxContext_t* copy) {
  const int64_t count = context->info.numSequences;
  ulyxResult_t result = ulyxSuccess;
  void* memory = NULL;
  int64_t* indices = NULL;
  int32_t* cuSeqlens = NULL;
  ULYX_TRY(ulyxAllocate(&memory, 1, sizeof(struct ulyxContext), "a context"));
  ULYX_TRY_GOTO(allocateArrays(count, &indices, &cuSeqlens), freeContext);
  memcpy(indices, context->info.sequenceIndices, (size_t)count * sizeof *indices);
  memcpy(cuSeqlens, context->info.localCuSeqlens, ((size_t)count + 1) * sizeof *cuSeqlens);
  ulyxContext_t const duplicate = memory;
  *duplicate =
      (struct ulyxContext){CONTEXT_MAGIC, 1, ulyxSequencesTake(context->sequences), context->split, context->info};
  duplicate->info.sequenceIndices = indices;
  duplicate->info.localCuSeqlens = cuSeqlens;
  *copy = duplicate;
  return ulyxSuccess;

freeContext:
  free(memory);
  return result;
}

ulyxResult_t ulyxContextCheckHandle(ulyxContext_t context) {
  if (context == NULL) return ulyxFail(ulyxInvalidArgument, "the context is NULL");
  if (context->magic != CONTEXT_MAGIC) {
    return ulyxFail(ulyxInvalidArgument, "%p is no context: it was destroyed or never made", (void*)context);
  }
  return ulyxSuccess;
}

ulyxContext_t ulyxContextTake(ulyxContext_t context) {
  ulyxReferencesTake(&context->references);
  return context;
}

void ulyxContextRelease(ulyxContext_t context) {
  if (!ulyxReferencesDrop(&context->references)) return;
  context->magic = 0;
  free((void*)context->info.sequenceIndices);
  ulyxSequencesRelease(context->sequences);
  free(context);
}

ulyxShardView ulyxContextViewRank(const struct ulyxContext* context, int rank) {
  return viewShard(context->sequences, &context->split, rank, context->info.convKernel);
}

void ulyxContextTokenRanges(const struct ulyxContext* context, ulyxRange_t* ranges) {
  for (int rank = 0; rank < context->split.nRanks; ++rank) ranges[rank] = ulyxTokenSplitRange(&context->split, rank);
}

int64_t ulyxContextSequenceStart(const struct ulyxContext* context, int64_t token) {
  return context->sequences->bounds[ulyxSequencesAt(context->sequences, token)];
}

ulyxResult_t ulyxContextCheckChain(const struct ulyxContext* context) {
  if (!context->info.cutsSequence) return ulyxSuccess;
  const int64_t kept = ulyxTokenSplitKept(&context->split);
  const int64_t sequence = ulyxSequencesAt(context->sequences, kept);
  return ulyxFail(ulyxInvalidUsage,
                  "sequence %" PRId64 " is [%" PRId64 ", %" PRId64
                  "), but truncation to %d ranks ends at token %" PRId64 ": its end is on no rank",
                  sequence, context->sequences->bounds[sequence], context->sequences->bounds[sequence + 1],
                  context->split.nRanks, kept);
}

ulyxResult_t ulyxContextCheckWorld(ulyxContext_t context, int nRanks, int rank) {
  ULYX_TRY(ulyxContextCheckHandle(context));
  if (context->info.nRanks == nRanks && context->info.rank == rank) return ulyxSuccess;
  return ulyxFail(ulyxInvalidArgument, "the context is rank %d's of %d, the runtime rank %d's of %d",
                  context->info.rank, context->info.nRanks, rank, nRanks);
}
