/* SPDX-License-Identifier: MIT */
#include "matrix.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

#define MATRIX_MAX_RANKS 4096
#define MATRIX_MAX_COUNT 0x1p53 /* up to here a double has every whole number */
#define NUMBER_CHARS 64         /* more than any number is written with */

typedef struct reader {
  const perfMatrixFile_t* of;
  FILE* file;
  perfCounts_t* counts;
  int64_t capacity;
  int64_t line;
  int64_t rows;
  int64_t columns; /* of every row */
} reader_t;

/* The rows that a number stands for. */
static bool parseCount(const reader_t* reader, const char* text, int64_t* rows) {
  const perfMatrixFile_t* of = reader->of;
  const bool inBytes = of->unit == perfMatrixBytes;
  int64_t whole = 0;
  double number = 0;
  if (!perfParseReal(text, &number) || (!inBytes && !perfParseInt(text, &whole))) {
    perfError("%s, line %" PRId64 ": '%s' is no count of %s", of->path, reader->line, text, inBytes ? "bytes" : "rows");
    return false;
  }
  number *= of->scale;
  if (!(number <= MATRIX_MAX_COUNT)) {
    perfError("%s, line %" PRId64 ": %s is too much", of->path, reader->line, text);
    return false;
  }
  *rows = (int64_t)number / (inBytes ? of->rowBytes : 1);
  return true;
}

static bool append(reader_t* reader, const char* text) {
  int64_t rows = 0;
  if (!parseCount(reader, text, &rows)) return false;
  if (reader->counts->count == reader->capacity) {
    const int64_t capacity = reader->capacity > 0 ? 2 * reader->capacity : 64;
    int64_t* grown = realloc(reader->counts->values, (size_t)capacity * sizeof(*grown));
    if (grown == NULL) {
      perfError("out of memory for the matrix of %s", reader->of->path);
      return false;
    }
    reader->counts->values = grown;
    reader->capacity = capacity;
  }
  if (reader->counts->count == MATRIX_MAX_RANKS * MATRIX_MAX_RANKS) {
    perfError("%s: the matrix is of more than %d ranks", reader->of->path, MATRIX_MAX_RANKS);
    return false;
  }
  reader->counts->values[reader->counts->count++] = rows;
  return true;
}

/* Ends a line that held `columns` numbers. */
static bool endRow(reader_t* reader, int64_t columns) {
  if (columns == 0) return true;
  if (reader->rows > 0 && columns != reader->columns) {
    perfError("%s, line %" PRId64 ": %" PRId64 " counts, the lines before it have %" PRId64, reader->of->path,
              reader->line, columns, reader->columns);
    return false;
  }
  reader->columns = columns;
  reader->rows++;
  return true;
}

static bool isGap(int character) {
  return character == ' ' || character == '\t' || character == '\r' || character == '\v' || character == '\f' ||
         character == ',' || character == '\n' || character == EOF;
}

static bool readRows(reader_t* reader) {
  char number[NUMBER_CHARS];
  size_t length = 0;
  int64_t columns = 0;
  for (int character = 0; character != EOF;) {
    character = fgetc(reader->file);
    if (character == '\0') { /* it would end a number before its last digits */
      perfError("%s, line %" PRId64 ": a NUL byte is no part of a count", reader->of->path, reader->line);
      return false;
    }
    if (!isGap(character)) {
      if (length + 1 < sizeof(number)) number[length++] = (char)character;
      if (length + 1 == sizeof(number)) number[0] = '?'; /* cut short, it is no number either */
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
    reader->line++;
  }
  if (ferror(reader->file) == 0) return true;
  perfError("cannot read %s: %s", reader->of->path, strerror(errno));
  return false;
}

bool perfMatrixRead(const perfMatrixFile_t* file, perfCounts_t* counts, int64_t* ranks) {
  perfCountsFree(counts);
  reader_t reader = {.of = file, .counts = counts, .line = 1};
  reader.file = fopen(file->path, "r");
  if (reader.file == NULL) {
    perfError("cannot read %s: %s", file->path, strerror(errno));
    return false;
  }
  const bool read = readRows(&reader);
  (void)fclose(reader.file);
  if (!read) return false;
  if (reader.rows == 0 || reader.rows != reader.columns) {
    perfError("%s: the matrix is %" PRId64 " x %" PRId64 ", not square", file->path, reader.rows, reader.columns);
    return false;
  }
  *ranks = reader.rows;
  return true;
}
