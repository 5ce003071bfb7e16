/* SPDX-License-Identifier: MIT
 *
 * Whether two GPUs of this host are linked by NVLink. Peer access alone is not enough: over PCIe, stores into a peer's
 * memory are slower than what NCCL does. */
#ifndef ULYX_RUNTIME_NVLINK_H_
#define ULYX_RUNTIME_NVLINK_H_

#include <stdbool.h>
#include <stdint.h>

/* A GPU's place on the PCI bus: domain, bus and device in one number. False: CUDA does not say. */
bool ulyxPciPlace(int device, int64_t* place);

/* `device` is this process' own; the other need not be visible to it. A GPU is linked to itself. */
bool ulyxNvlinkReaches(int device, int64_t otherPlace);

#endif /* ULYX_RUNTIME_NVLINK_H_ */
