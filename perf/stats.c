/* SPDX-License-Identifier: MIT */
#include "stats.h"

#include <stdlib.h>
#include <time.h>

static int ascending(const void* a, const void* b) {
  const double left = *(const double*)a;
  const double right = *(const double*)b;
  return (left > right) - (left < right);
}

perfTimes_t perfTimesOfSamples(double* samplesUs, int count) {
  qsort(samplesUs, (size_t)count, sizeof(*samplesUs), ascending);
  double sum = 0;
  for (int i = 0; i < count; i++) sum += samplesUs[i];
  return (perfTimes_t){.medianUs = (samplesUs[(count - 1) / 2] + samplesUs[count / 2]) / 2,
                       .minUs = samplesUs[0],
                       .maxUs = samplesUs[count - 1],
                       .meanUs = sum / count,
                       .p99Us = samplesUs[(count * 99 + 99) / 100 - 1]};
}

double perfCombineRanks(const double* valuesUs, int nRanks, int stride, perfAverage_t average) {
  double sum = 0;
  double least = valuesUs[0];
  double most = valuesUs[0];
  for (int rank = 0; rank < nRanks; rank++) {
    const double value = valuesUs[rank * stride];
    sum += value;
    if (value < least) least = value;
    if (value > most) most = value;
  }
  if (least < 0) return PERF_NOT_MEASURED;
  switch (average) {
    case perfAverageRank0:
      return valuesUs[0];
    case perfAverageMean:
      return sum / nRanks;
    case perfAverageMin:
      return least;
    case perfAverageMax:
      return most;
  }
  return most;
}

double perfNowUs(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}
