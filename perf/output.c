/* SPDX-License-Identifier: MIT */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "report.h"
#include "results.h"
#include "table.h"

#define PROGRESS_EVERY_US 10e6

/* A new file beside `path`, which becomes it at the end; a run that is killed then leaves an older result as it was.
 * NULL where `path` is to be written itself: a device, a link, another's file, or in a directory that takes no new
 * file. */
static FILE* openBeside(const char* path, char** besidePath) {
  enum { pidChars = 32 };
  struct stat old;
  mode_t mode = S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH;
  const bool there = lstat(path, &old) == 0;
  if (path[0] == '\0' || (!there && errno != ENOENT)) return NULL;
  if (there) {
    if (!S_ISREG(old.st_mode) || old.st_nlink != 1 || old.st_uid != geteuid() || access(path, W_OK) != 0) return NULL;
    mode &= old.st_mode;
  }
  const size_t size = strlen(path) + pidChars;
  char* beside = malloc(size);
  if (beside == NULL) return NULL;
  (void)snprintf(beside, size, "%s.%ld", path, (long)getpid());
  (void)unlink(beside); /* a killed run's of the same number */
  const int descriptor = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  FILE* file = descriptor >= 0 ? fdopen(descriptor, "w") : NULL;
  if (file == NULL) {
    if (descriptor >= 0) {
      (void)close(descriptor);
      (void)unlink(beside);
    }
    free(beside);
    return NULL;
  }
  *besidePath = beside;
  return file;
}

bool perfOutputOpen(const perfOptions_t* options, const perfOp_t* op, const perfWorld_t* world, perfOutput_t* output) {
  memset(output, 0, sizeof(*output));
  output->options = options;
  output->op = op;
  output->nRanks = world->nRanks;
  output->nLocal = world->nLocal;
  output->startUs = perfNowUs();
  output->progressUs = output->startUs;
  if (options->jsonPath == NULL) return true;
  output->json.file = openBeside(options->jsonPath, &output->besidePath);
  if (output->json.file == NULL) output->json.file = fopen(options->jsonPath, "w");
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
  char* beside = output->besidePath;
  const bool named = written && closed && (beside == NULL || rename(beside, output->options->jsonPath) == 0);
  if (!named) {
    perfError("cannot write %s: %s", output->options->jsonPath, strerror(errno));
    if (beside != NULL) (void)unlink(beside);
  }
  free(beside);
  output->besidePath = NULL;
  return named;
}
