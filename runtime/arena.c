/* SPDX-License-Identifier: MIT */
#include "arena.h"

#include <stdlib.h>

#include "check.h"

/* No rank goes on to register what another could not allocate. */
static ulyxResult_t agreeOnSuccess(ulyxNcclWorld* world, ulyxResult_t mine, int64_t bytes) {
  int64_t* all = NULL;
  ULYX_TRY(ulyxNcclWorldGatherWord(world, mine, &all));
  ulyxResult_t result = mine;
  for (int rank = 0; rank < world->nRanks && result == ulyxSuccess; ++rank) {
    if (all[rank] == ulyxSuccess) continue;
    result = ulyxFail((ulyxResult_t)all[rank], "rank %d could not allocate %lld bytes of device memory", rank,
                      (long long)bytes);
  }
  free(all);
  return result;
}

static ulyxResult_t allocate(ulyxNcclWorld* world, int64_t bytes, ulyxArena** created) {
  void* memory = NULL;
  ULYX_TRY(ulyxAllocate(&memory, 1, sizeof(ulyxArena), "an arena"));
  ulyxArena* const arena = memory;
  const ncclResult_t error = ncclMemAlloc((void**)&arena->data, (size_t)bytes);
  if (error != ncclSuccess) {
    free(arena);
    return ulyxFail((ulyxResult_t)error, "rank %d could not allocate %lld bytes of device memory: %s", world->rank,
                    (long long)bytes, ncclGetLastError(NULL));
  }
  arena->bytes = bytes;
  arena->number = ULYX_NO_WINDOW;
  *created = arena;
  return ulyxSuccess;
}

static ulyxResult_t registerWindow(ulyxNcclWorld* world, ulyxArena* arena) {
  ncclComm_t comm = NULL;
  if (ncclCommWindowRegister == NULL) return ulyxSuccess;
  ULYX_TRY(ulyxGuardEnter(&world->guard, "the registration of memory", &comm));
  return ulyxGuardLeave(&world->guard, ULYX_NCCL(comm, ncclCommWindowRegister(comm, arena->data, (size_t)arena->bytes,
                                                                              &arena->window, NCCL_WIN_DEFAULT)));
}

/* A lost world's windows went with its communicator. */
static ulyxResult_t deregisterWindow(ulyxNcclWorld* world, ulyxArena* arena) {
  ncclComm_t comm = NULL;
  if (arena->window == NULL) return ulyxSuccess;
  if (ulyxGuardEnter(&world->guard, "the release of memory", &comm) != ulyxSuccess) return ulyxSuccess;
  return ulyxGuardLeave(&world->guard, ULYX_NCCL(comm, ncclCommWindowDeregister(comm, arena->window)));
}

ulyxResult_t ulyxArenaCreate(ulyxNcclWorld* world, ulyxWindows* windows, int64_t bytes, ulyxArena** created) {
  int64_t largest = 0;
  ulyxArena* arena = NULL;
  ULYX_TRY(ulyxNcclWorldLargest(world, bytes, &largest));
  largest = ulyxAlignUp(ulyxMax64(largest, 1), NCCL_WIN_REQUIRED_ALIGNMENT);
  ulyxResult_t result = allocate(world, largest, &arena);
  ULYX_TRY_GOTO(agreeOnSuccess(world, result, largest), destroyArena);
  if (world->nRanks > 1) {
    ULYX_TRY_GOTO(registerWindow(world, arena), destroyArena);
    ULYX_TRY_GOTO(ulyxNcclWorldWarm(world, arena->data, largest), destroyArena);
    ULYX_TRY_GOTO(ulyxWindowsAdd(windows, world, arena->data, arena->window, &arena->number), destroyArena);
  }
  *created = arena;
  return ulyxSuccess;

destroyArena:
  if (arena != NULL) {
    ulyxUndoBegin();
    (void)ulyxArenaDestroy(world, windows, arena);
    ulyxUndoEnd();
  }
  return result;
}

ulyxResult_t ulyxArenaDestroy(ulyxNcclWorld* world, ulyxWindows* windows, ulyxArena* arena) {
  ulyxWindowsRemove(windows, arena->number);
  const ulyxResult_t result = deregisterWindow(world, arena);
  ulyxGuardLetGo(&world->guard);
  if (!ulyxGuardAwaitAbort(&world->guard)) {
    return ulyxFail(ulyxInvalidUsage,
                    "%lld bytes of device memory stay allocated: captured graphs hold a lost world's exchanges",
                    (long long)arena->bytes);
  }
  const ulyxResult_t freed = ULYX_NCCL(NULL, ncclMemFree(arena->data));
  free(arena);
  return result != ulyxSuccess ? result : freed;
}
