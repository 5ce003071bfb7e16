/* SPDX-License-Identifier: MIT
 *
 * Filling and launching the exchange kernel. */
#ifndef ULYX_RUNTIME_GPU_EXCHANGE_H_
#define ULYX_RUNTIME_GPU_EXCHANGE_H_

#include "gpu.h"

/* What the launches to come of one exchange share; they enter and leave only as they are told. */
void ulyxGpuExchangeBegin(ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxOutputs* outputs);

/* Adds rows [firstRow, firstRow + rows) of a copy to a rank, this one's own included. More copies than a launch holds
 * make several. Copies to peers come before own ones. */
ulyxResult_t ulyxGpuExchangeAdd(ulyxGpu* gpu, const ulyxExchange* exchange, const ulyxCopy* copy, int peer,
                                int64_t firstRow, int64_t rows);

/* Launches what was added, with at most `ctas` blocks; entering is done by the first launch that is told so. */
ulyxResult_t ulyxGpuExchangeLaunch(ulyxGpu* gpu, cudaStream_t stream, int ctas, uint64_t mix);

#endif /* ULYX_RUNTIME_GPU_EXCHANGE_H_ */
