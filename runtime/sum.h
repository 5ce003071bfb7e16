/* SPDX-License-Identifier: MIT
 *
 * Sums of rows: filling the kernel's batch from a phase's sum, and the same sum on the host, bit for bit. */
#ifndef ULYX_RUNTIME_SUM_H_
#define ULYX_RUNTIME_SUM_H_

#include "local_op.h"
#include "ulyx.h"

/* Turns places into addresses. The sum has at most ULYX_SUM_MAX_ADDENDS addends. */
void ulyxSumBatchFill(const ulyxSum* sum, void* const* src, void* const* dst, ulyxSumBatch* batch);

/* The kernel's work, on host memory. */
void ulyxSumOnHost(const ulyxSumBatch* batch);

/* An address of a place. */
static inline unsigned char* ulyxPlaceAddress(ulyxBufferPlace place, void* const* src, void* const* dst) {
  return (unsigned char*)(place.in == ulyxInSrc ? src : dst)[place.buffer] + place.offset;
}

#endif /* ULYX_RUNTIME_SUM_H_ */
