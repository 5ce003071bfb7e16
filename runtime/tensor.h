/* SPDX-License-Identifier: MIT
 *
 * Tensors as callers describe them, against what a plan expects. */
#ifndef ULYX_RUNTIME_TENSOR_H_
#define ULYX_RUNTIME_TENSOR_H_

#include "geometry.h"

/* One tensor that an exchange takes: the caller's view of it, and the bytes it reaches over. */
typedef struct ulyxExpected {
  ulyxTensor_t tensor; /* data is NULL */
  int64_t spanBytes;
  bool dense; /* every byte of the span is an element's */
} ulyxExpected;

/* Of a packed side, q stands for the whole tensor. */
ulyxExpected ulyxTensorExpect(const ulyxGeometry* geometry, ulyxSide side, ulyxRole role, int rank);

/* [1, rows, 1, rowElements], `pitch` bytes from row to row. */
ulyxExpected ulyxTensorExpectRows(int type, int64_t elementBytes, int64_t rows, int64_t rowElements, int64_t pitch);

/* `name` is for the error ("in.q"). */
ulyxResult_t ulyxTensorCheck(const ulyxTensor_t* given, const ulyxExpected* expected, const char* name);

#endif /* ULYX_RUNTIME_TENSOR_H_ */
