/* SPDX-License-Identifier: MIT
 *
 * nccl-tests sweeps bytes, ulyx tokens. */
#ifndef PERF_SWEEP_BYTES_H_
#define PERF_SWEEP_BYTES_H_

#include "op.h"

/* Turns a sweep in bytes, where one was asked for, into one in tokens: of the most tokens whose size is no more than
 * those bytes, a whole number a rank. A refusal has been reported. */
bool perfSweepOfBytes(const perfOp_t* op, int nRanks, perfOptions_t* options);

#endif /* PERF_SWEEP_BYTES_H_ */
