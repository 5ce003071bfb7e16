// SPDX-License-Identifier: MIT
//
// The chain kernel on a GPU against the same merge on the host, bit for bit: all dims up to the largest, no hops and
// many, both transpositions, with and without an initial, a final and an own start.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels.h"
#include "support/rng.h"
#include "support/shapes.h"
#include "support/world.h"

extern "C" void ulyxChainOnHost(const ulyxChainArgs* args);

namespace ulyx_test {

namespace {

#define CUDA_OK(call) ASSERT_EQ((call), cudaSuccess)

class ChainKernel : public ::testing::Test {
 protected:
  void SetUp() override {
    const World& gpus = *Worlds().back();
    ULYX_SKIP_BELOW(gpus, 1);
    gpus.Use(0);
    CUDA_OK(ulyxLoadChain());
  }

  struct Dims {
    int64_t heads, keyDim, valueDim;
    int hops;
    bool transposed, hasInitial, hasFinal, startsHere, hasOwnStart;
  };

  static void Check(const Dims& dims, uint64_t seed) {
    const int64_t state = dims.heads * dims.keyDim * dims.valueDim, matrix = dims.heads * dims.keyDim * dims.keyDim;
    const int64_t hop = state + matrix;
    // initial | own state | own matrix | own start | hops | received | final, and three spare floats behind each.
    std::vector<int64_t> at = {0};
    for (int64_t floats : {state, state, matrix, state, dims.hops * hop, state, state})
      at.push_back(at.back() + floats + 3);
    std::vector<float> host(size_t(at.back()));
    Rng rng(seed);
    for (float& value : host) value = float(double(rng.Next() >> 11) / double(int64_t{1} << 52) - 1);
    if (rng.OneIn(3)) { /* infinities times zero, and NaNs of any bits */
      const uint32_t bits[] = {0x7f800000u, 0xff800000u, 0xffc12345u, 0x7fa00001u, 0u};
      for (const uint32_t& odd : bits) {
        std::memcpy(&host[size_t(rng.Between(0, int64_t(host.size()) - 1))], &odd, sizeof(float));
      }
    }
    void* memory = nullptr;
    const size_t bytes = host.size() * sizeof(float);
    CUDA_OK(cudaMalloc(&memory, bytes));
    CUDA_OK(cudaMemcpy(memory, host.data(), bytes, cudaMemcpyHostToDevice));
    const auto fill = [&](float* base) {
      ulyxChainArgs args = {};
      args.hops = reinterpret_cast<const unsigned char*>(base + at[4]);
      args.hopBytes = hop * int64_t(sizeof(float));
      args.initial = dims.hasInitial ? base + at[0] : nullptr;
      args.received = base + at[5];
      args.ownState = base + at[1];
      args.ownMatrix = base + at[2];
      args.ownStart = dims.hasOwnStart ? base + at[3] : nullptr;
      args.final = dims.hasFinal ? base + at[6] : nullptr;
      args.heads = dims.heads;
      args.keyDim = dims.keyDim;
      args.valueDim = dims.valueDim;
      args.hopCount = dims.hops;
      args.transposed = dims.transposed ? 1 : 0;
      args.startsHere = dims.startsHere ? 1 : 0;
      return args;
    };
    const ulyxChainArgs onHost = fill(host.data()), onDevice = fill(static_cast<float*>(memory));
    ulyxChainOnHost(&onHost);
    CUDA_OK(ulyxLaunchChain(&onDevice, 0, nullptr));
    CUDA_OK(cudaDeviceSynchronize());
    std::vector<float> found(host.size());
    CUDA_OK(cudaMemcpy(found.data(), memory, bytes, cudaMemcpyDeviceToHost));
    CUDA_OK(cudaFree(memory));
    for (size_t i = 0; i < host.size(); i++) {
      if (std::memcmp(&host[i], &found[i], sizeof(float)) == 0) continue;
      FAIL() << "float " << i << " is " << found[i] << ", expected " << host[i] << "; " << dims.heads << " heads of "
             << dims.keyDim << " x " << dims.valueDim << ", " << dims.hops << " hops";
    }
  }
};

}  // namespace

TEST_F(ChainKernel, MergesRandomChainsAsTheHostDoes) {
  for (int round = 0; round < 80 && !HasFailure(); round++) {
    Rng rng(TestSeed() + uint64_t(round));
    SCOPED_TRACE("round " + std::to_string(round) + " of seed " + std::to_string(TestSeed()));
    const Dims dims = {rng.Between(1, 4),
                       rng.OneIn(3) ? rng.Between(1, 5) : rng.Between(1, 130),
                       rng.OneIn(3) ? 16 * rng.Between(1, 8) : rng.Between(1, 130),
                       int(rng.Between(0, 5)),
                       rng.OneIn(2),
                       rng.OneIn(2),
                       !rng.OneIn(4),
                       rng.OneIn(2),
                       rng.OneIn(2)};
    Check(dims, rng.Next());
  }
}

TEST_F(ChainKernel, TakesTheLargestKeyDim) {
  for (bool transposed : {false, true})
    Check({2, ULYX_CHAIN_MAX_KEY_DIM, 17, 2, transposed, true, true, false, false}, 1);
}

TEST_F(ChainKernel, MergesModelsSizes) {
  Check({32, 128, 128, 7, false, true, true, false, false}, TestSeed());
}

}  // namespace ulyx_test
