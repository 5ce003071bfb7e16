/* SPDX-License-Identifier: MIT
 *
 * Hands the unique id from rank 0 to the other processes through a file that all of them see.
 *
 * Rank 0 removes what lies at the path, writes the id beside it and renames it into place, so a reader sees a
 * whole file or none. A reader that comes before rank 0 could still see a file that an earlier run left. It
 * takes a file only if the number of ranks and the launcher's job (launcher.h) are its own and if the file is not older
 * than itself by more than PERF_ID_FILE_SLACK_S, and rank 0 removes the file once the world has met. What
 * remains is a run that crashed within that time before, on the same path, outside any job: therefore give
 * every run a path of its own. */
#ifndef PERF_ID_FILE_H_
#define PERF_ID_FILE_H_

#include <stdbool.h>
#include <stdint.h>

#include "ulyx.h"

/* Clocks of machines that share a disk differ, and processes of a job do not start together. */
#define PERF_ID_FILE_SLACK_S 30

/* Rank 0. A failure has been reported. */
bool perfIdFileWrite(const char* path, int nRanks, uint64_t job, const ulyxUniqueId_t* id);

/* The other ranks; waits at most timeoutS. A failure has been reported. */
bool perfIdFileRead(const char* path, int nRanks, uint64_t job, int timeoutS, ulyxUniqueId_t* id);

#endif /* PERF_ID_FILE_H_ */
