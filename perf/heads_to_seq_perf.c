/* SPDX-License-Identifier: MIT
 *
 * ulyxHeadsToSeq: all tokens over own heads -> own tokens over all heads, for attention's output o. */
#include "op.h"

static int64_t sizeBytes(const ulyxShapeBytes_t* bytes) {
  return bytes->oIn;
}

static int messageBytes(const perfGeometry_t* from, const perfGeometry_t* to, int64_t bytes[PERF_MAX_TENSORS]) {
  bytes[0] = to->batch * perfRangeLength(to->tokenRange) * perfRangeLength(from->headRange) * from->valueBytes;
  return 1;
}

static ulyxResult_t bind(ulyxPlan_t plan, void* const* in, void* const* out, perfTensors_t* tensors) {
  const ulyxResult_t result = ulyxPlanGetOutput(plan, &tensors->oIn, &tensors->oOut);
  if (result != ulyxSuccess) return result;
  tensors->oIn.data = in[0];
  tensors->oOut.data = out[0];
  return ulyxSuccess;
}

static ulyxResult_t run(ulyxPlan_t plan, const perfTensors_t* tensors, ulyxStream_t stream) {
  return ulyxHeadsToSeq(plan, &tensors->oIn, &tensors->oOut, stream);
}

int main(int argc, char** argv) {
  const perfOp_t op = {
      .name = "heads_to_seq_perf",
      .call = "ulyxHeadsToSeq",
      .op = ulyxOpHeadsToSeq,
      .sizeText = "o of the busiest rank before the exchange",
      .sizeBytes = sizeBytes,
      .inputInSymmetric = true,
      .layIn = perfLayoutOHeadsSide,
      .layOut = perfLayoutOSeqSide,
      .messageBytes = messageBytes,
      .bind = bind,
      .run = run,
  };
  return perfMain(argc, argv, &op);
}
