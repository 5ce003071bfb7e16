/* SPDX-License-Identifier: MIT */
#include "output.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "report.h"
#include "table.h"

#define PROGRESS_EVERY_US 10e6

bool perfOutputOpen(const perfOptions_t* options, const perfOp_t* op, int nRanks, perfOutput_t* output) {
  memset(output, 0, sizeof(*output));
  output->options = options;
  output->op = op;
  output->nRanks = nRanks;
  output->startUs = perfNowUs();
  output->progressUs = output->startUs;
  if (options->jsonPath == NULL) return true;
  output->json.file = fopen(options->jsonPath, "w");
  if (output->json.file == NULL) perfError("cannot write %s: %s", options->jsonPath, strerror(errno));
  return output->json.file != NULL;
}

void perfOutputBegin(perfOutput_t* output, const ulyxRuntimeInfo_t* info, const perfRepeat_t* repeat,
                     const perfPlace_t* places) {
  const perfOptions_t* o = output->options;
  perfTableBegin(o, output->op, info, repeat, places);
  perfJson_t* json = &output->json;
  output->begun = true;
  perfJsonOpenObject(json, NULL);
  perfJsonText(json, "program", output->op->name);
  perfJsonInt(json, "ulyx_version", ULYX_VERSION_CODE);
  perfJsonInt(json, "nccl_version", info->ncclVersion);
  perfJsonText(json, "transport", perfTransportName(info->transport));
  perfJsonInt(json, "ranks", output->nRanks);
  perfJsonText(json, "type", o->type->name);
  perfJsonText(json, "memory", o->memory == perfMemorySymmetric ? "symmetric" : "plain");
  perfJsonInt(json, "samples", repeat->samples);
  perfJsonInt(json, "exchanges_per_sample", repeat->perSample);
  perfJsonInt(json, "warmup_samples", repeat->warmup);
  perfJsonBool(json, "graph", repeat->graph);
  perfJsonInt(json, "checks", o->checks);
  perfJsonText(json, "time", perfAverageText((perfAverage_t)o->average));
  perfJsonOpenArray(json, "places");
  for (int rank = 0; rank < output->nRanks; rank++) perfJsonText(json, NULL, places[rank].text);
  perfJsonCloseArray(json);
  perfJsonOpenArray(json, "results");
}

void perfOutputProgress(perfOutput_t* output, int64_t stepsDone, int64_t steps) {
  const double nowUs = perfNowUs();
  if (nowUs - output->progressUs < PROGRESS_EVERY_US) return;
  output->progressUs = nowUs;
  (void)fprintf(stderr, "# %" PRId64 " of %" PRId64 " steps done after %.0f s\n", stepsDone, steps,
                (nowUs - output->startUs) * 1e-6);
}

static perfRow_t combine(const perfOutput_t* output, const perfStep_t* step, const perfChoice_t* choice,
                         const perfValues_t* values) {
  perfRow_t row;
  row.step = step;
  row.choice = choice;
  for (int i = 0; i < perfValueCount; i++) {
    row.values.of[i] =
        perfCombineRanks(&values[0].of[i], output->nRanks, perfValueCount, (perfAverage_t)output->options->average);
  }
  row.values.of[perfValueWrong] = 0;
  for (int rank = 0; rank < output->nRanks; rank++) row.values.of[perfValueWrong] += values[rank].of[perfValueWrong];
  const double us = row.values.of[perfValueMedian];
  const double limitUs = row.values.of[perfValueLimit];
  row.algorithmGBps = us > 0 ? (double)step->sizeBytes / us * 1e-3 : 0;
  row.busGBps = us > 0 ? (double)step->remoteBytes / us * 1e-3 : 0;
  row.limitPercent = us > 0 && limitUs >= 0 ? 100 * limitUs / us : PERF_NOT_MEASURED;
  return row;
}

static void writeRow(perfOutput_t* output, const perfRow_t* row) {
  const perfProblem_t problem = {output->options, row->step, output->nRanks};
  const perfOp_t* op = output->op;
  perfJson_t* json = &output->json;
  const double* values = row->values.of;
  perfJsonOpenObject(json, NULL);
  if (row->step->model[0] != '\0') perfJsonText(json, "model", row->step->model);
  op->writeShape(&problem, json);
  perfJsonInt(json, "size_bytes", row->step->sizeBytes);
  perfJsonInt(json, "remote_bytes", row->step->remoteBytes);
  perfJsonMeasured(json, "time_us", values[perfValueMedian]);
  perfJsonMeasured(json, "time_min_us", values[perfValueMin]);
  perfJsonMeasured(json, "time_max_us", values[perfValueMax]);
  perfJsonMeasured(json, "time_mean_us", values[perfValueMean]);
  perfJsonMeasured(json, "time_p99_us", values[perfValueP99]);
  perfJsonMeasured(json, "algbw_gbps", row->algorithmGBps);
  perfJsonMeasured(json, "busbw_gbps", row->busGBps);
  perfJsonInt(json, "wrong_bytes", (int64_t)values[perfValueWrong]);
  perfJsonMeasured(json, "limit_us", values[perfValueLimit]);
  perfJsonMeasured(json, "limit_percent", row->limitPercent);
  perfJsonText(json, "via", perfTransportName(row->choice->transport));
  perfJsonText(json, "reason", row->choice->reason);
  perfJsonMeasured(json, "predicted_us", row->choice->predictedUs);
  for (int i = 0; i < op->nBaselines; i++) {
    perfJsonMeasured(json, op->baselines[i].jsonName, values[perfValueBaseline + i]);
  }
  perfJsonMeasured(json, "enqueue_us", values[perfValueEnqueue]);
  perfJsonCloseObject(json);
}

void perfOutputRow(perfOutput_t* output, const perfStep_t* step, const perfChoice_t* choice,
                   const perfValues_t* values) {
  const perfRow_t row = combine(output, step, choice, values);
  output->rows++;
  output->busGBpsSum += row.busGBps;
  output->wrongBytes += row.values.of[perfValueWrong];
  perfTableRow(output->options, output->op, &row);
  writeRow(output, &row);
}

bool perfOutputClose(perfOutput_t* output, bool failed) {
  const double averageGBps = output->rows > 0 ? output->busGBpsSum / output->rows : 0;
  if (!failed) perfTableEnd(output->options, output->wrongBytes, averageGBps);
  perfJson_t* json = &output->json;
  if (json->file == NULL) return true;
  if (output->begun) {
    perfJsonCloseArray(json);
    perfJsonInt(json, "out_of_bounds_values", (int64_t)output->wrongBytes);
    perfJsonMeasured(json, "average_bus_bandwidth_gbps", averageGBps);
  } else { /* the run failed before it had a runtime */
    perfJsonOpenObject(json, NULL);
    perfJsonText(json, "program", output->op->name);
  }
  perfJsonBool(json, "failed", failed);
  perfJsonCloseObject(json);
  const bool written = fputc('\n', json->file) != EOF && ferror(json->file) == 0;
  const bool closed = fclose(json->file) == 0;
  json->file = NULL;
  if (!written || !closed) perfError("cannot write %s: %s", output->options->jsonPath, strerror(errno));
  return written && closed;
}
