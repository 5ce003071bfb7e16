/* SPDX-License-Identifier: MIT
 *
 * Memory for large arrays that are written before they are read. Zeros would cost a pass over it. */
#ifndef ULYX_RUNTIME_BULK_H_
#define ULYX_RUNTIME_BULK_H_

#include <stdlib.h>

#include "status.h"

/* ulyxAllocate without the zeros. */
static inline ulyxResult_t ulyxAllocateBulk(void** memory, size_t count, size_t bytesEach, const char* what) {
  size_t bytes = 0;
  void* const allocated = __builtin_mul_overflow(count, bytesEach, &bytes) ? NULL : malloc(bytes > 0 ? bytes : 1);
  if (allocated == NULL) {
    return ulyxFail(ulyxSystemError, "no host memory for %zu x %zu bytes of %s", count, bytesEach, what);
  }
  *memory = allocated;
  return ulyxSuccess;
}

#endif /* ULYX_RUNTIME_BULK_H_ */
