/* SPDX-License-Identifier: MIT
 *
 * The memory of an array that is built again and again. It grows and never shrinks, so that what is rebuilt for every
 * new length allocates nothing once it has been as large as it gets. All zeros are an empty one. */
#ifndef ULYX_RUNTIME_STORAGE_H_
#define ULYX_RUNTIME_STORAGE_H_

#include <stddef.h>

#include "ulyx.h"

typedef struct ulyxStorage {
  void* data;
  size_t bytes;
} ulyxStorage;

/* Room for `count` items, which may move data. What it held it still holds; all else is unspecified. On failure it is
 * as it was. */
ulyxResult_t ulyxStorageEnsure(ulyxStorage* storage, size_t count, size_t bytesEach, const char* what);
void ulyxStorageFree(ulyxStorage* storage);

#endif /* ULYX_RUNTIME_STORAGE_H_ */
