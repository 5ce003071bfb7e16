// SPDX-License-Identifier: MIT
//
// The copy kernel on a GPU against a host loop over the same strips: all unit widths and misalignments, batches
// of both sizes, few and many thread blocks, and nothing written outside the rows.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels.h"
#include "support/internal.h"
#include "support/rng.h"
#include "support/shapes.h"
#include "support/world.h"

namespace ulyx_test {

namespace {

#define CUDA_OK(call) ASSERT_EQ((call), cudaSuccess)

class Pack : public ::testing::Test {
 protected:
  void SetUp() override {
    const World& gpus = *Worlds().back();
    ULYX_SKIP_BELOW(gpus, 1);
    gpus.Use(0);
    CUDA_OK(ulyxLoadCopies());
  }
};

// Two buffers of noise on the host and on the device.
class Buffers {
 public:
  Buffers(size_t bytes, uint64_t seed) : src(bytes), dst(bytes) {
    Rng rng(seed);
    for (uint8_t& byte : src) byte = uint8_t(rng.Next());
    for (uint8_t& byte : dst) byte = uint8_t(rng.Next());
    EXPECT_EQ(cudaMalloc(&deviceSrc, bytes), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&deviceDst, bytes), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(deviceSrc, src.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(deviceDst, dst.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~Buffers() {
    EXPECT_EQ(cudaFree(deviceSrc), cudaSuccess);
    EXPECT_EQ(cudaFree(deviceDst), cudaSuccess);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  // One strip on the host, and its description for the device.
  ulyxStrip Add(int64_t srcOffset, int64_t dstOffset, int64_t rows, int64_t rowBytes, int64_t srcPitch,
                int64_t dstPitch) {
    for (int64_t row = 0; row < rows; row++) {
      std::memcpy(&dst[dstOffset + row * dstPitch], &src[srcOffset + row * srcPitch], rowBytes);
    }
    return {static_cast<unsigned char*>(deviceSrc) + srcOffset,
            static_cast<unsigned char*>(deviceDst) + dstOffset,
            rows,
            rowBytes,
            srcPitch,
            dstPitch,
            0};
  }

  void ExpectTheSame() {
    std::vector<uint8_t> found(dst.size());
    CUDA_OK(cudaMemcpy(found.data(), deviceDst, found.size(), cudaMemcpyDeviceToHost));
    const auto [expected, differs] = std::mismatch(dst.begin(), dst.end(), found.begin());
    EXPECT_EQ(expected, dst.end()) << "byte " << expected - dst.begin() << " is " << int(*differs);
  }

  std::vector<uint8_t> src, dst;
  void* deviceSrc = nullptr;
  void* deviceDst = nullptr;
};

}  // namespace

TEST_F(Pack, CopiesRandomBatchesOfAllWidthsExactly) {
  static ulyxCopyBatch batch;
  for (int round = 0; round < 60; round++) {
    Rng rng(TestSeed() + uint64_t(round));
    Buffers buffers(size_t{8} << 20, rng.Next());
    ulyxCopyBatchReset(&batch);
    const int64_t copies = rng.OneIn(2) ? rng.Between(1, ULYX_COPY_BATCH_SMALL)
                                        : rng.Between(ULYX_COPY_BATCH_SMALL + 1, ULYX_COPY_BATCH_LARGE);
    int64_t srcAt = 0, dstAt = 0;
    for (int64_t i = 0; i < copies; i++) {
      const int64_t unit = int64_t{1} << rng.Between(0, 4);
      const auto round16 = [unit](int64_t bytes) { return (bytes + unit - 1) / unit * unit; };
      const int64_t rowBytes = unit * rng.Between(1, rng.OneIn(4) ? 150 : 8);
      const int64_t rows = rng.Between(1, rng.OneIn(8) ? 40 : 4);
      const int64_t srcPitch = rowBytes + unit * rng.Between(0, 3), dstPitch = rowBytes + unit * rng.Between(0, 3);
      const int64_t srcStart = round16(srcAt + rng.Between(0, 40)), dstStart = round16(dstAt + rng.Between(0, 40));
      srcAt = srcStart + rows * srcPitch;
      dstAt = dstStart + rows * dstPitch;
      if (std::max(srcAt, dstAt) > int64_t(buffers.src.size())) break;
      ulyxStrip strip = buffers.Add(srcStart, dstStart, rows, rowBytes, srcPitch, dstPitch);
      while (strip.rows > 0) ulyxCopyBatchTake(&batch, &strip);
    }
    CUDA_OK(ulyxLaunchCopies(&batch, rng.OneIn(2) ? int(rng.Between(1, 4)) : 500, nullptr));
    CUDA_OK(cudaDeviceSynchronize());
    buffers.ExpectTheSame();
    if (HasFailure()) FAIL() << "round " << round << " of seed " << TestSeed();
  }
}

TEST_F(Pack, CopiesFromAnyMisalignmentToAny) {
  static ulyxCopyBatch batch;
  for (int64_t rowBytes : {1, 2, 15, 16, 17, 92, 256}) {
    Buffers buffers(size_t{32} << 10, TestSeed());
    ulyxCopyBatchReset(&batch);
    int64_t at = 0;
    for (int64_t src = 0; src<16; src += rowBytes> 90 ? 3 : 1) {
      for (int64_t dst = 0; dst < 16; dst += 5) {
        ulyxStrip strip = buffers.Add(at + src, at + dst, 1, rowBytes, rowBytes, rowBytes);
        ulyxCopyBatchTake(&batch, &strip);
        at += (rowBytes + 47) / 16 * 16;
      }
    }
    CUDA_OK(ulyxLaunchCopies(&batch, 100, nullptr));
    CUDA_OK(cudaDeviceSynchronize());
    buffers.ExpectTheSame();
  }
}

TEST_F(Pack, CopiesLongRowsAndManyRowsWithOneThreadBlockAndWithMany) {
  static ulyxCopyBatch batch;
  for (int ctas : {1, 3, 132, 100000}) {
    Buffers buffers(size_t{6} << 20, TestSeed() + uint64_t(ctas));
    ulyxCopyBatchReset(&batch);
    ulyxStrip longRow = buffers.Add(5, 9, 1, (1 << 20) + 3, 0, 0);
    ulyxStrip manyRows = buffers.Add(2 << 20, 2 << 20, 30000, 32, 48, 64);
    ulyxCopyBatchTake(&batch, &longRow);
    ulyxCopyBatchTake(&batch, &manyRows);
    CUDA_OK(ulyxLaunchCopies(&batch, ctas, nullptr));
    CUDA_OK(cudaDeviceSynchronize());
    buffers.ExpectTheSame();
  }
}

TEST_F(Pack, CopiesPastTwoGibibytes) {
  size_t freeBytes = 0, totalBytes = 0;
  CUDA_OK(cudaMemGetInfo(&freeBytes, &totalBytes));
  const int64_t bytes = (int64_t{5} << 29) + 7;  // 2.5 GiB in three descriptors
  if (freeBytes < 3 * size_t(bytes)) GTEST_SKIP() << "the GPU has " << freeBytes << " bytes free";
  void *srcMemory = nullptr, *dstMemory = nullptr;
  CUDA_OK(cudaMalloc(&srcMemory, bytes));
  CUDA_OK(cudaMalloc(&dstMemory, bytes));
  auto* const src = static_cast<unsigned char*>(srcMemory);
  auto* const dst = static_cast<unsigned char*>(dstMemory);
  CUDA_OK(cudaMemset(dst, 0xee, bytes));
  CUDA_OK(cudaMemset(src, 0x11, bytes));
  const int64_t edges[] = {0, (int64_t{1} << 30) - 1, int64_t{1} << 30, (int64_t{1} << 31) + 1, bytes - 1};
  for (int64_t edge : edges) CUDA_OK(cudaMemset(src + edge, int(edge % 251), 1));
  static ulyxCopyBatch batch;
  ulyxCopyBatchReset(&batch);
  ulyxStrip strip = {src, dst, 1, bytes, bytes, bytes, 0};
  while (strip.rows > 0) ulyxCopyBatchTake(&batch, &strip);
  CUDA_OK(ulyxLaunchCopies(&batch, 500, nullptr));
  CUDA_OK(cudaDeviceSynchronize());
  std::vector<uint8_t> expected(bytes), found(bytes);
  CUDA_OK(cudaMemcpy(expected.data(), src, bytes, cudaMemcpyDeviceToHost));
  CUDA_OK(cudaMemcpy(found.data(), dst, bytes, cudaMemcpyDeviceToHost));
  EXPECT_TRUE(expected == found);
  CUDA_OK(cudaFree(src));
  CUDA_OK(cudaFree(dst));
}

TEST_F(Pack, LaunchesNothingForAnEmptyBatch) {
  static ulyxCopyBatch batch;
  ulyxCopyBatchReset(&batch);
  CUDA_OK(ulyxLaunchCopies(&batch, 100, nullptr));
  CUDA_OK(cudaDeviceSynchronize());
}

}  // namespace ulyx_test
