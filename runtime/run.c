/* SPDX-License-Identifier: MIT
 *
 * One exchange of a plan: tensors are checked against the plan and against one another, then handed to the
 * transport as base addresses. */
#include "runtime.h"

static const char* const inNames[ULYX_OP_COUNT][ULYX_MAX_BUFFERS] = {{"in.q", "in.k", "in.v"}, {"in"}};
static const char* const outNames[ULYX_OP_COUNT][ULYX_MAX_BUFFERS] = {{"out.q", "out.k", "out.v"}, {"out"}};

static ulyxResult_t checkSide(ulyxTransport* transport, int count, const ulyxTensor_t* const* given,
                              const ulyxExpected* expected, const char* const* names, void** bases) {
  for (int i = 0; i < count; ++i) {
    ULYX_TRY(ulyxTensorCheck(given[i], &expected[i], names[i]));
    if (expected[i].spanBytes > 0) ULYX_TRY(transport->ops->checkMemory(transport, given[i]->data, names[i]));
    bases[i] = given[i]->data;
  }
  return ulyxSuccess;
}

static bool overlap(const void* a, int64_t aBytes, const void* b, int64_t bBytes) {
  const uintptr_t aStart = (uintptr_t)a, bStart = (uintptr_t)b;
  return aBytes > 0 && bBytes > 0 && aStart < bStart + (uintptr_t)bBytes && bStart < aStart + (uintptr_t)aBytes;
}

static ulyxResult_t refuseOverlap(const char* one, const char* other) {
  return ulyxFail(ulyxInvalidArgument, "the data of %s and %s overlap", one, other);
}

static ulyxResult_t checkOverlap(const ulyxPlanOp* op, ulyxOp_t which, void* const* src, void* const* dst) {
  for (int out = 0; out < op->outCount; ++out) {
    for (int in = 0; in < op->inCount; ++in) {
      if (overlap(dst[out], op->out[out].spanBytes, src[in], op->in[in].spanBytes)) {
        return refuseOverlap(inNames[which][in], outNames[which][out]);
      }
    }
    for (int other = 0; other < out; ++other) { /* views with gaps may interleave */
      if (op->out[out].dense && op->out[other].dense &&
          overlap(dst[out], op->out[out].spanBytes, dst[other], op->out[other].spanBytes)) {
        return refuseOverlap(outNames[which][other], outNames[which][out]);
      }
    }
  }
  return ulyxSuccess;
}

/* Whether in and out are the very same tensors: every byte is where it belongs. */
static bool isInPlace(const ulyxPhase* phase, void* const* src, void* const* dst) {
  for (int64_t i = 0; i < phase->sendStart[phase->nRanks]; ++i) {
    const ulyxCopy* const copy = &phase->copies[i];
    if (src[copy->srcBuffer] != dst[copy->dstBuffer] || copy->srcOffset != copy->dstOffset ||
        (copy->rows > 1 && copy->srcPitch != copy->dstPitch)) {
      return false;
    }
  }
  return true;
}

ulyxResult_t ulyxPlanRun(ulyxPlan_t plan, ulyxOp_t which, const ulyxTensor_t* const* in, const ulyxTensor_t* const* out,
                         ulyxStream_t stream) {
  ulyxTransport* const transport = plan->rt->transport;
  const ulyxPlanOp* const op = &plan->ops[which];
  void* src[ULYX_MAX_BUFFERS] = {NULL};
  void* dst[ULYX_MAX_BUFFERS] = {NULL};
  ULYX_TRY(checkSide(transport, op->inCount, in, op->in, inNames[which], src));
  ULYX_TRY(checkSide(transport, op->outCount, out, op->out, outNames[which], dst));
  if (transport->nRanks == 1 && isInPlace(&op->phase, src, dst)) return ulyxSuccess;
  ULYX_TRY(checkOverlap(op, which, src, dst));
  const ulyxExchange exchange = {.operation = ulyxOperations[which].name,
                                 .signature = plan->geometry.signature + (uint64_t)which,
                                 .phase = &op->phase,
                                 .prepared = op->prepared,
                                 .src = src,
                                 .dst = dst,
                                 .stream = stream};
  return transport->ops->run(transport, &exchange);
}
