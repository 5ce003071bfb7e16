/* SPDX-License-Identifier: MIT
 *
 * Memory that the wire reads and writes without buffers of its own: allocated by NCCL, registered with the
 * communicator once, equal in size on every rank, and a window that peers write where they can. NCCL needs both ends of
 * a message registered or neither, so whatever goes on the wire lies in such memory: the staging arena or what
 * ulyxMemAlloc gave. */
#ifndef ULYX_RUNTIME_ARENA_H_
#define ULYX_RUNTIME_ARENA_H_

#include "windows.h"

typedef struct ulyxArena {
  struct ulyxArena* next; /* for the owner's list */
  char* data;
  int64_t bytes;
  ncclWindow_t window; /* NULL where NCCL needs none */
  int number;          /* among the windows that peers write; ULYX_NO_WINDOW: they do not */
} ulyxArena;

/* Every rank gets the largest of what the ranks ask for. Collective and blocking. */
ulyxResult_t ulyxArenaCreate(ulyxNcclWorld* world, ulyxWindows* windows, int64_t bytes, ulyxArena** arena);

/* Nothing may use it any more on this rank. */
ulyxResult_t ulyxArenaDestroy(ulyxNcclWorld* world, ulyxWindows* windows, ulyxArena* arena);

static inline bool ulyxArenaHolds(const ulyxArena* arena, const void* data, int64_t bytes) {
  const uintptr_t start = (uintptr_t)data, base = (uintptr_t)arena->data;
  return start >= base && start - base + (uintptr_t)bytes <= (uintptr_t)arena->bytes;
}

#endif /* ULYX_RUNTIME_ARENA_H_ */
