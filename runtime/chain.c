/* SPDX-License-Identifier: MIT */
#include "chain.h"

#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "partition.h"
#include "status.h"

static ulyxResult_t resolveDims(const ulyxStateShape_t* shape, ulyxStateChainPlan* chain) {
  const int64_t dims[] = {shape->heads, shape->keyDim, shape->valueDim};
  static const char* const names[] = {"heads", "keyDim", "valueDim"};
  for (int i = 0; i < 3; ++i) {
    if (dims[i] >= 1) continue;
    return ulyxFail(ulyxInvalidArgument, "states.%s is %" PRId64 ", expected 1 or more", names[i], dims[i]);
  }
  if (shape->keyDim > ULYX_CHAIN_MAX_KEY_DIM) {
    return ulyxFail(ulyxInvalidArgument, "states.keyDim is %" PRId64 ", expected at most %d", shape->keyDim,
                    ULYX_CHAIN_MAX_KEY_DIM);
  }
  int64_t rows = 0, width = 0, bytes = 0;
  if (!ulyxMulFits(shape->heads, shape->keyDim, &rows) || !ulyxAddFits(shape->valueDim, shape->keyDim, &width) ||
      !ulyxMulFits(rows, width, &bytes) || bytes > ULYX_MAX_TOTAL_BYTES / 8 / chain->nRanks) {
    return ulyxFail(ulyxInvalidArgument,
                    "states: %" PRId64 " heads of %" PRId64 " x (%" PRId64 " + %" PRId64
                    ") floats on %d ranks pass 2^60 bytes",
                    shape->heads, shape->keyDim, shape->valueDim, shape->keyDim, chain->nRanks);
  }
  chain->heads = shape->heads;
  chain->keyDim = shape->keyDim;
  chain->valueDim = shape->valueDim;
  chain->stateBytes = rows * shape->valueDim * (int64_t)sizeof(float);
  chain->matrixBytes = rows * shape->keyDim * (int64_t)sizeof(float);
  return ulyxSuccess;
}

ulyxResult_t ulyxChainResolve(const ulyxStateShape_t* shape, int nRanks, int rank, ulyxStateChainPlan* chain) {
  ULYX_TRY(ulyxCheckStruct(shape, sizeof *shape, ULYX_STATE_SHAPE_MAGIC, "states"));
  ULYX_TRY(ulyxContextCheckWorld(shape->context, nRanks, rank));
  ULYX_TRY(ulyxContextCheckChain(shape->context));
  if ((shape->hasInitial | shape->wantsFinal) & ~1) {
    return ulyxFail(ulyxInvalidArgument, "states.hasInitial is %d and wantsFinal %d, expected 0 or 1",
                    shape->hasInitial, shape->wantsFinal);
  }
  *chain = (ulyxStateChainPlan){.rank = rank,
                                .nRanks = nRanks,
                                .hasInitial = shape->hasInitial == 1,
                                .wantsFinal = shape->wantsFinal == 1,
                                .memory = chain->memory};
  ULYX_TRY(resolveDims(shape, chain));
  ULYX_TRY(ulyxStorageEnsure(&chain->memory, (size_t)nRanks, sizeof(ulyxChainLink) + 2 * sizeof(int64_t),
                             "links of a chain"));
  chain->links = chain->memory.data;
  chain->counts = (int64_t*)(chain->links + nRanks);
  for (int r = 0; r < nRanks; ++r) {
    const ulyxShardView view = ulyxContextViewRank(shape->context, r);
    const bool holdsTokens = ulyxRangeLength(view.tokens) > 0;
    chain->links[r] = (ulyxChainLink){view.preNumRanks, view.postNumRanks, holdsTokens,
                                      holdsTokens && view.firstSequence == view.lastSequence};
    chain->counts[r] = view.preNumRanks;
    chain->counts[nRanks + r] = view.postNumRanks;
  }
  return ulyxSuccess;
}

void ulyxChainFree(ulyxStateChainPlan* chain) {
  ulyxStorageFree(&chain->memory);
  *chain = (ulyxStateChainPlan){0};
}

/* How many ranks hand their state to `rank`; hop 0 is the farthest. */
static int64_t hopsTo(const ulyxChainDirection* direction, int rank) {
  const ulyxChainLink* const link = &direction->plan->links[rank];
  return direction->backward ? link->after : link->before;
}

static int64_t distance(const ulyxChainDirection* direction, int src, int dst) {
  return direction->backward ? src - dst : dst - src;
}

static int64_t hopBytes(const ulyxStateChainPlan* chain) {
  return chain->stateBytes + chain->matrixBytes;
}

static ulyxResult_t append(ulyxCopyList* list, int srcBuffer, int64_t dstOffset, int64_t bytes) {
  return ulyxCopyListAppend(list, (ulyxCopy){.srcBuffer = srcBuffer,
                                             .dstBuffer = ULYX_SCRATCH,
                                             .rows = 1,
                                             .rowBytes = bytes,
                                             .srcPitch = bytes,
                                             .dstOffset = dstOffset,
                                             .dstPitch = bytes});
}

static ulyxResult_t list(const void* subject, int src, int dst, ulyxCopyList* copies) {
  const ulyxChainDirection* const direction = subject;
  const ulyxStateChainPlan* const chain = direction->plan;
  const int64_t away = distance(direction, src, dst), hops = hopsTo(direction, dst);
  if (away < 1 || away > hops) return ulyxSuccess;
  const int64_t offset = (hops - away) * hopBytes(chain);
  ULYX_TRY(append(copies, 0, offset, chain->stateBytes));
  ULYX_TRY(append(copies, 1, offset + chain->stateBytes, chain->matrixBytes));
  /* the sequence starts on the farthest, which alone has its initial state */
  return chain->hasInitial && away == hops ? append(copies, 2, hops * hopBytes(chain), chain->stateBytes) : ulyxSuccess;
}

/* A rank receives from as many ranks as hand to it, and sends to as many as it hands to. */
static ulyxPhaseFacts factsOf(const ulyxStateChainPlan* chain) {
  ulyxPhaseFacts facts = {.rowBytes = ulyxMin64(chain->stateBytes, chain->matrixBytes), .copiesPerPeer = 2};
  for (int rank = 0; rank < chain->nRanks; ++rank) {
    const ulyxChainLink* const link = &chain->links[rank];
    facts.remoteBytes = ulyxMax64(facts.remoteBytes, ulyxMax64(link->before, link->after) * hopBytes(chain));
  }
  return facts;
}

ulyxResult_t ulyxChainPhase(const ulyxStateChainPlan* chain, bool backward, ulyxPhase* phase) {
  const ulyxChainDirection direction = {chain, backward};
  const ulyxChainLink* const own = &chain->links[chain->rank];
  const int64_t hops = hopsTo(&direction, chain->rank);
  const bool startsHere = hops == 0;        /* the sequence that is received for */
  const bool ownStarts = !own->oneSequence; /* the sequence that is contributed to is another, and starts here */
  ULYX_TRY(ulyxPhaseBuild(&direction, list, chain->rank, chain->nRanks, phase));
  phase->facts = factsOf(chain);
  phase->scratchBytes = hops * hopBytes(chain) + (hops > 0 && chain->hasInitial ? chain->stateBytes : 0);
  phase->after.kind = ulyxLocalChain;
  phase->after.chain = (ulyxChain){.heads = chain->heads,
                                   .keyDim = chain->keyDim,
                                   .valueDim = chain->valueDim,
                                   .transposed = backward ? 1 : 0,
                                   .hops = (int)hops,
                                   .hopBytes = hopBytes(chain),
                                   .hasInitial = chain->hasInitial && (!startsHere || own->oneSequence),
                                   .hop = {ulyxInDst, ULYX_SCRATCH, 0},
                                   .initial = {ulyxInDst, ULYX_SCRATCH, hops * hopBytes(chain)},
                                   .received = {ulyxInDst, 0, 0},
                                   .hasFinal = chain->wantsFinal,
                                   .startsHere = ownStarts,
                                   .hasOwnStart = ownStarts && own->holdsTokens && chain->hasInitial,
                                   .ownState = {ulyxInSrc, 0, 0},
                                   .ownMatrix = {ulyxInSrc, 1, 0},
                                   .ownStart = {ulyxInSrc, 2, 0},
                                   .final = {ulyxInDst, 1, 0}};
  if (startsHere) phase->after.chain.initial = (ulyxBufferPlace){ulyxInSrc, 2, 0};
  return ulyxSuccess;
}

bool ulyxChainReadsInitial(const ulyxStateChainPlan* chain, bool backward) {
  const ulyxChainDirection direction = {chain, backward};
  const ulyxChainLink* const own = &chain->links[chain->rank];
  return chain->hasInitial && own->holdsTokens && (!own->oneSequence || hopsTo(&direction, chain->rank) == 0);
}

ulyxStatement ulyxChainState(const ulyxStateChainPlan* chain) {
  ulyxStatement statement = {.operation = "state_chain",
                             .rule = ulyxCountsEqual,
                             .countCount = 2 * chain->nRanks,
                             .counts = chain->counts,
                             .countNames = {"ranks before it", "ranks after it"}};
  ulyxStatementAdd(&statement, "states.heads", chain->heads);
  ulyxStatementAdd(&statement, "states.keyDim", chain->keyDim);
  ulyxStatementAdd(&statement, "states.valueDim", chain->valueDim);
  ulyxStatementAdd(&statement, "states.hasInitial", chain->hasInitial);
  ulyxStatementAdd(&statement, "states.wantsFinal", chain->wantsFinal);
  ulyxStatementSign(&statement);
  return statement;
}

ulyxExpected ulyxChainExpect(const ulyxStateChainPlan* chain, int64_t columns) {
  ulyxExpected expected = {.tensor = ULYX_TENSOR_INITIALIZER, .dense = true};
  const int64_t matrix = chain->keyDim * columns;
  const int64_t extents[4] = {1, chain->heads, chain->keyDim, columns};
  const int64_t strides[4] = {chain->heads * matrix, matrix, columns, 1};
  memcpy(expected.tensor.extents, extents, sizeof extents);
  memcpy(expected.tensor.strides, strides, sizeof strides);
  expected.tensor.type = ulyxFloat32;
  expected.tensor.elementBytes = (int)sizeof(float);
  expected.spanBytes = chain->heads * matrix * (int64_t)sizeof(float);
  return expected;
}
