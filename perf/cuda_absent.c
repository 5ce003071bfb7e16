/* SPDX-License-Identifier: MIT
 *
 * Stands in for the cuda_*.c files in a build without CUDA: there are no GPUs. */
#include "backend.h"
#include "report.h"

int perfCudaDeviceCount(void) {
  return 0;
}

bool perfCudaCreateRuntimes(const ulyxConfig_t* config, const perfOptions_t* options, const perfWorld_t* world,
                            perfRank_t* ranks) {
  (void)config, (void)options, (void)world, (void)ranks;
  perfError("this build has no CUDA");
  return false;
}
