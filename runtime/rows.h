/* SPDX-License-Identifier: MIT
 *
 * Rows: a tensor [rows, elements] whose rows are split over ranks. Three operations on it:
 *
 *   all-gather      own rows -> all rows, or those of a target span, on every rank
 *   reduce-scatter  every rank's partial sums of all rows -> own rows, summed over ranks
 *   all-to-all      a count matrix: C[i][j] rows from rank i to rank j, packed in rank order on both sides
 *
 * Ranks send what somebody needs and nothing else. */
#ifndef ULYX_RUNTIME_ROWS_H_
#define ULYX_RUNTIME_ROWS_H_

#include "plan.h"
#include "statement.h"
#include "tensor.h"

typedef struct ulyxRows {
  int op; /* ulyxRowsOp_t */
  int rank, nRanks;
  int type;
  int64_t elementBytes, rowElements, rowBytes;
  int64_t inPitch, outPitch; /* bytes from row to row of the operation's input and output, on every rank */
  int64_t total;             /* all-gather and reduce-scatter: rows of the whole */
  ulyxRange_t target;        /* all-gather: the span that everyone gets */
  ulyxRange_t* ranges;       /* [nRanks]: rows that each rank owns */
  int64_t* counts;           /* what the ranks compare: own rows [nRanks]; all-to-all: sent, then received */
  int64_t inRows, outRows;   /* of this rank's tensors */
  ulyxStorage memory;        /* of ranges and counts */
} ulyxRows;

/* Checks a shape and resolves it for one rank. `rows` is all zeros or has been resolved before, and its memory is used
 * again; it is the caller's to free, also after a failure. */
ulyxResult_t ulyxRowsResolve(const ulyxRowsShape_t* shape, int nRanks, int rank, ulyxRows* rows);
void ulyxRowsFree(ulyxRows* rows);

/* The operation's copies and what follows them; `phase` as for ulyxPhaseBuild. */
ulyxResult_t ulyxRowsPhase(const ulyxRows* rows, ulyxPhase* phase);

ulyxStatement ulyxRowsState(const ulyxRows* rows);
ulyxExpected ulyxRowsExpect(const ulyxRows* rows, bool input);

#endif /* ULYX_RUNTIME_ROWS_H_ */
