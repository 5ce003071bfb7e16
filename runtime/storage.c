/* SPDX-License-Identifier: MIT */
#include "storage.h"

#include <stdbool.h>
#include <stdlib.h>

#include "status.h"

/* Less is not worth growing to. */
#define LEAST_BYTES 1024

/* A half more than there was, so that a slow rise costs few allocations. */
static size_t grownBytes(size_t present, size_t needed) {
  const size_t grown = present + present / 2;
  const size_t least = grown > LEAST_BYTES ? grown : LEAST_BYTES;
  return needed > least ? needed : least;
}

ulyxResult_t ulyxStorageEnsure(ulyxStorage* storage, size_t count, size_t bytesEach, const char* what) {
  size_t needed = 0;
  const bool fits = !__builtin_mul_overflow(count, bytesEach, &needed);
  if (fits && needed <= storage->bytes) return ulyxSuccess;
  const size_t bytes = grownBytes(storage->bytes, needed);
  void* const grown = fits ? realloc(storage->data, bytes) : NULL;
  if (grown == NULL) {
    return ulyxFail(ulyxSystemError, "no host memory for %zu x %zu bytes of %s", count, bytesEach, what);
  }
  *storage = (ulyxStorage){grown, bytes};
  return ulyxSuccess;
}

void ulyxStorageFree(ulyxStorage* storage) {
  free(storage->data);
  *storage = (ulyxStorage){0};
}
