/* SPDX-License-Identifier: MIT
 *
 * What the programs of the attention exchanges have in common: their flags, their shapes and their plan. */
#ifndef PERF_ATTENTION_H_
#define PERF_ATTENTION_H_

#include "geometry.h"
#include "op.h"

/* Members of a perfOp_t. */
int perfAttentionFlags(perfOptions_t* options, perfFlag_t* flags);
void perfAttentionPrintMore(void);
bool perfAttentionSettle(perfOptions_t* options);
void perfAttentionPrintShape(const perfOptions_t* options);
void perfAttentionWriteShape(const perfProblem_t* problem, perfJson_t* json);
bool perfAttentionList(const perfOptions_t* options, int nRanks, perfSteps_t* steps);
bool perfAttentionPlan(const perfProblem_t* problem, int rank, ulyxRuntime_t rt, ulyxPlan_t* plan);

/* An op's judge, from the size column's bytes on one rank. */
bool perfAttentionJudge(const perfProblem_t* problem, int64_t (*sizeBytes)(const ulyxShapeBytes_t*), perfStep_t* step);

/* An op's messages, from those of one rank to another. */
bool perfAttentionMessages(const perfProblem_t* problem,
                           void (*pair)(const perfGeometry_t* from, const perfGeometry_t* to, int64_t* bytes),
                           int64_t* bytes);

/* An op's lay, from the layouts of a rank's geometry. */
bool perfAttentionLay(const perfProblem_t* problem, int rank, perfLayout_t (*layIn)(const perfGeometry_t*),
                      perfLayout_t (*layOut)(const perfGeometry_t*), perfLayout_t* in, perfLayout_t* out);

#endif /* PERF_ATTENTION_H_ */
