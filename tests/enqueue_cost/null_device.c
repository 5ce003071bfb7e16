/* SPDX-License-Identifier: MIT
 *
 * CUDA and NCCL that do nothing and return at once, so that timing an enqueue over them times ulyx alone. One
 * rank of eight; memory is the host's, and a gather gives every rank's words as one's own. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

#define RANKS 8

/* NCCL's header declares these without a prototype. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

cudaError_t cudaGetDevice(int* device) {
  return *device = 0, cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return (void)device, cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  return *count = 1, cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
  return cudaSuccess;
}
cudaError_t cudaGetLastError(void) {
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t error) {
  return (void)error, "";
}
const char* cudaGetErrorString(cudaError_t error) {
  return (void)error, "";
}
cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attribute, int device) {
  return (void)attribute, (void)device, *value = 132, cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return *memory = calloc(1, bytes), cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  return cudaMalloc(memory, bytes);
}
cudaError_t cudaFree(void* memory) {
  return free(memory), cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  return free(memory), cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  return memset(memory, value, bytes), cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  (void)stream;
  return cudaMemset(memory, value, bytes);
}
cudaError_t cudaMemcpy(void* dst, const void* src, size_t bytes, enum cudaMemcpyKind kind) {
  return (void)kind, memcpy(dst, src, bytes), cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* dst, size_t dstPitch, const void* src, size_t srcPitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream) {
  return (void)dst, (void)dstPitch, (void)src, (void)srcPitch, (void)width, (void)height, (void)kind, (void)stream,
         cudaSuccess;
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, enum cudaDeviceP2PAttr attribute, int device, int peer) {
  return (void)attribute, (void)device, (void)peer, *value = 1, cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = *greatest = 0, cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return (void)flags, (void)priority, *stream = NULL, cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  (void)stream;
  if (kind != cudaMemcpyDefault) memcpy(dst, src, bytes); /* that is an exchange's own */
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return (void)flags, *stream = NULL, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return (void)stream, cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return (void)stream, cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus* status) {
  return (void)stream, *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return (void)stream, *device = 0, cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return (void)stream, (void)event, (void)flags, cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return (void)flags, *event = NULL, cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return (void)event, cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return (void)event, (void)stream, cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* attributes, const void* pointer) {
  (void)pointer;
  attributes->type = cudaMemoryTypeDevice;
  attributes->device = 0;
  return cudaSuccess;
}

ncclResult_t ncclGetVersion(int* version) {
  return *version = NCCL_VERSION_CODE, ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t error) {
  return (void)error, "";
}
const char* ncclGetLastError(ncclComm_t comm) {
  return (void)comm, "";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return memset(id, 0, sizeof *id), ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nRanks, ncclUniqueId id, int rank) {
  return (void)nRanks, (void)id, (void)rank, *comm = NULL, ncclSuccess;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child, ncclConfig_t* config) {
  return (void)comm, (void)color, (void)key, (void)config, *child = NULL, ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return (void)comm, ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return (void)comm, *count = RANKS, ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return (void)comm, *rank = 0, ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  return (void)comm, *device = 0, ncclSuccess;
}
ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  return *memory = malloc(bytes), ncclSuccess;
}
ncclResult_t ncclMemFree(void* memory) {
  return free(memory), ncclSuccess;
}
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* memory, size_t bytes, ncclWindow_t* window, int flags) {
  return (void)comm, (void)bytes, (void)flags, *window = memory, ncclSuccess;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return (void)comm, (void)window, ncclSuccess;
}
ncclResult_t ncclGroupStart(void) {
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd(void) {
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return (void)data, (void)count, (void)type, (void)peer, (void)comm, (void)stream, ncclSuccess;
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return (void)data, (void)count, (void)type, (void)peer, (void)comm, (void)stream, ncclSuccess;
}
ncclResult_t ncclAllGather(const void* mine, void* all, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  (void)type, (void)comm, (void)stream;
  for (int rank = 0; rank < RANKS; ++rank) memcpy((char*)all + (size_t)rank * count, mine, count);
  return ncclSuccess;
}

cudaError_t ulyxLaunchCopies(const ulyxCopyBatch* batch, int maxCtas, cudaStream_t stream) {
  return (void)batch, (void)maxCtas, (void)stream, cudaSuccess;
}
cudaError_t ulyxLoadCopies(void) {
  return cudaSuccess;
}
cudaError_t ulyxLaunchSum(const ulyxSumBatch* batch, int maxCtas, cudaStream_t stream) {
  return (void)batch, (void)maxCtas, (void)stream, cudaSuccess;
}
cudaError_t ulyxLoadSum(void) {
  return cudaSuccess;
}
cudaError_t ulyxLaunchChain(const ulyxChainArgs* args, int maxCtas, cudaStream_t stream) {
  return (void)args, (void)maxCtas, (void)stream, cudaSuccess;
}
cudaError_t ulyxLoadChain(void) {
  return cudaSuccess;
}
cudaError_t ulyxLaunchStore(const ulyxStoreBatch* batch, cudaStream_t stream) {
  return (void)batch, (void)stream, cudaSuccess;
}
cudaError_t ulyxLoadStore(void) {
  return cudaSuccess;
}
cudaError_t ulyxLaunchLabelWrite(const ulyxLabelWrite* write, cudaStream_t stream) {
  return (void)write, (void)stream, cudaSuccess;
}
cudaError_t ulyxLaunchLabelCompare(const ulyxLabelCompare* compare, cudaStream_t stream) {
  return (void)compare, (void)stream, cudaSuccess;
}
cudaError_t ulyxLoadLabels(void) {
  return cudaSuccess;
}
cudaError_t ulyxLaunchExchange(const ulyxExchangeBatch* batch, int ctas, cudaStream_t stream) {
  return (void)batch, (void)ctas, (void)stream, cudaSuccess;
}
cudaError_t ulyxLoadExchange(void) {
  return cudaSuccess;
}

/* Peers are never looked at: any address but NULL will do. */
int ulyxWindowsAreReadable(int ncclVersion) {
  return (void)ncclVersion, 1;
}
cudaError_t ulyxWindowReadPeers(ncclWindow_t window, int nRanks, uint64_t* words, void** peers, cudaStream_t stream) {
  static char peer[16];
  (void)window, (void)words, (void)stream;
  for (int rank = 0; rank < nRanks; ++rank) peers[rank] = peer;
  return cudaSuccess;
}

/* What bounds waits, and counts graphs. */
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return (void)stream, cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return (void)event, cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  (void)stream, (void)status, (void)id, (void)graph, (void)dependencies, (void)edges, (void)count;
  return cudaErrorNotSupported;
}
cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* pointer, cudaHostFn_t destroy, unsigned int count,
                                 unsigned int flags) {
  (void)object, (void)pointer, (void)destroy, (void)count, (void)flags;
  return cudaErrorNotSupported;
}
cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned int count) {
  return (void)object, (void)count, cudaErrorNotSupported;
}
cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned int count,
                                      unsigned int flags) {
  (void)graph, (void)object, (void)count, (void)flags;
  return cudaErrorNotSupported;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return (void)comm, ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nRanks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  return (void)config, ncclCommInitRank(comm, nRanks, id, rank);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  return (void)comm, *state = ncclSuccess, ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return (void)comm, ncclSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode* mode) {
  return (void)mode, cudaSuccess;
}
