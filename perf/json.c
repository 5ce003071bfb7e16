/* SPDX-License-Identifier: MIT */
#include "json.h"

#include <inttypes.h>

static void quote(FILE* file, const char* text) {
  (void)fputc('"', file);
  for (const char* c = text; *c != '\0'; c++) {
    const unsigned char byte = (unsigned char)*c;
    if (byte == '"' || byte == '\\') {
      (void)fprintf(file, "\\%c", byte);
    } else if (byte < 0x20) {
      (void)fprintf(file, "\\u%04x", byte);
    } else {
      (void)fputc(byte, file);
    }
  }
  (void)fputc('"', file);
}

/* What precedes a value: a comma and the value's name. */
static void precede(perfJson_t* json, const char* name) {
  if (json->within) (void)fputs(", ", json->file);
  if (name != NULL) {
    quote(json->file, name);
    (void)fputs(": ", json->file);
  }
  json->within = true;
}

static void open(perfJson_t* json, const char* name, char bracket) {
  if (json->file == NULL) return;
  precede(json, name);
  (void)fputc(bracket, json->file);
  json->within = false;
}

static void shut(perfJson_t* json, char bracket) {
  if (json->file == NULL) return;
  (void)fputc(bracket, json->file);
  json->within = true;
}

void perfJsonOpenObject(perfJson_t* json, const char* name) {
  open(json, name, '{');
}
void perfJsonCloseObject(perfJson_t* json) {
  shut(json, '}');
}
void perfJsonOpenArray(perfJson_t* json, const char* name) {
  open(json, name, '[');
}
void perfJsonCloseArray(perfJson_t* json) {
  shut(json, ']');
}

void perfJsonText(perfJson_t* json, const char* name, const char* text) {
  if (json->file == NULL) return;
  precede(json, name);
  quote(json->file, text);
}

void perfJsonInt(perfJson_t* json, const char* name, int64_t number) {
  if (json->file == NULL) return;
  precede(json, name);
  (void)fprintf(json->file, "%" PRId64, number);
}

void perfJsonBool(perfJson_t* json, const char* name, bool value) {
  if (json->file == NULL) return;
  precede(json, name);
  (void)fputs(value ? "true" : "false", json->file);
}

void perfJsonMeasured(perfJson_t* json, const char* name, double number) {
  if (json->file == NULL) return;
  precede(json, name);
  if (number < 0) {
    (void)fputs("null", json->file);
  } else {
    (void)fprintf(json->file, "%.6g", number);
  }
}
