/* SPDX-License-Identifier: MIT
 *
 * A fault is one line on standard error, written where it is first seen; callers only pass the failure on. */
#ifndef PERF_REPORT_H_
#define PERF_REPORT_H_

#include <stdbool.h>

#include "ulyx.h"

#if defined(__GNUC__)
#define PERF_PRINTF(formatAt, firstAt) __attribute__((format(printf, formatAt, firstAt)))
#else
#define PERF_PRINTF(formatAt, firstAt)
#endif

/* What a program exits with. */
enum { perfExitOk = 0, perfExitWrongData = 1, perfExitUsage = 2, perfExitFailure = 3 };

/* Writes "error: ", the text and a newline to standard error. */
void perfError(const char* format, ...) PERF_PRINTF(1, 2);

/* True if `result` is ulyxSuccess; otherwise reports `what` with the last error of `rt` (NULL: this
 * thread's). */
bool perfUlyxOk(ulyxResult_t result, ulyxRuntime_t rt, const char* what);

#endif /* PERF_REPORT_H_ */
