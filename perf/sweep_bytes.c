/* SPDX-License-Identifier: MIT */
#include "sweep_bytes.h"

#include <inttypes.h>

#include "report.h"

static bool sizeOf(const perfOp_t* op, int nRanks, const perfOptions_t* options, int64_t tokens, int64_t* bytes) {
  perfOptions_t one = *options; /* shares the counts, which are its owner's to free */
  perfSteps_t steps = {NULL, 0};
  one.beginTokens = tokens;
  one.endTokens = tokens;
  const bool ok = perfStepsCreate(&one, op, nRanks, &steps);
  if (ok) *bytes = steps.steps[0].sizeBytes;
  perfStepsFree(&steps);
  return ok;
}

/* A size as it grows: bytes with one token a rank, and with every further one. */
typedef struct growth {
  int64_t first;
  int64_t more;
} growth_t;

static bool tokensOf(growth_t growth, int nRanks, int64_t bytes, int64_t* tokens) {
  const int64_t further = bytes > growth.first ? (bytes - growth.first) / growth.more : 0;
  if (further > INT64_MAX / nRanks - 1) return false;
  *tokens = (further + 1) * nRanks;
  return true;
}

static bool convert(const perfOp_t* op, int nRanks, perfOptions_t* o) {
  growth_t growth = {0, 0};
  int64_t second = 0;
  int64_t last = 0;
  if (!sizeOf(op, nRanks, o, nRanks, &growth.first) || !sizeOf(op, nRanks, o, 2 * (int64_t)nRanks, &second)) {
    return false;
  }
  growth.more = second - growth.first;
  const int64_t endBytes = o->endBytes != PERF_UNSET ? o->endBytes : o->beginBytes;
  if (growth.more <= 0) goto doesNotGrow;
  if (!tokensOf(growth, nRanks, o->beginBytes, &o->beginTokens) || !tokensOf(growth, nRanks, endBytes, &o->endTokens)) {
    perfError("%" PRId64 " bytes are more %s than 64 bits count", endBytes, op->unit);
    return false;
  }
  if (o->stepBytes > 0) {
    const int64_t perRank = o->stepBytes / growth.more > 0 ? o->stepBytes / growth.more : 1;
    o->tokensStep = perRank < INT64_MAX / nRanks ? perRank * nRanks : INT64_MAX;
  }
  if (!sizeOf(op, nRanks, o, o->endTokens, &last)) return false;
  if (last == growth.first + (o->endTokens / nRanks - 1) * growth.more) return true;

doesNotGrow:
  perfError("the size of %s does not grow with its %s: sweep these, with -b and -e", op->name, op->unit);
  return false;
}

bool perfSweepOfBytes(const perfOp_t* op, int nRanks, perfOptions_t* options) {
  return options->beginBytes == PERF_UNSET || convert(op, nRanks, options);
}
