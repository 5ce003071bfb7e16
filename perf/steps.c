/* SPDX-License-Identifier: MIT */
#include "steps.h"

#include <stdlib.h>

#include "op.h"
#include "report.h"

#define PERF_MAX_STEPS 100000
#define ARENA_ALIGNMENT 256 /* of a message */

bool perfStepsAppend(perfSteps_t* steps, const perfStep_t* step) {
  if (steps->count == PERF_MAX_STEPS) {
    perfError("the sweep has more than %d steps", PERF_MAX_STEPS);
    return false;
  }
  perfStep_t* grown = realloc(steps->steps, (size_t)(steps->count + 1) * sizeof(*grown));
  if (grown == NULL) {
    perfError("out of memory for the steps of the sweep");
    return false;
  }
  steps->steps = grown;
  grown[steps->count++] = *step;
  return true;
}

bool perfStepsAppendSweep(perfSteps_t* steps, const perfOptions_t* options, perfStep_t step) {
  for (int64_t tokens = options->beginTokens; tokens <= options->endTokens;) {
    step.tokens = tokens;
    if (!perfStepsAppend(steps, &step)) return false;
    if (options->tokensStep > 0) {
      if (tokens > options->endTokens - options->tokensStep) break;
      tokens += options->tokensStep;
    } else {
      if (tokens > options->endTokens / options->tokensFactor) break;
      tokens *= options->tokensFactor;
    }
  }
  return true;
}

int64_t* perfMessagesCreate(const perfOp_t* op, const perfProblem_t* problem) {
  const size_t pairs = (size_t)problem->nRanks * (size_t)problem->nRanks;
  int64_t* bytes = calloc(pairs * PERF_MAX_TENSORS, sizeof(*bytes));
  if (bytes == NULL) {
    perfError("out of memory for the messages of %d ranks", problem->nRanks);
    return NULL;
  }
  if (op->messages(problem, bytes)) return bytes;
  free(bytes);
  return NULL;
}

/* What one direction of a rank comes to. */
typedef struct direction {
  int64_t bytes;
  int64_t stagedBytes; /* each message at a multiple of the arena's alignment */
} direction_t;

static void addPair(const int64_t* bytes, direction_t* direction) {
  for (int i = 0; i < PERF_MAX_TENSORS; i++) {
    direction->bytes += bytes[i];
    direction->stagedBytes += (bytes[i] + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
  }
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* Fills in the remote bytes and, where ulyx does not say before it has a plan, an arena that is enough for any: every
 * message staged on both ends, and beside them what is received to be summed. */
static bool weigh(const perfOp_t* op, const perfProblem_t* problem, perfStep_t* step) {
  const int nRanks = problem->nRanks;
  int64_t* bytes = perfMessagesCreate(op, problem);
  if (bytes == NULL) return false;
  const bool arenaIsKnown = step->arenaBytes > 0;
  for (int rank = 0; rank < nRanks; rank++) {
    direction_t sent = {0, 0};
    direction_t received = {0, 0};
    for (int peer = 0; peer < nRanks; peer++) {
      if (peer == rank) continue;
      addPair(bytes + ((size_t)rank * (size_t)nRanks + (size_t)peer) * PERF_MAX_TENSORS, &sent);
      addPair(bytes + ((size_t)peer * (size_t)nRanks + (size_t)rank) * PERF_MAX_TENSORS, &received);
    }
    const int64_t busier = larger(sent.bytes, received.bytes);
    step->remoteBytes = larger(step->remoteBytes, busier);
    if (!arenaIsKnown) {
      step->arenaBytes = larger(step->arenaBytes, sent.stagedBytes + received.stagedBytes + busier);
    }
  }
  free(bytes);
  return true;
}

bool perfStepsCreate(const perfOptions_t* options, const perfOp_t* op, int nRanks, perfSteps_t* steps) {
  if (!op->list(options, nRanks, steps)) return false;
  for (int i = 0; i < steps->count; i++) {
    perfStep_t* step = &steps->steps[i];
    const perfProblem_t problem = {options, step, nRanks};
    if (!op->judge(&problem, step) || !weigh(op, &problem, step)) return false;
  }
  return true;
}

void perfStepsFree(perfSteps_t* steps) {
  free(steps->steps);
  steps->steps = NULL;
  steps->count = 0;
}
