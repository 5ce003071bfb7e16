/* SPDX-License-Identifier: MIT */
#include "plan_context.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flags.h"
#include "json.h"
#include "numbers.h"
#include "report.h"
#include "ulyx.h"

#define PLAN_MAX_CONTEXTS 65536 /* held at once; --rank names one of any number */
#define NOT_GIVEN (-1)

typedef struct contextOptions {
  perfCounts_t cuSeqlens;
  int64_t ranks;
  int64_t rank; /* NOT_GIVEN: all */
  int64_t convKernel;
  int64_t split; /* ulyxSplit_t */
  int64_t json;
} contextOptions_t;

/* All that is printed; computed before anything is. */
typedef struct contextPlan {
  int count;
  ulyxContext_t* contexts; /* [count], in rank order */
  ulyxContextInfo_t* infos;
} contextPlan_t;

static perfParse_t parse(int argc, char** argv, contextOptions_t* o) {
  const perfFlag_t flags[] = {
      {"--cu-seqlens", perfFlagCounts, &o->cuSeqlens, 0, INT64_MAX, NULL,
       "where sequences begin and the last one ends, from 0 on; needed"},
      {"--ranks", perfFlagInt, &o->ranks, 1, INT_MAX, NULL, "needed"},
      {"--rank", perfFlagInt, &o->rank, 0, INT_MAX, NULL, "only this one [all]"},
      {"--conv-kernel", perfFlagInt, &o->convKernel, 0, INT_MAX, NULL, "width of a causal convolution [0: none]"},
      {"--split", perfFlagChoice, &o->split, 0, 0, "balanced|equal|truncate",
       "who owns which tokens: all of them, the first ranks one more; a total that divides; or the rest dropped "
       "[balanced]"},
      {"--json", perfFlagSwitch, &o->json, 0, 0, NULL, "prints JSON"},
  };
  enum { nFlags = sizeof(flags) / sizeof(flags[0]) };
  const perfParse_t parsed = perfParseFlags(flags, nFlags, argc, argv, 1);
  if (parsed == perfHelpAsked) {
    (void)printf(
        "usage: ulyx_plan context --cu-seqlens 0,A,... --ranks N [flags]\n\n"
        "Prints what each rank has of sequences that stand one after another and are split over the ranks: its own\n"
        "cu_seqlens, and how much of its first and last sequence lies on the ranks before and after it.\n\n"
        "flags (a default in brackets):\n");
    perfPrintFlags(stdout, flags, nFlags);
  }
  return parsed;
}

static bool settle(const contextOptions_t* o) {
  if (o->cuSeqlens.values == NULL) {
    perfError("--cu-seqlens is needed");
    return false;
  }
  if (o->ranks == 0) {
    perfError("--ranks is needed");
    return false;
  }
  if (o->rank >= o->ranks) {
    perfError("--rank must be below --ranks, %" PRId64 ", not %" PRId64, o->ranks, o->rank);
    return false;
  }
  if (o->rank == NOT_GIVEN && o->ranks > PLAN_MAX_CONTEXTS) {
    perfError("more than %d ranks are too many to print: name one with --rank", PLAN_MAX_CONTEXTS);
    return false;
  }
  return true;
}

static void freePlan(contextPlan_t* plan) {
  for (int i = 0; plan->contexts != NULL && i < plan->count; i++) (void)ulyxContextDestroy(plan->contexts[i]);
  free(plan->contexts);
  free(plan->infos);
}

static bool allocPlan(int count, contextPlan_t* plan) {
  plan->count = count;
  plan->contexts = calloc((size_t)count, sizeof(*plan->contexts));
  plan->infos = calloc((size_t)count, sizeof(*plan->infos));
  if (plan->contexts != NULL && plan->infos != NULL) return true;
  perfError("out of memory for %d ranks", count);
  return false;
}

static bool compute(const contextOptions_t* o, contextPlan_t* plan) {
  ulyxSequences_t sequences = NULL;
  ulyxResult_t result = ulyxSequencesCreate(o->cuSeqlens.values, o->cuSeqlens.count, ulyxInt64, &sequences);
  for (int i = 0; result == ulyxSuccess && i < plan->count; i++) {
    const int rank = o->rank != NOT_GIVEN ? (int)o->rank : i;
    result = ulyxContextCreate(sequences, (int)o->ranks, rank, (int)o->split, (int)o->convKernel, &plan->contexts[i]);
    if (result != ulyxSuccess) break;
    plan->infos[i] = (ulyxContextInfo_t)ULYX_CONTEXT_INFO_INITIALIZER;
    result = ulyxContextGetInfo(plan->contexts[i], &plan->infos[i]);
  }
  if (result != ulyxSuccess) perfError("%s", ulyxGetLastError(NULL));
  (void)ulyxSequencesDestroy(sequences);
  return result == ulyxSuccess;
}

static void writeContext(perfJson_t* json, const ulyxContextInfo_t* info) {
  perfJsonOpenObject(json, NULL);
  perfJsonInt(json, "rank", info->rank);
  perfJsonOpenArray(json, "token_range");
  perfJsonInt(json, NULL, info->tokenRange.start);
  perfJsonInt(json, NULL, info->tokenRange.stop);
  perfJsonCloseArray(json);
  perfJsonOpenArray(json, "local_cu_seqlens");
  for (int64_t i = 0; i <= info->numSequences; i++) perfJsonInt(json, NULL, info->localCuSeqlens[i]);
  perfJsonCloseArray(json);
  perfJsonOpenArray(json, "sequence_indices");
  for (int64_t i = 0; i < info->numSequences; i++) perfJsonInt(json, NULL, info->sequenceIndices[i]);
  perfJsonCloseArray(json);
  perfJsonInt(json, "pre_num_conv_tokens", info->preNumConvTokens);
  perfJsonInt(json, "pre_num_ranks", info->preNumRanks);
  perfJsonBool(json, "is_first_rank", info->isFirstRank != 0);
  perfJsonInt(json, "post_num_ranks", info->postNumRanks);
  perfJsonBool(json, "is_last_rank", info->isLastRank != 0);
  perfJsonCloseObject(json);
}

static void writeJson(const contextPlan_t* plan) {
  perfJson_t json = {stdout, false};
  perfJsonOpenArray(&json, NULL);
  for (int i = 0; i < plan->count; i++) writeContext(&json, &plan->infos[i]);
  perfJsonCloseArray(&json);
  (void)printf("\n");
}

static void printText(const contextPlan_t* plan) {
  const ulyxContextInfo_t* any = &plan->infos[0];
  if (any->droppedTokens > 0) {
    (void)printf("the last %" PRId64 " tokens belong to no rank%s\n\n", any->droppedTokens,
                 any->cutsSequence != 0 ? ", which cuts a sequence: neither halo nor chain" : "");
  }
  (void)printf("%6s  %24s  %12s  %8s  %12s  %11s  %10s  %s\n", "rank", "tokens", "conv tokens", "halo", "ranks before",
               "ranks after", "sequences", "local cu_seqlens");
  for (int i = 0; i < plan->count; i++) {
    const ulyxContextInfo_t* info = &plan->infos[i];
    char tokens[64];
    (void)snprintf(tokens, sizeof(tokens), "[%" PRId64 ", %" PRId64 ")", info->tokenRange.start, info->tokenRange.stop);
    (void)printf("%6d  %24s  %12" PRId64 "  %8" PRId64 "  %12d  %11d  %10" PRId64 "  ", info->rank, tokens,
                 info->preNumConvTokens, info->haloTokens, info->preNumRanks, info->postNumRanks, info->numSequences);
    for (int64_t s = 0; s <= info->numSequences; s++) (void)printf("%s%d", s > 0 ? "," : "", info->localCuSeqlens[s]);
    (void)printf("\n");
  }
}

int planContext(int argc, char** argv) {
  int status = perfExitUsage;
  contextOptions_t options;
  contextPlan_t plan;
  memset(&options, 0, sizeof(options));
  memset(&plan, 0, sizeof(plan));
  options.rank = NOT_GIVEN;
  const perfParse_t parsed = parse(argc, argv, &options);
  if (parsed == perfHelpAsked) status = perfExitOk;
  if (parsed != perfParsed || !settle(&options)) goto freePlanAndOptions;
  if (!allocPlan(options.rank != NOT_GIVEN ? 1 : (int)options.ranks, &plan)) goto freePlanAndOptions;
  if (!compute(&options, &plan)) goto freePlanAndOptions;
  if (options.json != 0) {
    writeJson(&plan);
  } else {
    printText(&plan);
  }
  status = perfExitOk;

freePlanAndOptions:
  freePlan(&plan);
  perfCountsFree(&options.cuSeqlens);
  return status;
}
