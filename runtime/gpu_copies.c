/* SPDX-License-Identifier: MIT
 *
 * What the carriers share: batches of copies within the device, memory that peers know, branches of a stream. */
#include "gpu.h"
#include "kernels.h"

ulyxResult_t ulyxGpuFlush(ulyxGpu* gpu, int maxCtas, cudaStream_t stream) {
  const cudaError_t error = ulyxLaunchCopies(&gpu->batch, maxCtas, stream);
  const uint32_t streaming = gpu->batch.streaming;
  const ulyxVerdict* const skip = gpu->batch.skip;
  ulyxCopyBatchReset(&gpu->batch);
  gpu->batch.streaming = streaming;
  gpu->batch.skip = skip;
  return ulyxCudaResult(error, "launch of the copy kernel");
}

void ulyxGpuLoseHalfWay(ulyxGpu* gpu) {
  ulyxUndoBegin(); /* the call says what failed */
  ulyxGuardLose(&gpu->world.guard, ulyxRemoteError,
                "an exchange failed half-way on this rank, which is out of step since; destroy the runtime");
  ulyxUndoEnd();
}

ulyxResult_t ulyxGpuAddStrip(ulyxGpu* gpu, ulyxStrip strip, int maxCtas, cudaStream_t stream) {
  while (strip.rows > 0) {
    if (ulyxCopyBatchIsFull(&gpu->batch)) ULYX_TRY(ulyxGpuFlush(gpu, maxCtas, stream));
    ulyxCopyBatchTake(&gpu->batch, &strip);
  }
  return ulyxSuccess;
}

ulyxResult_t ulyxGpuAddOwn(ulyxGpu* gpu, const ulyxExchange* exchange, int maxCtas, cudaStream_t stream) {
  const ulyxPhase* const phase = exchange->phase;
  for (int64_t c = phase->sendStart[phase->rank]; c < phase->sendStart[phase->rank + 1]; ++c) {
    const ulyxCopy* const copy = &phase->copies[c];
    const ulyxStrip strip = {.src = ulyxAt(exchange->src[copy->srcBuffer], copy->srcOffset),
                             .dst = ulyxAt(exchange->dst[copy->dstBuffer], copy->dstOffset),
                             .rows = copy->rows,
                             .rowBytes = copy->rowBytes,
                             .srcPitch = copy->srcPitch,
                             .dstPitch = copy->dstPitch};
    ULYX_TRY(ulyxGpuAddStrip(gpu, strip, maxCtas, stream));
  }
  return ulyxSuccess;
}

const ulyxArena* ulyxGpuArenaOf(const ulyxGpu* gpu, const void* data, int64_t bytes) {
  if (ulyxArenaHolds(gpu->arena, data, bytes)) return gpu->arena; /* scratch */
  for (const ulyxArena* block = gpu->blocks; block != NULL; block = block->next) {
    if (ulyxArenaHolds(block, data, bytes)) return block;
  }
  return NULL;
}

ulyxResult_t ulyxBranchFork(const ulyxGpu* gpu, const ulyxBranch* branch) {
  return ULYX_CUDA(cudaStreamWaitEvent(branch->stream, gpu->fork, 0));
}

ulyxResult_t ulyxBranchJoin(const ulyxBranch* branch, cudaStream_t stream) {
  const cudaError_t recorded = cudaEventRecord(branch->end, branch->stream);
  const cudaError_t joined = recorded != cudaSuccess ? recorded : cudaStreamWaitEvent(stream, branch->end, 0);
  return ulyxCudaResult(joined, "join of a branch of an exchange");
}
