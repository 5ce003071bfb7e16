/* SPDX-License-Identifier: MIT
 *
 * Small integers that travel to device memory as kernel parameters: nothing of the host's must outlive the call,
 * and a captured graph owns what it stores. */
#ifndef ULYX_STORE_LAYOUT_H_
#define ULYX_STORE_LAYOUT_H_

#include <stdint.h>

#define ULYX_STORE_THREADS 256
#define ULYX_STORE_FEW 500
#define ULYX_STORE_MANY 7500

#define ULYX_STORE_FIELDS(n) \
  int32_t* dst;              \
  int64_t count;             \
  int32_t values[n]

typedef struct ulyxStoreBatch {
  ULYX_STORE_FIELDS(ULYX_STORE_MANY);
} ulyxStoreBatch;

#endif /* ULYX_STORE_LAYOUT_H_ */
