/* SPDX-License-Identifier: MIT */
#include "tensor.h"

#include <inttypes.h>
#include <string.h>

#include "status.h"

ulyxExpected ulyxTensorExpect(const ulyxGeometry* geometry, ulyxSide side, ulyxRole role, int rank) {
  const ulyxView view = ulyxGeometryView(geometry, side, role, rank);
  const int64_t bytes = geometry->elementBytes;
  ulyxExpected expected = {.tensor = ULYX_TENSOR_INITIALIZER};
  ulyxTensor_t* const tensor = &expected.tensor;
  tensor->type = geometry->type;
  tensor->elementBytes = (int)bytes;
  int64_t heads = view.heads, dim = view.headBytes / bytes, headStride = view.headStride / bytes;
  if (geometry->packed[side] && role == ulyxRoleQ) {
    const int64_t kvHeads = ulyxGeometryView(geometry, side, ulyxRoleK, rank).heads;
    if (geometry->headDim == geometry->valueDim) {
      heads += 2 * kvHeads;
    } else { /* a row of heads of two widths */
      dim = view.heads * geometry->headDim + kvHeads * (geometry->headDim + geometry->valueDim);
      heads = 1;
      headStride = dim;
    }
  }
  const int64_t extents[4] = {view.batches, view.tokens, heads, dim};
  const int64_t strides[4] = {view.batchStride / bytes, view.tokenStride / bytes, headStride, 1};
  int64_t elements = 1;
  for (int i = 0; i < 4; ++i) {
    tensor->extents[i] = extents[i];
    tensor->strides[i] = strides[i];
    elements *= extents[i];
  }
  expected.spanBytes = ulyxGeometrySpanBytes(geometry, side, role, rank);
  expected.dense = elements * bytes == expected.spanBytes;
  return expected;
}

ulyxExpected ulyxTensorExpectRows(int type, int64_t elementBytes, int64_t rows, int64_t rowElements, int64_t pitch) {
  const int64_t stride = pitch / elementBytes, rowBytes = rowElements * elementBytes;
  ulyxExpected expected = {.tensor = ULYX_TENSOR_INITIALIZER};
  expected.tensor.type = type;
  expected.tensor.elementBytes = (int)elementBytes;
  const int64_t extents[4] = {1, rows, 1, rowElements};
  const int64_t strides[4] = {rows * stride, stride, rowElements, 1};
  memcpy(expected.tensor.extents, extents, sizeof extents);
  memcpy(expected.tensor.strides, strides, sizeof strides);
  expected.spanBytes = rows > 0 ? (rows - 1) * pitch + rowBytes : 0;
  expected.dense = expected.spanBytes == rows * rowBytes;
  return expected;
}

ulyxResult_t ulyxTensorCheck(const ulyxTensor_t* given, const ulyxExpected* expected, const char* name) {
  static const char* const axes[4] = {"batch", "tokens", "heads", "dim"};
  ULYX_TRY(ulyxCheckStruct(given, sizeof *given, ULYX_TENSOR_MAGIC, name));
  const ulyxTensor_t* const plan = &expected->tensor;
  if (given->type != plan->type) {
    return ulyxFail(ulyxMismatch, "%s: type is %d, the plan's is %d", name, given->type, plan->type);
  }
  if (given->elementBytes != 0 && given->elementBytes != plan->elementBytes) {
    return ulyxFail(ulyxMismatch, "%s: elements have %d bytes, the plan's %d", name, given->elementBytes,
                    plan->elementBytes);
  }
  for (int axis = 0; axis < 4; ++axis) {
    if (given->extents[axis] == plan->extents[axis]) continue;
    return ulyxFail(ulyxMismatch,
                    "%s: extents are [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "], the plan's [%" PRId64
                    ", %" PRId64 ", %" PRId64 ", %" PRId64 "]: %s differ",
                    name, given->extents[0], given->extents[1], given->extents[2], given->extents[3], plan->extents[0],
                    plan->extents[1], plan->extents[2], plan->extents[3], axes[axis]);
  }
  const bool stated = (given->strides[0] | given->strides[1] | given->strides[2] | given->strides[3]) != 0;
  for (int axis = 0; stated && axis < 4; ++axis) {
    if (plan->extents[axis] <= 1 || given->strides[axis] == plan->strides[axis]) continue;
    return ulyxFail(ulyxMismatch, "%s: the stride of %s is %" PRId64 " elements, the plan's %" PRId64, name, axes[axis],
                    given->strides[axis], plan->strides[axis]);
  }
  if (given->data == NULL && expected->spanBytes > 0) {
    return ulyxFail(ulyxInvalidArgument, "%s: data is NULL, the plan expects %" PRId64 " bytes", name,
                    expected->spanBytes);
  }
  return ulyxSuccess;
}
