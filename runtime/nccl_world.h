/* SPDX-License-Identifier: MIT
 *
 * One rank's end of a world of GPUs: the communicator, a stream of our own, and small gathers over it.
 * Connections between all pairs are made at creation, so that no exchange is the first. */
#ifndef ULYX_RUNTIME_NCCL_WORLD_H_
#define ULYX_RUNTIME_NCCL_WORLD_H_

#include <stdbool.h>

#include "guard.h"

typedef struct ulyxNcclWorld {
  ulyxGuard guard; /* owns the communicator */
  int rank, nRanks, device;
  cudaStream_t side; /* agreements; never captured */
  cudaEvent_t done;  /* the last exchange that was not captured */
  bool doneRecorded;
  int wordCapacity;     /* words a rank in one gather */
  int64_t* deviceWords; /* [nRanks + 1][wordCapacity]: mine, then all */
  int64_t* hostWords;   /* the same, pinned */
} ulyxNcclWorld;

/* Takes the communicator over, also on failure. The current device is the communicator's. Collective. timeoutMs bounds
 * every wait for the other ranks, here and later; 0: for ever. */
ulyxResult_t ulyxNcclWorldCreate(ncclComm_t comm, int timeoutMs, ulyxNcclWorld* world);

/* all[r * count + i] = rank r's mine[i]; count is at most wordCapacity. Collective and blocking. */
ulyxResult_t ulyxNcclWorldGather(ulyxNcclWorld* world, const int64_t* mine, int count, int64_t* all);

/* Every rank's word, in rank order; *all[nRanks] is the caller's to free. Collective and blocking. */
ulyxResult_t ulyxNcclWorldGatherWord(ulyxNcclWorld* world, int64_t mine, int64_t** all);

/* The largest of what the ranks give. Collective and blocking. */
ulyxResult_t ulyxNcclWorldLargest(ulyxNcclWorld* world, int64_t mine, int64_t* largest);

/* Sends the first bytes of `memory` between all pairs, over one another: contents are lost, but NCCL has then
 * mapped the memory for every peer. Collective and blocking. */
ulyxResult_t ulyxNcclWorldWarm(ulyxNcclWorld* world, void* memory, int64_t bytes);

/* Waits for this rank's exchanges, by the deadline. The error is CUDA's. */
cudaError_t ulyxNcclWorldDrain(ulyxNcclWorld* world);

/* What CUDA answers once the process has begun to unload it: nothing of it may be called any more. */
bool ulyxCudaIsGone(cudaError_t error);

ulyxResult_t ulyxNcclWorldDestroy(ulyxNcclWorld* world);

#endif /* ULYX_RUNTIME_NCCL_WORLD_H_ */
