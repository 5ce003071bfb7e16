/* SPDX-License-Identifier: MIT
 *
 * Sequences split over the ranks, from ulyx.h's text about contexts, and members of ops that move something along
 * them. */
#ifndef PERF_SEQUENCES_H_
#define PERF_SEQUENCES_H_

#include "op.h"

/* What a rank has of the sequences. */
typedef struct perfShard {
  ulyxRange_t tokens;
  bool oneSequence;    /* its first sequence is its last; false without tokens */
  int before;          /* ranks before it with tokens of its first sequence */
  int after;           /* ranks after it with tokens of its last */
  int64_t tokensAhead; /* of its first sequence, on the ranks before it */
} perfShard_t;

perfShard_t perfShardOf(const perfProblem_t* problem, int rank);

/* --cu-seqlens. */
perfFlag_t perfSequencesFlag(perfOptions_t* options);

bool perfSequencesSettle(const perfOptions_t* options);
void perfSequencesPrintShape(const perfOptions_t* options);
int perfSequencesCount(const perfOptions_t* options);

/* A perfOp_t's list. */
bool perfSequencesList(const perfOptions_t* options, int nRanks, perfSteps_t* steps);

/* This rank's context. A failure has been reported. */
bool perfSequencesContext(const perfProblem_t* problem, int rank, ulyxContext_t* context);

/* Refuses sequences that are none. */
bool perfSequencesJudge(const perfProblem_t* problem);

#endif /* PERF_SEQUENCES_H_ */
