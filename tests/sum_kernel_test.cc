// SPDX-License-Identifier: MIT
//
// The sum kernel on a GPU against the same sum on the host, bit for bit: all types, wide and narrow, few and many
// addends, whole and partial rows, the sum itself among the addends, few and many thread blocks.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels.h"
#include "support/floats.h"
#include "support/oracle.h"
#include "support/rng.h"
#include "support/shapes.h"
#include "support/world.h"

extern "C" void ulyxSumOnHost(const ulyxSumBatch* batch);

namespace ulyx_test {

namespace {

#define CUDA_OK(call) ASSERT_EQ((call), cudaSuccess)

class SumKernel : public ::testing::Test {
 protected:
  void SetUp() override {
    const World& gpus = *Worlds().back();
    ULYX_SKIP_BELOW(gpus, 1);
    gpus.Use(0);
    CUDA_OK(ulyxLoadSum());
    CUDA_OK(cudaMalloc(&device_, kBytes));
    device0_ = static_cast<unsigned char*>(device_);
    host_.resize(kBytes + 256);
    host0_ = host_.data() + (256 - uintptr_t(host_.data()) % 256) % 256;  // as aligned as the device's
  }
  void TearDown() override {
    if (device_ != nullptr) {
      EXPECT_EQ(cudaFree(device_), cudaSuccess);
    }
  }

  static constexpr size_t kBytes = size_t{8} << 20;

  // Fills both memories alike with elements of a type.
  void Fill(int type, uint64_t seed) {
    Rng rng(seed);
    const size_t bytes = size_t(TypeBytes(type));
    for (size_t at = 0; at + bytes <= kBytes; at += bytes) StoreBits(type, AnyBits(type, rng.Next()), host0_ + at);
    CUDA_OK(cudaMemcpy(device_, host0_, kBytes, cudaMemcpyHostToDevice));
  }

  // The batch's addresses are offsets into either memory.
  void Run(const ulyxSumBatch& offsets, int maxCtas) {
    static ulyxSumBatch onHost, onDevice;
    onHost = onDevice = offsets;
    onHost.dst = host0_ + uintptr_t(offsets.dst);
    onDevice.dst = device0_ + uintptr_t(offsets.dst);
    for (int i = 0; i < offsets.count; i++) {
      onHost.addends[i].data = host0_ + uintptr_t(offsets.addends[i].data);
      onDevice.addends[i].data = device0_ + uintptr_t(offsets.addends[i].data);
    }
    ulyxSumOnHost(&onHost);
    CUDA_OK(ulyxLaunchSum(&onDevice, maxCtas, nullptr));
    CUDA_OK(cudaDeviceSynchronize());
    std::vector<uint8_t> found(kBytes);
    CUDA_OK(cudaMemcpy(found.data(), device_, kBytes, cudaMemcpyDeviceToHost));
    const auto [expected, differs] = std::mismatch(host0_, host0_ + kBytes, found.data());
    EXPECT_EQ(expected, host0_ + kBytes) << "byte " << expected - host0_ << " is " << int(*differs)
                                         << "; the sum is at " << uintptr_t(offsets.dst);
  }

  void* device_ = nullptr;
  unsigned char* device0_ = nullptr;
  std::vector<uint8_t> host_;
  uint8_t* host0_ = nullptr;
};

unsigned char* Offset(int64_t bytes) {
  return reinterpret_cast<unsigned char*>(uintptr_t(bytes));
}

}  // namespace

TEST_F(SumKernel, AddsRandomBatchesAsTheHostDoes) {
  static ulyxSumBatch batch;
  for (int round = 0; round < 150 && !HasFailure(); round++) {
    Rng rng(TestSeed() + uint64_t(round));
    const int type = SummedTypes()[rng.Between(0, 2)];
    const int64_t bytes = TypeBytes(type), perWide = 16 / bytes;
    const bool wide = rng.OneIn(2);
    const int64_t unit = wide ? 16 : bytes;
    batch.type = type;
    batch.wide = wide ? 1 : 0;
    batch.rowElements = wide ? perWide * rng.Between(1, 20) : rng.Between(1, 100);
    batch.rows = rng.Between(1, 40);
    batch.count = int32_t(rng.OneIn(3) ? rng.Between(ULYX_SUM_FEW_ADDENDS, 80)
                                       : rng.Between(1, rng.OneIn(4) ? ULYX_SUM_MAX_ADDENDS : 9));
    const int64_t rowBytes = batch.rowElements * bytes;
    batch.dst = Offset(4096 + unit * rng.Between(0, 16));
    batch.dstPitch = rowBytes + unit * rng.Between(0, 3);
    const int64_t afterSum = 4096 + 512 + batch.rows * batch.dstPitch;
    for (int i = 0; i < batch.count; i++) {
      ulyxSumAddend& addend = batch.addends[i];
      addend.firstRow = i == 0 ? 0 : rng.Between(0, batch.rows);
      addend.rowCount = i == 0 ? batch.rows : rng.Between(0, batch.rows - addend.firstRow);
      addend.pitch = rowBytes + unit * rng.Between(0, 3);
      const int64_t span = (addend.rowCount + 1) * addend.pitch;
      const int64_t most = (int64_t(kBytes) - afterSum - span) / unit - 64;
      addend.data = Offset((afterSum + unit - 1) / unit * unit + unit * rng.Between(0, std::max<int64_t>(most, 0)));
    }
    if (rng.OneIn(2)) {  // a gradient: the sum is its own first addend
      batch.addends[0].data = batch.dst;
      batch.addends[0].pitch = batch.dstPitch;
    }
    Fill(type, rng.Next());
    Run(batch, rng.OneIn(2) ? int(rng.Between(1, 4)) : 0);
    if (HasFailure()) {
      FAIL() << "round " << round << " of seed " << TestSeed() << ": type " << type << ", wide " << batch.wide << ", "
             << batch.rows << " rows of " << batch.rowElements << ", " << batch.count << " addends";
    }
  }
}

TEST_F(SumKernel, AddsEveryPairOfAwkwardValuesAsTheHostDoes) {
  static ulyxSumBatch batch;
  for (int type : SummedTypes()) {
    for (bool wide : {false, true}) {
      const int64_t bytes = TypeBytes(type), elements = int64_t{1} << 16;
      batch = {};
      batch.type = type;
      batch.wide = wide ? 1 : 0;
      batch.rows = 1;
      batch.rowElements = elements;
      batch.dstPitch = elements * bytes;
      batch.count = 3;
      for (int i = 0; i < 3; i++) batch.addends[i] = {Offset((i + 1) * elements * bytes), elements * bytes, 0, 1};
      Fill(type, TestSeed());
      Run(batch, 0);
    }
  }
}

TEST_F(SumKernel, LeavesRowsWithoutAnAddendZeroAsTheHostDoes) {
  static ulyxSumBatch batch;
  for (int type : SummedTypes()) {
    for (bool wide : {false, true}) {
      const int64_t pitch = 64 * TypeBytes(type);
      batch = {};
      batch.type = type;
      batch.wide = wide ? 1 : 0;
      batch.rows = 8;
      batch.rowElements = 64;
      batch.dstPitch = pitch;
      batch.count = 2;
      batch.addends[0] = {Offset(1 << 20), pitch, 1, 3};
      batch.addends[1] = {Offset(1 << 21), pitch, 3, 2};
      Fill(type, TestSeed());
      Run(batch, 1);
    }
  }
}

TEST_F(SumKernel, LaunchesNothingForNoRows) {
  static ulyxSumBatch batch;
  batch = {};
  batch.type = ulyxFloat32;
  batch.rowElements = 4;
  batch.count = 1;
  CUDA_OK(ulyxLaunchSum(&batch, 0, nullptr));
  CUDA_OK(cudaDeviceSynchronize());
}

}  // namespace ulyx_test
