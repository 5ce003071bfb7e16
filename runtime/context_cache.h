/* SPDX-License-Identifier: MIT
 *
 * Contexts found again by what they were made from. The values of cu_seqlens are the key, never their address: a
 * hash of them finds candidates, and a comparison in full decides. Entries never change, and a context that is
 * thrown out lives on with those who hold it. The lock covers the search, not the building of a context. */
#ifndef ULYX_RUNTIME_CONTEXT_CACHE_H_
#define ULYX_RUNTIME_CONTEXT_CACHE_H_

#include "context.h"

/* What a context is made from; cuSeqlens[count] has passed ulyxSequencesCheckSource. */
typedef struct ulyxContextKey {
  const void* cuSeqlens;
  int64_t count;
  int type; /* not part of what is compared */
  int nRanks, rank, split, convKernel;
} ulyxContextKey;

ulyxResult_t ulyxContextCacheBuild(int capacity, ulyxContextCache_t* cache);
ulyxResult_t ulyxContextCacheCheckHandle(ulyxContextCache_t cache);
void ulyxContextCacheFree(ulyxContextCache_t cache);

uint64_t ulyxContextKeyHash(const ulyxContextKey* key);

/* Finds or makes the key's context, with a reference for the caller. Any hash is right as long as equal keys have
 * equal ones. */
ulyxResult_t ulyxContextCacheFind(ulyxContextCache_t cache, const ulyxContextKey* key, uint64_t hash,
                                  ulyxContext_t* context);

#endif /* ULYX_RUNTIME_CONTEXT_CACHE_H_ */
