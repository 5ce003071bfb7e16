/* SPDX-License-Identifier: MIT
 *
 * What differs from program to program: each holds one of these and calls perfMain with it. */
#ifndef PERF_OP_H_
#define PERF_OP_H_

#include <stdbool.h>
#include <stdint.h>

#include "layout.h"
#include "ulyx.h"

/* One rank's tensors, complete with data once the op's bind has run. */
typedef struct perfTensors {
  ulyxQkv_t qkvIn;
  ulyxQkv_t qkvOut;
  ulyxTensor_t oIn;
  ulyxTensor_t oOut;
} perfTensors_t;

typedef struct perfOp {
  const char* name; /* of the program */
  const char* call; /* the function that run calls */
  ulyxOp_t op;
  const char* sizeText; /* what the size column counts */

  /* The size column's bytes on one rank. */
  int64_t (*sizeBytes)(const ulyxShapeBytes_t* bytes);

  /* True if ulyx also reads the input from symmetric memory without a copy. */
  bool inputInSymmetric;

  perfLayout_t (*layIn)(const perfGeometry_t* geometry);
  perfLayout_t (*layOut)(const perfGeometry_t* geometry);

  /* The messages that a transfer of one tensor at a time sends from a rank to another; returns how many. */
  int (*messageBytes)(const perfGeometry_t* from, const perfGeometry_t* to, int64_t bytes[PERF_MAX_TENSORS]);

  /* Fills in the tensors from the plan and the data pointers, one a buffer of layIn and layOut. */
  ulyxResult_t (*bind)(ulyxPlan_t plan, void* const* in, void* const* out, perfTensors_t* tensors);

  ulyxResult_t (*run)(ulyxPlan_t plan, const perfTensors_t* tensors, ulyxStream_t stream);
} perfOp_t;

/* The whole program; returns its exit status. */
int perfMain(int argc, char** argv, const perfOp_t* op);

#endif /* PERF_OP_H_ */
