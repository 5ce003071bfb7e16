/* SPDX-License-Identifier: MIT
 *
 * One exchange of a plan: tensors are checked against the plan and against one another, then handed to the
 * transport as base addresses. */
#include "runtime.h"

/* What is only moved may lie at any byte; numbers are read as such. */
static ulyxResult_t checkAlignment(const ulyxTensor_t* given, const ulyxExpected* expected, const char* name) {
  const int elementBytes = expected->tensor.elementBytes;
  if (expected->spanBytes == 0 || (uintptr_t)given->data % (uintptr_t)elementBytes == 0) return ulyxSuccess;
  return ulyxFail(ulyxInvalidArgument, "%s: data is at %p, expected a multiple of the element's %d bytes", name,
                  given->data, elementBytes);
}

static ulyxResult_t checkSide(ulyxTransport* transport, bool numbers, int count, const ulyxTensor_t* const* given,
                              const ulyxExpected* expected, const char* const* names, void** bases) {
  for (int i = 0; i < count; ++i) {
    ULYX_TRY(ulyxTensorCheck(given[i], &expected[i], names[i]));
    if (numbers) ULYX_TRY(checkAlignment(given[i], &expected[i], names[i]));
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

static ulyxResult_t checkOverlap(const ulyxPlanOp* op, void* const* src, void* const* dst) {
  for (int out = 0; out < op->outCount; ++out) {
    for (int in = 0; in < op->inCount; ++in) {
      if (overlap(dst[out], op->out[out].spanBytes, src[in], op->in[in].spanBytes)) {
        return refuseOverlap(op->inNames[in], op->outNames[out]);
      }
    }
    for (int other = 0; other < out; ++other) { /* views with gaps may interleave */
      const bool sameStart = dst[out] == dst[other] && op->out[out].spanBytes > 0 && op->out[other].spanBytes > 0;
      if (sameStart || (op->out[out].dense && op->out[other].dense &&
                        overlap(dst[out], op->out[out].spanBytes, dst[other], op->out[other].spanBytes))) {
        return refuseOverlap(op->outNames[other], op->outNames[out]);
      }
    }
  }
  return ulyxSuccess;
}

/* Whether in and out are the very same tensors: every byte is where it belongs. */
static bool isInPlace(const ulyxPhase* phase, void* const* src, void* const* dst) {
  const ulyxLocalOp* const after = &phase->after;
  if (after->kind == ulyxLocalChain) return false;
  if (after->kind == ulyxLocalSum && (src[0] != dst[0] || after->sum.addends[0].pitch != after->sum.dstPitch)) {
    return false; /* one addend: a copy of it */
  }
  for (int64_t i = 0; i < phase->sendStart[phase->nRanks]; ++i) {
    const ulyxCopy* const copy = &phase->copies[i];
    if (src[copy->srcBuffer] != dst[copy->dstBuffer] || copy->srcOffset != copy->dstOffset ||
        (copy->rows > 1 && copy->srcPitch != copy->dstPitch)) {
      return false;
    }
  }
  return true;
}

ulyxResult_t ulyxPlanRun(ulyxPlan_t plan, int which, const ulyxTensor_t* const* in, const ulyxTensor_t* const* out,
                         ulyxStream_t stream) {
  ulyxTransport* const transport = plan->rt->transport;
  const ulyxPlanOp* const op = &plan->ops[which];
  void* src[ULYX_MAX_BUFFERS] = {NULL};
  void* dst[ULYX_MAX_BUFFERS] = {NULL};
  const bool numbers = op->phase.after.kind != ulyxLocalNothing;
  ULYX_TRY(checkSide(transport, numbers, op->inCount, in, op->in, op->inNames, src));
  ULYX_TRY(checkSide(transport, numbers, op->outCount, out, op->out, op->outNames, dst));
  if (transport->nRanks == 1 && isInPlace(&op->phase, src, dst)) return ulyxSuccess;
  ULYX_TRY(checkOverlap(op, src, dst));
  ulyxFlight* const flight = &plan->rt->flight;
  const ulyxExchange exchange = {.operation = op->name,
                                 .number = flight->count + 1,
                                 .peerBytes = ulyxPlanPeerBytes(plan, which),
                                 .plan = plan->signature,
                                 .signature = plan->signature + (uint64_t)which,
                                 .phase = &op->phase,
                                 .prepared = op->prepared,
                                 .src = src,
                                 .dst = dst,
                                 .stream = stream};
  if (plan->rt->lost) return transport->ops->run(transport, &exchange); /* which says why */
  ulyxFlightBegin(flight, op->name, exchange.plan, transport->ops->choice(transport, op->prepared).transport,
                  exchange.peerBytes);
  const ulyxResult_t result = transport->ops->run(transport, &exchange);
  ulyxFlightEnd(flight, result);
  return result;
}
