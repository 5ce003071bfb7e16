/* SPDX-License-Identifier: MIT */
#include "rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report.h"

#define DEFAULT_ROW_ELEMENTS 1280
#define MAX_TOTAL_BYTES (INT64_C(1) << 60) /* of a tensor on all ranks together */

int perfRowFlags(perfOptions_t* o, perfFlag_t* flags) {
  flags[0] =
      (perfFlag_t){"--row-elements", perfFlagInt, &o->rowElements, 1, INT64_MAX, NULL, "elements of one row [1280]"};
  flags[1] = perfTypeFlag(o);
  return 2;
}

void perfRowSettle(perfOptions_t* o) {
  if (o->rowElements == 0) o->rowElements = DEFAULT_ROW_ELEMENTS;
}

int perfRowsFlags(perfOptions_t* o, perfFlag_t* flags) {
  const int count = perfRowFlags(o, flags);
  flags[count] =
      (perfFlag_t){"--counts", perfFlagCounts, &o->counts, 0, INT64_MAX, NULL, "rows of each rank [balanced]"};
  return count + 1;
}

bool perfRowsSettle(perfOptions_t* o) {
  perfRowSettle(o);
  if (o->counts.values == NULL || (o->beginTokens == PERF_UNSET && o->endTokens == PERF_UNSET)) return true;
  perfError("--counts and -b, -e exclude each other");
  return false;
}

void perfRowsPrintShape(const perfOptions_t* o) {
  (void)printf("rows of %" PRId64 " elements, type %s, %s", o->rowElements, o->type->name,
               o->counts.values != NULL ? "counts" : "balanced");
  for (int i = 0; i < o->counts.count; i++) (void)printf("%s%" PRId64, i > 0 ? "," : " ", o->counts.values[i]);
}

void perfRowsWriteShape(const perfProblem_t* problem, perfJson_t* json) {
  perfJsonInt(json, "rows", problem->step->tokens);
  perfJsonInt(json, "row_elements", problem->options->rowElements);
}

bool perfRowsList(const perfOptions_t* options, int nRanks, perfSteps_t* steps) {
  perfStep_t step;
  memset(&step, 0, sizeof(step));
  if (!perfOneCountARank("--counts", &options->counts, nRanks)) return false;
  if (options->counts.values == NULL) return perfStepsAppendSweep(steps, options, step);
  if (perfCountsSum(&options->counts, &step.tokens)) return perfStepsAppend(steps, &step);
  perfError("the sum of --counts exceeds 64 bits");
  return false;
}

ulyxResult_t perfRowsBind(ulyxPlan_t plan, void* const* in, void* const* out, perfTensors_t* tensors) {
  const ulyxResult_t result = ulyxPlanGetRows(plan, &tensors->in, &tensors->out);
  if (result != ulyxSuccess) return result;
  tensors->in.data = in[0];
  tensors->out.data = out[0];
  return ulyxSuccess;
}

bool perfRowsFit(const perfProblem_t* problem) {
  const perfOptions_t* o = problem->options;
  const int64_t rows = problem->step->tokens > 0 ? problem->step->tokens : 1;
  if (o->rowElements <= MAX_TOTAL_BYTES / o->type->bytes / problem->nRanks / rows) return true;
  perfError("%" PRId64 " rows of %" PRId64 " elements on %d ranks pass 2^60 bytes", rows, o->rowElements,
            problem->nRanks);
  return false;
}

bool perfRowsJudge(const perfProblem_t* problem) {
  if (problem->options->counts.values == NULL && problem->step->tokens < problem->nRanks) {
    perfError("%" PRId64 " rows over %d ranks: a balanced split gives every rank one (--counts allows none)",
              problem->step->tokens, problem->nRanks);
    return false;
  }
  return perfRowsFit(problem);
}

int64_t perfRowBytes(const perfProblem_t* problem) {
  return problem->options->rowElements * problem->options->type->bytes;
}

ulyxRange_t perfRowsOwned(const perfProblem_t* problem, int rank) {
  const int64_t* counts = problem->options->counts.values;
  if (counts == NULL) return perfBalancedRange(problem->step->tokens, problem->nRanks, rank);
  int64_t start = 0;
  for (int before = 0; before < rank; before++) start += counts[before];
  return (ulyxRange_t){start, start + counts[rank]};
}

void perfRowsLay(const perfProblem_t* problem, ulyxRange_t rows, perfLayout_t* layout) {
  perfLayoutAdd(layout, perfTensorRows, 1, (perfTokens_t){{rows, {0, 0}}}, (ulyxRange_t){0, 1}, perfRowBytes(problem));
}

ulyxRowsShape_t perfRowsShape(const perfProblem_t* problem) {
  ulyxRowsShape_t shape = ULYX_ROWS_SHAPE_INITIALIZER;
  shape.type = problem->options->type->type;
  shape.rowElements = problem->options->rowElements;
  shape.total = problem->step->tokens;
  shape.counts = problem->options->counts.values;
  return shape;
}

bool perfRowsPlan(ulyxRuntime_t rt, const ulyxRowsShape_t* shape, ulyxPlan_t* plan) {
  return perfUlyxOk(ulyxRowsPlanCreate(rt, shape, plan), rt, "ulyxRowsPlanCreate");
}
