/* SPDX-License-Identifier: MIT
 *
 * What the programs of the row collectives and of the halo have in common: rows and who has which, from ulyx.h's
 * text, and members of their ops. */
#ifndef PERF_ROWS_H_
#define PERF_ROWS_H_

#include "op.h"

/* --row-elements and the type. */
int perfRowFlags(perfOptions_t* options, perfFlag_t* flags);
void perfRowSettle(perfOptions_t* options);

/* The same and --counts. */
int perfRowsFlags(perfOptions_t* options, perfFlag_t* flags);

/* Members of a perfOp_t, for rows that have owners. */
bool perfRowsSettle(perfOptions_t* options);
void perfRowsPrintShape(const perfOptions_t* options);
void perfRowsWriteShape(const perfProblem_t* problem, perfJson_t* json);
bool perfRowsList(const perfOptions_t* options, int nRanks, perfSteps_t* steps);
ulyxResult_t perfRowsBind(ulyxPlan_t plan, void* const* in, void* const* out, perfTensors_t* tensors);

/* Refuses sizes that ulyx would, and balanced splits without --counts that leave a rank without rows. */
bool perfRowsFit(const perfProblem_t* problem);
bool perfRowsJudge(const perfProblem_t* problem);

int64_t perfRowBytes(const perfProblem_t* problem);
ulyxRange_t perfRowsOwned(const perfProblem_t* problem, int rank);

/* A dense buffer of these rows of the whole, with the pattern. */
void perfRowsLay(const perfProblem_t* problem, ulyxRange_t rows, perfLayout_t* layout);

/* A plan's shape but for its op and what only that op has. */
ulyxRowsShape_t perfRowsShape(const perfProblem_t* problem);
bool perfRowsPlan(ulyxRuntime_t rt, const ulyxRowsShape_t* shape, ulyxPlan_t* plan);

#endif /* PERF_ROWS_H_ */
