/* SPDX-License-Identifier: MIT
 *
 * ulyxReduceScatterRows: partial sums of all rows -> own rows, each the sum of every rank's. */
#include "exchange.h"
#include "report.h"
#include "rows.h"

static bool settle(perfOptions_t* o) {
  const int type = o->type->type;
  if (type != ulyxBfloat16 && type != ulyxFloat16 && type != ulyxFloat32) {
    perfError("a reduce-scatter sums bfloat16, float16 and float32, not %s", o->type->name);
    return false;
  }
  return perfRowsSettle(o);
}

static bool judge(const perfProblem_t* problem, perfStep_t* step) {
  if (!perfRowsJudge(problem)) return false;
  step->sizeBytes = step->tokens * perfRowBytes(problem);
  return true;
}

static bool messages(const perfProblem_t* problem, int64_t* bytes) {
  for (int from = 0; from < problem->nRanks; from++) {
    for (int to = 0; to < problem->nRanks; to++, bytes += PERF_MAX_TENSORS) {
      bytes[0] = perfRangeLength(perfRowsOwned(problem, to)) * perfRowBytes(problem);
    }
  }
  return true;
}

static bool lay(const perfProblem_t* problem, int rank, perfLayout_t* in, perfLayout_t* out) {
  perfLayoutAddBuffer(in, problem->step->tokens * perfRowBytes(problem));
  perfLayoutAddBuffer(out, perfRangeLength(perfRowsOwned(problem, rank)) * perfRowBytes(problem));
  return true;
}

static bool plan(const perfProblem_t* problem, int rank, ulyxRuntime_t rt, ulyxPlan_t* created) {
  (void)rank;
  ulyxRowsShape_t shape = perfRowsShape(problem);
  shape.op = ulyxRowsReduceScatter;
  return perfRowsPlan(rt, &shape, created);
}

static ulyxResult_t run(const perfProblem_t* problem, ulyxPlan_t planned, const perfTensors_t* tensors,
                        ulyxStream_t stream) {
  (void)problem;
  return ulyxReduceScatterRows(planned, &tensors->in, &tensors->out, stream);
}

static perfAddends_t addendsOf(const perfExchange_t* exchange, ulyxRange_t rows) {
  const perfOptions_t* o = exchange->problem.options;
  return (perfAddends_t){.type = o->type->type,
                         .rank = exchange->me->rank,
                         .nRanks = exchange->me->nRanks,
                         .firstRow = rows.start,
                         .rows = perfRangeLength(rows),
                         .rowElements = o->rowElements};
}

static bool fill(perfExchange_t* exchange) {
  perfRank_t* me = exchange->me;
  const perfAddends_t addends = addendsOf(exchange, (ulyxRange_t){0, exchange->problem.step->tokens});
  return me->backend->fillAddends(me, perfBufferData(&exchange->in.buffers[0]), &addends, exchange->seed);
}

static bool check(perfExchange_t* exchange, int64_t* wrong) {
  perfRank_t* me = exchange->me;
  const perfAddends_t sums = addendsOf(exchange, perfRowsOwned(&exchange->problem, me->rank));
  return me->backend->countWrongSums(me, perfBufferData(&exchange->out.buffers[0]), &sums, exchange->seed, wrong);
}

int main(int argc, char** argv) {
  const perfOp_t op = {
      .name = "reduce_scatter_rows_perf",
      .summary = "a ragged reduce-scatter: every rank's own rows, summed over all ranks",
      .call = "ulyxReduceScatterRows",
      .sizeText = "the rows that every rank begins with: all",
      .unit = "rows",
      .redop = "sum",
      .inputInSymmetric = true,
      .baselines = {{perfBaselineReduceScatter, "nccl", "nccl_us",
                     "ncclReduceScatter of the same rows in registered buffers, where ranks have equally many"}},
      .nBaselines = 1,
      .flags = perfRowsFlags,
      .settle = settle,
      .printShape = perfRowsPrintShape,
      .writeShape = perfRowsWriteShape,
      .list = perfRowsList,
      .judge = judge,
      .messages = messages,
      .lay = lay,
      .plan = plan,
      .bind = perfRowsBind,
      .run = run,
      .fill = fill,
      .check = check,
  };
  return perfMain(argc, argv, &op);
}
