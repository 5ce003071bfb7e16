/* SPDX-License-Identifier: MIT
 *
 * ulyxAllGatherRows: own rows -> all rows, or those of a target span, on every rank. */
#include <inttypes.h>
#include <stdio.h>

#include "report.h"
#include "rows.h"

static int flags(perfOptions_t* o, perfFlag_t* all) {
  const int count = perfRowsFlags(o, all);
  all[count] = (perfFlag_t){
      "--target", perfFlagCounts, &o->target, 0, INT64_MAX, NULL, "start,stop: gathers only these rows [all]"};
  return count + 1;
}

static bool settle(perfOptions_t* o) {
  if (!perfRowsSettle(o)) return false;
  if (o->target.values == NULL || (o->target.count == 2 && o->target.values[0] <= o->target.values[1])) return true;
  perfError("--target takes a start and a stop that is not below it");
  return false;
}

static ulyxRange_t target(const perfProblem_t* problem) {
  const int64_t* given = problem->options->target.values;
  return given != NULL ? (ulyxRange_t){given[0], given[1]} : (ulyxRange_t){0, problem->step->tokens};
}

static void printShape(const perfOptions_t* o) {
  perfRowsPrintShape(o);
  if (o->target.values != NULL) {
    (void)printf(", target [%" PRId64 ", %" PRId64 ")", o->target.values[0], o->target.values[1]);
  }
}

static void writeShape(const perfProblem_t* problem, perfJson_t* json) {
  perfRowsWriteShape(problem, json);
  perfJsonOpenArray(json, "target");
  perfJsonInt(json, NULL, target(problem).start);
  perfJsonInt(json, NULL, target(problem).stop);
  perfJsonCloseArray(json);
}

static bool judge(const perfProblem_t* problem, perfStep_t* step) {
  if (!perfRowsJudge(problem)) return false;
  const ulyxRange_t gathered = target(problem);
  if (gathered.stop > step->tokens) {
    perfError("the target [%" PRId64 ", %" PRId64 ") is not within the %" PRId64 " rows", gathered.start, gathered.stop,
              step->tokens);
    return false;
  }
  step->sizeBytes = perfRangeLength(gathered) * perfRowBytes(problem);
  return true;
}

/* The rows of the target that a rank owns. */
static ulyxRange_t contributed(const perfProblem_t* problem, int rank) {
  return perfRangeCommon(perfRowsOwned(problem, rank), target(problem));
}

static bool messages(const perfProblem_t* problem, int64_t* bytes) {
  for (int from = 0; from < problem->nRanks; from++) {
    const int64_t sent = perfRangeLength(contributed(problem, from)) * perfRowBytes(problem);
    for (int to = 0; to < problem->nRanks; to++, bytes += PERF_MAX_TENSORS) bytes[0] = sent;
  }
  return true;
}

static bool lay(const perfProblem_t* problem, int rank, perfLayout_t* in, perfLayout_t* out) {
  perfRowsLay(problem, contributed(problem, rank), in);
  perfRowsLay(problem, target(problem), out);
  return true;
}

static bool plan(const perfProblem_t* problem, int rank, ulyxRuntime_t rt, ulyxPlan_t* created) {
  (void)rank;
  ulyxRowsShape_t shape = perfRowsShape(problem);
  shape.op = ulyxRowsAllGather;
  shape.targeted = problem->options->target.values != NULL ? 1 : 0;
  if (shape.targeted == 1) shape.target = target(problem);
  return perfRowsPlan(rt, &shape, created);
}

static ulyxResult_t run(const perfProblem_t* problem, ulyxPlan_t planned, const perfTensors_t* tensors,
                        ulyxStream_t stream) {
  (void)problem;
  return ulyxAllGatherRows(planned, &tensors->in, &tensors->out, stream);
}

int main(int argc, char** argv) {
  const perfOp_t op = {
      .name = "all_gather_rows_perf",
      .summary = "a ragged all-gather: every rank's rows, or those of a target span, to every rank",
      .call = "ulyxAllGatherRows",
      .sizeText = "the rows that every rank ends with",
      .unit = "rows",
      .inputInSymmetric = true,
      .baselines = {{perfBaselineAllGather, "nccl", "nccl_us",
                     "ncclAllGather of the same rows in registered buffers, where ranks have equally many"},
                    {perfBaselineMessages, "nccl_sr", "nccl_sendrecv_us",
                     "the same remote bytes as registered NCCL sends and receives in one group"}},
      .nBaselines = 2,
      .flags = flags,
      .settle = settle,
      .printShape = printShape,
      .writeShape = writeShape,
      .list = perfRowsList,
      .judge = judge,
      .messages = messages,
      .lay = lay,
      .plan = plan,
      .bind = perfRowsBind,
      .run = run,
  };
  return perfMain(argc, argv, &op);
}
