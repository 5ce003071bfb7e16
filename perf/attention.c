/* SPDX-License-Identifier: MIT */
#include "attention.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models.h"
#include "report.h"

#define DEFAULT_HEADS 24
#define DEFAULT_HEAD_DIM 128

int perfAttentionFlags(perfOptions_t* o, perfFlag_t* flags) {
  const perfFlag_t own[] = {
      {"--heads", perfFlagInt, &o->heads, 1, INT64_MAX, NULL, "query heads [24, or the sum of --head-counts]"},
      {"--kv-heads", perfFlagInt, &o->kvHeads, 1, INT64_MAX, NULL, "key/value heads [as many as query heads]"},
      {"--head-dim", perfFlagInt, &o->headDim, 1, INT64_MAX, NULL, "elements of a query or key head [128]"},
      {"--value-dim", perfFlagInt, &o->valueDim, 1, INT64_MAX, NULL, "elements of a value head [--head-dim's]"},
      {"--batch", perfFlagInt, &o->batch, 1, INT64_MAX, NULL, "sequences [1]"},
      {"--replicated", perfFlagInt, &o->replicatedTokens, 0, INT64_MAX, NULL,
       "tokens that every rank has besides, such as the text of joint attention [0, a model's its own]"},
      {"--replicated-last", perfFlagSwitch, &o->replicatedLast, 0, 0, NULL,
       "replicated tokens stand after the others, not before them"},
      perfTypeFlag(o),
      {"--token-counts", perfFlagCounts, &o->counts, 0, INT64_MAX, NULL, "tokens of each rank [balanced]"},
      {"--head-counts", perfFlagCounts, &o->headCounts, 0, INT64_MAX, NULL, "query heads of each rank [balanced]"},
      {"--packed-in", perfFlagSwitch, &o->packedIn, 0, 0, NULL, "q, k and v lie in one tensor on the sequence side"},
      {"--packed-out", perfFlagSwitch, &o->packedOut, 0, 0, NULL, "q, k and v lie in one tensor on the heads side"},
      {"--model", perfFlagText, &o->model, 0, 0, "NAME",
       "a model's heads and dims, its tokens unless -b is given and its replicated ones unless --replicated is; 'all' "
       "runs every model"},
      {"--tokens-divide", perfFlagInt, &o->tokensDivide, 1, INT64_MAX, NULL,
       "divides a model's tokens, and its replicated ones, these rounded up [1]"},
  };
  memcpy(flags, own, sizeof(own));
  return (int)(sizeof(own) / sizeof(own[0]));
}

void perfAttentionPrintMore(void) {
  char models[1024];
  perfModelNames(models, sizeof(models));
  (void)printf("Models: %s\n\n", models);
}

/* Flags that exclude each other. */
static const char* disagreement(const perfOptions_t* o) {
  const bool sweeps = o->beginTokens != PERF_UNSET || o->endTokens != PERF_UNSET;
  if (o->counts.values != NULL && sweeps) return "--token-counts and -b, -e exclude each other";
  if (o->counts.values != NULL && o->model != NULL) return "--token-counts and --model exclude each other";
  if (o->model != NULL && o->heads > 0) return "--model and --heads exclude each other";
  if (o->model != NULL && o->kvHeads > 0) return "--model and --kv-heads exclude each other";
  if (o->model == NULL && o->tokensDivide > 1) return "--tokens-divide needs --model";
  if (o->model == NULL && o->replicatedTokens <= 0 && o->replicatedLast != 0) {
    return "--replicated-last needs --replicated or --model";
  }
  return NULL;
}

bool perfAttentionSettle(perfOptions_t* o) {
  const char* why = disagreement(o);
  perfModel_t model;
  if (why != NULL) {
    perfError("%s", why);
    return false;
  }
  if (o->model != NULL && strcmp(o->model, "all") != 0 && !perfModelByName(o->model, &model)) {
    perfError("unknown model '%s' (-h lists the models)", o->model);
    return false;
  }
  if (o->headCounts.values != NULL && o->heads == 0 && o->model == NULL) {
    if (!perfCountsSum(&o->headCounts, &o->heads)) {
      perfError("the sum of --head-counts exceeds 64 bits");
      return false;
    }
  }
  if (o->heads == 0) o->heads = DEFAULT_HEADS;
  if (o->headDim == 0) o->headDim = DEFAULT_HEAD_DIM;
  if (o->batch == 0) o->batch = 1;
  if (o->model == NULL && o->replicatedTokens == PERF_UNSET) o->replicatedTokens = 0;
  return true;
}

/* Rounded up: a model that has any keeps one. */
static int64_t replicatedOfModel(const perfOptions_t* o, const perfModel_t* model) {
  if (o->replicatedTokens != PERF_UNSET) return o->replicatedTokens;
  return model->replicatedTokens / o->tokensDivide + (model->replicatedTokens % o->tokensDivide > 0 ? 1 : 0);
}

static void printReplicated(const perfOptions_t* o) {
  const char* const place = o->replicatedLast != 0 ? "last" : "first";
  perfModel_t model;
  int64_t tokens = o->replicatedTokens;
  if (tokens == PERF_UNSET && !perfModelByName(o->model, &model)) {
    (void)printf(", each model's replicated tokens %s", place);
    return;
  }
  if (tokens == PERF_UNSET) tokens = replicatedOfModel(o, &model);
  if (tokens > 0) (void)printf(", %" PRId64 " replicated tokens %s", tokens, place);
}

void perfAttentionPrintShape(const perfOptions_t* o) {
  if (o->model != NULL) {
    (void)printf("model %s, tokens divided by %" PRId64, o->model, o->tokensDivide);
  } else {
    (void)printf("heads %" PRId64 ", kv heads %" PRId64 ", head dim %" PRId64 ", value dim %" PRId64, o->heads,
                 o->kvHeads > 0 ? o->kvHeads : o->heads, o->headDim, o->valueDim > 0 ? o->valueDim : o->headDim);
  }
  printReplicated(o);
  (void)printf(", batch %" PRId64 ", type %s%s%s", o->batch, o->type->name, o->packedIn != 0 ? ", packed in" : "",
               o->packedOut != 0 ? ", packed out" : "");
}

void perfAttentionWriteShape(const perfProblem_t* problem, perfJson_t* json) {
  const ulyxShape_t* shape = &problem->step->shape;
  perfJsonInt(json, "tokens", problem->step->tokens);
  perfJsonInt(json, "heads", shape->heads);
  perfJsonInt(json, "kv_heads", shape->kvHeads > 0 ? shape->kvHeads : shape->heads);
  perfJsonInt(json, "head_dim", shape->headDim);
  perfJsonInt(json, "value_dim", shape->valueDim > 0 ? shape->valueDim : shape->headDim);
  perfJsonInt(json, "batch", shape->batch);
  perfJsonInt(json, "replicated_tokens", shape->replicatedTokens);
  perfJsonBool(json, "replicated_last", shape->replicatedPlace == ulyxReplicatedLast);
}

static bool appendModel(const perfOptions_t* options, const perfModel_t* model, perfStep_t step, perfSteps_t* steps) {
  step.shape.heads = model->heads;
  step.shape.kvHeads = model->kvHeads;
  step.shape.headDim = model->headDim;
  step.shape.replicatedTokens = replicatedOfModel(options, model);
  memcpy(step.model, model->name, sizeof(step.model));
  if (options->beginTokens != PERF_UNSET) return perfStepsAppendSweep(steps, options, step);
  step.tokens = model->tokens / options->tokensDivide;
  return perfStepsAppend(steps, &step);
}

bool perfAttentionList(const perfOptions_t* options, int nRanks, perfSteps_t* steps) {
  if (!perfOneCountARank("--token-counts", &options->counts, nRanks)) return false;
  if (!perfOneCountARank("--head-counts", &options->headCounts, nRanks)) return false;
  perfStep_t step;
  memset(&step, 0, sizeof(step));
  step.shape = (ulyxShape_t)ULYX_SHAPE_INITIALIZER;
  step.shape.heads = options->heads;
  step.shape.kvHeads = options->kvHeads;
  step.shape.headDim = options->headDim;
  step.shape.valueDim = options->valueDim;
  step.shape.batch = options->batch;
  step.shape.tokenCounts = options->counts.values;
  step.shape.headCounts = options->headCounts.values;
  step.shape.type = options->type->type;
  step.shape.packedIn = (int)options->packedIn;
  step.shape.packedOut = (int)options->packedOut;
  step.shape.replicatedTokens = options->replicatedTokens;
  step.shape.replicatedPlace = options->replicatedLast != 0 ? ulyxReplicatedLast : ulyxReplicatedFirst;
  perfModel_t model;
  if (options->model != NULL && strcmp(options->model, "all") != 0) {
    return perfModelByName(options->model, &model) && appendModel(options, &model, step, steps);
  }
  if (options->model != NULL) {
    for (int row = 0; perfModelByRow(row, &model); row++) {
      if (!appendModel(options, &model, step, steps)) return false;
    }
    return true;
  }
  if (options->counts.values == NULL) return perfStepsAppendSweep(steps, options, step);
  if (!perfCountsSum(&options->counts, &step.tokens)) {
    perfError("the sum of --token-counts exceeds 64 bits");
    return false;
  }
  return perfStepsAppend(steps, &step);
}

bool perfAttentionJudge(const perfProblem_t* problem, int64_t (*sizeBytes)(const ulyxShapeBytes_t*), perfStep_t* step) {
  step->shape.tokens = step->tokens;
  for (int rank = 0; rank < problem->nRanks; rank++) {
    ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
    if (ulyxShapeGetBytes(&step->shape, problem->nRanks, rank, &bytes) != ulyxSuccess) {
      perfError("%s%s%" PRId64 " tokens over %d ranks: %s", step->model, step->model[0] != '\0' ? ": " : "",
                step->tokens, problem->nRanks, ulyxGetLastError(NULL));
      return false;
    }
    if (sizeBytes(&bytes) > step->sizeBytes) step->sizeBytes = sizeBytes(&bytes);
    if (bytes.arena > step->arenaBytes) step->arenaBytes = bytes.arena;
  }
  return true;
}

bool perfAttentionMessages(const perfProblem_t* problem,
                           void (*pair)(const perfGeometry_t* from, const perfGeometry_t* to, int64_t* bytes),
                           int64_t* bytes) {
  perfGeometry_t* geometries = perfGeometriesCreate(&problem->step->shape, problem->nRanks);
  if (geometries == NULL) return false;
  for (int from = 0; from < problem->nRanks; from++) {
    for (int to = 0; to < problem->nRanks; to++, bytes += PERF_MAX_TENSORS) {
      pair(&geometries[from], &geometries[to], bytes);
    }
  }
  free(geometries);
  return true;
}

bool perfAttentionLay(const perfProblem_t* problem, int rank, perfLayout_t (*layIn)(const perfGeometry_t*),
                      perfLayout_t (*layOut)(const perfGeometry_t*), perfLayout_t* in, perfLayout_t* out) {
  perfGeometry_t* geometries = perfGeometriesCreate(&problem->step->shape, problem->nRanks);
  if (geometries == NULL) return false;
  *in = layIn(&geometries[rank]);
  *out = layOut(&geometries[rank]);
  free(geometries);
  return true;
}

bool perfAttentionPlan(const perfProblem_t* problem, int rank, ulyxRuntime_t rt, ulyxPlan_t* plan) {
  (void)rank;
  return perfUlyxOk(ulyxPlanCreate(rt, &problem->step->shape, plan), rt, "ulyxPlanCreate");
}
