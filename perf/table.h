/* SPDX-License-Identifier: MIT
 *
 * nccl-tests' table: lines that begin with # explain, the others hold one row each. Its columns of an exchange out of
 * place come first, where they have always been; ulyx's own follow. There is nothing in place. */
#ifndef PERF_TABLE_H_
#define PERF_TABLE_H_

#include "output.h"

const char* perfTransportName(int transport);

/* "maximum over ranks" and the like. */
const char* perfAverageText(perfAverage_t average);

/* nccl-tests' names of an element type and of an operation's reduction. */
const char* perfNcclTestsType(const perfType_t* type);
const char* perfRedop(const perfOp_t* op);

void perfTableBegin(const perfOutput_t* output, const ulyxRuntimeInfo_t* info, const perfRepeat_t* repeat,
                    const perfPlace_t* places);
void perfTableRow(const perfOptions_t* options, const perfOp_t* op, const perfRow_t* row);
void perfTableEnd(const perfOptions_t* options, const perfOp_t* op, const perfTotal_t* total);

#endif /* PERF_TABLE_H_ */
