// SPDX-License-Identifier: MIT
#include "support/floats.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "support/rng.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

struct Format {
  int bits;
  int fractionBits;
  int bias;
};

Format FormatOf(int type) {
  if (type == ulyxFloat16) return {16, 10, 15};
  if (type == ulyxBfloat16) return {16, 7, 127};
  if (type == ulyxFloat32) return {32, 23, 127};
  throw std::runtime_error("type " + std::to_string(type) + " is not summed");
}

}  // namespace

const std::vector<int>& SummedTypes() {
  static const std::vector<int> types = {ulyxFloat16, ulyxBfloat16, ulyxFloat32};
  return types;
}

float ValueOf(int type, uint32_t bits) {
  const Format format = FormatOf(type);
  const uint32_t fraction = bits & ((1u << format.fractionBits) - 1);
  const int most = 2 * format.bias + 1;
  const int exponent = int(bits >> format.fractionBits) & most;
  double value = 0;
  if (exponent == most) {
    value = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(double(fraction), 1 - format.bias - format.fractionBits);
  } else {
    value = std::ldexp(1.0 + std::ldexp(double(fraction), -format.fractionBits), exponent - format.bias);
  }
  return float(bits >> (format.bits - 1) != 0 ? -value : value);
}

uint32_t BitsOf(int type, float value) {
  const Format format = FormatOf(type);
  const uint32_t infinity = (uint32_t(2 * format.bias) + 1) << format.fractionBits;
  if (std::isnan(value)) return infinity | ((1u << format.fractionBits) - 1);
  const uint32_t sign = std::signbit(value) ? 1u << (format.bits - 1) : 0;
  const double magnitude = std::fabs(double(value));
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | infinity;
  // In units of the last place at this magnitude; no finer than the subnormals'.
  const int exponent = std::max(std::ilogb(magnitude), 1 - format.bias);
  const double units = std::nearbyint(std::ldexp(magnitude, format.fractionBits - exponent));
  // A carry out of the fraction lands in the exponent, as it should; past the largest that is infinity's place.
  const uint32_t biased = uint32_t(exponent + format.bias - 1) << format.fractionBits;
  const uint32_t rounded = biased + uint32_t(units);
  return sign | (rounded < infinity ? rounded : infinity);
}

uint32_t LoadBits(int type, const uint8_t* element) {
  uint32_t bits = 0;
  std::memcpy(&bits, element, size_t(FormatOf(type).bits) / 8);
  return bits;
}

void StoreBits(int type, uint32_t bits, uint8_t* element) {
  std::memcpy(element, &bits, size_t(FormatOf(type).bits) / 8);
}

uint32_t SmallIntegerBits(int type, uint64_t hash) {
  return BitsOf(type, float(int64_t(Mix(hash) % 17) - 8));
}

uint32_t AnyBits(int type, uint64_t hash) {
  const Format format = FormatOf(type);
  const uint32_t most = format.bits == 32 ? ~0u : (1u << format.bits) - 1;
  const uint32_t infinity = (uint32_t(2 * format.bias) + 1) << format.fractionBits;
  const uint32_t sign = 1u << (format.bits - 1);
  const uint32_t random = uint32_t(Mix(hash + 1)) & most;
  switch (hash % 8) {
    case 0:
      return random;
    case 1:
      return SmallIntegerBits(type, hash);
    case 2: {
      // Zeros, the smallest and largest of each kind, infinities, a signalling NaN and one with a payload.
      const uint32_t awkward[] = {0,
                                  sign,
                                  1,
                                  sign | 1,
                                  (1u << format.fractionBits) - 1,
                                  1u << format.fractionBits,
                                  infinity - 1,
                                  sign | (infinity - 1),
                                  infinity,
                                  sign | infinity,
                                  infinity | 1,
                                  sign | infinity | 3};
      return awkward[random % (sizeof awkward / sizeof awkward[0])];
    }
    case 3:
      return (random & ~infinity) & most;  // subnormal or zero
    case 4:
      return (random & ~(infinity & ~(1u << format.fractionBits))) & most;  // round the smallest normal ones
    default: {
      // Of like magnitude, so that sums round: exponents within 12 of one another.
      const uint32_t exponent = uint32_t(format.bias) - 6 + random % 12;
      return ((random & ~infinity) | exponent << format.fractionBits) & most;
    }
  }
}

}  // namespace ulyx_test
