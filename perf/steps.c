/* SPDX-License-Identifier: MIT */
#include "steps.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models.h"
#include "numbers.h"
#include "report.h"

#define PERF_MAX_STEPS 100000

static bool append(perfSteps_t* steps, const char* model, const ulyxShape_t* shape) {
  if (steps->count == PERF_MAX_STEPS) {
    perfError("the sweep has more than %d steps", PERF_MAX_STEPS);
    return false;
  }
  perfStep_t* grown = realloc(steps->steps, (size_t)(steps->count + 1) * sizeof(*grown));
  if (grown == NULL) {
    perfError("out of memory for the steps of the sweep");
    return false;
  }
  steps->steps = grown;
  perfStep_t* step = &grown[steps->count++];
  memset(step, 0, sizeof(*step));
  memcpy(step->model, model, strlen(model) + 1);
  step->shape = *shape;
  return true;
}

/* One step for each token count that -b, -e, -f and -i name. */
static bool appendSweep(const perfOptions_t* options, const char* model, ulyxShape_t shape, perfSteps_t* steps) {
  for (int64_t tokens = options->beginTokens; tokens <= options->endTokens;) {
    shape.tokens = tokens;
    if (!append(steps, model, &shape)) return false;
    if (options->tokensStep > 0) {
      if (tokens > options->endTokens - options->tokensStep) break;
      tokens += options->tokensStep;
    } else {
      if (tokens > options->endTokens / options->tokensFactor) break;
      tokens *= options->tokensFactor;
    }
  }
  return true;
}

static bool appendModel(const perfOptions_t* options, const perfModel_t* model, ulyxShape_t shape, perfSteps_t* steps) {
  shape.heads = model->heads;
  shape.kvHeads = model->kvHeads;
  shape.headDim = model->headDim;
  if (options->beginTokens != PERF_UNSET) return appendSweep(options, model->name, shape, steps);
  shape.tokens = model->tokens / options->tokensDivide;
  return append(steps, model->name, &shape);
}

static bool list(const perfOptions_t* options, perfSteps_t* steps) {
  ulyxShape_t shape = ULYX_SHAPE_INITIALIZER;
  shape.heads = options->heads;
  shape.kvHeads = options->kvHeads;
  shape.headDim = options->headDim;
  shape.valueDim = options->valueDim;
  shape.batch = options->batch;
  shape.tokenCounts = options->tokenCounts.values;
  shape.headCounts = options->headCounts.values;
  shape.type = options->type->type;
  shape.packedIn = (int)options->packedIn;
  shape.packedOut = (int)options->packedOut;
  perfModel_t model;
  if (options->model != NULL && strcmp(options->model, "all") != 0) {
    return perfModelByName(options->model, &model) && appendModel(options, &model, shape, steps);
  }
  if (options->model != NULL) {
    for (int row = 0; perfModelByRow(row, &model); row++) {
      if (!appendModel(options, &model, shape, steps)) return false;
    }
    return true;
  }
  if (shape.tokenCounts != NULL) {
    if (!perfCountsSum(&options->tokenCounts, &shape.tokens)) {
      perfError("the sum of --token-counts exceeds 64 bits");
      return false;
    }
    return append(steps, "", &shape);
  }
  return appendSweep(options, "", shape, steps);
}

static int64_t busierDirection(const int64_t* traffic, int nRanks, int rank) {
  int64_t sent = 0;
  int64_t received = 0;
  for (int peer = 0; peer < nRanks; peer++) {
    if (peer == rank) continue;
    sent += traffic[(size_t)rank * (size_t)nRanks + (size_t)peer];
    received += traffic[(size_t)peer * (size_t)nRanks + (size_t)rank];
  }
  return sent > received ? sent : received;
}

/* Fills in the step's bytes; refuses an impossible shape. */
static bool judge(const perfOp_t* op, int nRanks, perfStep_t* step, ulyxRange_t* tokenRanges, int64_t* traffic) {
  ulyxResult_t result = ulyxShapeGetRanges(&step->shape, nRanks, tokenRanges, NULL, NULL);
  if (result == ulyxSuccess) result = ulyxShapeGetTraffic(&step->shape, nRanks, op->op, traffic);
  for (int rank = 0; result == ulyxSuccess && rank < nRanks; rank++) {
    ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
    result = ulyxShapeGetBytes(&step->shape, nRanks, rank, &bytes);
    if (result != ulyxSuccess) break;
    const int64_t sizeBytes = op->sizeBytes(&bytes);
    const int64_t remoteBytes = busierDirection(traffic, nRanks, rank);
    if (sizeBytes > step->sizeBytes) step->sizeBytes = sizeBytes;
    if (remoteBytes > step->remoteBytes) step->remoteBytes = remoteBytes;
    if (bytes.arena > step->arenaBytes) step->arenaBytes = bytes.arena;
  }
  if (result != ulyxSuccess) {
    perfError("%s%s%" PRId64 " tokens over %d ranks: %s", step->model, step->model[0] != '\0' ? ": " : "",
              step->shape.tokens, nRanks, ulyxGetLastError(NULL));
    return false;
  }
  step->tokens = tokenRanges[nRanks - 1].stop;
  return true;
}

bool perfStepsCreate(const perfOptions_t* options, const perfOp_t* op, int nRanks, perfSteps_t* steps) {
  const perfCounts_t* counts[] = {&options->tokenCounts, &options->headCounts};
  static const char* const names[] = {"--token-counts", "--head-counts"};
  for (int i = 0; i < 2; i++) {
    if (counts[i]->values != NULL && counts[i]->count != nRanks) {
      perfError("%s needs one count a rank, %d, not %d", names[i], nRanks, counts[i]->count);
      return false;
    }
  }
  if (!list(options, steps)) return false;
  bool ok = false;
  ulyxRange_t* tokenRanges = calloc((size_t)nRanks, sizeof(*tokenRanges));
  int64_t* traffic = calloc((size_t)nRanks * (size_t)nRanks, sizeof(*traffic));
  if (tokenRanges == NULL || traffic == NULL) {
    perfError("out of memory for the traffic of %d ranks", nRanks);
    goto freeScratch;
  }
  for (int i = 0; i < steps->count; i++) {
    if (!judge(op, nRanks, &steps->steps[i], tokenRanges, traffic)) goto freeScratch;
  }
  ok = true;

freeScratch:
  free(traffic);
  free(tokenRanges);
  return ok;
}

void perfStepsFree(perfSteps_t* steps) {
  free(steps->steps);
  steps->steps = NULL;
  steps->count = 0;
}
