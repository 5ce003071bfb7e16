/* SPDX-License-Identifier: MIT
 *
 * What the cuda_*.c files share: a rank's GPU, its checks, and the launchers of
 * pattern.cu and addends.cu. */
#ifndef PERF_CUDA_BACKEND_H_
#define PERF_CUDA_BACKEND_H_

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend.h"
#include "pattern.h"

/* True on success; otherwise reports `what` with CUDA's or NCCL's own words. */
bool perfCudaOk(cudaError_t error, const char* what);
bool perfNcclOk(ncclResult_t result, const char* what);

/* Waits for a stream, polling, until the team fails or the timeout passes. */
bool perfCudaWait(perfRank_t* me, cudaStream_t stream);

/* Members of the GPU's perfBackend_t. */
bool perfCudaTime(perfRank_t* me, const perfTask_t* task, const perfRepeat_t* repeat, perfTimes_t* times);
bool perfCudaTimeEnqueue(perfRank_t* me, const perfTask_t* task, double* us);
bool perfCudaTimePeerCopy(perfRank_t* me, int64_t bytes, double* us);
bool perfCudaTimeBaseline(perfRank_t* me, const perfOp_t* op, const perfProblem_t* problem, perfBaselineKind_t kind,
                          const perfRepeat_t* repeat, double* us);

/* Its parts: sends and receives in one group, joined into one message a pair or one a pair and tensor, and
 * collectives, which are not measured where ranks' shares differ. */
bool perfCudaTimeMessages(perfRank_t* me, const perfOp_t* op, const perfProblem_t* problem, bool joined,
                          const perfRepeat_t* repeat, double* us);
bool perfCudaTimeCollective(perfRank_t* me, const perfOp_t* op, const perfProblem_t* problem, perfBaselineKind_t kind,
                            const perfRepeat_t* repeat, double* us);

/* Times a task of NCCL's on two registered buffers of `bytes` bytes, the same on every rank, which are written to
 * `buffers` first and freed afterwards. Collective. */
bool perfCudaTimeInWindows(perfRank_t* me, int64_t bytes, const perfTask_t* task, void* buffers[2],
                           const perfRepeat_t* repeat, double* us);

const perfBackend_t* perfCudaBackend(void);

/* Launchers, enqueued on `stream`. The counters add to *wrong, which lies in device memory. */
cudaError_t perfLaunchFill(void* data, const perfView_t* view, uint64_t seed, cudaStream_t stream);
cudaError_t perfLaunchCountWrong(const void* data, const perfView_t* view, uint64_t seed, unsigned long long* wrong,
                                 cudaStream_t stream);
cudaError_t perfLaunchCountNotPoison(const void* ptr, int64_t bytes, unsigned long long* wrong, cudaStream_t stream);
cudaError_t perfLaunchFillAddends(void* data, const perfAddends_t* addends, uint64_t seed, cudaStream_t stream);
cudaError_t perfLaunchCountWrongSums(const void* data, const perfAddends_t* sums, uint64_t seed,
                                     unsigned long long* wrong, cudaStream_t stream);

#endif /* PERF_CUDA_BACKEND_H_ */
