/* SPDX-License-Identifier: MIT */
#include "sum.h"

#include <string.h>

void ulyxSumBatchFill(const ulyxSum* sum, void* const* src, void* const* dst, ulyxSumBatch* batch) {
  batch->dst = ulyxPlaceAddress(sum->dst, src, dst);
  batch->dstPitch = sum->dstPitch;
  batch->rows = sum->rows;
  batch->rowElements = sum->rowElements;
  batch->type = sum->type;
  batch->skip = NULL;
  batch->count = sum->addendCount;
  batch->reserved = 0;
  const int64_t elementBytes = sum->type == ulyxFloat32 ? 4 : 2;
  uint64_t bits = (uintptr_t)batch->dst | (uint64_t)batch->dstPitch | (uint64_t)(sum->rowElements * elementBytes);
  for (int i = 0; i < sum->addendCount; ++i) {
    const ulyxAddend* const addend = &sum->addends[i];
    batch->addends[i] =
        (ulyxSumAddend){ulyxPlaceAddress(addend->place, src, dst), addend->pitch, addend->firstRow, addend->rowCount};
    bits |= (uintptr_t)batch->addends[i].data | (uint64_t)addend->pitch;
  }
  batch->wide = bits % 16 == 0 ? 1 : 0;
}

static float fromBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint32_t toBits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float halfToFloat(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu, mantissa = half & 0x3ffu;
  if (exponent == 0x1f) return fromBits(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return fromBits(sign | (exponent + 112) << 23 | mantissa << 13);
  return fromBits(sign | toBits((float)mantissa * 0x1p-24f)); /* subnormal or zero: exact */
}

/* Round to nearest even, as the device does; a NaN becomes the type's quiet NaN without sign or payload. */
static uint16_t floatToHalf(float value) {
  const uint32_t bits = toBits(value), magnitude = bits & 0x7fffffffu;
  const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
  if (magnitude > 0x7f800000u) return 0x7fff;
  if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* at least 65520: infinity */
  if (magnitude < 0x38800000u) {                                   /* below 2^-14: in units of 2^-24 */
    const float scaled = fromBits(magnitude) * 0x1p24f;
    const uint32_t whole = (uint32_t)scaled;
    const float rest = scaled - (float)whole;
    return (uint16_t)(sign | (whole + (rest > 0.5f || (rest == 0.5f && (whole & 1u)) ? 1u : 0u)));
  }
  const uint32_t rounded = magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u);
  return (uint16_t)(sign | rounded >> 13);
}

static uint16_t floatToBfloat(float value) {
  const uint32_t bits = toBits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static float load(int type, const unsigned char* row, int64_t element) {
  uint16_t half;
  float value;
  if (type == ulyxFloat32) {
    memcpy(&value, row + 4 * element, sizeof value);
    return value;
  }
  memcpy(&half, row + 2 * element, sizeof half);
  return type == ulyxFloat16 ? halfToFloat(half) : fromBits((uint32_t)half << 16);
}

static void store(int type, unsigned char* row, int64_t element, float value) {
  if (type == ulyxFloat32) {
    const uint32_t bits = (toBits(value) & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : toBits(value);
    memcpy(row + 4 * element, &bits, sizeof bits);
    return;
  }
  const uint16_t half = type == ulyxFloat16 ? floatToHalf(value) : floatToBfloat(value);
  memcpy(row + 2 * element, &half, sizeof half);
}

void ulyxSumOnHost(const ulyxSumBatch* batch) {
  for (int64_t row = 0; row < batch->rows; ++row) {
    for (int64_t element = 0; element < batch->rowElements; ++element) {
      float sum = 0;
      int first = 1;
      for (int i = 0; i < batch->count; ++i) {
        const ulyxSumAddend* const addend = &batch->addends[i];
        const int64_t inAddend = row - addend->firstRow;
        if (inAddend < 0 || inAddend >= addend->rowCount) continue;
        const float value = load(batch->type, addend->data + inAddend * addend->pitch, element);
        sum = first ? value : sum + value;
        first = 0;
      }
      store(batch->type, batch->dst + row * batch->dstPitch, element, sum);
    }
  }
}
