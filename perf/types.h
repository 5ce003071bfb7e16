/* SPDX-License-Identifier: MIT
 *
 * Element types by name: ulyx's names and nccl-tests' short ones. */
#ifndef PERF_TYPES_H_
#define PERF_TYPES_H_

#include <stdbool.h>

typedef struct perfType {
  const char* name;
  const char* ncclTestsName; /* NULL where nccl-tests has none or the same */
  int type;                  /* ulyxDataType_t */
  int bytes;
} perfType_t;

/* NULL if no type has that name. */
const perfType_t* perfTypeByName(const char* name);

/* The type of an ulyxDataType_t; NULL for ulyxOpaque and unknown ones. */
const perfType_t* perfTypeByCode(int type);

#endif /* PERF_TYPES_H_ */
