/* SPDX-License-Identifier: MIT */
#include "context_cache.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "status.h"

#define CACHE_MAGIC 0x756c796bu
#define DEFAULT_CAPACITY 64
#define CHUNK 64 /* values of cu_seqlens that are widened at a time */

typedef struct Entry {
  uint64_t hash;
  uint64_t lastUse;
  ulyxContext_t context; /* one reference */
} Entry;

struct ulyxContextCache {
  unsigned int magic;
  int capacity;
  pthread_mutex_t lock; /* over what follows */
  int count;
  uint64_t uses;
  Entry* entries; /* [capacity], searched from end to end */
};

ulyxResult_t ulyxContextCacheBuild(int capacity, ulyxContextCache_t* built) {
  if (capacity < 0) return ulyxFail(ulyxInvalidArgument, "capacity is %d, expected 0 or more", capacity);
  const int room = capacity == 0 ? DEFAULT_CAPACITY : capacity;
  ulyxResult_t result = ulyxSuccess;
  void* memory = NULL;
  void* entries = NULL;
  ULYX_TRY(ulyxAllocate(&memory, 1, sizeof(struct ulyxContextCache), "a context cache"));
  ULYX_TRY_GOTO(ulyxAllocate(&entries, (size_t)room, sizeof(Entry), "cached contexts"), freeCache);
  ulyxContextCache_t const cache = memory;
  if (pthread_mutex_init(&cache->lock, NULL) != 0) {
    result = ulyxFail(ulyxSystemError, "no mutex for a context cache");
    goto freeEntries;
  }
  cache->magic = CACHE_MAGIC;
  cache->capacity = room;
  cache->entries = entries;
  *built = cache;
  return ulyxSuccess;

freeEntries:
  free(entries);
freeCache:
  free(memory);
  return result;
}

ulyxResult_t ulyxContextCacheCheckHandle(ulyxContextCache_t cache) {
  if (cache == NULL) return ulyxFail(ulyxInvalidArgument, "the cache is NULL");
  if (cache->magic != CACHE_MAGIC) {
    return ulyxFail(ulyxInvalidArgument, "%p is no context cache: it was destroyed or never made", (void*)cache);
  }
  return ulyxSuccess;
}

void ulyxContextCacheFree(ulyxContextCache_t cache) {
  for (int i = 0; i < cache->count; ++i) ulyxContextRelease(cache->entries[i].context);
  cache->magic = 0;
  pthread_mutex_destroy(&cache->lock);
  free(cache->entries);
  free(cache);
}

/* One step of the hash: eight bytes in. The shift brings the product's good high bits down to the next one. */
static uint64_t stir(uint64_t hash, uint64_t value) {
  const uint64_t product = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return product ^ (product >> 32);
}

uint64_t ulyxContextKeyHash(const ulyxContextKey* key) {
  uint64_t hash = stir((uint64_t)key->count, (uint64_t)(uint32_t)key->nRanks << 32 | (uint32_t)key->rank);
  hash = stir(hash, (uint64_t)(uint32_t)key->split << 32 | (uint32_t)key->convKernel);
  uint64_t even = hash, odd = ~hash; /* two chains, so that one step need not wait for the one before */
  int64_t values[CHUNK];
  for (int64_t first = 0; first < key->count; first += CHUNK) {
    const int64_t n = ulyxMin64(CHUNK, key->count - first);
    ulyxSequencesLoad(key->cuSeqlens, key->type, first, n, values);
    for (int64_t i = 0; i + 1 < n; i += 2) {
      even = stir(even, (uint64_t)values[i]);
      odd = stir(odd, (uint64_t)values[i + 1]);
    }
    if (n % 2 != 0) even = stir(even, (uint64_t)values[n - 1]);
  }
  return stir(even, odd);
}

static bool matches(const struct ulyxContext* context, const ulyxContextKey* key) {
  const ulyxContextInfo_t* const info = &context->info;
  if (info->nRanks != key->nRanks || info->rank != key->rank) return false;
  if (info->split != key->split || info->convKernel != key->convKernel) return false;
  if (context->sequences->count + 1 != key->count) return false;
  int64_t values[CHUNK];
  for (int64_t first = 0; first < key->count; first += CHUNK) {
    const int64_t n = ulyxMin64(CHUNK, key->count - first);
    ulyxSequencesLoad(key->cuSeqlens, key->type, first, n, values);
    if (memcmp(values, context->sequences->bounds + first, (size_t)n * sizeof *values) != 0) return false;
  }
  return true;
}

/* The entry's context with a reference for a caller, NULL if there is no entry. Under the lock. */
static ulyxContext_t lookUp(ulyxContextCache_t cache, const ulyxContextKey* key, uint64_t hash) {
  for (int i = 0; i < cache->count; ++i) {
    Entry* const entry = &cache->entries[i];
    if (entry->hash != hash || !matches(entry->context, key)) continue;
    entry->lastUse = ++cache->uses;
    return ulyxContextTake(entry->context);
  }
  return NULL;
}

/* A free entry, else the one unused for longest. Under the lock. */
static Entry* chooseEntry(ulyxContextCache_t cache) {
  if (cache->count < cache->capacity) return &cache->entries[cache->count++];
  Entry* oldest = &cache->entries[0];
  for (int i = 1; i < cache->count; ++i) {
    if (cache->entries[i].lastUse < oldest->lastUse) oldest = &cache->entries[i];
  }
  return oldest;
}

/* Returns the context that had to make room, NULL if none. Under the lock. */
static ulyxContext_t insert(ulyxContextCache_t cache, uint64_t hash, ulyxContext_t context) {
  Entry* const entry = chooseEntry(cache);
  ulyxContext_t const old = entry->context;
  *entry = (Entry){hash, ++cache->uses, ulyxContextTake(context)};
  return old;
}

static ulyxResult_t build(const ulyxContextKey* key, ulyxContext_t* context) {
  ulyxSequences_t sequences = NULL;
  ULYX_TRY(ulyxSequencesBuild(key->cuSeqlens, key->count, key->type, &sequences));
  const ulyxResult_t result = ulyxContextBuild(sequences, key->nRanks, key->rank, key->split, key->convKernel, context);
  ulyxSequencesRelease(sequences);
  return result;
}

ulyxResult_t ulyxContextCacheFind(ulyxContextCache_t cache, const ulyxContextKey* key, uint64_t hash,
                                  ulyxContext_t* context) {
  pthread_mutex_lock(&cache->lock);
  ulyxContext_t const kept = lookUp(cache, key, hash);
  pthread_mutex_unlock(&cache->lock);
  if (kept != NULL) {
    *context = kept;
    return ulyxSuccess;
  }
  ulyxContext_t built = NULL;
  ULYX_TRY(build(key, &built));
  pthread_mutex_lock(&cache->lock);
  ulyxContext_t const others = lookUp(cache, key, hash); /* another thread may have been faster */
  ulyxContext_t const spare = others != NULL ? built : insert(cache, hash, built);
  pthread_mutex_unlock(&cache->lock);
  if (spare != NULL) ulyxContextRelease(spare);
  *context = others != NULL ? others : built;
  return ulyxSuccess;
}
