/* SPDX-License-Identifier: MIT
 *
 * ulyxSeqToHeads: own tokens over all heads -> all tokens over own heads, for q, k and v. */
#include "op.h"

static int64_t sizeBytes(const ulyxShapeBytes_t* bytes) {
  return bytes->qIn + bytes->kIn + bytes->vIn;
}

static int messageBytes(const perfGeometry_t* from, const perfGeometry_t* to, int64_t bytes[PERF_MAX_TENSORS]) {
  const int64_t rows = from->batch * perfRangeLength(from->tokenRange);
  bytes[0] = rows * perfRangeLength(to->headRange) * from->headBytes;
  bytes[1] = rows * perfRangeLength(to->kvHeadRange) * from->headBytes;
  bytes[2] = rows * perfRangeLength(to->kvHeadRange) * from->valueBytes;
  return 3;
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

static ulyxResult_t run(ulyxPlan_t plan, const perfTensors_t* tensors, ulyxStream_t stream) {
  return ulyxSeqToHeads(plan, &tensors->qkvIn, &tensors->qkvOut, stream);
}

int main(int argc, char** argv) {
  const perfOp_t op = {
      .name = "seq_to_heads_perf",
      .call = "ulyxSeqToHeads",
      .op = ulyxOpSeqToHeads,
      .sizeText = "q, k and v of the busiest rank before the exchange",
      .sizeBytes = sizeBytes,
      .inputInSymmetric = false,
      .layIn = perfLayoutQkvSeqSide,
      .layOut = perfLayoutQkvHeadsSide,
      .messageBytes = messageBytes,
      .bind = bind,
      .run = run,
  };
  return perfMain(argc, argv, &op);
}
