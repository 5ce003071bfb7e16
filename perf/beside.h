/* SPDX-License-Identifier: MIT */
#ifndef PERF_BESIDE_H_
#define PERF_BESIDE_H_

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes `count` bfloat16 numbers, uniform in [-1, 1): a product of zeros would draw less power and run faster. */
cudaError_t besideLaunchRandom(void* data, int64_t count, uint64_t seed, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* PERF_BESIDE_H_ */
