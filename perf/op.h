/* SPDX-License-Identifier: MIT
 *
 * What differs from program to program: each holds one of these and calls perfMain with it. */
#ifndef PERF_OP_H_
#define PERF_OP_H_

#include <stdbool.h>
#include <stdint.h>

#include "flags.h"
#include "json.h"
#include "layout.h"
#include "problem.h"
#include "steps.h"
#include "ulyx.h"

#define PERF_MAX_OP_FLAGS 24
#define PERF_MAX_BASELINES 3

struct perfExchange;

/* One rank's tensors, complete with data once the op's bind has run; each op uses its own. */
typedef struct perfTensors {
  ulyxQkv_t qkvIn;
  ulyxQkv_t qkvOut;
  ulyxTensor_t in;
  ulyxTensor_t out;
  ulyxStates_t states;
} perfTensors_t;

/* How NCCL alone moves the same bytes. */
typedef enum {
  perfBaselineNone, /* it cannot */
  perfBaselineMessages,
  perfBaselineMessagesByTensor,
  perfBaselineAllToAll,
  perfBaselineAllGather,
  perfBaselineReduceScatter
} perfBaselineKind_t;

typedef struct perfBaseline {
  perfBaselineKind_t kind;
  const char* title;    /* of its column */
  const char* jsonName; /* of its member of a row */
  const char* text;     /* what it is */
} perfBaseline_t;

/* Of every op that is an all-to-all. */
#define PERF_BASELINE_ALL_TO_ALL \
  { perfBaselineAllToAll, "a2a", "nccl_all_to_all_us", "ncclAlltoAll, own bytes included, where all parts are equal" }

typedef struct perfOp {
  const char* name;     /* of the program */
  const char* summary;  /* what -h says that it checks and times */
  const char* call;     /* the function that run calls */
  const char* sizeText; /* what the size column counts */
  const char* unit;     /* what a sweep counts: "tokens" or "rows" */
  const char* redop;    /* nccl-tests' name of the reduction; NULL: none */

  /* True if the op is its plan's backward operation (ulyxPlanGetChoice); --backward says so too. */
  bool backward;

  /* True if ulyx also reads the input from symmetric memory without a copy. */
  bool inputInSymmetric;

  perfBaseline_t baselines[PERF_MAX_BASELINES]; /* columns in this order; a ratio is the first's */
  int nBaselines;

  /* The program's own flags, up to PERF_MAX_OP_FLAGS; returns how many. */
  int (*flags)(perfOptions_t* options, perfFlag_t* flags);

  void (*printMore)(void); /* what -h says besides; NULL: nothing */

  /* Sets what was not given; refuses what does not agree. */
  bool (*settle)(perfOptions_t* options);

  /* The header's line about the shape, and a JSON row's members. */
  void (*printShape)(const perfOptions_t* options);
  void (*writeShape)(const perfProblem_t* problem, perfJson_t* json);

  /* Appends the sweep's steps, each with its tokens. */
  bool (*list)(const perfOptions_t* options, int nRanks, perfSteps_t* steps);

  /* Fills in the size and, where ulyx names it, the arena of a step, which the problem's step is; refuses an impossible
   * one. */
  bool (*judge)(const perfProblem_t* problem, perfStep_t* step);

  /* bytes[(from * nRanks + to) * PERF_MAX_TENSORS + i] = what a transfer of one tensor at a time sends as message i,
   * own bytes included. The array holds zeros. */
  bool (*messages)(const perfProblem_t* problem, int64_t* bytes);

  bool (*lay)(const perfProblem_t* problem, int rank, perfLayout_t* in, perfLayout_t* out);

  bool (*plan)(const perfProblem_t* problem, int rank, ulyxRuntime_t rt, ulyxPlan_t* plan);

  /* Fills in the tensors from the plan and the data pointers, one a buffer of the layouts. */
  ulyxResult_t (*bind)(ulyxPlan_t plan, void* const* in, void* const* out, perfTensors_t* tensors);

  ulyxResult_t (*run)(const perfProblem_t* problem, ulyxPlan_t plan, const perfTensors_t* tensors, ulyxStream_t stream);

  /* Fill the inputs with data of the exchange's seed, and add the outputs' wrong bytes to *wrong. NULL: the pattern of
   * the layouts' views. */
  bool (*fill)(struct perfExchange* exchange);
  bool (*check)(struct perfExchange* exchange, int64_t* wrong);
} perfOp_t;

/* The whole program; returns its exit status. */
int perfMain(int argc, char** argv, const perfOp_t* op);

#endif /* PERF_OP_H_ */
