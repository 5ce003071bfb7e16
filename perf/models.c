/* SPDX-License-Identifier: MIT */
#include "models.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "models_text.h"

/* A row is: name, layers, heads, kv_heads, head_dim, tokens, replicated_tokens, ... separated by tabs. */
static bool parseRow(const char* row, perfModel_t* model) {
  return sscanf(row, "%63[^\t]\t%*d\t%" SCNd64 "\t%" SCNd64 "\t%" SCNd64 "\t%" SCNd64 "\t%" SCNd64, model->name,
                &model->heads, &model->kvHeads, &model->headDim, &model->tokens, &model->replicatedTokens) == 6;
}

bool perfModelByRow(int row, perfModel_t* model) {
  const char* line = perfModelsText;
  for (int i = 0; i <= row; i++) { /* the first line holds the titles */
    line = strchr(line, '\n');
    if (line == NULL) return false;
    line++;
  }
  return parseRow(line, model);
}

bool perfModelByName(const char* name, perfModel_t* model) {
  for (int row = 0; perfModelByRow(row, model); row++) {
    if (strcmp(model->name, name) == 0) return true;
  }
  return false;
}

void perfModelNames(char* text, int bytes) {
  perfModel_t model;
  int used = 0;
  text[0] = '\0';
  for (int row = 0; used < bytes && perfModelByRow(row, &model); row++) {
    used += snprintf(text + used, (size_t)(bytes - used), "%s%s", row > 0 ? " " : "", model.name);
  }
}
