// SPDX-License-Identifier: MIT
//
// A small generator (splitmix64) that gives the same numbers for a seed everywhere.
#ifndef ULYX_TESTS_SUPPORT_RNG_H_
#define ULYX_TESTS_SUPPORT_RNG_H_

#include <cstdint>

namespace ulyx_test {

inline uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}

  uint64_t Next() { return Mix(state_ += 0x9e3779b97f4a7c15u); }
  // From low to high, both included.
  int64_t Between(int64_t low, int64_t high) { return low + int64_t(Next() % uint64_t(high - low + 1)); }
  bool OneIn(int n) { return Next() % uint64_t(n) == 0; }

 private:
  uint64_t state_;
};

}  // namespace ulyx_test

#endif  // ULYX_TESTS_SUPPORT_RNG_H_
