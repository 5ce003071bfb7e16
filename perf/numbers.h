/* SPDX-License-Identifier: MIT
 *
 * Numbers as people write them on a command line. Strict: the whole text is the number or it is refused.
 * Nothing here reports; each function says whether the text was a number and writes only if it was. */
#ifndef PERF_NUMBERS_H_
#define PERF_NUMBERS_H_

#include <stdbool.h>
#include <stdint.h>

/* One count a rank. `values` is NULL until a list has been parsed; free with perfCountsFree. */
typedef struct perfCounts {
  int64_t* values;
  int count;
} perfCounts_t;

/* Decimal digits with an optional minus sign. */
bool perfParseInt(const char* text, int64_t* value);

/* A number above, optionally followed by K (1024), M (1024 * 1024) or G. */
bool perfParseScaledInt(const char* text, int64_t* value);

/* Decimal digits, with a point and an exponent where wanted: nothing infinite, hexadecimal or below 0. */
bool perfParseReal(const char* text, double* value);

/* Numbers separated by commas, at least one. Replaces what `counts` held. */
bool perfParseCounts(const char* text, perfCounts_t* counts);

/* False where the sum exceeds 64 bits. */
bool perfCountsSum(const perfCounts_t* counts, int64_t* sum);

void perfCountsFree(perfCounts_t* counts);

#endif /* PERF_NUMBERS_H_ */
