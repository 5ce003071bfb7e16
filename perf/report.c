/* SPDX-License-Identifier: MIT */
#include "report.h"

#include <stdarg.h>
#include <stdio.h>

void perfError(const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  /* One call, so that lines of several ranks do not mix. */
  (void)fprintf(stderr, "error: %s\n", line);
}

bool perfUlyxOk(ulyxResult_t result, ulyxRuntime_t rt, const char* what) {
  if (result == ulyxSuccess) return true;
  perfError("%s: %s: %s", what, ulyxGetErrorString(result), ulyxGetLastError(rt));
  return false;
}
