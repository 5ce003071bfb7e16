/* SPDX-License-Identifier: MIT
 *
 * Entry points of sequences, contexts and their cache: check arguments, then call down. */
#include <stddef.h>

#include "context.h"
#include "context_cache.h"
#include "status.h"

ulyxResult_t ulyxSequencesCreate(const void* cuSeqlens, int64_t count, int type, ulyxSequences_t* sequences) {
  if (sequences == NULL) return ulyxFail(ulyxInvalidArgument, "sequences is NULL");
  ULYX_TRY(ulyxSequencesCheckSource(cuSeqlens, count, type));
  return ulyxSequencesBuild(cuSeqlens, count, type, sequences);
}

ulyxResult_t ulyxSequencesDestroy(ulyxSequences_t sequences) {
  if (sequences == NULL) return ulyxSuccess;
  ULYX_TRY(ulyxSequencesCheckHandle(sequences));
  ulyxSequencesRelease(sequences);
  return ulyxSuccess;
}

ulyxResult_t ulyxContextCreate(ulyxSequences_t sequences, int nRanks, int rank, int split, int convKernel,
                               ulyxContext_t* context) {
  ULYX_TRY(ulyxSequencesCheckHandle(sequences));
  if (context == NULL) return ulyxFail(ulyxInvalidArgument, "context is NULL");
  return ulyxContextBuild(sequences, nRanks, rank, split, convKernel, context);
}

ulyxResult_t ulyxContextCopy(ulyxContext_t context, ulyxContext_t* copy) {
  ULYX_TRY(ulyxContextCheckHandle(context));
  if (copy == NULL) return ulyxFail(ulyxInvalidArgument, "copy is NULL");
  return ulyxContextDuplicate(context, copy);
}

ulyxResult_t ulyxContextDestroy(ulyxContext_t context) {
  if (context == NULL) return ulyxSuccess;
  ULYX_TRY(ulyxContextCheckHandle(context));
  ulyxContextRelease(context);
  return ulyxSuccess;
}

ulyxResult_t ulyxContextGetInfo(ulyxContext_t context, ulyxContextInfo_t* info) {
  ULYX_TRY(ulyxContextCheckHandle(context));
  ULYX_TRY(ulyxCheckStruct(info, sizeof *info, ULYX_CONTEXT_INFO_MAGIC, "info"));
  const size_t size = info->size;
  const unsigned int version = info->version;
  *info = context->info;
  info->size = size; /* the caller's struct may be a longer one */
  info->version = version;
  return ulyxSuccess;
}

ulyxResult_t ulyxContextCacheCreate(int capacity, ulyxContextCache_t* cache) {
  if (cache == NULL) return ulyxFail(ulyxInvalidArgument, "cache is NULL");
  return ulyxContextCacheBuild(capacity, cache);
}

ulyxResult_t ulyxContextCacheGet(ulyxContextCache_t cache, const void* cuSeqlens, int64_t count, int type, int nRanks,
                                 int rank, int split, int convKernel, ulyxContext_t* context) {
  ULYX_TRY(ulyxContextCacheCheckHandle(cache));
  if (context == NULL) return ulyxFail(ulyxInvalidArgument, "context is NULL");
  ULYX_TRY(ulyxSequencesCheckSource(cuSeqlens, count, type));
  const ulyxContextKey key = {cuSeqlens, count, type, nRanks, rank, split, convKernel};
  return ulyxContextCacheFind(cache, &key, ulyxContextKeyHash(&key), context);
}

ulyxResult_t ulyxContextCacheDestroy(ulyxContextCache_t cache) {
  if (cache == NULL) return ulyxSuccess;
  ULYX_TRY(ulyxContextCacheCheckHandle(cache));
  ulyxContextCacheFree(cache);
  return ulyxSuccess;
}
