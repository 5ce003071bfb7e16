/* SPDX-License-Identifier: MIT
 *
 * What NCCL itself is timed in: buffers that it allocated and registered. */
#include "cuda_backend.h"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 27, 0)
/* Windows came with 2.27: an older NCCL is timed through buffers of its own. */
typedef void* ncclWindow_t;
#define ncclCommWindowRegister(comm, data, bytes, window, flags) ncclSuccess
#define ncclCommWindowDeregister(comm, window) ncclSuccess
#endif

bool perfCudaTimeInWindows(perfRank_t* me, int64_t bytes, const perfTask_t* task, void* buffers[2],
                           const perfRepeat_t* repeat, double* us) {
  bool ok = false;
  ncclWindow_t windows[2] = {NULL, NULL};
  buffers[0] = NULL;
  buffers[1] = NULL;
  for (int i = 0; i < 2; i++) {
    if (!perfNcclOk(ncclMemAlloc(&buffers[i], (size_t)bytes), "ncclMemAlloc")) goto freeWindows;
    if (!perfNcclOk(ncclCommWindowRegister(me->comm, buffers[i], (size_t)bytes, &windows[i], NCCL_WIN_DEFAULT),
                    "ncclCommWindowRegister")) {
      goto freeWindows;
    }
  }
  perfTimes_t times;
  if (!perfCudaTime(me, task, repeat, &times)) goto freeWindows;
  *us = times.medianUs;
  ok = true;

freeWindows:
  for (int i = 1; i >= 0; i--) {
    if (windows[i] != NULL && !perfNcclOk(ncclCommWindowDeregister(me->comm, windows[i]), "ncclCommWindowDeregister")) {
      ok = false;
    }
    if (buffers[i] != NULL && !perfNcclOk(ncclMemFree(buffers[i]), "ncclMemFree")) ok = false;
  }
  return ok;
}
