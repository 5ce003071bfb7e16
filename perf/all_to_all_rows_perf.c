/* SPDX-License-Identifier: MIT
 *
 * ulyxAllToAllRows: rows by a matrix of counts. Rows are numbered by source, then by destination: what a rank sends is
 * then one run of them, and what it receives one run a source. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exchange.h"
#include "matrix.h"
#include "report.h"
#include "rows.h"

static int flags(perfOptions_t* o, perfFlag_t* all) {
  const perfFlag_t own[] = {
      {"--matrix", perfFlagText, &o->matrixPath, 0, 0, "FILE",
       "what rank sends rank, as nccl-tests' alltoallv reads it: a line a sending rank, a number a receiving one, "
       "apart "
       "by blanks or commas; ranks past the world's are ignored. Rows are then of 16 bytes [balanced]"},
      {"--matrix-unit", perfFlagChoice, &o->matrixUnit, 0, 0, "bytes|rows",
       "what the numbers count; bytes are cut to whole rows [bytes]"},
      {"--matrix-scale", perfFlagReal, &o->matrixScale, 0, 0, NULL, "multiplies all of them [1]"},
  };
  const int count = perfRowFlags(o, all);
  memcpy(all + count, own, sizeof(own));
  return count + (int)(sizeof(own) / sizeof(own[0]));
}

static bool settle(perfOptions_t* o) {
  if (o->matrixPath == NULL && (o->matrixUnit != PERF_UNSET || o->matrixScale >= 0)) {
    perfError("--matrix-unit and --matrix-scale are about the numbers of --matrix, which is not given");
    return false;
  }
  const perfMatrixUnit_t unit = o->matrixUnit == PERF_UNSET ? perfMatrixBytes : (perfMatrixUnit_t)o->matrixUnit;
  const bool inBytes = o->matrixPath != NULL && unit == perfMatrixBytes;
  if (inBytes && o->rowElements == 0) o->rowElements = PERF_MATRIX_ROW_BYTES / o->type->bytes;
  perfRowSettle(o);
  if (o->matrixPath == NULL) return true;
  if (o->beginTokens != PERF_UNSET || o->endTokens != PERF_UNSET) {
    perfError("--matrix and -b, -e exclude each other: all sizes are the matrix's");
    return false;
  }
  /* Rows past 64 bits are refused later, where all sizes are judged. */
  const int64_t rowBytes = o->rowElements <= INT64_MAX / o->type->bytes ? o->rowElements * o->type->bytes : INT64_MAX;
  const perfMatrixFile_t file = {o->matrixPath, unit, rowBytes, o->matrixScale >= 0 ? o->matrixScale : 1};
  return perfMatrixRead(&file, &o->matrix, &o->matrixRanks);
}

static void printShape(const perfOptions_t* o) {
  (void)printf("rows of %" PRId64 " elements, type %s, %s%s", o->rowElements, o->type->name,
               o->matrixPath != NULL ? "matrix " : "balanced", o->matrixPath != NULL ? o->matrixPath : "");
}

static int64_t rowsBetween(const perfProblem_t* problem, int from, int to) {
  const perfOptions_t* o = problem->options;
  if (o->matrix.values != NULL) return o->matrix.values[from * o->matrixRanks + to];
  const int64_t sent = perfRangeLength(perfBalancedRange(problem->step->tokens, problem->nRanks, from));
  return perfRangeLength(perfBalancedRange(sent, problem->nRanks, to));
}

static bool list(const perfOptions_t* options, int nRanks, perfSteps_t* steps) {
  perfStep_t step;
  memset(&step, 0, sizeof(step));
  if (options->matrix.values == NULL) return perfStepsAppendSweep(steps, options, step);
  if (options->matrixRanks < nRanks) {
    perfError("%s has %" PRId64 " ranks, fewer than the %d there are", options->matrixPath, options->matrixRanks,
              nRanks);
    return false;
  }
  const perfProblem_t problem = {options, &step, nRanks};
  for (int from = 0; from < nRanks; from++) {
    for (int to = 0; to < nRanks; to++) {
      const int64_t rows = rowsBetween(&problem, from, to);
      if (rows > INT64_MAX - step.tokens) {
        perfError("the sum of %s exceeds 64 bits", options->matrixPath);
        return false;
      }
      step.tokens += rows;
    }
  }
  return perfStepsAppend(steps, &step);
}

/* Before the rows from `from` to `to`, in their order. */
static int64_t firstRow(const perfProblem_t* problem, int from, int to) {
  int64_t row = 0;
  for (int source = 0; source <= from; source++) {
    const int stop = source < from ? problem->nRanks : to;
    for (int destination = 0; destination < stop; destination++) row += rowsBetween(problem, source, destination);
  }
  return row;
}

static ulyxRange_t sentRows(const perfProblem_t* problem, int rank) {
  return (ulyxRange_t){firstRow(problem, rank, 0), firstRow(problem, rank, problem->nRanks)};
}

static bool judge(const perfProblem_t* problem, perfStep_t* step) {
  if (!perfRowsFit(problem)) return false;
  for (int rank = 0; rank < problem->nRanks; rank++) {
    const int64_t bytes = perfRangeLength(sentRows(problem, rank)) * perfRowBytes(problem);
    if (bytes > step->sizeBytes) step->sizeBytes = bytes;
  }
  return true;
}

static bool messages(const perfProblem_t* problem, int64_t* bytes) {
  for (int from = 0; from < problem->nRanks; from++) {
    for (int to = 0; to < problem->nRanks; to++, bytes += PERF_MAX_TENSORS) {
      bytes[0] = rowsBetween(problem, from, to) * perfRowBytes(problem);
    }
  }
  return true;
}

static bool lay(const perfProblem_t* problem, int rank, perfLayout_t* in, perfLayout_t* out) {
  int64_t received = 0;
  for (int from = 0; from < problem->nRanks; from++) received += rowsBetween(problem, from, rank);
  perfRowsLay(problem, sentRows(problem, rank), in);
  perfLayoutAddBuffer(out, received * perfRowBytes(problem));
  return true;
}

static bool plan(const perfProblem_t* problem, int rank, ulyxRuntime_t rt, ulyxPlan_t* created) {
  const int nRanks = problem->nRanks;
  int64_t* counts = calloc(2 * (size_t)nRanks, sizeof(*counts));
  if (counts == NULL) {
    perfError("out of memory for the counts of %d ranks", nRanks);
    return false;
  }
  for (int peer = 0; peer < nRanks; peer++) {
    counts[peer] = rowsBetween(problem, rank, peer);
    counts[nRanks + peer] = rowsBetween(problem, peer, rank);
  }
  ulyxRowsShape_t shape = perfRowsShape(problem);
  shape.op = ulyxRowsAllToAll;
  shape.total = 0;
  shape.sendCounts = counts;
  shape.recvCounts = counts + nRanks;
  const bool ok = perfRowsPlan(rt, &shape, created);
  free(counts);
  return ok;
}

static ulyxResult_t run(const perfProblem_t* problem, ulyxPlan_t planned, const perfTensors_t* tensors,
                        ulyxStream_t stream) {
  (void)problem;
  return ulyxAllToAllRows(planned, &tensors->in, &tensors->out, stream);
}

static bool check(perfExchange_t* exchange, int64_t* wrong) {
  const perfProblem_t* problem = &exchange->problem;
  perfRank_t* me = exchange->me;
  const unsigned char* data = perfBufferData(&exchange->out.buffers[0]);
  int64_t offset = 0;
  for (int from = 0; from < problem->nRanks; from++) {
    const int64_t first = firstRow(problem, from, me->rank);
    perfLayout_t piece;
    memset(&piece, 0, sizeof(piece));
    perfRowsLay(problem, (ulyxRange_t){first, first + rowsBetween(problem, from, me->rank)}, &piece);
    piece.views[0].offset = offset;
    if (!me->backend->countWrong(me, data, &piece.views[0], exchange->seed, wrong)) return false;
    offset += piece.bufferBytes[0];
  }
  return true;
}

int main(int argc, char** argv) {
  const perfOp_t op = {
      .name = "all_to_all_rows_perf",
      .summary = "a ragged all-to-all: rows from every rank to every rank by a matrix of counts",
      .call = "ulyxAllToAllRows",
      .sizeText = "the rows that the busiest sender begins with",
      .unit = "rows",
      .inputInSymmetric = true,
      .baselines = {{perfBaselineMessages, "nccl", "nccl_us",
                     "the same remote bytes as registered NCCL sends and receives in one group"},
                    PERF_BASELINE_ALL_TO_ALL},
      .nBaselines = 2,
      .flags = flags,
      .settle = settle,
      .printShape = printShape,
      .writeShape = perfRowsWriteShape,
      .list = list,
      .judge = judge,
      .messages = messages,
      .lay = lay,
      .plan = plan,
      .bind = perfRowsBind,
      .run = run,
      .check = check,
  };
  return perfMain(argc, argv, &op);
}
