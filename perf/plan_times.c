/* SPDX-License-Identifier: MIT */
#include "plan_times.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flags.h"
#include "json.h"
#include "models.h"
#include "numbers.h"
#include "report.h"
#include "types.h"
#include "ulyx.h"

#define TIMES_MAX_RANKS 1024
#define NOT_GIVEN (-1)

typedef struct timesOptions {
  int64_t tokens;
  int64_t heads;
  int64_t kvHeads;
  int64_t headDim;
  int64_t replicatedTokens;
  const char* model;
  const perfType_t* type;
  perfCounts_t ranks;
  int64_t json;
} timesOptions_t;

/* One operation of one shape on some ranks. */
typedef struct timesRow {
  char name[64];
  const char* operation;
  int64_t tokens;
  int64_t heads;
  int64_t replicatedTokens;
  int nRanks;
  ulyxShapeTimes_t times;
} timesRow_t;

static perfParse_t parse(int argc, char** argv, timesOptions_t* o) {
  const perfFlag_t flags[] = {
      {"--tokens", perfFlagInt, &o->tokens, 1, INT64_MAX, NULL, "of the whole sequence"},
      {"--heads", perfFlagInt, &o->heads, 1, INT64_MAX, NULL, "query heads"},
      {"--kv-heads", perfFlagInt, &o->kvHeads, 1, INT64_MAX, NULL, "key/value heads [as many as query heads]"},
      {"--head-dim", perfFlagInt, &o->headDim, 1, INT64_MAX, NULL, "elements of a head"},
      {"--replicated", perfFlagInt, &o->replicatedTokens, 0, INT64_MAX, NULL,
       "tokens that every rank has besides, first or last alike [0, a model's its own]"},
      {"--model", perfFlagText, &o->model, 0, 0, "NAME", "a model's shape instead; 'all': every model's"},
      {"--type", perfFlagType, &o->type, 0, 0, NULL, "element type, e.g. bfloat16, float8e4m3, float32 [bfloat16]"},
      {"--ranks", perfFlagCounts, &o->ranks, 1, TIMES_MAX_RANKS, NULL, "one or more [2,4,8,16]"},
      {"--json", perfFlagSwitch, &o->json, 0, 0, NULL, "prints JSON"},
  };
  enum { nFlags = sizeof(flags) / sizeof(flags[0]) };
  const perfParse_t parsed = perfParseFlags(flags, nFlags, argc, argv, 1);
  if (parsed == perfHelpAsked) {
    (void)printf(
        "usage: ulyx_plan times --model NAME|all [flags]\n"
        "       ulyx_plan times --tokens T --heads H --head-dim D [flags]\n\n"
        "Predicts how long exchanges take where NVLink 4 joins all ranks, from a model fitted to two H200s: the limit "
        "(one\n"
        "contiguous copy of the busiest rank's remote bytes), direct and copy_engine. More than two ranks is for a run "
        "to\n"
        "prove wrong.\n\nflags (a default in brackets):\n");
    perfPrintFlags(stdout, flags, nFlags);
  }
  return parsed;
}

static bool settle(timesOptions_t* o) {
  perfModel_t model;
  if (o->ranks.values == NULL && !perfParseCounts("2,4,8,16", &o->ranks)) return false;
  if (o->model == NULL) {
    if (o->tokens > 0 && o->heads > 0 && o->headDim > 0) return true;
    perfError("--model, or --tokens, --heads and --head-dim, are needed");
    return false;
  }
  if (o->tokens + o->heads + o->kvHeads + o->headDim > 0) {
    perfError("--model has tokens, heads and dims of its own");
    return false;
  }
  if (strcmp(o->model, "all") == 0 || perfModelByName(o->model, &model)) return true;
  perfError("unknown model '%s'", o->model);
  return false;
}

static void printRow(const timesRow_t* row) {
  const ulyxShapeTimes_t* times = &row->times;
  const double best = times->directUs < times->copyEngineUs ? times->directUs : times->copyEngineUs;
  (void)printf("%-18s %6d  %-12s  %10.3f  %9.1f  %9.1f  %11.1f  %6.1f\n", row->name, row->nRanks, row->operation,
               (double)times->remoteBytes / 1e6, times->limitUs, times->directUs, times->copyEngineUs,
               best > 0 ? 100 * times->limitUs / best : 100.0);
}

static void writeRow(perfJson_t* json, const timesRow_t* row) {
  perfJsonOpenObject(json, NULL);
  perfJsonText(json, "name", row->name);
  perfJsonText(json, "operation", row->operation);
  perfJsonInt(json, "tokens", row->tokens);
  perfJsonInt(json, "heads", row->heads);
  perfJsonInt(json, "replicated_tokens", row->replicatedTokens);
  perfJsonInt(json, "ranks", row->nRanks);
  perfJsonInt(json, "remote_bytes", row->times.remoteBytes);
  perfJsonMeasured(json, "limit_us", row->times.limitUs);
  perfJsonMeasured(json, "direct_us", row->times.directUs);
  perfJsonMeasured(json, "copy_engine_us", row->times.copyEngineUs);
  perfJsonCloseObject(json);
}

/* What is printed; computed before anything is. */
typedef struct timesTable {
  timesRow_t* rows;
  int count;
  int leftOut;
} timesTable_t;

static bool predictShape(const timesOptions_t* o, const perfModel_t* model, int nRanks, timesTable_t* table) {
  static const char* const operations[] = {"seq_to_heads", "heads_to_seq"};
  ulyxShape_t shape = ULYX_SHAPE_INITIALIZER;
  shape.tokens = model->tokens;
  shape.heads = model->heads;
  shape.kvHeads = model->kvHeads;
  shape.headDim = model->headDim;
  shape.replicatedTokens = model->replicatedTokens;
  shape.type = o->type->type;
  for (int op = ulyxOpSeqToHeads; op <= ulyxOpHeadsToSeq; op++) {
    ulyxShapeTimes_t times = ULYX_SHAPE_TIMES_INITIALIZER;
    if (ulyxShapeGetTimes(&shape, nRanks, (ulyxOp_t)op, &times) != ulyxSuccess) {
      perfError("%s on %d ranks: %s", model->name, nRanks, ulyxGetLastError(NULL));
      return false;
    }
    timesRow_t* const row = &table->rows[table->count++];
    (void)snprintf(row->name, sizeof(row->name), "%s", model->name);
    row->operation = operations[op];
    row->tokens = model->tokens;
    row->heads = model->heads;
    row->replicatedTokens = model->replicatedTokens;
    row->nRanks = nRanks;
    row->times = times;
  }
  return true;
}

/* The model in place `i` of what was asked for; false past the end. */
static bool modelAt(const timesOptions_t* o, int i, perfModel_t* model) {
  if (strcmp(o->model, "all") == 0) return perfModelByRow(i, model);
  return i == 0 && perfModelByName(o->model, model);
}

/* The shape in place `i` of what was asked for; false past the end. */
static bool shapeAt(const timesOptions_t* o, int i, perfModel_t* model) {
  if (o->model != NULL) {
    if (!modelAt(o, i, model)) return false;
    if (o->replicatedTokens != NOT_GIVEN) model->replicatedTokens = o->replicatedTokens;
    return true;
  }
  *model = (perfModel_t){.name = "shape",
                         .heads = o->heads,
                         .kvHeads = o->kvHeads,
                         .headDim = o->headDim,
                         .tokens = o->tokens,
                         .replicatedTokens = o->replicatedTokens != NOT_GIVEN ? o->replicatedTokens : 0};
  return i == 0;
}

/* Fewer heads or tokens than ranks have no balanced split, which is what is predicted: such rows are left out. */
static bool predictAll(const timesOptions_t* o, timesTable_t* table) {
  perfModel_t model;
  for (int i = 0; shapeAt(o, i, &model); i++) {
    for (int r = 0; r < o->ranks.count; r++) {
      const int64_t ranks = o->ranks.values[r];
      if (model.heads < ranks || model.tokens < ranks) {
        table->leftOut++;
      } else if (!predictShape(o, &model, (int)ranks, table)) {
        return false;
      }
    }
  }
  if (table->count > 0) return true;
  perfError("nothing is left to predict: every shape has fewer heads or tokens than ranks");
  return false;
}

static bool allocTable(const timesOptions_t* o, timesTable_t* table) {
  perfModel_t model;
  int shapes = 0;
  while (shapeAt(o, shapes, &model)) shapes++;
  table->rows = calloc((size_t)shapes * (size_t)o->ranks.count * 2, sizeof(*table->rows));
  if (table->rows != NULL) return true;
  perfError("out of memory for %d shapes", shapes);
  return false;
}

static void printTable(const timesTable_t* table) {
  (void)printf("%-18s %6s  %-12s  %10s  %9s  %9s  %11s  %6s\n", "shape", "ranks", "operation", "remote MB", "limit us",
               "direct us", "copy_eng us", "limit%");
  for (int i = 0; i < table->count; i++) printRow(&table->rows[i]);
  if (table->leftOut > 0) (void)printf("# left out: %d of fewer heads or tokens than ranks\n", table->leftOut);
}

static void writeTable(const timesTable_t* table) {
  perfJson_t json = {stdout, false};
  perfJsonOpenArray(&json, NULL);
  for (int i = 0; i < table->count; i++) writeRow(&json, &table->rows[i]);
  perfJsonCloseArray(&json);
  (void)printf("\n");
}

int planTimes(int argc, char** argv) {
  int status = perfExitUsage;
  timesOptions_t options;
  timesTable_t table;
  memset(&options, 0, sizeof(options));
  memset(&table, 0, sizeof(table));
  options.type = perfTypeByName("bfloat16");
  options.replicatedTokens = NOT_GIVEN;
  const perfParse_t parsed = parse(argc, argv, &options);
  if (parsed == perfHelpAsked) status = perfExitOk;
  if (parsed != perfParsed || !settle(&options)) goto freeTableAndOptions;
  if (!allocTable(&options, &table) || !predictAll(&options, &table)) goto freeTableAndOptions;
  if (options.json != 0) {
    writeTable(&table);
  } else {
    printTable(&table);
  }
  status = perfExitOk;

freeTableAndOptions:
  free(table.rows);
  perfCountsFree(&options.ranks);
  return status;
}
