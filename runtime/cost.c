/* SPDX-License-Identifier: MIT */
#include "cost.h"

/* Bytes a microsecond and direction: by one copy engine, and by multiprocessors' stores. */
static const double engineRate = 393.5e3, storeRate = 363e3;

/* One contiguous copy. */
static const double limitUs = 2.5, limitRate = 391e3;

/* What meeting costs, and what each peer beyond the first adds: its records to write and to wait for. */
static const double meetingUs = 6.6, peerUs = 0.15;

/* Stores lose up to this long while they fill and drain the link; half of it at fillBytes. */
static const double fillUs = 4.0, fillBytes = 10e6;

/* Engines begin and end; of the bytes multiprocessors store the first meanwhile, or all. */
static const double engineUs = 25.5, allStoredUs = 15.0, headBytes = 2.5 * 1024 * 1024;

/* Engines serve peer after peer, and stand still between two copies and while they tell a peer. From the second peer on
 * ranks are out of step, and a copy waits for another rank's. */
static const double gapUs = 2.4, outOfStepUs = 5.0, tellUs = 2.5;

/* Engines slow down on rows shorter than this. */
static const double engineRowBytes = 256;

/* The widest access that rows of this length allow. */
static double unitBytes(int64_t bytes) {
  const uint64_t bits = (uint64_t)bytes | 16;
  return bytes > 0 ? (double)(bits & (0 - bits)) : 16;
}

/* The links of an NVLink are taken by address. Rows that are a multiple of 1.5 KB apart load them unevenly, and what is
 * written waits for the busiest. Measured at 1.5, 3, 4.5, 6, 9 and 12 KB; at 2, 2.5, 3.25, 3.5, 4, 5 and 10 KB there is
 * nothing. */
static double storesSlowdown(int64_t pitch) {
  if (pitch == 0 || pitch % 1536 != 0 || pitch % 12288 == 0) return 1;
  return pitch == 3072 ? 1.11 : pitch == 6144 ? 1.22 : 1.045;
}

static double enginesSlowdown(int64_t pitch) {
  return pitch == 3072 ? 1.03 : pitch == 6144 ? 1.23 : 1;
}

static double directUs(const ulyxPhaseFacts* facts, int nRanks) {
  const double bytes = (double)facts->remoteBytes;
  const double rate = storeRate / storesSlowdown(facts->writtenPitch) * unitBytes(facts->rowBytes) / 16;
  return meetingUs + peerUs * (nRanks - 2) + bytes / rate + fillUs * bytes / (bytes + fillBytes);
}

static double copyEngineUs(const ulyxPhaseFacts* facts, int nRanks) {
  const double bytes = (double)facts->remoteBytes, row = (double)facts->rowBytes;
  const double peersUs = peerUs * (nRanks - 2);
  if (bytes <= headBytes) return allStoredUs + peersUs + bytes / storeRate * 16 / unitBytes(facts->rowBytes);
  const double shortRows = row < engineRowBytes ? engineRowBytes / (row + 1) : 1;
  const double slowdown = shortRows * enginesSlowdown(facts->writtenPitch);
  const double copies = (double)facts->copiesPerPeer;
  const double gapsUs = gapUs * copies + (nRanks - 2) * (outOfStepUs * copies + tellUs);
  return engineUs + gapsUs + peersUs + slowdown * (bytes - headBytes) / engineRate;
}

ulyxCost ulyxCostOf(const ulyxPhaseFacts* facts, int nRanks) {
  if (nRanks < 2) return (ulyxCost){0, 0, 0};
  return (ulyxCost){.limit = limitUs + (double)facts->remoteBytes / limitRate,
                    .direct = directUs(facts, nRanks),
                    .copyEngine = copyEngineUs(facts, nRanks)};
}
