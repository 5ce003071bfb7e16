/* SPDX-License-Identifier: MIT
 *
 * Objects that never change and have several owners count them. Whoever drops the last one frees. */
#ifndef ULYX_RUNTIME_REFERENCES_H_
#define ULYX_RUNTIME_REFERENCES_H_

#include <stdbool.h>
#include <stdint.h>

/* The caller holds one already, so nothing can be freed meanwhile and no order is needed. */
static inline void ulyxReferencesTake(int64_t* references) {
  __atomic_fetch_add(references, 1, __ATOMIC_RELAXED);
}

/* True for the last: every other owner's use then precedes the freeing. */
static inline bool ulyxReferencesDrop(int64_t* references) {
  return __atomic_sub_fetch(references, 1, __ATOMIC_ACQ_REL) == 0;
}

#endif /* ULYX_RUNTIME_REFERENCES_H_ */
