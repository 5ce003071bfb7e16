/* SPDX-License-Identifier: MIT */
#include "sequences.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report.h"

/* The sequence that a token is in. */
static ulyxRange_t sequenceOf(const perfProblem_t* problem, int64_t token) {
  const perfCounts_t* bounds = &problem->options->cuSeqlens;
  for (int i = 0; i + 1 < bounds->count; i++) {
    if (token < bounds->values[i + 1]) return (ulyxRange_t){bounds->values[i], bounds->values[i + 1]};
  }
  return (ulyxRange_t){0, problem->step->tokens};
}

static int ownerOf(const perfProblem_t* problem, int64_t token) {
  int rank = 0;
  while (perfBalancedRange(problem->step->tokens, problem->nRanks, rank).stop <= token) rank++;
  return rank;
}

perfShard_t perfShardOf(const perfProblem_t* problem, int rank) {
  const ulyxRange_t tokens = perfBalancedRange(problem->step->tokens, problem->nRanks, rank);
  perfShard_t shard = {.tokens = tokens};
  if (perfRangeLength(tokens) == 0) return shard;
  const ulyxRange_t first = sequenceOf(problem, tokens.start);
  const ulyxRange_t last = sequenceOf(problem, tokens.stop - 1);
  shard.oneSequence = first.start == last.start;
  shard.before = rank - ownerOf(problem, first.start);
  shard.after = ownerOf(problem, last.stop - 1) - rank;
  shard.tokensAhead = tokens.start - first.start;
  return shard;
}

perfFlag_t perfSequencesFlag(perfOptions_t* o) {
  return (perfFlag_t){"--cu-seqlens",
                      perfFlagCounts,
                      &o->cuSeqlens,
                      0,
                      INT64_MAX,
                      NULL,
                      "where sequences begin and the last one ends, from 0 on [one sequence over all ranks]"};
}

bool perfSequencesSettle(const perfOptions_t* o) {
  if (o->cuSeqlens.values == NULL || (o->beginTokens == PERF_UNSET && o->endTokens == PERF_UNSET)) return true;
  perfError("--cu-seqlens and -b, -e exclude each other");
  return false;
}

int perfSequencesCount(const perfOptions_t* o) {
  return o->cuSeqlens.values != NULL ? o->cuSeqlens.count - 1 : 1;
}

void perfSequencesPrintShape(const perfOptions_t* o) {
  const int count = perfSequencesCount(o);
  (void)printf("%d sequence%s", count, count == 1 ? "" : "s");
}

bool perfSequencesList(const perfOptions_t* options, int nRanks, perfSteps_t* steps) {
  (void)nRanks;
  perfStep_t step;
  memset(&step, 0, sizeof(step));
  if (options->cuSeqlens.values == NULL) return perfStepsAppendSweep(steps, options, step);
  step.tokens = options->cuSeqlens.values[options->cuSeqlens.count - 1];
  return perfStepsAppend(steps, &step);
}

/* The caller destroys *sequences. */
static bool createSequences(const perfProblem_t* problem, ulyxSequences_t* sequences) {
  const int64_t whole[] = {0, problem->step->tokens};
  const perfCounts_t* given = &problem->options->cuSeqlens;
  const int64_t* bounds = given->values != NULL ? given->values : whole;
  const int count = given->values != NULL ? given->count : 2;
  return perfUlyxOk(ulyxSequencesCreate(bounds, count, ulyxInt64, sequences), NULL, "ulyxSequencesCreate");
}

bool perfSequencesContext(const perfProblem_t* problem, int rank, ulyxContext_t* context) {
  ulyxSequences_t sequences = NULL;
  if (!createSequences(problem, &sequences)) return false;
  const bool ok = perfUlyxOk(ulyxContextCreate(sequences, problem->nRanks, rank, ulyxSplitBalanced,
                                               (int)problem->options->convKernel, context),
                             NULL, "ulyxContextCreate");
  return perfUlyxOk(ulyxSequencesDestroy(sequences), NULL, "ulyxSequencesDestroy") && ok;
}

bool perfSequencesJudge(const perfProblem_t* problem) {
  ulyxSequences_t sequences = NULL;
  return createSequences(problem, &sequences) &&
         perfUlyxOk(ulyxSequencesDestroy(sequences), NULL, "ulyxSequencesDestroy");
}
