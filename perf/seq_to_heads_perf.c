/* SPDX-License-Identifier: MIT
 *
 * ulyxSeqToHeads: own tokens over all heads -> all tokens over own heads, for q, k and v. */
#include "attention.h"

static int64_t sizeBytes(const ulyxShapeBytes_t* bytes) {
  return bytes->qIn + bytes->kIn + bytes->vIn;
}

static bool judge(const perfProblem_t* problem, perfStep_t* step) {
  return perfAttentionJudge(problem, sizeBytes, step);
}

static void pair(const perfGeometry_t* from, const perfGeometry_t* to, int64_t* bytes) {
  const int64_t replicated = from == to ? perfRangeLength(from->replicated) : 0; /* every rank has them already */
  const int64_t rows = from->batch * (perfRangeLength(from->tokenRange) + replicated);
  bytes[0] = rows * perfRangeLength(to->headRange) * from->headBytes;
  bytes[1] = rows * perfRangeLength(to->kvHeadRange) * from->headBytes;
  bytes[2] = rows * perfRangeLength(to->kvHeadRange) * from->valueBytes;
}

static bool messages(const perfProblem_t* problem, int64_t* bytes) {
  return perfAttentionMessages(problem, pair, bytes);
}

static bool lay(const perfProblem_t* problem, int rank, perfLayout_t* in, perfLayout_t* out) {
  return perfAttentionLay(problem, rank, perfLayoutQkvSeqSide, perfLayoutQkvHeadsSide, in, out);
}

static ulyxResult_t bind(ulyxPlan_t plan, void* const* in, void* const* out, perfTensors_t* tensors) {
  const ulyxResult_t result = ulyxPlanGetQkv(plan, &tensors->qkvIn, &tensors->qkvOut);
  if (result != ulyxSuccess) return result;
  /* Packed sides have one buffer; the pointers past it are NULL. */
  tensors->qkvIn.q.data = in[0];
  tensors->qkvIn.k.data = in[1];
  tensors->qkvIn.v.data = in[2];
  tensors->qkvOut.q.data = out[0];
  tensors->qkvOut.k.data = out[1];
  tensors->qkvOut.v.data = out[2];
  return ulyxSuccess;
}

static ulyxResult_t run(const perfProblem_t* problem, ulyxPlan_t plan, const perfTensors_t* tensors,
                        ulyxStream_t stream) {
  (void)problem;
  return ulyxSeqToHeads(plan, &tensors->qkvIn, &tensors->qkvOut, stream);
}

int main(int argc, char** argv) {
  const perfOp_t op = {
      .name = "seq_to_heads_perf",
      .summary = "q, k and v from own tokens of all heads to own heads of all tokens",
      .call = "ulyxSeqToHeads",
      .sizeText = "q, k and v of the busiest rank before the exchange",
      .unit = "tokens",
      .inputInSymmetric = false,
      .baselines = {{perfBaselineMessages, "nccl", "nccl_us",
                     "registered NCCL send and receive of the same remote bytes without packing, 1 message a peer"},
                    {perfBaselineMessagesByTensor, "nccl3", "nccl3_us", "the same with a message a tensor"},
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
