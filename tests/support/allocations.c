/* SPDX-License-Identifier: MIT
 *
 * A sanitizer tells of allocations by itself; glibc's allocator has second names, so that the program's own
 * functions can stand before it. */
#include "support/allocations.h"

#include <errno.h>
#include <stdlib.h>

static _Thread_local int64_t allocations, frees;

int64_t ulyxTestAllocations(void) {
  return allocations;
}

int64_t ulyxTestFrees(void) {
  return frees;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define SANITIZED 0
#endif

#if SANITIZED

/* As in sanitizer/allocator_interface.h, which not every compiler brings. */
int __sanitizer_install_malloc_and_free_hooks(void (*onAllocate)(const volatile void* memory, size_t bytes),
                                              void (*onFree)(const volatile void* memory));

static void onAllocate(const volatile void* memory, size_t bytes) {
  (void)memory;
  (void)bytes;
  ++allocations;
}

static void onFree(const volatile void* memory) {
  (void)memory;
  ++frees;
}

static int hooked;

__attribute__((constructor)) static void hook(void) {
  hooked = __sanitizer_install_malloc_and_free_hooks(onAllocate, onFree);
}

const char* ulyxTestAllocationsUncounted(void) {
  return hooked ? NULL : "the sanitizer takes no more hooks";
}

#elif defined(__GLIBC__)

void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytesEach);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* memory);

void* malloc(size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}

void* calloc(size_t count, size_t bytesEach) {
  ++allocations;
  return __libc_calloc(count, bytesEach);
}

void* realloc(void* memory, size_t bytes) {
  ++allocations;
  return __libc_realloc(memory, bytes);
}

void* aligned_alloc(size_t alignment, size_t bytes) {
  ++allocations;
  return __libc_memalign(alignment, bytes);
}

int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  ++allocations;
  *memory = __libc_memalign(alignment, bytes);
  return *memory != NULL ? 0 : ENOMEM;
}

void free(void* memory) {
  ++frees;
  __libc_free(memory);
}

const char* ulyxTestAllocationsUncounted(void) {
  return NULL;
}

#else

const char* ulyxTestAllocationsUncounted(void) {
  return "neither glibc nor a sanitizer's runtime";
}

#endif
