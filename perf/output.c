/* SPDX-License-Identifier: MIT */
#include "output.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "report.h"
#include "results.h"
#include "table.h"

#define PROGRESS_EVERY_US 10e6

bool perfOutputOpen(const perfOptions_t* options, const perfOp_t* op, const perfWorld_t* world, perfOutput_t* output) {
  memset(output, 0, sizeof(*output));
  output->options = options;
  output->op = op;
  output->nRanks = world->nRanks;
  output->nLocal = world->nLocal;
  output->startUs = perfNowUs();
  output->progressUs = output->startUs;
  if (options->jsonPath == NULL) return true;
  output->json.file = fopen(options->jsonPath, "w");
  if (output->json.file == NULL) perfError("cannot write %s: %s", options->jsonPath, strerror(errno));
  return output->json.file != NULL;
}

void perfOutputBegin(perfOutput_t* output, const ulyxRuntimeInfo_t* info, const perfRepeat_t* repeat,
                     const perfPlace_t* places) {
  output->total.arenaBytes = info->arenaBytes;
  output->begun = true;
  perfTableBegin(output, info, repeat, places);
  perfResultsBegin(output, info, repeat, places);
}

void perfOutputProgress(perfOutput_t* output, int64_t stepsDone, int64_t steps) {
  const double nowUs = perfNowUs();
  if (nowUs - output->progressUs < PROGRESS_EVERY_US) return;
  output->progressUs = nowUs;
  (void)fprintf(stderr, "# %" PRId64, stepsDone);
  if (steps > 0) (void)fprintf(stderr, " of %" PRId64, steps);
  (void)fprintf(stderr, " steps done after %.0f s\n", (nowUs - output->startUs) * 1e-6);
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
  /* What is not a time is not -a's. */
  row.values.of[perfValueWrong] = 0;
  row.values.of[perfValueMemory] = 0;
  for (int rank = 0; rank < output->nRanks; rank++) {
    const double bytes = values[rank].of[perfValueMemory];
    row.values.of[perfValueWrong] += values[rank].of[perfValueWrong];
    if (bytes > row.values.of[perfValueMemory]) row.values.of[perfValueMemory] = bytes;
  }
  const double us = row.values.of[perfValueMedian];
  const double limitUs = row.values.of[perfValueLimit];
  row.algorithmGBps = us > 0 ? (double)step->sizeBytes / us * 1e-3 : 0;
  row.busGBps = us > 0 ? (double)step->remoteBytes / us * 1e-3 : 0;
  row.limitPercent = us > 0 && limitUs >= 0 ? 100 * limitUs / us : PERF_NOT_MEASURED;
  return row;
}

void perfOutputRow(perfOutput_t* output, const perfStep_t* step, const perfChoice_t* choice,
                   const perfValues_t* values) {
  const perfRow_t row = combine(output, step, choice, values);
  perfTotal_t* total = &output->total;
  total->rows++;
  total->busGBpsSum += row.busGBps;
  total->wrongBytes += row.values.of[perfValueWrong];
  if (row.values.of[perfValueMemory] > total->tensorBytes) total->tensorBytes = row.values.of[perfValueMemory];
  perfTableRow(output->options, output->op, &row);
  perfResultsRow(output, &row);
}

double perfAverageGBps(const perfTotal_t* total) {
  return total->rows > 0 ? total->busGBpsSum / total->rows : 0;
}

bool perfTooSlow(const perfOptions_t* options, const perfTotal_t* total) {
  return perfAverageGBps(total) < options->leastGBps * 0.9;
}

void perfStamp(char stamp[PERF_STAMP_BYTES]) {
  const time_t now = time(NULL);
  struct tm local;
  if (localtime_r(&now, &local) == NULL || strftime(stamp, PERF_STAMP_BYTES, "%Y-%m-%d %H:%M:%S", &local) == 0) {
    stamp[0] = '\0';
  }
}

bool perfOutputClose(perfOutput_t* output, bool failed) {
  if (!failed) perfTableEnd(output->options, output->op, &output->total);
  perfJson_t* json = &output->json;
  if (json->file == NULL) return true;
  perfResultsEnd(output, failed);
  const bool written = fputc('\n', json->file) != EOF && ferror(json->file) == 0;
  const bool closed = fclose(json->file) == 0;
  json->file = NULL;
  if (!written || !closed) perfError("cannot write %s: %s", output->options->jsonPath, strerror(errno));
  return written && closed;
}
