/* SPDX-License-Identifier: MIT */
#include "results.h"

#include "table.h"

#define NCCL_TESTS_JSON_VERSION 3 /* of those members that are nccl-tests' */

static void writeStamp(perfJson_t* json, const char* name) {
  char stamp[PERF_STAMP_BYTES];
  perfStamp(stamp);
  perfJsonText(json, name, stamp);
}

/* nccl-tests' answers are texts. */
static const char* truth(bool value) {
  return value ? "true" : "false";
}

static void writeConfig(perfJson_t* json, const perfOptions_t* o, const perfRepeat_t* repeat) {
  perfJsonOpenObject(json, "config");
  perfJsonInt(json, "iterations", repeat->graph ? repeat->perSample : repeat->samples);
  perfJsonInt(json, "aggregated_iterations", repeat->graph ? 1 : repeat->perSample);
  perfJsonInt(json, "warmup_iters", repeat->warmup);
  perfJsonInt(json, "per_iter_skip", repeat->skip);
  perfJsonInt(json, "validation", o->checks);
  perfJsonInt(json, "graph", o->graphLaunches);
  perfJsonCloseObject(json);
}

void perfResultsBegin(perfOutput_t* output, const ulyxRuntimeInfo_t* info, const perfRepeat_t* repeat,
                      const perfPlace_t* places) {
  const perfOptions_t* o = output->options;
  perfJson_t* json = &output->json;
  perfJsonOpenObject(json, NULL);
  perfJsonInt(json, "version", NCCL_TESTS_JSON_VERSION);
  writeStamp(json, "start_time");
  perfJsonOpenArray(json, "args");
  for (int i = 0; i < o->argc; i++) perfJsonText(json, NULL, o->argv[i]);
  perfJsonCloseArray(json);
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
  writeConfig(json, o, repeat);
  perfJsonOpenArray(json, "places");
  for (int rank = 0; rank < output->nRanks; rank++) perfJsonText(json, NULL, places[rank].text);
  perfJsonCloseArray(json);
  perfJsonOpenArray(json, "results");
}

/* nccl-tests' members that differ from ulyx's in name or unit. */
static void writeHabits(const perfOutput_t* output, const perfRow_t* row, perfJson_t* json) {
  const perfType_t* type = output->options->type;
  perfJsonInt(json, "size", row->step->sizeBytes);
  perfJsonInt(json, "count", row->step->sizeBytes / type->bytes);
  perfJsonText(json, "type", perfNcclTestsType(type));
  perfJsonText(json, "redop", perfRedop(output->op));
  perfJsonText(json, "root", "-1");
  perfJsonOpenObject(json, "out_of_place");
  perfJsonMeasured(json, "time", row->values.of[perfValueMedian]);
  perfJsonMeasured(json, "alg_bw", row->algorithmGBps);
  perfJsonMeasured(json, "bus_bw", row->busGBps);
  perfJsonMeasured(json, "nwrong", output->options->checks > 0 ? row->values.of[perfValueWrong] : PERF_NOT_MEASURED);
  perfJsonCloseObject(json);
  perfJsonMeasured(json, "in_place", PERF_NOT_MEASURED);
}

void perfResultsRow(perfOutput_t* output, const perfRow_t* row) {
  const perfProblem_t problem = {output->options, row->step, output->nRanks};
  const perfOp_t* op = output->op;
  perfJson_t* json = &output->json;
  const double* values = row->values.of;
  perfJsonOpenObject(json, NULL);
  if (row->step->model[0] != '\0') perfJsonText(json, "model", row->step->model);
  op->writeShape(&problem, json);
  perfJsonInt(json, "size_bytes", row->step->sizeBytes);
  perfJsonInt(json, "remote_bytes", row->step->remoteBytes);
  perfJsonInt(json, "tensor_bytes", (int64_t)values[perfValueMemory]);
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
  writeHabits(output, row, json);
  perfJsonCloseObject(json);
}

void perfResultsEnd(perfOutput_t* output, bool failed) {
  const perfOptions_t* o = output->options;
  const perfTotal_t* total = &output->total;
  perfJson_t* json = &output->json;
  if (output->begun) {
    const char* fast = o->leastGBps > 0 ? truth(!perfTooSlow(o, total)) : "unchecked";
    perfJsonCloseArray(json);
    perfJsonInt(json, "out_of_bounds_values", (int64_t)total->wrongBytes);
    perfJsonMeasured(json, "average_bus_bandwidth_gbps", perfAverageGBps(total));
    perfJsonInt(json, "arena_bytes", total->arenaBytes);
    perfJsonOpenObject(json, "out_of_bounds");
    perfJsonInt(json, "count", (int64_t)total->wrongBytes);
    perfJsonText(json, "okay", truth(total->wrongBytes <= 0));
    perfJsonCloseObject(json);
    perfJsonOpenObject(json, "average_bus_bandwidth");
    perfJsonMeasured(json, "bandwidth", perfAverageGBps(total));
    perfJsonText(json, "okay", fast);
    perfJsonCloseObject(json);
    writeStamp(json, "end_time");
  } else {
    perfJsonOpenObject(json, NULL);
    perfJsonText(json, "program", output->op->name);
  }
  perfJsonBool(json, "failed", failed);
  perfJsonCloseObject(json);
}
