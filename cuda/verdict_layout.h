/* SPDX-License-Identifier: MIT
 *
 * How an exchange went, in device memory, for what follows it on its stream: that does nothing where its world is lost
 * or its data void, since it would read what never arrived. */
#ifndef ULYX_VERDICT_LAYOUT_H_
#define ULYX_VERDICT_LAYOUT_H_

#include <stdint.h>

typedef struct ulyxVerdict {
  uint32_t lost;    /* 1: the world is lost, for good; kernels return at once */
  uint32_t refused; /* 1: the running exchange met a mismatch; its later kernels make no copies */
  uint32_t voided;  /* 1: the last exchange that ended was refused */
} ulyxVerdict;

#endif /* ULYX_VERDICT_LAYOUT_H_ */
