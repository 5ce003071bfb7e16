/* SPDX-License-Identifier: MIT
 *
 * Ranks on the CPU: ordinary memory, and an exchange that blocks, so that a clock around it times it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "report.h"

#define CPU_ALIGNMENT 256

static bool cpuOpen(perfRank_t* me) {
  me->stream = NULL;
  return true;
}

static void cpuClose(perfRank_t* me) {
  (void)me;
}

static void cpuDescribe(const perfRank_t* me, char* text, size_t bytes) {
  (void)me;
  (void)snprintf(text, bytes, "CPU");
}

static bool cpuAlloc(perfRank_t* me, int64_t bytes, void** ptr) {
  if (posix_memalign(ptr, CPU_ALIGNMENT, (size_t)bytes) == 0) return true;
  perfError("rank %d: out of memory for %lld bytes", me->rank, (long long)bytes);
  return false;
}

static void cpuRelease(perfRank_t* me, void* ptr) {
  (void)me;
  free(ptr);
}

static bool cpuPoison(perfRank_t* me, void* ptr, int64_t bytes) {
  (void)me;
  memset(ptr, PERF_POISON_BYTE, (size_t)bytes);
  return true;
}

static bool cpuCountNotPoison(perfRank_t* me, const void* ptr, int64_t bytes, int64_t* wrong) {
  (void)me;
  const unsigned char* from = ptr;
  for (int64_t i = 0; i < bytes; i++) *wrong += from[i] != PERF_POISON_BYTE;
  return true;
}

static void fillHead(unsigned char* to, int64_t headBytes, uint64_t key) {
  const int64_t wholeWords = headBytes / PERF_PATTERN_BYTES;
  for (int64_t word = 0; word < wholeWords; word++) {
    perfPatternStore(to + word * PERF_PATTERN_BYTES, perfPatternWord(key, word), PERF_PATTERN_BYTES);
  }
  const int64_t done = wholeWords * PERF_PATTERN_BYTES;
  if (done < headBytes) perfPatternStore(to + done, perfPatternWord(key, wholeWords), (int)(headBytes - done));
}

static bool cpuFill(perfRank_t* me, void* data, const perfView_t* view, uint64_t seed) {
  (void)me;
  for (int64_t b = 0; b < view->batch; b++) {
    for (int64_t t = 0; t < view->tokens; t++) {
      unsigned char* row = (unsigned char*)data + view->offset + b * view->batchPitch + t * view->tokenPitch;
      for (int64_t h = 0; h < view->heads; h++) {
        fillHead(row + h * view->headBytes, view->headBytes,
                 perfPatternKey(seed, view->tensor, b, view->firstToken + t, view->firstHead + h));
      }
    }
  }
  return true;
}

static int64_t countWrongInHead(const unsigned char* from, int64_t headBytes, uint64_t key) {
  const int64_t wholeWords = headBytes / PERF_PATTERN_BYTES;
  int64_t wrong = 0;
  for (int64_t word = 0; word < wholeWords; word++) {
    wrong += perfPatternCountWrong(from + word * PERF_PATTERN_BYTES, perfPatternWord(key, word), PERF_PATTERN_BYTES);
  }
  const int64_t done = wholeWords * PERF_PATTERN_BYTES;
  if (done == headBytes) return wrong;
  return wrong + perfPatternCountWrong(from + done, perfPatternWord(key, wholeWords), (int)(headBytes - done));
}

static bool cpuCountWrong(perfRank_t* me, const void* data, const perfView_t* view, uint64_t seed, int64_t* wrong) {
  (void)me;
  for (int64_t b = 0; b < view->batch; b++) {
    for (int64_t t = 0; t < view->tokens; t++) {
      const unsigned char* row =
          (const unsigned char*)data + view->offset + b * view->batchPitch + t * view->tokenPitch;
      for (int64_t h = 0; h < view->heads; h++) {
        *wrong += countWrongInHead(row + h * view->headBytes, view->headBytes,
                                   perfPatternKey(seed, view->tensor, b, view->firstToken + t, view->firstHead + h));
      }
    }
  }
  return true;
}

static bool cpuFillAddends(perfRank_t* me, void* data, const perfAddends_t* addends, uint64_t seed) {
  (void)me;
  const int bytes = perfAddendBytes(addends->type);
  unsigned char* to = data;
  for (int64_t row = addends->firstRow; row < addends->firstRow + addends->rows; row++) {
    for (int64_t element = 0; element < addends->rowElements; element++, to += bytes) {
      perfPatternStore(to, perfAddendBits(addends, seed, row, element), bytes);
    }
  }
  return true;
}

static bool cpuCountWrongSums(perfRank_t* me, const void* data, const perfAddends_t* sums, uint64_t seed,
                              int64_t* wrong) {
  (void)me;
  const int bytes = perfAddendBytes(sums->type);
  const unsigned char* from = data;
  for (int64_t row = sums->firstRow; row < sums->firstRow + sums->rows; row++) {
    for (int64_t element = 0; element < sums->rowElements; element++, from += bytes) {
      *wrong += perfPatternCountWrong(from, perfSumBits(sums, seed, row, element), bytes);
    }
  }
  return true;
}

static bool cpuCopy(perfRank_t* me, void* to, const void* from, int64_t bytes) {
  (void)me;
  if (bytes > 0) memcpy(to, from, (size_t)bytes);
  return true;
}

static bool cpuDrain(perfRank_t* me) {
  (void)me;
  return true;
}

static bool enqueueMany(const perfTask_t* task, int count) {
  for (int i = 0; i < count; i++) {
    if (!task->enqueue(task->state, NULL)) return false;
  }
  return true;
}

static bool cpuTime(perfRank_t* me, const perfTask_t* task, const perfRepeat_t* repeat, perfTimes_t* times) {
  bool ok = false;
  double* samplesUs = calloc((size_t)repeat->samples, sizeof(*samplesUs));
  if (samplesUs == NULL) {
    perfError("out of memory for %d samples", repeat->samples);
    return false;
  }
  if (!enqueueMany(task, repeat->warmup * repeat->perSample)) goto freeSamples;
  if (task->refresh != NULL && !task->refresh(task->state)) goto freeSamples;
  for (int i = 0; i < repeat->samples; i++) {
    if (!perfTeamBarrier(me->team, me->rank)) goto freeSamples;
    const double startUs = perfNowUs();
    if (!enqueueMany(task, repeat->perSample)) goto freeSamples;
    samplesUs[i] = (perfNowUs() - startUs) / repeat->perSample;
  }
  *times = perfTimesOfSamples(samplesUs + repeat->skip, repeat->samples - repeat->skip);
  ok = true;

freeSamples:
  free(samplesUs);
  return ok;
}

static const perfBackend_t cpuBackend = {
    .perSample = 1,
    .open = cpuOpen,
    .close = cpuClose,
    .describe = cpuDescribe,
    .alloc = cpuAlloc,
    .release = cpuRelease,
    .poison = cpuPoison,
    .fill = cpuFill,
    .countNotPoison = cpuCountNotPoison,
    .countWrong = cpuCountWrong,
    .fillAddends = cpuFillAddends,
    .countWrongSums = cpuCountWrongSums,
    .put = cpuCopy,
    .get = cpuCopy,
    .drain = cpuDrain,
    .time = cpuTime,
};

const perfBackend_t* perfCpuBackend(void) {
  return &cpuBackend;
}
