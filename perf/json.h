/* SPDX-License-Identifier: MIT
 *
 * Writes JSON as it comes: objects, arrays, members. Commas and quotes are its business; that what is opened
 * is closed is the caller's. A writer without a file swallows everything. */
#ifndef PERF_JSON_H_
#define PERF_JSON_H_

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct perfJson {
  FILE* file;  /* NULL: none */
  bool within; /* something precedes in the same object or array */
} perfJson_t;

/* In all of these `name` is NULL inside an array. */
void perfJsonOpenObject(perfJson_t* json, const char* name);
void perfJsonCloseObject(perfJson_t* json);
void perfJsonOpenArray(perfJson_t* json, const char* name);
void perfJsonCloseArray(perfJson_t* json);
void perfJsonText(perfJson_t* json, const char* name, const char* text);
void perfJsonInt(perfJson_t* json, const char* name, int64_t number);
void perfJsonBool(perfJson_t* json, const char* name, bool value);
/* A negative number is written as null: it was not measured. */
void perfJsonMeasured(perfJson_t* json, const char* name, double number);

#endif /* PERF_JSON_H_ */
