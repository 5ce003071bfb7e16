/* SPDX-License-Identifier: MIT */
#include "numbers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Reads a number at `text`; *end is the first character after it, `text` itself if there was none. */
static bool readInt(const char* text, const char** end, int64_t* value) {
  const char* digits = *text == '-' ? text + 1 : text;
  *end = text;
  if (*digits < '0' || *digits > '9') return false; /* strtoll would skip blanks and take a plus sign */
  char* stop = NULL;
  errno = 0;
  const long long number = strtoll(text, &stop, 10);
  if (errno != 0) return false;
  *end = stop;
  *value = number;
  return true;
}

bool perfParseInt(const char* text, int64_t* value) {
  const char* end = NULL;
  int64_t number = 0;
  if (!readInt(text, &end, &number) || *end != '\0') return false;
  *value = number;
  return true;
}

bool perfParseScaledInt(const char* text, int64_t* value) {
  const char* end = NULL;
  int64_t number = 0;
  if (!readInt(text, &end, &number)) return false;
  int64_t scale = 1;
  if (*end == 'K' || *end == 'k') scale = INT64_C(1) << 10;
  if (*end == 'M' || *end == 'm') scale = INT64_C(1) << 20;
  if (*end == 'G' || *end == 'g') scale = INT64_C(1) << 30;
  if (end[scale == 1 ? 0 : 1] != '\0') return false;
  if (number > INT64_MAX / scale || number < INT64_MIN / scale) return false;
  *value = number * scale;
  return true;
}

bool perfParseReal(const char* text, double* value) {
  if (*text == '\0' || strspn(text, "0123456789.eE+-") != strlen(text))
    return false; /* strtod also takes inf and 0x10 */
  char* end = NULL;
  errno = 0;
  const double number = strtod(text, &end);
  if (errno != 0 || end == text || *end != '\0' || number < 0) return false;
  *value = number;
  return true;
}

bool perfParseCounts(const char* text, perfCounts_t* counts) {
  int count = 1;
  for (const char* c = text; *c != '\0'; c++) count += *c == ',';
  int64_t* values = calloc((size_t)count, sizeof(*values));
  if (values == NULL) return false;
  const char* rest = text;
  for (int i = 0; i < count; i++) {
    const char* end = NULL;
    const char closing = i + 1 < count ? ',' : '\0';
    if (!readInt(rest, &end, &values[i]) || *end != closing) {
      free(values);
      return false;
    }
    rest = end + 1;
  }
  perfCountsFree(counts);
  counts->values = values;
  counts->count = count;
  return true;
}

bool perfCountsSum(const perfCounts_t* counts, int64_t* sum) {
  int64_t total = 0;
  for (int i = 0; i < counts->count; i++) {
    const int64_t value = counts->values[i];
    if (value > 0 ? total > INT64_MAX - value : total < INT64_MIN - value) return false;
    total += value;
  }
  *sum = total;
  return true;
}

void perfCountsFree(perfCounts_t* counts) {
  free(counts->values);
  counts->values = NULL;
  counts->count = 0;
}
