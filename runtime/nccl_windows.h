/* SPDX-License-Identifier: MIT
 *
 * NCCL's windows came with 2.27. This is compiled with older headers too, and an older library may be the one that is
 * loaded, whichever it was built with: there the functions are NULL, memory is not registered, and messages go through
 * NCCL's own buffers. */
#ifndef ULYX_RUNTIME_NCCL_WINDOWS_H_
#define ULYX_RUNTIME_NCCL_WINDOWS_H_

#include <nccl.h>

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 27, 0)
typedef struct ncclWindow_vidmem* ncclWindow_t;
#define NCCL_WIN_DEFAULT 0x00
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, size_t bytes, ncclWindow_t* window, int flags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window);
#endif
#ifndef NCCL_WIN_REQUIRED_ALIGNMENT /* in 2.28 first */
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096
#endif

#pragma weak ncclCommWindowRegister
#pragma weak ncclCommWindowDeregister

#endif /* ULYX_RUNTIME_NCCL_WINDOWS_H_ */
