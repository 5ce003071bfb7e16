/* SPDX-License-Identifier: MIT
 *
 * Flags of nccl-tests that the perf programs have one way for. Scripts go on giving them: what asks for that way is
 * taken, and anything else is refused in words. */
#ifndef PERF_HABITS_H_
#define PERF_HABITS_H_

#include "flags.h"

/* Returns how many. */
int perfHabitFlags(perfFlag_t* flags);

#endif /* PERF_HABITS_H_ */
