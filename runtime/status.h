/* SPDX-License-Identifier: MIT
 *
 * Errors speak once. Whoever first sees a fault calls ulyxFail with the numbers; callers only forward the
 * code. The message is kept for the calling thread; the entry layer copies it to the runtime concerned. */
#ifndef ULYX_RUNTIME_STATUS_H_
#define ULYX_RUNTIME_STATUS_H_

#include <stddef.h>

#include "ulyx.h"

#define ULYX_MESSAGE_BYTES 512

/* Records the calling thread's last error and returns `code`. */
__attribute__((format(printf, 2, 3))) ulyxResult_t ulyxFail(ulyxResult_t code, const char* format, ...);

/* clang's analyzer sees one file at a time, and is told here that a failure returns what it was given. */
#ifdef __clang_analyzer__
void ulyxFailArguments(const char* format, ...);
#define ulyxFail(code, ...) (ulyxFailArguments(__VA_ARGS__), (code))
#endif

/* The calling thread's last message, "" if none. */
const char* ulyxThreadMessage(void);

/* Between the two, failures on this thread are silent: undoing what was done must not speak over why. */
void ulyxUndoBegin(void);
void ulyxUndoEnd(void);

/* Forwards a failure that has already spoken. */
#define ULYX_TRY(call)                              \
  do {                                              \
    const ulyxResult_t ulyxTried = (call);          \
    if (ulyxTried != ulyxSuccess) return ulyxTried; \
  } while (0)

/* The same, leaving through a label that undoes what was done; needs a local `result`. */
#define ULYX_TRY_GOTO(call, label)         \
  do {                                     \
    result = (call);                       \
    if (result != ulyxSuccess) goto label; \
  } while (0)

/* Keeps the first failure of a sequence that goes on whatever fails, as freeing does. */
static inline void ulyxKeepFirst(ulyxResult_t* result, ulyxResult_t next) {
  if (*result == ulyxSuccess) *result = next;
}

/* calloc that speaks. A count of 0 gives a pointer that can be freed. */
ulyxResult_t ulyxAllocate(void** memory, size_t count, size_t bytesEach, const char* what);

/* Marks an object as destroyed, right before it is freed: a compiler may drop a plain store there. It catches
 * many uses after free, and promises none. */
static inline void ulyxForgetMagic(unsigned int* magic) {
  *(volatile unsigned int*)magic = 0;
}

/* Checks the first fields of a struct that a caller filled: not NULL, known magic and version, a size no
 * smaller than ours, and nothing but zeros beyond what this version knows. */
ulyxResult_t ulyxCheckStruct(const void* given, size_t knownBytes, unsigned int magic, const char* name);

#endif /* ULYX_RUNTIME_STATUS_H_ */
