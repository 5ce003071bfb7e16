/* SPDX-License-Identifier: MIT */
#include "fake_state.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

typedef struct fakeFault {
  const char* function; /* NULL: any */
  int left;             /* calls until it strikes, 0: disarmed */
} fakeFault;

typedef struct fakeVisit {
  const char* function;
  int left;
  void (*call)(void*);
  void* argument;
} fakeVisit;

typedef struct fakeSettings {
  int deadlineMs;
  int deviceCount;
  int windowSupport;
  int cudaGone;
  int nvlink;
  int busy;
  int lagMs;
  int abortMs;
  int ncclFailure;
} fakeSettings;

#define FAKE_DEFAULT_SETTINGS \
  { 20000, 16, 1, 0, 1, 0, 0, 0, 0 }

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static fakeCounters counters;
static int64_t sentBytes[FAKE_MAX_RANKS][FAKE_MAX_RANKS];
static fakeFault faultAnywhere;
static fakeVisit visitAnywhere;
static atomic_bool awaited;       /* the visit; like the next */
static atomic_bool armedAnywhere; /* looked at without the mutex, which would order threads that nothing else does */
static const char* lastStruck;
static fakeSettings settings = FAKE_DEFAULT_SETTINGS;
static int64_t generation = 1; /* one more with every reset */

static _Thread_local fakeFault faultHere;
static _Thread_local fakeVisit visitHere;
static _Thread_local int quiet;

static int64_t* counterAt(size_t counter) {
  return (int64_t*)(void*)((char*)&counters + counter);
}

void fakeCount(size_t counter, int64_t n) {
  if (quiet) return;
  pthread_mutex_lock(&mutex);
  *counterAt(counter) += n;
  pthread_mutex_unlock(&mutex);
}

void fakeCountMax(size_t counter, int64_t value) {
  pthread_mutex_lock(&mutex);
  if (value > *counterAt(counter)) *counterAt(counter) = value;
  pthread_mutex_unlock(&mutex);
}

void fakeCountSent(int src, int dst, int64_t bytes) {
  pthread_mutex_lock(&mutex);
  sentBytes[src][dst] += bytes;
  pthread_mutex_unlock(&mutex);
}

void fakeCountWindow(int64_t bytes) {
  pthread_mutex_lock(&mutex);
  if (counters.maxWindowBytes == 0 || bytes < counters.minWindowBytes) counters.minWindowBytes = bytes;
  if (bytes > counters.maxWindowBytes) counters.maxWindowBytes = bytes;
  pthread_mutex_unlock(&mutex);
}

int64_t fakeBorn(size_t counter) {
  if (quiet) return 0;
  pthread_mutex_lock(&mutex);
  ++*counterAt(counter);
  ++counters.made;
  const int64_t birth = generation;
  pthread_mutex_unlock(&mutex);
  return birth;
}

void fakeDied(size_t counter, int64_t birth) {
  pthread_mutex_lock(&mutex);
  if (birth == generation) --*counterAt(counter);
  pthread_mutex_unlock(&mutex);
}

static bool strikes(fakeFault* fault, const char* function) {
  if (fault->left == 0 || (fault->function != NULL && strcmp(fault->function, function) != 0)) return false;
  return --fault->left == 0;
}

static bool isDue(fakeVisit* visit, const char* function) {
  return visit->left > 0 && strcmp(visit->function, function) == 0 && --visit->left == 0;
}

static void payVisits(const char* function) {
  if (isDue(&visitHere, function)) visitHere.call(visitHere.argument);
  if (!atomic_load_explicit(&awaited, memory_order_relaxed)) return;
  pthread_mutex_lock(&mutex);
  const fakeVisit visit = visitAnywhere;
  const bool due = isDue(&visitAnywhere, function);
  atomic_store_explicit(&awaited, visitAnywhere.left > 0, memory_order_relaxed);
  pthread_mutex_unlock(&mutex);
  if (due) visit.call(visit.argument);
}

bool fakeStrikes(const char* function) {
  if (quiet) return false;
  payVisits(function);
  if (faultHere.left == 0 && !atomic_load_explicit(&armedAnywhere, memory_order_relaxed)) return false;
  pthread_mutex_lock(&mutex);
  const bool here = strikes(&faultHere, function);
  const bool struck = strikes(&faultAnywhere, function) || here;
  counters.faults += struck;
  if (struck) lastStruck = function;
  atomic_store_explicit(&armedAnywhere, faultAnywhere.left > 0, memory_order_relaxed);
  pthread_mutex_unlock(&mutex);
  return struck;
}

const char* fakeStruck(void) {
  pthread_mutex_lock(&mutex);
  const char* const function = lastStruck;
  pthread_mutex_unlock(&mutex);
  return function;
}

int fakeIsArmedHere(void) {
  return faultHere.left > 0;
}

void fakeQuietBegin(void) {
  quiet++;
}

void fakeQuietEnd(void) {
  quiet--;
}

bool fakeIsQuiet(void) {
  return quiet > 0;
}

void fakeViolation(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "fake: violation: %s\n", text);
  pthread_mutex_lock(&mutex);
  counters.violations++;
  pthread_mutex_unlock(&mutex);
}

static int readSetting(const int* setting) {
  pthread_mutex_lock(&mutex);
  const int value = *setting;
  pthread_mutex_unlock(&mutex);
  return value;
}

static void writeSetting(int* setting, int value) {
  pthread_mutex_lock(&mutex);
  *setting = value;
  pthread_mutex_unlock(&mutex);
}

int fakeDeadlineMs(void) {
  return readSetting(&settings.deadlineMs);
}
int fakeAbortMs(void) {
  return readSetting(&settings.abortMs);
}
int fakeDeviceCount(void) {
  return readSetting(&settings.deviceCount);
}
bool fakeWindowSupport(void) {
  return readSetting(&settings.windowSupport) != 0;
}
int fakeNcclFailure(void) {
  return readSetting(&settings.ncclFailure);
}
int fakeLagMs(void) {
  return readSetting(&settings.lagMs);
}
bool fakeBusy(void) {
  return readSetting(&settings.busy) != 0;
}
bool fakeNvlink(void) {
  return readSetting(&settings.nvlink) != 0;
}
bool fakeCudaGone(void) {
  return readSetting(&settings.cudaGone) != 0;
}

void fakeSetDeadlineMs(int ms) {
  writeSetting(&settings.deadlineMs, ms);
}
void fakeSetAbortMs(int ms) {
  writeSetting(&settings.abortMs, ms);
}
void fakeSetDeviceCount(int count) {
  writeSetting(&settings.deviceCount, count);
}
void fakeSetWindowSupport(int supported) {
  writeSetting(&settings.windowSupport, supported);
}
void fakeSetNcclFailure(int result) {
  writeSetting(&settings.ncclFailure, result);
}
void fakeSetLagMs(int ms) {
  writeSetting(&settings.lagMs, ms);
}
void fakeSetBusy(int busy) {
  writeSetting(&settings.busy, busy);
}
void fakeSetNvlink(int linked) {
  writeSetting(&settings.nvlink, linked);
}
void fakeSetCudaGone(int gone) {
  writeSetting(&settings.cudaGone, gone);
}

fakeCounters fakeGet(void) {
  pthread_mutex_lock(&mutex);
  const fakeCounters copy = counters;
  pthread_mutex_unlock(&mutex);
  return copy;
}

int64_t fakeSentBytes(int src, int dst) {
  pthread_mutex_lock(&mutex);
  const int64_t bytes = sentBytes[src][dst];
  pthread_mutex_unlock(&mutex);
  return bytes;
}

void fakeReset(void) {
  pthread_mutex_lock(&mutex);
  memset(&counters, 0, sizeof counters);
  memset(sentBytes, 0, sizeof sentBytes);
  faultAnywhere = (fakeFault){NULL, 0};
  visitAnywhere = (fakeVisit){NULL, 0, NULL, NULL};
  atomic_store_explicit(&awaited, false, memory_order_relaxed);
  atomic_store_explicit(&armedAnywhere, false, memory_order_relaxed);
  lastStruck = NULL;
  settings = (fakeSettings)FAKE_DEFAULT_SETTINGS;
  generation++;
  pthread_mutex_unlock(&mutex);
  fakeSetHanging(0);
  faultHere = (fakeFault){NULL, 0};
  visitHere = (fakeVisit){NULL, 0, NULL, NULL};
}

void fakeFailNth(const char* function, int n) {
  pthread_mutex_lock(&mutex);
  faultAnywhere = (fakeFault){function, n};
  atomic_store_explicit(&armedAnywhere, n > 0, memory_order_relaxed);
  pthread_mutex_unlock(&mutex);
}

void fakeCallAtNth(const char* function, int n, void (*call)(void*), void* argument) {
  pthread_mutex_lock(&mutex);
  visitAnywhere = (fakeVisit){function, n, call, argument};
  atomic_store_explicit(&awaited, n > 0, memory_order_relaxed);
  pthread_mutex_unlock(&mutex);
}

void fakeCallAtNthHere(const char* function, int n, void (*call)(void*), void* argument) {
  visitHere = (fakeVisit){function, n, call, argument};
}

void fakeFailNthHere(const char* function, int n) {
  faultHere = (fakeFault){function, n};
}
