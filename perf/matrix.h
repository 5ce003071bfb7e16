/* SPDX-License-Identifier: MIT
 *
 * A matrix from a file, as nccl-tests' alltoallv has it: row i, column j is what rank i sends rank j, one row a line,
 * numbers apart by blanks (here commas as well), empty lines ignored. There it is bytes, cut to a multiple of 16; ours
 * are cut to whole rows, and may be counted in rows too. */
#ifndef PERF_MATRIX_H_
#define PERF_MATRIX_H_

#include <stdbool.h>
#include <stdint.h>

#include "numbers.h"

#define PERF_MATRIX_ROW_BYTES 16 /* rows of this many bytes send what nccl-tests sends */

typedef enum { perfMatrixBytes, perfMatrixRows } perfMatrixUnit_t;

typedef struct perfMatrixFile {
  const char* path;
  perfMatrixUnit_t unit;
  int64_t rowBytes;
  double scale; /* of every number */
} perfMatrixFile_t;

/* Reads a square matrix into `counts`, in rows, line by line. A refusal has been reported. */
bool perfMatrixRead(const perfMatrixFile_t* file, perfCounts_t* counts, int64_t* ranks);

#endif /* PERF_MATRIX_H_ */
