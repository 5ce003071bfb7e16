/* SPDX-License-Identifier: MIT
 *
 * One exchange of a rank on a GPU, whatever carries it. */
#ifndef ULYX_RUNTIME_GPU_RUN_H_
#define ULYX_RUNTIME_GPU_RUN_H_

#include "gpu.h"

/* Enqueues one exchange; the rank's device is current. */
ulyxResult_t ulyxGpuRun(ulyxGpu* gpu, const ulyxExchange* exchange);

#endif /* ULYX_RUNTIME_GPU_RUN_H_ */
