/* SPDX-License-Identifier: MIT
 *
 * CUDA and NCCL calls whose failure speaks, and the current device held for the length of a call. */
#ifndef ULYX_RUNTIME_CUDA_CHECK_H_
#define ULYX_RUNTIME_CUDA_CHECK_H_

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "status.h"

ulyxResult_t ulyxCudaFail(cudaError_t error, const char* call);
/* comm may be NULL. */
ulyxResult_t ulyxNcclFail(ncclComm_t comm, ncclResult_t error, const char* call);

/* Evaluate to a ulyxResult_t that has spoken. */
#define ULYX_CUDA(call) ulyxCudaResult((call), #call)
#define ULYX_NCCL(comm, call) ulyxNcclResult((comm), (call), #call)

static inline ulyxResult_t ulyxCudaResult(cudaError_t error, const char* call) {
  return error == cudaSuccess ? ulyxSuccess : ulyxCudaFail(error, call);
}

static inline ulyxResult_t ulyxNcclResult(ncclComm_t comm, ncclResult_t error, const char* call) {
  return error == ncclSuccess ? ulyxSuccess : ulyxNcclFail(comm, error, call);
}

/* Makes `device` current; ulyxDeviceLeave restores what was. */
ulyxResult_t ulyxDeviceEnter(int device, int* previous);
void ulyxDeviceLeave(int device, int previous);

/* What this thread asks and copies from now on spoils nobody's capture. Returns what was before, which
 * cudaThreadExchangeStreamCaptureMode restores. */
enum cudaStreamCaptureMode ulyxRelaxCapture(void);

#endif /* ULYX_RUNTIME_CUDA_CHECK_H_ */
