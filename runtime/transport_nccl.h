/* SPDX-License-Identifier: MIT
 *
 * One rank's nccl transport. Only memory that is registered on both ends goes on the wire: the arena, or what
 * ulyxMemAlloc gave (arena.h says why). */
#ifndef ULYX_RUNTIME_TRANSPORT_NCCL_H_
#define ULYX_RUNTIME_TRANSPORT_NCCL_H_

#include "arena.h"
#include "copy_layout.h"
#include "transport.h"
#include "wire.h"

typedef struct ulyxNccl {
  ulyxTransport base;
  ulyxNcclWorld world;
  ulyxArena* arena;    /* staging */
  ulyxArena* blocks;   /* from ulyxMemAlloc */
  cudaStream_t beside; /* own copies while the wire works; part of a capture while one is open */
  cudaEvent_t fork, join;
  int maxCtas;         /* of any kernel; 0: no cap */
  int besideCtas;      /* of a kernel that runs beside NCCL's */
  ulyxCopyBatch batch; /* being filled; empty between launches */
} ulyxNccl;

/* What an exchange needs besides its phase. */
typedef struct ulyxNcclPrepared {
  ulyxWire wire;
  int64_t scratchOffset; /* scratch lies in the arena, behind the messages */
} ulyxNcclPrepared;

/* One rank's transport over a communicator, which it takes over, also on failure. The current device is the
 * communicator's. Collective. */
ulyxResult_t ulyxNcclTransportCreate(const ulyxSettings* settings, ncclComm_t comm, ulyxTransport** transport);

/* Enqueues one exchange; the transport's device is current. */
ulyxResult_t ulyxNcclExchange(ulyxNccl* self, const ulyxExchange* exchange);

#endif /* ULYX_RUNTIME_TRANSPORT_NCCL_H_ */
