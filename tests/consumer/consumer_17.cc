// SPDX-License-Identifier: MIT
//
// ulyx.hpp and the library from C++17.
#include <ulyx.hpp>

#include <cstdio>

int main() {
  try {
    ulyx::Shape shape;
    shape.tokens = 5;
    shape.heads = 2;
    shape.headDim = 1;
    shape.type = ulyx::dataType<float>;
    for (const ulyx::Runtime& rt : ulyx::Runtime::local(1)) {
      const ulyx::Plan plan = rt.plan(shape);
      if (ulyx::length(plan.info().tokenRange) != 5) return 1;
    }
    int version = 0;
    ulyx::check(ulyxGetVersion(&version));
    std::printf("ulyx %d: right\n", version);
    return 0;
  } catch (const ulyx::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
