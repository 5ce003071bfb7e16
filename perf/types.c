/* SPDX-License-Identifier: MIT */
#include "types.h"

#include <stddef.h>
#include <string.h>

#include "ulyx.h"

static const perfType_t types[] = {
    {"bfloat16", NULL, ulyxBfloat16, 2},
    {"float16", "half", ulyxFloat16, 2},
    {"float32", "float", ulyxFloat32, 4},
    {"float64", "double", ulyxFloat64, 8},
    {"float8e4m3", "f8e4m3", ulyxFloat8e4m3, 1},
    {"float8e5m2", "f8e5m2", ulyxFloat8e5m2, 1},
    {"int8", NULL, ulyxInt8, 1},
    {"uint8", NULL, ulyxUint8, 1},
    {"int16", NULL, ulyxInt16, 2},
    {"uint16", NULL, ulyxUint16, 2},
    {"int32", NULL, ulyxInt32, 4},
    {"uint32", NULL, ulyxUint32, 4},
    {"int64", NULL, ulyxInt64, 8},
    {"uint64", NULL, ulyxUint64, 8},
    {"bool", NULL, ulyxBool, 1},
};

enum { nTypes = sizeof(types) / sizeof(types[0]) };

const perfType_t* perfTypeByName(const char* name) {
  for (int i = 0; i < nTypes; i++) {
    if (strcmp(types[i].name, name) == 0) return &types[i];
    if (types[i].ncclTestsName != NULL && strcmp(types[i].ncclTestsName, name) == 0) return &types[i];
  }
  return NULL;
}

const perfType_t* perfTypeByCode(int type) {
  for (int i = 0; i < nTypes; i++) {
    if (types[i].type == type) return &types[i];
  }
  return NULL;
}
