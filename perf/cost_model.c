/* SPDX-License-Identifier: MIT */
#include "cost_model.h"

/* Bytes a microsecond and direction, by copy engines and by multiprocessors' stores. */
static const double engineRate = 391e3;
static const double storeRate = 363e3;

/* What a peer more costs a meeting: its records to write and to wait for. */
static const double meetingUs = 6.6, peerUs = 0.15;

/* Stores lose up to this long while they fill and drain the link; half of it at fillBytes. */
static const double fillUs = 4.0, fillBytes = 10e6;

/* Each row written costs as much as so many bytes more. */
static const double rowBytes = 170;

/* An engine's start and end, and what multiprocessors store meanwhile. */
static const double engineUs = 20.0, allStoredUs = 15.0, headBytes = 2.5 * 1024 * 1024;

/* Several engines on one link: 4 streams were measured at 364 of 391. */
static const double sharedEngineRate = 364e3;

static double directUs(double bytes, double row, int nRanks) {
  const double rate = storeRate * row / (row + rowBytes);
  return meetingUs + peerUs * (nRanks - 2) + bytes / rate + fillUs * bytes / (bytes + fillBytes);
}

static double copyEngineUs(double bytes, int nRanks) {
  if (bytes <= headBytes) return allStoredUs + peerUs * (nRanks - 2);
  return engineUs + peerUs * (nRanks - 2) + bytes / (nRanks > 2 ? sharedEngineRate : engineRate);
}

perfCost_t perfPredict(int64_t busiestBytes, int64_t writtenRowBytes, int nRanks) {
  const double bytes = (double)busiestBytes;
  if (nRanks < 2) return (perfCost_t){0, 0, 0};
  return (perfCost_t){.limitUs = 2.5 + bytes / engineRate,
                      .directUs = directUs(bytes, (double)writtenRowBytes, nRanks),
                      .copyEngineUs = copyEngineUs(bytes, nRanks)};
}
