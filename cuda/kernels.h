/* SPDX-License-Identifier: MIT
 *
 * Launchers of ulyx's kernels, callable from C. Each enqueues on `stream` of the current device, allocates
 * nothing, is capturable, and returns the launch's error. */
#ifndef ULYX_KERNELS_H_
#define ULYX_KERNELS_H_

#include <cuda_runtime_api.h>

#include "copy_layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes every copy of the batch with at most maxCtas thread blocks (0: one a tile). Source and destination
 * bytes must not overlap. An empty batch launches nothing. */
cudaError_t ulyxLaunchCopies(const ulyxCopyBatch* batch, int maxCtas, cudaStream_t stream);

/* Loads every kernel on the current device now, so that no first launch does: a lazy load can wait for work
 * that itself waits for a peer. */
cudaError_t ulyxLoadKernels(void);

#ifdef __cplusplus
}
#endif

#endif /* ULYX_KERNELS_H_ */
