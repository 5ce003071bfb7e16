// SPDX-License-Identifier: MIT
//
// The header and the library from C++11.
#include <ulyx.h>

#include <cstdio>

int main() {
  ulyxShape_t shape = ULYX_SHAPE_INITIALIZER;
  shape.tokens = 5;
  shape.heads = 2;
  shape.headDim = 1;
  ulyxRange_t tokens[2];
  int version = 0;
  if (ulyxGetVersion(&version) != ulyxSuccess || version != ULYX_VERSION_CODE) return 1;
  if (ulyxShapeGetRanges(&shape, 2, tokens, nullptr, nullptr) != ulyxSuccess) {
    std::fprintf(stderr, "%s\n", ulyxGetLastError(nullptr));
    return 1;
  }
  if (tokens[1].start != 3 || tokens[1].stop != 5) return 1;
  std::printf("ulyx %d: right\n", version);
  return 0;
}
