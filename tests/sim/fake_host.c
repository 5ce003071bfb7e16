/* SPDX-License-Identifier: MIT
 *
 * The host as the library sees it. Counts are relaxed atomics and the memory is the allocator's own, so that sanitizers
 * see every byte and no order that the library has not made itself. */
#define FAKE_HOST_ITSELF
#include "host.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>

#include "fake_state.h"

static atomic_int_fast64_t blocks, heldBytes, asked, threads, locks;

static void add(atomic_int_fast64_t* count, int64_t n) {
  atomic_fetch_add_explicit(count, n, memory_order_relaxed);
}

fakeHostUse fakeHostGet(void) {
  return (fakeHostUse){.blocks = atomic_load_explicit(&blocks, memory_order_relaxed),
                       .bytes = atomic_load_explicit(&heldBytes, memory_order_relaxed),
                       .asked = atomic_load_explicit(&asked, memory_order_relaxed),
                       .threads = atomic_load_explicit(&threads, memory_order_relaxed),
                       .locks = atomic_load_explicit(&locks, memory_order_relaxed)};
}

void fakeHostForget(int64_t forgottenBlocks, int64_t forgottenBytes) {
  add(&blocks, -forgottenBlocks);
  add(&heldBytes, -forgottenBytes);
}

/* ---- Memory: all that allocates is "malloc" to whoever wants it to fail ------------------------------- */

static bool refuses(void) {
  add(&asked, 1);
  if (!fakeStrikes("malloc")) return false;
  errno = ENOMEM;
  return true;
}

static void* counted(void* memory) {
  if (memory == NULL) return NULL;
  add(&blocks, 1);
  add(&heldBytes, (int64_t)malloc_usable_size(memory));
  return memory;
}

void* fakeHostMalloc(size_t bytes) {
  return refuses() ? NULL : counted(malloc(bytes));
}

void* fakeHostCalloc(size_t count, size_t bytesEach) {
  return refuses() ? NULL : counted(calloc(count, bytesEach));
}

void* fakeHostRealloc(void* memory, size_t bytes) {
  if (refuses()) return NULL;
  const int64_t before = memory != NULL ? (int64_t)malloc_usable_size(memory) : 0;
  void* const moved = realloc(memory, bytes);
  if (moved == NULL) return NULL;
  if (memory != NULL) {
    add(&blocks, -1);
    add(&heldBytes, -before);
  }
  return counted(moved);
}

void* fakeHostAlignedAlloc(size_t alignment, size_t bytes) {
  return refuses() ? NULL : counted(aligned_alloc(alignment, bytes));
}

void fakeHostFree(void* memory) {
  if (memory == NULL) return;
  add(&blocks, -1);
  add(&heldBytes, -(int64_t)malloc_usable_size(memory));
  free(memory);
}

/* ---- Threads and locks --------------------------------------------------------------------------------- */

int fakeHostThreadCreate(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) {
  if (fakeStrikes("pthread_create")) return EAGAIN;
  const int error = pthread_create(thread, attributes, body, argument);
  if (error == 0) add(&threads, 1);
  return error;
}

int fakeHostThreadJoin(pthread_t thread, void** result) {
  const int error = pthread_join(thread, result);
  if (error == 0) add(&threads, -1);
  return error;
}

int fakeHostMutexInit(pthread_mutex_t* mutex, const pthread_mutexattr_t* attributes) {
  if (fakeStrikes("pthread_mutex_init")) return ENOMEM;
  const int error = pthread_mutex_init(mutex, attributes);
  if (error == 0) add(&locks, 1);
  return error;
}

int fakeHostMutexDestroy(pthread_mutex_t* mutex) {
  add(&locks, -1);
  return pthread_mutex_destroy(mutex);
}

int fakeHostConditionInit(pthread_cond_t* condition, const pthread_condattr_t* attributes) {
  if (fakeStrikes("pthread_cond_init")) return ENOMEM;
  const int error = pthread_cond_init(condition, attributes);
  if (error == 0) add(&locks, 1);
  return error;
}

int fakeHostConditionDestroy(pthread_cond_t* condition) {
  add(&locks, -1);
  return pthread_cond_destroy(condition);
}
