// SPDX-License-Identifier: MIT
//
// What fuzz targets share: an input read as numbers, and checks that end the run.
#ifndef ULYX_TESTS_FUZZ_INPUT_H_
#define ULYX_TESTS_FUZZ_INPUT_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// Aborts with the line and what the library said last: libFuzzer then keeps the input.
#define FUZZ_CHECK(condition)                                                                           \
  do {                                                                                                  \
    if (!(condition)) {                                                                                 \
      std::fprintf(stderr, "%s:%d: %s does not hold; last error: %s\n", __FILE__, __LINE__, #condition, \
                   ulyxGetLastError(nullptr));                                                          \
      std::abort();                                                                                     \
    }                                                                                                   \
  } while (0)

namespace ulyx_fuzz {

// Bytes from the front to the back; zeros once they are used up, so that every input is a whole one.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  size_t Left() const { return size_t(end_ - at_); }

  uint8_t Byte() { return at_ < end_ ? *at_++ : 0; }

  // True for `many` of 256 values; false where the input is used up.
  bool Chance(int many) { return Byte() > 255 - many; }

  int64_t Raw() {
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) value = value << 8 | Byte();
    return int64_t(value);
  }

  // Mostly 0 to `small`, else what lies beside a power of two, 32 bits, or anything.
  int64_t Number(int small) {
    const int kind = Byte();
    if (kind < 236) return kind % (small + 1);
    if (kind < 246) return int64_t((uint64_t(1) << Byte() % 64) + uint64_t(Byte() % 3) - 1);
    if (kind < 250) return int32_t(Raw());
    return Raw();
  }

 private:
  const uint8_t* at_;
  const uint8_t* const end_;
};

}  // namespace ulyx_fuzz

#endif  // ULYX_TESTS_FUZZ_INPUT_H_
