/* SPDX-License-Identifier: MIT
 *
 * Loopback: ranks are threads of one process and copies are memcpy. A rank publishes its source buffers, meets
 * the others, pulls what is its own from theirs, and meets them again before anyone may reuse a source. It is
 * the executable specification of the other transports. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chain.h"
#include "check.h"
#include "clock.h"
#include "status.h"
#include "sum.h"
#include "transport.h"

/* What a rank shows the others between two meetings. Ranks mean the same call if `call` and `key` are equal. */
typedef struct Slot {
  const char* call;
  uint64_t key; /* a plan's signature, or the words of an agreement */
  const int64_t* words;
  const ulyxPhase* phase;
  void* const* src;
} Slot;

typedef struct World {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int nRanks;
  int timeoutMs;
  int users; /* transports not yet destroyed */
  int arrivals;
  int64_t generation; /* meetings held */
  bool arrived[ULYX_LOCAL_MAX_RANKS];
  bool gone[ULYX_LOCAL_MAX_RANKS];
  ulyxResult_t failed; /* sticks: ranks no longer agree on where they are */
  char failure[ULYX_MESSAGE_BYTES];
  Slot slots[ULYX_LOCAL_MAX_RANKS];
} World;

/* Memory from memAlloc, so that destroy can free what was left. */
typedef struct Block {
  struct Block* next;
  void* data;
} Block;

typedef struct Loopback {
  ulyxTransport base;
  World* world;
  Block* blocks;
  int64_t exchange; /* the number of the next, from 1 */
} Loopback;

static void destroyWorld(World* world) {
  pthread_cond_destroy(&world->changed);
  pthread_mutex_destroy(&world->lock);
  free(world);
}

/* Names the ranks that have not come; with `gone`, those of them that never will. */
static void listMissing(const World* world, bool gone, char* text, size_t bytes) {
  size_t used = 0;
  for (int rank = 0; rank < world->nRanks && used + 1 < bytes; ++rank) {
    if (world->arrived[rank] || (gone && !world->gone[rank])) continue;
    const int wrote = snprintf(text + used, bytes - used, "%s%d", used > 0 ? ", " : "", rank);
    used += (size_t)wrote;
  }
}

static bool absenteeIsGone(const World* world) {
  for (int rank = 0; rank < world->nRanks; ++rank) {
    if (world->gone[rank] && !world->arrived[rank]) return true;
  }
  return false;
}

static void failWorld(World* world, ulyxResult_t code, const char* what, int64_t exchange) {
  char missing[256] = "";
  listMissing(world, code != ulyxTimeout, missing, sizeof missing);
  if (code == ulyxTimeout) {
    (void)snprintf(world->failure, sizeof world->failure, "rank %s did not reach %s %lld within %d ms", missing, what,
                   (long long)exchange, world->timeoutMs);
  } else {
    (void)snprintf(world->failure, sizeof world->failure, "rank %s was destroyed before it reached %s %lld", missing,
                   what, (long long)exchange);
  }
  world->failed = code;
  pthread_cond_broadcast(&world->changed);
}

typedef enum {
  meetByDeadline,
  meetAtEnd /* everyone has come to the beginning and is only copying: to leave early would pull memory from
               under those who still copy out of it */
} Patience;

/* Waits until every rank has come. */
static ulyxResult_t meet(Loopback* self, const char* what, Patience patience) {
  World* const world = self->world;
  const struct timespec deadline = ulyxTimeAt(ulyxNowNs() + world->timeoutMs * ULYX_NS_A_MS);
  pthread_mutex_lock(&world->lock);
  const int64_t generation = world->generation;
  const bool begins = patience == meetByDeadline;
  if (world->failed == ulyxSuccess || !begins) {
    world->arrived[self->base.rank] = true;
    if (++world->arrivals == world->nRanks) {
      world->arrivals = 0;
      memset(world->arrived, 0, sizeof world->arrived);
      ++world->generation;
      pthread_cond_broadcast(&world->changed);
    }
  }
  /* what has begun is ended, whatever has failed meanwhile, unless a rank is gone */
  while (world->generation == generation && (world->failed == ulyxSuccess || (!begins && !absenteeIsGone(world)))) {
    if (absenteeIsGone(world)) {
      failWorld(world, ulyxRemoteError, what, self->exchange);
    } else if (world->timeoutMs == 0 || !begins) {
      pthread_cond_wait(&world->changed, &world->lock);
    } else if (pthread_cond_timedwait(&world->changed, &world->lock, &deadline) == ETIMEDOUT &&
               world->generation == generation && world->failed == ulyxSuccess) {
      failWorld(world, ulyxTimeout, what, self->exchange);
    }
  }
  ulyxResult_t result = ulyxSuccess;
  if (world->generation == generation) result = ulyxFail(world->failed, "%s", world->failure);
  pthread_mutex_unlock(&world->lock);
  return result;
}

/* Every rank sees the same slots, so every rank comes to the same verdict. */
static ulyxResult_t compareSlots(const World* world, int64_t exchange) {
  const Slot* const first = &world->slots[0];
  for (int rank = 1; rank < world->nRanks; ++rank) {
    const Slot* const slot = &world->slots[rank];
    if (strcmp(slot->call, first->call) == 0 && slot->key == first->key) continue;
    return ulyxFail(ulyxMismatch,
                    "exchange %lld: rank 0 is at %s (%016llx), rank %d at %s (%016llx); nothing has moved",
                    (long long)exchange, first->call, (unsigned long long)first->key, rank, slot->call,
                    (unsigned long long)slot->key);
  }
  return ulyxSuccess;
}

static ulyxResult_t gather(ulyxTransport* transport, const int64_t* mine, int count, int64_t* all) {
  Loopback* const self = (Loopback*)transport;
  World* const world = self->world;
  world->slots[transport->rank] = (Slot){.call = "an agreement", .key = (uint64_t)count, .words = mine};
  ULYX_TRY(meet(self, "the agreement before exchange", meetByDeadline));
  const ulyxResult_t agreed = compareSlots(world, self->exchange);
  for (int rank = 0; agreed == ulyxSuccess && rank < transport->nRanks; ++rank) {
    memcpy(all + (int64_t)rank * count, world->slots[rank].words, (size_t)count * sizeof *all);
  }
  ULYX_TRY(meet(self, "the end of the agreement before exchange", meetAtEnd));
  return agreed;
}

/* One pair's copies: the sender knows where they lie, the receiver where they belong. */
static void makeCopies(const ulyxCopy* sent, const ulyxCopy* received, int64_t count, void* const* src,
                       void* const* dst) {
  for (int64_t i = 0; i < count; ++i) {
    const ulyxCopy* const copy = &received[i];
    const unsigned char* from = (const unsigned char*)src[sent[i].srcBuffer] + sent[i].srcOffset;
    unsigned char* to = (unsigned char*)dst[copy->dstBuffer] + copy->dstOffset;
    for (int64_t row = 0; row < copy->rows; ++row) {
      memcpy(to + row * copy->dstPitch, from + row * sent[i].srcPitch, (size_t)copy->rowBytes);
    }
  }
}

/* What this rank does by itself once everything has arrived. */
static void finish(const ulyxPhase* phase, void* const* src, void* const* dst) {
  if (phase->after.kind == ulyxLocalSum) {
    ulyxSumBatch batch;
    ulyxSumBatchFill(&phase->after.sum, src, dst, &batch);
    ulyxSumOnHost(&batch);
  } else if (phase->after.kind == ulyxLocalChain) {
    ulyxChainArgs args;
    ulyxChainArgsFill(&phase->after.chain, src, dst, &args);
    ulyxChainOnHost(&args);
  }
}

/* Where plans are not agreed upon, a peer may send other copies than this rank expects of it. */
static ulyxResult_t comparePairs(const World* world, const ulyxPhase* phase, int64_t exchange) {
  for (int peer = 0; peer < phase->nRanks; ++peer) {
    if (peer == phase->rank) continue;
    const ulyxPhase* const theirs = world->slots[peer].phase;
    const int64_t* const sent = &theirs->sendStart[phase->rank];
    const int64_t* const expected = &phase->recvStart[peer];
    const int64_t sentBytes = ulyxCopiesBytes(theirs->copies + sent[0], sent[1] - sent[0]);
    const int64_t expectedBytes = ulyxCopiesBytes(phase->copies + expected[0], expected[1] - expected[0]);
    if (sentBytes == expectedBytes && sent[1] - sent[0] == expected[1] - expected[0]) continue;
    return ulyxFail(
        ulyxMismatch,
        "exchange %lld: rank %d sends %lld bytes to rank %d, which expects %lld; rank %d has received nothing",
        (long long)exchange, peer, (long long)sentBytes, phase->rank, (long long)expectedBytes, phase->rank);
  }
  return ulyxSuccess;
}

static ulyxResult_t run(ulyxTransport* transport, const ulyxExchange* exchange) {
  Loopback* const self = (Loopback*)transport;
  World* const world = self->world;
  const ulyxPhase* const phase = exchange->phase;
  void* dst[ULYX_ALL_BUFFERS];
  memcpy(dst, exchange->dst, ULYX_MAX_BUFFERS * sizeof *dst);
  dst[ULYX_SCRATCH] = ((const ulyxStorage*)exchange->prepared)->data;
  world->slots[transport->rank] =
      (Slot){.call = exchange->operation, .key = exchange->signature, .phase = phase, .src = exchange->src};
  ULYX_TRY(meet(self, "exchange", meetByDeadline));
  ulyxResult_t agreed = compareSlots(world, self->exchange);
  if (agreed == ulyxSuccess) agreed = comparePairs(world, phase, self->exchange);
  for (int i = 0; agreed == ulyxSuccess && i < transport->nRanks; ++i) {
    const int peer = (transport->rank + i) % transport->nRanks; /* staggered, so that no source is crowded */
    const int64_t* const start = peer == transport->rank ? phase->sendStart : phase->recvStart;
    const Slot* const slot = &world->slots[peer];
    makeCopies(slot->phase->copies + slot->phase->sendStart[transport->rank], phase->copies + start[peer],
               start[peer + 1] - start[peer], slot->src, dst);
  }
  ULYX_TRY(meet(self, "the end of exchange", meetAtEnd));
  ++self->exchange;
  if (agreed == ulyxSuccess) finish(phase, exchange->src, dst);
  return agreed;
}

/* Scratch, and nothing else, is made ready. */
static ulyxResult_t prepare(const ulyxTransport* transport, const ulyxPhase* phase, void** prepared,
                            int64_t* arenaBytes) {
  (void)transport;
  *arenaBytes = 0;
  if (*prepared == NULL) ULYX_TRY(ulyxAllocate(prepared, 1, sizeof(ulyxStorage), "scratch"));
  return ulyxStorageEnsure(*prepared, (size_t)phase->scratchBytes, 1, "scratch");
}

static void unprepare(void* prepared) {
  if (prepared == NULL) return;
  ulyxStorageFree(prepared);
  free(prepared);
}

static ulyxChoice_t choice(const ulyxTransport* transport, const void* prepared) {
  (void)prepared;
  return (ulyxChoice_t){.transport = ulyxTransportLoopback, .reason = transport->reason, .predictedUs = -1};
}

/* Nothing runs behind the caller's back, but the world may be lost. */
static ulyxResult_t found(ulyxTransport* transport) {
  World* const world = ((Loopback*)transport)->world;
  pthread_mutex_lock(&world->lock);
  const ulyxResult_t result =
      world->failed == ulyxSuccess ? ulyxSuccess : ulyxFail(world->failed, "%s", world->failure);
  pthread_mutex_unlock(&world->lock);
  return result;
}

static ulyxResult_t checkMemory(ulyxTransport* transport, const void* data, const char* name) {
  (void)transport;
  (void)data;
  (void)name;
  return ulyxSuccess; /* any address of this process may be host memory */
}

static ulyxResult_t store(ulyxTransport* transport, const int32_t* values, int64_t count, int32_t* data,
                          ulyxStream_t stream) {
  (void)transport;
  (void)stream;
  memcpy(data, values, (size_t)count * sizeof *data);
  return ulyxSuccess;
}

static ulyxResult_t memAlloc(ulyxTransport* transport, int64_t bytes, void** data) {
  Loopback* const self = (Loopback*)transport;
  int64_t asked[ULYX_LOCAL_MAX_RANKS] = {0};
  ULYX_TRY(gather(transport, &bytes, 1, asked));
  int64_t largest = 1;
  for (int rank = 0; rank < transport->nRanks; ++rank) largest = ulyxMax64(largest, asked[rank]);
  void *memory = NULL, *block = NULL;
  const bool room = largest <= INT64_MAX / 2 &&
                    (memory = aligned_alloc(256, (size_t)ulyxAlignUp(largest, 256))) != NULL &&
                    (block = malloc(sizeof(Block))) != NULL;
  const int64_t mine = room ? 1 : 0;
  int64_t all[ULYX_LOCAL_MAX_RANKS] = {0};
  ulyxResult_t result = ulyxSuccess;
  ULYX_TRY_GOTO(gather(transport, &mine, 1, all), freeMemory);
  for (int rank = 0; rank < transport->nRanks; ++rank) {
    if (all[rank] == 1) continue;
    result = ulyxFail(ulyxSystemError, "rank %d has no host memory for %lld bytes", rank, (long long)largest);
    goto freeMemory;
  }
  /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): this rank is among those that have room */
  *(Block*)block = (Block){self->blocks, memory};
  self->blocks = block;
  *data = memory;
  return ulyxSuccess;

freeMemory:
  free(block);
  free(memory);
  return result;
}

static ulyxResult_t memFree(ulyxTransport* transport, void* data) {
  Loopback* const self = (Loopback*)transport;
  for (Block** link = &self->blocks; *link != NULL; link = &(*link)->next) {
    Block* const block = *link;
    if (block->data != data) continue;
    *link = block->next;
    free(block->data);
    free(block);
    return ulyxSuccess;
  }
  return ulyxFail(ulyxInvalidArgument, "%p is no memory from ulyxMemAlloc of this runtime", data);
}

static ulyxResult_t reserve(ulyxTransport* transport, int64_t bytes) {
  (void)transport;
  (void)bytes;
  return ulyxSuccess;
}

static ulyxResult_t lose(ulyxTransport* transport) {
  World* const world = ((Loopback*)transport)->world;
  pthread_mutex_lock(&world->lock);
  if (world->failed == ulyxSuccess) {
    world->failed = ulyxRemoteError;
    (void)snprintf(world->failure, sizeof world->failure, "rank %d was aborted; destroy the runtime", transport->rank);
    pthread_cond_broadcast(&world->changed);
  }
  pthread_mutex_unlock(&world->lock);
  return ulyxSuccess;
}

/* An exchange has ended when its call returns. */
static ulyxResult_t checkUnused(ulyxTransport* transport) {
  (void)transport;
  return ulyxSuccess;
}

static ulyxResult_t destroy(ulyxTransport* transport) {
  Loopback* const self = (Loopback*)transport;
  World* const world = self->world;
  while (self->blocks != NULL) (void)memFree(transport, self->blocks->data);
  pthread_mutex_lock(&world->lock);
  world->gone[transport->rank] = true;
  const int users = --world->users;
  pthread_cond_broadcast(&world->changed);
  pthread_mutex_unlock(&world->lock);
  if (users == 0) destroyWorld(world);
  free(self);
  return ulyxSuccess;
}

/* Exchanges are made before their calls return. */
static bool hasEnded(const ulyxTransport* transport) {
  (void)transport;
  return true;
}

static const ulyxTransportOps loopbackOps = {
    .prepare = prepare,
    .unprepare = unprepare,
    .choice = choice,
    .found = found,
    .hasEnded = hasEnded,
    .run = run,
    .gather = gather,
    .checkMemory = checkMemory,
    .store = store,
    .memAlloc = memAlloc,
    .memFree = memFree,
    .reserve = reserve,
    .abort = lose,
    .checkUnused = checkUnused,
    .destroy = destroy,
};

static ulyxResult_t createWorld(const ulyxSettings* settings, int nRanks, World** created) {
  void* memory = NULL;
  ULYX_TRY(ulyxAllocate(&memory, 1, sizeof(World), "a loopback world"));
  World* const world = memory;
  if (pthread_mutex_init(&world->lock, NULL) != 0) goto freeMemory;
  if (!ulyxConditionInit(&world->changed)) goto destroyLock;
  world->nRanks = world->users = nRanks;
  world->timeoutMs = settings->timeoutMs;
  *created = world;
  return ulyxSuccess;

destroyLock:
  pthread_mutex_destroy(&world->lock);
freeMemory:
  free(world);
  return ulyxFail(ulyxSystemError, "a lock of a loopback world could not be made");
}

ulyxResult_t ulyxLoopbackCreateLocal(const ulyxSettings* settings, int nRanks, ulyxTransport** transports) {
  World* world = NULL;
  ulyxResult_t result = ulyxSuccess;
  int made = 0;
  Loopback* ranks[ULYX_LOCAL_MAX_RANKS];
  ULYX_TRY(createWorld(settings, nRanks, &world));
  for (; made < nRanks; ++made) {
    void* memory = NULL;
    ULYX_TRY_GOTO(ulyxAllocate(&memory, 1, sizeof(Loopback), "a loopback rank"), freeRanks);
    ranks[made] = memory;
    *ranks[made] = (Loopback){.base = {.ops = &loopbackOps,
                                       .kind = ulyxTransportLoopback,
                                       .rank = made,
                                       .nRanks = nRanks,
                                       .device = -1,
                                       .reason = "all ranks are threads of this process, on the CPU"},
                              .world = world,
                              .exchange = 1};
  }
  for (int rank = 0; rank < nRanks; ++rank) transports[rank] = &ranks[rank]->base;
  return ulyxSuccess;

freeRanks:
  for (int rank = 0; rank < made; ++rank) free(ranks[rank]);
  destroyWorld(world);
  return result;
}
