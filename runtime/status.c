/* SPDX-License-Identifier: MIT */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local char threadMessage[ULYX_MESSAGE_BYTES];
static _Thread_local int undoing;

void ulyxUndoBegin(void) {
  ++undoing;
}

void ulyxUndoEnd(void) {
  --undoing;
}

ulyxResult_t(ulyxFail)(ulyxResult_t code, const char* format, ...) {
  va_list arguments;
  if (undoing > 0) return code;
  va_start(arguments, format);
  (void)vsnprintf(threadMessage, sizeof threadMessage, format, arguments);
  va_end(arguments);
  return code;
}

const char* ulyxThreadMessage(void) {
  return threadMessage;
}

ulyxResult_t ulyxAllocate(void** memory, size_t count, size_t bytesEach, const char* what) {
  void* const allocated = calloc(count > 0 ? count : 1, bytesEach);
  if (allocated == NULL) {
    return ulyxFail(ulyxSystemError, "no host memory for %zu x %zu bytes of %s", count, bytesEach, what);
  }
  *memory = allocated;
  return ulyxSuccess;
}

/* No struct of any later version will pass it; what claims more was not filled in. */
#define MOST_STRUCT_BYTES 4096

typedef struct StructHeader {
  size_t size;
  unsigned int magic;
  unsigned int version;
} StructHeader;

ulyxResult_t ulyxCheckStruct(const void* given, size_t knownBytes, unsigned int magic, const char* name) {
  if (given == NULL) return ulyxFail(ulyxInvalidArgument, "%s is NULL", name);
  const StructHeader* const header = given;
  if (header->magic != magic) {
    return ulyxFail(ulyxInvalidArgument, "%s: magic is 0x%x, expected 0x%x; start from its _INITIALIZER", name,
                    header->magic, magic);
  }
  if (header->version < 1) {
    return ulyxFail(ulyxInvalidArgument, "%s: version is %u, expected at least 1", name, header->version);
  }
  if (header->size < knownBytes) {
    return ulyxFail(ulyxInvalidArgument, "%s: size is %zu bytes, expected at least %zu", name, header->size,
                    knownBytes);
  }
  if (header->size > MOST_STRUCT_BYTES) {
    return ulyxFail(ulyxInvalidArgument, "%s: size is %zu bytes, expected at most %d", name, header->size,
                    MOST_STRUCT_BYTES);
  }
  const unsigned char* const bytes = given;
  for (size_t i = knownBytes; i < header->size; ++i) {
    if (bytes[i] != 0) {
      return ulyxFail(ulyxInvalidArgument, "%s: byte %zu of %zu is set, but this library knows the first %zu only",
                      name, i, header->size, knownBytes);
    }
  }
  return ulyxSuccess;
}
