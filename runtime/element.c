/* SPDX-License-Identifier: MIT */
#include "element.h"

#include <inttypes.h>

#include "status.h"

typedef struct Element {
  int type;
  int64_t bytes;
  const char* name;
} Element;

static const Element elements[] = {
    {ulyxInt8, 1, "int8"},         {ulyxUint8, 1, "uint8"},           {ulyxInt32, 4, "int32"},
    {ulyxUint32, 4, "uint32"},     {ulyxInt64, 8, "int64"},           {ulyxUint64, 8, "uint64"},
    {ulyxFloat16, 2, "float16"},   {ulyxFloat32, 4, "float32"},       {ulyxFloat64, 8, "float64"},
    {ulyxBfloat16, 2, "bfloat16"}, {ulyxFloat8e4m3, 1, "float8e4m3"}, {ulyxFloat8e5m2, 1, "float8e5m2"},
    {ulyxBool, 1, "bool"},         {ulyxInt16, 2, "int16"},           {ulyxUint16, 2, "uint16"},
    {ulyxOpaque, 0, "opaque"}};

static const Element* find(int type) {
  for (size_t i = 0; i < sizeof elements / sizeof elements[0]; ++i) {
    if (elements[i].type == type) return &elements[i];
  }
  return NULL;
}

ulyxResult_t ulyxElementBytes(const char* subject, int type, int given, int64_t* bytes) {
  const Element* const element = find(type);
  if (element == NULL) {
    return ulyxFail(ulyxInvalidArgument, "%s.type is %d, which is no ulyxDataType_t", subject, type);
  }
  if (given < 0) {
    return ulyxFail(ulyxInvalidArgument, "%s.elementBytes is %d, expected 0 or more", subject, given);
  }
  if (type == ulyxOpaque && given == 0) {
    return ulyxFail(ulyxInvalidArgument, "%s.elementBytes is 0, but ulyxOpaque elements have no size of their own",
                    subject);
  }
  if (type != ulyxOpaque && given != 0 && given != element->bytes) {
    return ulyxFail(ulyxInvalidArgument, "%s.elementBytes is %d, but %s has %" PRId64, subject, given, element->name,
                    element->bytes);
  }
  *bytes = given != 0 ? given : element->bytes;
  return ulyxSuccess;
}

bool ulyxElementIsSummed(int type) {
  return type == ulyxFloat16 || type == ulyxBfloat16 || type == ulyxFloat32;
}

const char* ulyxElementName(int type) {
  const Element* const element = find(type);
  return element != NULL ? element->name : "no ulyxDataType_t";
}
