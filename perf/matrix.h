/* SPDX-License-Identifier: MIT
 *
 * A matrix of counts from a file, as nccl-tests' alltoallv has it: row i, column j is what rank i sends rank j, one row
 * a line, numbers apart by blanks or commas, empty lines ignored. Ours counts rows, and whole ones. */
#ifndef PERF_MATRIX_H_
#define PERF_MATRIX_H_

#include <stdbool.h>
#include <stdint.h>

#include "numbers.h"

/* Reads a square matrix into `counts`, row by row. A refusal has been reported. */
bool perfMatrixRead(const char* path, perfCounts_t* counts, int64_t* ranks);

#endif /* PERF_MATRIX_H_ */
