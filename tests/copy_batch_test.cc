// SPDX-License-Identifier: MIT
//
// Batches of the copy kernel, carried out on the host as the kernel would: units, widths, divisions and tiles.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "support/internal.h"
#include "support/rng.h"
#include "support/shapes.h"

namespace ulyx_test {

namespace {

uint32_t RowOf(const ulyxCopyDesc& desc, uint32_t unit) {
  return uint32_t((uint64_t(unit) * desc.magic) >> desc.shift);
}

ulyxStrip Strip(int64_t rows, int64_t rowBytes) {
  // Addresses are numbers here; multiples of 16.
  return {reinterpret_cast<const unsigned char*>(0x10000000),
          reinterpret_cast<unsigned char*>(0x7000000000),
          rows,
          rowBytes,
          rowBytes,
          rowBytes,
          0};
}

std::vector<ulyxCopyDesc> TakeAll(ulyxStrip strip) {
  static ulyxCopyBatch batch;
  ulyxCopyBatchReset(&batch);
  while (strip.rows > 0 && !ulyxCopyBatchIsFull(&batch)) ulyxCopyBatchTake(&batch, &strip);
  EXPECT_EQ(strip.rows, 0);
  return {batch.desc, batch.desc + batch.count};
}

}  // namespace

TEST(CopyBatch, DividesUnitsIntoRowsExactly) {
  Rng rng(TestSeed());
  for (int i = 0; i < 3000; i++) {
    const int64_t unitsPerRow = i < 300 ? i + 1 : rng.Between(1, int64_t{1} << rng.Between(1, 30));
    const int64_t rows = std::max<int64_t>(ULYX_COPY_MAX_BYTES / unitsPerRow, 1);
    ulyxStrip strip = Strip(rows, unitsPerRow);
    strip.src++;  // units of one byte
    const std::vector<ulyxCopyDesc> descs = TakeAll(strip);
    const ulyxCopyDesc& desc = descs.front();
    ASSERT_EQ(desc.unitBytesLog2, 0);
    ASSERT_EQ(desc.unitsPerRow, unitsPerRow);
    const auto expectRow = [&desc](int64_t unit) {
      if (unit < 0 || unit >= desc.units) return;
      ASSERT_EQ(RowOf(desc, uint32_t(unit)), unit / desc.unitsPerRow) << unit << " of " << desc.unitsPerRow;
    };
    for (int j = 0; j < 20; j++) {
      const int64_t edge = rng.Between(0, desc.units / unitsPerRow) * unitsPerRow;
      expectRow(edge - 1);
      expectRow(edge);
      expectRow(rng.Between(0, desc.units - 1));
    }
    expectRow(int64_t{desc.units} - 1);
  }
}

TEST(CopyBatch, TakesTheWidestUnitThatAddressesPitchesAndRowAllow) {
  for (int log2 = 0; log2 <= 5; log2++) {
    const int64_t unit = int64_t{1} << log2;
    const int expected = std::min(log2, 4);
    const ulyxStrip wide = Strip(4, 64);
    ulyxStrip strip = wide;
    strip.src += unit;
    EXPECT_EQ(TakeAll(strip).front().unitBytesLog2, expected);
    strip = wide;
    strip.dst += unit;
    EXPECT_EQ(TakeAll(strip).front().unitBytesLog2, expected);
    strip = wide;
    strip.srcPitch += unit;
    EXPECT_EQ(TakeAll(strip).front().unitBytesLog2, expected);
    strip = wide;
    strip.dstPitch += unit;
    EXPECT_EQ(TakeAll(strip).front().unitBytesLog2, expected);
    strip = wide;
    strip.rowBytes = 64 - unit;
    if (unit < 64) {
      EXPECT_EQ(TakeAll(strip).front().unitBytesLog2, expected);
    }
  }
}

TEST(CopyBatch, IgnoresPitchesOfASingleRow) {
  ulyxStrip strip = Strip(1, 64);
  strip.srcPitch = 65;
  strip.dstPitch = 67;
  EXPECT_EQ(TakeAll(strip).front().unitBytesLog2, 4);
}

TEST(CopyBatch, CutsLongStripsIntoPartsThatCoverThemInOrder) {
  const int64_t gib = int64_t{1} << 30;
  const struct {
    int64_t rows, rowBytes;
  } strips[] = {{1, gib}, {1, gib + 1}, {3, gib + 16}, {2, 3 * gib + 5}, {gib / 8 + 7, 16}, {5, gib / 2}, {7, gib / 3}};
  for (const auto& [rows, rowBytes] : strips) {
    ulyxStrip strip = Strip(rows, rowBytes);
    strip.srcPitch = rowBytes + 48;
    strip.dstPitch = rowBytes + 16;
    int64_t bytes = 0;
    for (const ulyxCopyDesc& desc : TakeAll(strip)) {
      const int64_t row = bytes / rowBytes, column = bytes % rowBytes;
      EXPECT_EQ(desc.src - strip.src, row * strip.srcPitch + column);
      EXPECT_EQ(desc.dst - strip.dst, row * strip.dstPitch + column);
      EXPECT_EQ(desc.units % desc.unitsPerRow, 0u);
      const int64_t unit = int64_t{1} << desc.unitBytesLog2;
      if (desc.units > desc.unitsPerRow) {
        EXPECT_EQ(desc.unitsPerRow * unit, rowBytes);
        EXPECT_EQ(column, 0);
      }
      EXPECT_LE(desc.units * unit, ULYX_COPY_MAX_BYTES);
      bytes += desc.units * unit;
    }
    EXPECT_EQ(bytes, rows * rowBytes);
  }
}

TEST(CopyBatch, CountsTilesOfAllCopies) {
  static ulyxCopyBatch batch;
  ulyxCopyBatchReset(&batch);
  uint32_t tiles = 0;
  for (int i = 0; !ulyxCopyBatchIsFull(&batch); i++) {
    ulyxStrip strip = Strip(1, 16 * (1 + 700 * (i % 5)));
    ulyxCopyBatchTake(&batch, &strip);
    EXPECT_EQ(strip.rows, 0);
    const ulyxCopyDesc& desc = batch.desc[batch.count - 1];
    EXPECT_EQ(desc.firstTile, tiles);
    tiles += (desc.units + ULYX_COPY_TILE_UNITS - 1) / ULYX_COPY_TILE_UNITS;
    EXPECT_EQ(batch.tiles, tiles);
  }
  EXPECT_EQ(batch.count, uint32_t{ULYX_COPY_BATCH_LARGE});
}

}  // namespace ulyx_test
