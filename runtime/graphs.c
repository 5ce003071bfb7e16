/* SPDX-License-Identifier: MIT */
#include "graphs.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "clock.h"

struct ulyxGraphs {
  atomic_int_fast64_t shares; /* the runtime's, and one an exchange in a graph */
};

ulyxResult_t ulyxGraphsCreate(ulyxGraphs** graphs) {
  void* memory = NULL;
  ULYX_TRY(ulyxAllocate(&memory, 1, sizeof(ulyxGraphs), "a count of graphs"));
  *graphs = memory;
  atomic_init(&(*graphs)->shares, 1);
  return ulyxSuccess;
}

void ulyxGraphsRelease(ulyxGraphs* graphs) {
  if (graphs != NULL && atomic_fetch_sub(&graphs->shares, 1) == 1) free(graphs);
}

/* On a thread of CUDA's, which must not call CUDA. */
static void CUDART_CB graphIsGone(void* graphs) {
  ulyxGraphsRelease(graphs);
}

static cudaError_t capturedGraph(cudaStream_t stream, cudaGraph_t* graph) {
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
#if CUDART_VERSION >= 13000
  return cudaStreamGetCaptureInfo(stream, &status, NULL, graph, NULL, NULL, NULL);
#else
  return cudaStreamGetCaptureInfo_v2(stream, &status, NULL, graph, NULL, NULL);
#endif
}

ulyxResult_t ulyxGraphsHold(ulyxGraphs* graphs, cudaStream_t stream) {
  cudaGraph_t graph = NULL;
  cudaUserObject_t share = NULL;
  ULYX_TRY(ULYX_CUDA(capturedGraph(stream, &graph)));
  ULYX_TRY(ULYX_CUDA(cudaUserObjectCreate(&share, graphs, graphIsGone, 1, cudaUserObjectNoDestructorSync)));
  atomic_fetch_add(&graphs->shares, 1);
  const ulyxResult_t result = ULYX_CUDA(cudaGraphRetainUserObject(graph, share, 1, cudaGraphUserObjectMove));
  if (result != ulyxSuccess) (void)cudaUserObjectRelease(share, 1); /* which gives the share back */
  return result;
}

int64_t ulyxGraphsHeld(ulyxGraphs* graphs) {
  return atomic_load(&graphs->shares) - 1;
}

int64_t ulyxGraphsCount(ulyxGraphs* graphs, int64_t patienceMs) {
  int64_t held = ulyxGraphsHeld(graphs);
  for (int64_t ms = 0; held > 0 && ms < patienceMs; ++ms) {
    ulyxSleepUs(1000);
    held = ulyxGraphsHeld(graphs);
  }
  return held;
}
