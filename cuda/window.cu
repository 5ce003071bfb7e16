// SPDX-License-Identifier: MIT
//
// Peers' addresses of a registered window: everything that touches NCCL's device interface. From NCCL 2.29 on the
// library is asked; before, a one-thread kernel reads the window itself, whose layout then has to be the one that
// this file was compiled with. Either way NCCL reports success where peers cannot be reached, so an address counts
// only if CUDA knows it as device memory. Where it has none of its ways between GPUs (NCCL_P2P_DISABLE, a host a rank)
// it even hands out a window that is none: an address of the host's, which is not read.

#include <dlfcn.h>
#include <nccl.h>

#include "kernels.h"

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
#define ULYX_WINDOW_KERNEL 1
#include <nccl_device.h>
#else
#define ULYX_WINDOW_KERNEL 0
#endif

namespace {

using Window = ncclWindow_vidmem*;  // ncclWindow_t, from NCCL 2.28 on
using GetPointer = ncclResult_t (*)(Window, size_t, int, void**);

GetPointer findGetPointer() {
  return reinterpret_cast<GetPointer>(dlsym(RTLD_DEFAULT, "ncclGetLsaDevicePointer"));
}

#if ULYX_WINDOW_KERNEL
__global__ void readPeers(Window window, int nRanks, uint64_t* words) {
  for (int rank = 0; rank < nRanks; ++rank)
    words[rank] = reinterpret_cast<uint64_t>(ncclGetLsaPointer(window, 0, rank));
}
#endif

cudaError_t readByKernel(Window window, int nRanks, uint64_t* words, void** peers, cudaStream_t stream) {
#if ULYX_WINDOW_KERNEL
  readPeers<<<1, 1, 0, stream>>>(window, nRanks, words);
  const cudaError_t launched = cudaGetLastError();
  if (launched != cudaSuccess) return launched;
  const size_t bytes = static_cast<size_t>(nRanks) * sizeof(*words);
  const cudaError_t copied = cudaMemcpyAsync(peers, words, bytes, cudaMemcpyDeviceToHost, stream);
  return copied != cudaSuccess ? copied : cudaStreamSynchronize(stream);
#else
  (void)window, (void)nRanks, (void)words, (void)peers, (void)stream;
  return cudaErrorNotSupported;
#endif
}

bool isDeviceMemory(const void* address) {
  cudaPointerAttributes attributes;
  if (address == nullptr) return false;
  if (cudaPointerGetAttributes(&attributes, address) == cudaSuccess) return attributes.type == cudaMemoryTypeDevice;
  (void)cudaGetLastError();  // an address that CUDA does not know is an answer here
  return false;
}

}  // namespace

extern "C" int ulyxWindowsAreReadable(int ncclVersion) {
  if (findGetPointer() != nullptr) return 1;
  return ULYX_WINDOW_KERNEL && ncclVersion / 100 == NCCL_VERSION_CODE / 100;
}

extern "C" cudaError_t ulyxWindowReadPeers(Window window, int nRanks, uint64_t* words, void** peers,
                                           cudaStream_t stream) {
  const GetPointer getPointer = findGetPointer();
  for (int rank = 0; rank < nRanks; ++rank) peers[rank] = nullptr;
  if (!isDeviceMemory(window)) return cudaSuccess;
  if (getPointer != nullptr) {
    for (int rank = 0; rank < nRanks; ++rank) {
      if (getPointer(window, 0, rank, &peers[rank]) != ncclSuccess) peers[rank] = nullptr;
    }
  } else {
    const cudaError_t read = readByKernel(window, nRanks, words, peers, stream);
    if (read != cudaSuccess) return read;
  }
  for (int rank = 0; rank < nRanks; ++rank) {
    if (!isDeviceMemory(peers[rank])) peers[rank] = nullptr;
  }
  return cudaSuccess;
}
