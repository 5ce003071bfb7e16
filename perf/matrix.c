/* SPDX-License-Identifier: MIT */
#include "matrix.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

#define MATRIX_MAX_RANKS 4096
#define NUMBER_CHARS 24 /* more than any 64-bit number has */

typedef struct reader {
  FILE* file;
  const char* path;
  perfCounts_t* counts;
  int64_t capacity;
  int64_t rows;
  int64_t columns; /* of every row */
} reader_t;

static bool append(reader_t* reader, const char* text) {
  int64_t value = 0;
  if (!perfParseInt(text, &value) || value < 0) {
    perfError("%s, line with row %" PRId64 ": '%s' is no count", reader->path, reader->rows, text);
    return false;
  }
  if (reader->counts->count == reader->capacity) {
    const int64_t capacity = reader->capacity > 0 ? 2 * reader->capacity : 64;
    int64_t* grown = realloc(reader->counts->values, (size_t)capacity * sizeof(*grown));
    if (grown == NULL) {
      perfError("out of memory for the matrix of %s", reader->path);
      return false;
    }
    reader->counts->values = grown;
    reader->capacity = capacity;
  }
  if (reader->counts->count == MATRIX_MAX_RANKS * MATRIX_MAX_RANKS) {
    perfError("%s: the matrix is of more than %d ranks", reader->path, MATRIX_MAX_RANKS);
    return false;
  }
  reader->counts->values[reader->counts->count++] = value;
  return true;
}

/* Ends a line that held `columns` numbers. */
static bool endRow(reader_t* reader, int64_t columns) {
  if (columns == 0) return true;
  if (reader->rows > 0 && columns != reader->columns) {
    perfError("%s: row %" PRId64 " has %" PRId64 " counts, the rows before it %" PRId64, reader->path, reader->rows,
              columns, reader->columns);
    return false;
  }
  reader->columns = columns;
  reader->rows++;
  return true;
}

static bool isGap(int character) {
  return character == ' ' || character == '\t' || character == '\r' || character == ',' || character == '\n' ||
         character == EOF;
}

static bool readRows(reader_t* reader) {
  char number[NUMBER_CHARS];
  size_t length = 0;
  int64_t columns = 0;
  for (int character = 0; character != EOF;) {
    character = fgetc(reader->file);
    if (!isGap(character)) {
      if (length + 1 < sizeof(number)) number[length++] = (char)character; /* cut short, it is no number either */
      continue;
    }
    number[length] = '\0';
    if (length > 0) {
      if (!append(reader, number)) return false;
      columns++;
    }
    length = 0;
    if (character != '\n' && character != EOF) continue;
    if (!endRow(reader, columns)) return false;
    columns = 0;
  }
  if (ferror(reader->file) == 0) return true;
  perfError("cannot read %s: %s", reader->path, strerror(errno));
  return false;
}

bool perfMatrixRead(const char* path, perfCounts_t* counts, int64_t* ranks) {
  perfCountsFree(counts);
  reader_t reader = {.path = path, .counts = counts};
  reader.file = fopen(path, "r");
  if (reader.file == NULL) {
    perfError("cannot read %s: %s", path, strerror(errno));
    return false;
  }
  const bool read = readRows(&reader);
  (void)fclose(reader.file);
  if (!read) return false;
  if (reader.rows == 0 || reader.rows != reader.columns) {
    perfError("%s: the matrix is %" PRId64 " x %" PRId64 ", not square", path, reader.rows, reader.columns);
    return false;
  }
  *ranks = reader.rows;
  return true;
}
