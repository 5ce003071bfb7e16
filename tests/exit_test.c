/* SPDX-License-Identifier: MIT
 *
 * A runtime destroyed while the process exits. The handler is registered before anything else, so CUDA, which
 * registers its own on first use, has gone when it runs.
 *
 * usage: exit_test loopback|gpu      exits 77 (skipped) without a GPU */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ulyx.h"
#ifdef ULYX_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

enum { kTokens = 8, kHeads = 2, kDim = 16, kBytes = kTokens * kHeads * kDim * 2 };

static ulyxRuntime_t runtime;

static void destroyRuntime(void) {
  const ulyxResult_t result = ulyxRuntimeDestroy(&runtime);
  if (result == ulyxSuccess && runtime == NULL) return;
  fprintf(stderr, "ulyxRuntimeDestroy at exit: %s\n", ulyxGetLastError(NULL));
  _exit(1);
}

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, ulyxGetLastError(NULL));
  return 1;
}

/* One exchange with itself, from and to memory of its own, which the runtime still holds at exit. */
static int exchange(void) {
  ulyxShape_t shape = ULYX_SHAPE_INITIALIZER;
  ulyxPlan_t plan = NULL;
  ulyxTensor_t in, out;
  shape.tokens = kTokens;
  shape.heads = kHeads;
  shape.headDim = kDim;
  if (ulyxPlanCreate(runtime, &shape, &plan) != ulyxSuccess) return fail("ulyxPlanCreate");
  if (ulyxPlanGetOutput(plan, &in, &out) != ulyxSuccess) return fail("ulyxPlanGetOutput");
  if (ulyxMemAlloc(runtime, kBytes, &in.data) != ulyxSuccess) return fail("ulyxMemAlloc");
  if (ulyxMemAlloc(runtime, kBytes, &out.data) != ulyxSuccess) return fail("ulyxMemAlloc");
  if (ulyxHeadsToSeq(plan, &in, &out, NULL) != ulyxSuccess) return fail("ulyxHeadsToSeq");
  return 0;
}

static int haveGpu(void) {
#ifdef ULYX_HAVE_CUDA
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
#else
  return 0;
#endif
}

int main(int argc, char** argv) {
  const int device = 0;
  const int gpu = argc == 2 && strcmp(argv[1], "gpu") == 0;
  if (argc != 2 || (!gpu && strcmp(argv[1], "loopback") != 0)) {
    fprintf(stderr, "usage: exit_test loopback|gpu\n");
    return 2;
  }
  if (atexit(destroyRuntime) != 0) return 2;
  if (gpu && !haveGpu()) {
    printf("skipped: no GPU\n");
    return 77;
  }
  if (ulyxRuntimeCreateLocal(NULL, 1, gpu ? &device : NULL, &runtime) != ulyxSuccess) {
    return fail("ulyxRuntimeCreateLocal");
  }
  return exchange();
}
