/* SPDX-License-Identifier: MIT
 *
 * What -J writes: ulyx's own members, and those of nccl-tests' JSON in their places, so that what reads that reads
 * this. Its list of all environment variables is left out, since tokens and passwords are among them. */
#ifndef PERF_RESULTS_H_
#define PERF_RESULTS_H_

#include "output.h"

void perfResultsBegin(perfOutput_t* output, const ulyxRuntimeInfo_t* info, const perfRepeat_t* repeat,
                      const perfPlace_t* places);
void perfResultsRow(perfOutput_t* output, const perfRow_t* row);

/* Also after a run that failed before it had a runtime. */
void perfResultsEnd(perfOutput_t* output, bool failed);

#endif /* PERF_RESULTS_H_ */
