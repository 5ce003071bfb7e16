/* SPDX-License-Identifier: MIT
 *
 * ulyxConvHalo: the rows that a causal convolution needs from the ranks before. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "report.h"
#include "rows.h"
#include "sequences.h"

#define DEFAULT_KERNEL 4

static int flags(perfOptions_t* o, perfFlag_t* all) {
  int count = perfRowFlags(o, all);
  all[count++] = (perfFlag_t){"--conv-kernel",
                              perfFlagInt,
                              &o->convKernel,
                              1,
                              INT_MAX,
                              NULL,
                              "width of the convolution: a halo is one row less, where its sequence has as many [4]"};
  all[count++] = perfSequencesFlag(o);
  return count;
}

static bool settle(perfOptions_t* o) {
  perfRowSettle(o);
  if (o->convKernel == 0) o->convKernel = DEFAULT_KERNEL;
  return perfSequencesSettle(o);
}

static void printShape(const perfOptions_t* o) {
  (void)printf("rows of %" PRId64 " elements, type %s, kernel %" PRId64 ", ", o->rowElements, o->type->name,
               o->convKernel);
  perfSequencesPrintShape(o);
}

static void writeShape(const perfProblem_t* problem, perfJson_t* json) {
  perfRowsWriteShape(problem, json);
  perfJsonInt(json, "conv_kernel", problem->options->convKernel);
  perfJsonInt(json, "sequences", perfSequencesCount(problem->options));
}

static ulyxRange_t haloOf(const perfProblem_t* problem, int rank) {
  const perfShard_t shard = perfShardOf(problem, rank);
  const int64_t reach = problem->options->convKernel - 1;
  const int64_t rows = reach < shard.tokensAhead ? reach : shard.tokensAhead;
  return (ulyxRange_t){shard.tokens.start - rows, shard.tokens.start};
}

static bool judge(const perfProblem_t* problem, perfStep_t* step) {
  if (!perfRowsFit(problem) || !perfSequencesJudge(problem)) return false;
  for (int rank = 0; rank < problem->nRanks; rank++) {
    const int64_t bytes = perfRangeLength(haloOf(problem, rank)) * perfRowBytes(problem);
    if (bytes > step->sizeBytes) step->sizeBytes = bytes;
  }
  return true;
}

static bool messages(const perfProblem_t* problem, int64_t* bytes) {
  for (int from = 0; from < problem->nRanks; from++) {
    const ulyxRange_t held = perfShardOf(problem, from).tokens;
    for (int to = 0; to < problem->nRanks; to++, bytes += PERF_MAX_TENSORS) {
      bytes[0] = perfRangeLength(perfRangeCommon(haloOf(problem, to), held)) * perfRowBytes(problem);
    }
  }
  return true;
}

static bool lay(const perfProblem_t* problem, int rank, perfLayout_t* in, perfLayout_t* out) {
  perfRowsLay(problem, perfShardOf(problem, rank).tokens, in);
  perfRowsLay(problem, haloOf(problem, rank), out);
  return true;
}

static bool plan(const perfProblem_t* problem, int rank, ulyxRuntime_t rt, ulyxPlan_t* created) {
  ulyxHaloShape_t shape = ULYX_HALO_SHAPE_INITIALIZER;
  if (!perfSequencesContext(problem, rank, &shape.context)) return false;
  shape.rowElements = problem->options->rowElements;
  shape.type = problem->options->type->type;
  const bool ok = perfUlyxOk(ulyxHaloPlanCreate(rt, &shape, created), rt, "ulyxHaloPlanCreate");
  return perfUlyxOk(ulyxContextDestroy(shape.context), NULL, "ulyxContextDestroy") && ok;
}

static ulyxResult_t bind(ulyxPlan_t planned, void* const* in, void* const* out, perfTensors_t* tensors) {
  const ulyxResult_t result = ulyxPlanGetHalo(planned, &tensors->in, &tensors->out);
  if (result != ulyxSuccess) return result;
  tensors->in.data = in[0];
  tensors->out.data = out[0];
  return ulyxSuccess;
}

static ulyxResult_t run(const perfProblem_t* problem, ulyxPlan_t planned, const perfTensors_t* tensors,
                        ulyxStream_t stream) {
  (void)problem;
  return ulyxConvHalo(planned, &tensors->in, &tensors->out, stream);
}

int main(int argc, char** argv) {
  const perfOp_t op = {
      .name = "conv_halo_perf",
      .summary = "a causal convolution's halo: the rows of a sequence before a rank's own",
      .call = "ulyxConvHalo",
      .sizeText = "the largest halo",
      .unit = "rows",
      .inputInSymmetric = true,
      .baselines = {{perfBaselineMessages, "nccl", "nccl_us",
                     "the same remote bytes as registered NCCL sends and receives in one group"}},
      .nBaselines = 1,
      .flags = flags,
      .settle = settle,
      .printShape = printShape,
      .writeShape = writeShape,
      .list = perfSequencesList,
      .judge = judge,
      .messages = messages,
      .lay = lay,
      .plan = plan,
      .bind = bind,
      .run = run,
  };
  return perfMain(argc, argv, &op);
}
