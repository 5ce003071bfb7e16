/* SPDX-License-Identifier: MIT
 *
 * Symmetric memory: every rank's arenas are windows of equal size, numbered alike, and where NVLink reaches every peer
 * each rank knows where it sees the others'. A place is a window's number and a byte in it (exchange_layout.h), which
 * means the same on every rank. */
#ifndef ULYX_RUNTIME_WINDOWS_H_
#define ULYX_RUNTIME_WINDOWS_H_

#include <stdint.h>

#include "nccl_windows.h"
#include "nccl_world.h"

/* More arenas than this are not written by peers in place. */
#define ULYX_MAX_WINDOWS 512
#define ULYX_NO_WINDOW (-1)

#define ULYX_WHY_BYTES 160

typedef struct ulyxWindows {
  bool reachable;           /* every peer's memory, on every rank alike */
  char why[ULYX_WHY_BYTES]; /* or why not */
  int nRanks;
  void** peers;     /* [ULYX_MAX_WINDOWS][nRanks]: where this rank sees them */
  uint64_t* device; /* the same for kernels */
  uint64_t* words;  /* [nRanks], device memory */
  bool taken[ULYX_MAX_WINDOWS];
} ulyxWindows;

/* Finds out whether every rank can reach every other. `wanted` is the same on all ranks; false: nobody asks. On failure
 * nothing needs destroying. Collective and blocking. */
ulyxResult_t ulyxWindowsCreate(ulyxNcclWorld* world, bool wanted, ulyxWindows* windows);
ulyxResult_t ulyxWindowsDestroy(ulyxWindows* windows);
/* CUDA has gone. */
void ulyxWindowsForget(ulyxWindows* windows);

/* Gives registered memory its number, equal on all ranks: ULYX_NO_WINDOW where the peers cannot be reached, do not see
 * this memory (`why` then says so), or numbers have run out. Collective and blocking. */
ulyxResult_t ulyxWindowsAdd(ulyxWindows* windows, ulyxNcclWorld* world, void* data, ncclWindow_t handle, int* number);
/* The number may be given again. */
void ulyxWindowsRemove(ulyxWindows* windows, int number);

static inline void* ulyxWindowsPeer(const ulyxWindows* windows, int number, int rank) {
  return windows->peers[(int64_t)number * windows->nRanks + rank];
}

#endif /* ULYX_RUNTIME_WINDOWS_H_ */
