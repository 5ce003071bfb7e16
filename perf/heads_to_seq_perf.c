/* SPDX-License-Identifier: MIT
 *
 * ulyxHeadsToSeq: all tokens over own heads -> own tokens over all heads, for attention's output o. */
#include "attention.h"

static int64_t sizeBytes(const ulyxShapeBytes_t* bytes) {
  return bytes->oIn;
}

static bool judge(const perfProblem_t* problem, perfStep_t* step) {
  return perfAttentionJudge(problem, sizeBytes, step);
}

static void pair(const perfGeometry_t* from, const perfGeometry_t* to, int64_t* bytes) {
  const int64_t rows = to->batch * (perfRangeLength(to->tokenRange) + perfRangeLength(to->replicated));
  bytes[0] = rows * perfRangeLength(from->headRange) * from->valueBytes;
}

static bool messages(const perfProblem_t* problem, int64_t* bytes) {
  return perfAttentionMessages(problem, pair, bytes);
}

static bool lay(const perfProblem_t* problem, int rank, perfLayout_t* in, perfLayout_t* out) {
  return perfAttentionLay(problem, rank, perfLayoutOHeadsSide, perfLayoutOSeqSide, in, out);
}

static ulyxResult_t bind(ulyxPlan_t plan, void* const* in, void* const* out, perfTensors_t* tensors) {
  const ulyxResult_t result = ulyxPlanGetOutput(plan, &tensors->in, &tensors->out);
  if (result != ulyxSuccess) return result;
  tensors->in.data = in[0];
  tensors->out.data = out[0];
  return ulyxSuccess;
}

static ulyxResult_t run(const perfProblem_t* problem, ulyxPlan_t plan, const perfTensors_t* tensors,
                        ulyxStream_t stream) {
  (void)problem;
  return ulyxHeadsToSeq(plan, &tensors->in, &tensors->out, stream);
}

int main(int argc, char** argv) {
  const perfOp_t op = {
      .name = "heads_to_seq_perf",
      .summary = "attention's output from own heads of all tokens to own tokens of all heads",
      .call = "ulyxHeadsToSeq",
      .sizeText = "o of the busiest rank before the exchange",
      .unit = "tokens",
      .backward = true,
      .inputInSymmetric = true,
      .baselines = {{perfBaselineMessages, "nccl", "nccl_us",
                     "registered NCCL send and receive of the same remote bytes without packing, 1 message a peer"},
                    {perfBaselineNone, "nccl3", "nccl3_us", "the same with a message a tensor: there is one"},
                    PERF_BASELINE_ALL_TO_ALL},
      .nBaselines = 3,
      .flags = perfAttentionFlags,
      .printMore = perfAttentionPrintMore,
      .settle = perfAttentionSettle,
      .printShape = perfAttentionPrintShape,
      .writeShape = perfAttentionWriteShape,
      .list = perfAttentionList,
      .judge = judge,
      .messages = messages,
      .lay = lay,
      .plan = perfAttentionPlan,
      .bind = bind,
      .run = run,
  };
  return perfMain(argc, argv, &op);
}
