/* SPDX-License-Identifier: MIT
 *
 * Shapes of real models, from models.tsv, whose text is built into the program. */
#ifndef PERF_MODELS_H_
#define PERF_MODELS_H_

#include <stdbool.h>
#include <stdint.h>

typedef struct perfModel {
  char name[64];
  int64_t heads;
  int64_t kvHeads;
  int64_t headDim;
  int64_t tokens;           /* that are split over the ranks */
  int64_t replicatedTokens; /* that every rank has: the text of joint attention */
} perfModel_t;

/* The model in row `row` of the table; false past its end. */
bool perfModelByRow(int row, perfModel_t* model);

/* False if no model has that name. */
bool perfModelByName(const char* name, perfModel_t* model);

/* The names, separated by blanks, in `text`. */
void perfModelNames(char* text, int bytes);

#endif /* PERF_MODELS_H_ */
