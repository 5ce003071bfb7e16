/* SPDX-License-Identifier: MIT
 *
 * Times of a rank's samples, and one number from the numbers of all ranks. Microseconds throughout; a
 * negative time means that it was not measured. */
#ifndef PERF_STATS_H_
#define PERF_STATS_H_

typedef struct perfTimes {
  double medianUs;
  double minUs;
  double maxUs;
  double meanUs;
  double p99Us; /* 99 of 100 samples took no longer; the longest where there are fewer */
} perfTimes_t;

/* How -a combines the ranks' times. */
typedef enum { perfAverageRank0, perfAverageMean, perfAverageMin, perfAverageMax } perfAverage_t;

#define PERF_NOT_MEASURED (-1.0)

/* Sorts the samples. count >= 1. */
perfTimes_t perfTimesOfSamples(double* samplesUs, int count);

/* valuesUs[i * stride] is rank i's. Not measured if any rank did not. */
double perfCombineRanks(const double* valuesUs, int nRanks, int stride, perfAverage_t average);

/* Microseconds on a clock that only goes forward. */
double perfNowUs(void);

#endif /* PERF_STATS_H_ */
