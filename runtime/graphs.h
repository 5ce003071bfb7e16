/* SPDX-License-Identifier: MIT
 *
 * The captured graphs that hold exchanges of a runtime. NCCL's communicator and the memory that kernels write must
 * outlive them, so a runtime that has some refuses to be destroyed rather than waits for ever. CUDA tells when a graph
 * and everything instantiated from it is gone. */
#ifndef ULYX_RUNTIME_GRAPHS_H_
#define ULYX_RUNTIME_GRAPHS_H_

#include <stdint.h>

#include "cuda_check.h"

/* Shared by the runtime and its graphs; the last of them frees it. */
typedef struct ulyxGraphs ulyxGraphs;

ulyxResult_t ulyxGraphsCreate(ulyxGraphs** graphs);
/* The runtime's share. */
void ulyxGraphsRelease(ulyxGraphs* graphs);

/* The graph that the stream is being captured into holds one exchange more. */
ulyxResult_t ulyxGraphsHold(ulyxGraphs* graphs, cudaStream_t stream);

/* Exchanges in graphs that are still there, as far as CUDA has told. Any thread. */
int64_t ulyxGraphsHeld(ulyxGraphs* graphs);
/* The same, after a moment of at most so long for CUDA to tell: it does so behind the caller's back. */
int64_t ulyxGraphsCount(ulyxGraphs* graphs, int64_t patienceMs);

#endif /* ULYX_RUNTIME_GRAPHS_H_ */
