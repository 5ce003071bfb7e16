// SPDX-License-Identifier: MIT
//
// What NCCL hands out as a window where it joins no two GPUs is no window: it has no peers, and is not read.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "kernels.h"
#include "support/world.h"

namespace ulyx_test {

TEST(Window, OfTheHostsMemoryHasNoPeersAndIsNotRead) {
  const World& gpus = *Worlds().back();
  ULYX_SKIP_BELOW(gpus, 1);
  gpus.Use(0);
  constexpr int kRanks = 3;
  uint64_t handle[16] = {1, 2, 3}, *words = nullptr;
  void* peers[kRanks] = {handle, handle, handle};
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&words), sizeof(uint64_t) * kRanks), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  const auto window = reinterpret_cast<ncclWindow_vidmem*>(handle);
  EXPECT_EQ(ulyxWindowReadPeers(window, kRanks, words, peers, stream), cudaSuccess);
  for (const void* peer : peers) EXPECT_EQ(peer, nullptr);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaFree(words), cudaSuccess);
}

}  // namespace ulyx_test
