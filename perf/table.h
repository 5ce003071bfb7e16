/* SPDX-License-Identifier: MIT
 *
 * nccl-tests' table: lines that begin with # explain, the others hold one row of numbers each. */
#ifndef PERF_TABLE_H_
#define PERF_TABLE_H_

#include "output.h"

const char* perfTransportName(int transport);

/* "maximum over ranks" and the like. */
const char* perfAverageText(perfAverage_t average);

void perfTableBegin(const perfOptions_t* options, const perfOp_t* op, const ulyxRuntimeInfo_t* info,
                    const perfRepeat_t* repeat, const perfPlace_t* places);
void perfTableRow(const perfOptions_t* options, const perfOp_t* op, const perfRow_t* row);
void perfTableEnd(const perfOptions_t* options, double wrongBytes, double averageGBps);

#endif /* PERF_TABLE_H_ */
