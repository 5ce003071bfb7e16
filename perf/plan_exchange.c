/* SPDX-License-Identifier: MIT */
#include "plan_exchange.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flags.h"
#include "json.h"
#include "numbers.h"
#include "ranges.h"
#include "report.h"
#include "types.h"
#include "ulyx.h"

#define PLAN_MAX_RANKS 4096 /* a matrix of ranks by ranks is held */

typedef struct exchangeOptions {
  int64_t tokens;
  int64_t heads;
  int64_t kvHeads;
  int64_t headDim;
  int64_t valueDim;
  int64_t batch;
  int64_t replicatedTokens;
  int64_t replicatedLast;
  int64_t ranks;
  const perfType_t* type;
  perfCounts_t tokenCounts;
  perfCounts_t headCounts;
  int64_t json;
} exchangeOptions_t;

/* All that is printed; computed before anything is. */
typedef struct exchangePlan {
  int nRanks;
  ulyxRange_t* tokenRanges; /* [nRanks] */
  ulyxRange_t* headRanges;
  ulyxRange_t* kvHeadRanges;
  int64_t* seqToHeadsBytes; /* [nRanks * nRanks] */
  int64_t* headsToSeqBytes;
  int64_t* arenaBytes; /* [nRanks] */
  int64_t kvHeads;
  int64_t queriesOfKvHead; /* query heads that share a key/value head */
  int64_t replicatedTokens;
  ulyxRange_t* seqReplicated; /* [nRanks], rows of the sequence side's tensors */
  ulyxRange_t headsReplicated;
} exchangePlan_t;

static perfParse_t parse(int argc, char** argv, exchangeOptions_t* o) {
  const perfFlag_t flags[] = {
      {"--tokens", perfFlagInt, &o->tokens, 1, INT64_MAX, NULL, "of the whole sequence [the sum of --token-counts]"},
      {"--heads", perfFlagInt, &o->heads, 1, INT64_MAX, NULL, "query heads [the sum of --head-counts]"},
      {"--kv-heads", perfFlagInt, &o->kvHeads, 1, INT64_MAX, NULL, "key/value heads [as many as query heads]"},
      {"--head-dim", perfFlagInt, &o->headDim, 1, INT64_MAX, NULL, "elements of a query or key head; needed"},
      {"--value-dim", perfFlagInt, &o->valueDim, 1, INT64_MAX, NULL, "elements of a value head [--head-dim's]"},
      {"--batch", perfFlagInt, &o->batch, 1, INT64_MAX, NULL, "sequences [1]"},
      {"--replicated", perfFlagInt, &o->replicatedTokens, 0, INT64_MAX, NULL,
       "tokens that every rank has besides, such as the text of joint attention [0]"},
      {"--replicated-last", perfFlagSwitch, &o->replicatedLast, 0, 0, NULL,
       "replicated tokens stand after the others, not before them"},
      {"--type", perfFlagType, &o->type, 0, 0, NULL, "element type, e.g. bfloat16, float8e4m3, float32 [bfloat16]"},
      {"--ranks", perfFlagInt, &o->ranks, 1, PLAN_MAX_RANKS, NULL, "needed"},
      {"--token-counts", perfFlagCounts, &o->tokenCounts, 0, INT64_MAX, NULL, "tokens of each rank [balanced]"},
      {"--head-counts", perfFlagCounts, &o->headCounts, 0, INT64_MAX, NULL, "query heads of each rank [balanced]"},
      {"--json", perfFlagSwitch, &o->json, 0, 0, NULL, "prints JSON"},
  };
  enum { nFlags = sizeof(flags) / sizeof(flags[0]) };
  const perfParse_t parsed = perfParseFlags(flags, nFlags, argc, argv, 1);
  if (parsed == perfHelpAsked) {
    (void)printf(
        "usage: ulyx_plan exchange --tokens T --heads H --head-dim D --ranks N [flags]\n\n"
        "Prints every rank's ranges [start, stop), the bytes from rank to rank of both exchanges, a rank's own\n"
        "bytes included, and the staging arena that each rank reserves. Where query heads share key/value heads, also\n"
        "which of its own each rank's query heads use, and which ranks each goes to. With replicated tokens, also the\n"
        "rows of the tensors that hold them.\n\nflags (a default in brackets):\n");
    perfPrintFlags(stdout, flags, nFlags);
  }
  return parsed;
}

static bool settle(exchangeOptions_t* o) {
  const perfCounts_t* counts[] = {&o->tokenCounts, &o->headCounts};
  static const char* const names[] = {"--token-counts", "--head-counts"};
  int64_t* const totals[] = {&o->tokens, &o->heads};
  static const char* const totalNames[] = {"--tokens", "--heads"};
  if (o->ranks == 0) {
    perfError("--ranks is needed");
    return false;
  }
  if (o->headDim == 0) {
    perfError("--head-dim is needed");
    return false;
  }
  if (o->replicatedLast != 0 && o->replicatedTokens == 0) {
    perfError("--replicated-last needs --replicated");
    return false;
  }
  for (int i = 0; i < 2; i++) {
    int64_t sum = 0;
    if (counts[i]->values == NULL) {
      if (*totals[i] > 0) continue;
      perfError("%s is needed", totalNames[i]);
      return false;
    }
    if (counts[i]->count != o->ranks) {
      perfError("%s needs one count a rank, %" PRId64 ", not %d", names[i], o->ranks, counts[i]->count);
      return false;
    }
    if (!perfCountsSum(counts[i], &sum)) {
      perfError("the sum of %s exceeds 64 bits", names[i]);
      return false;
    }
    if (*totals[i] == 0) *totals[i] = sum;
    if (*totals[i] != sum) {
      perfError("%s is %" PRId64 ", but %s add up to %" PRId64, totalNames[i], *totals[i], names[i], sum);
      return false;
    }
  }
  return true;
}

static void freePlan(exchangePlan_t* plan) {
  free(plan->tokenRanges);
  free(plan->headRanges);
  free(plan->kvHeadRanges);
  free(plan->seqToHeadsBytes);
  free(plan->headsToSeqBytes);
  free(plan->arenaBytes);
  free(plan->seqReplicated);
}

static bool allocPlan(int nRanks, exchangePlan_t* plan) {
  const size_t ranks = (size_t)nRanks;
  plan->nRanks = nRanks;
  plan->tokenRanges = calloc(ranks, sizeof(*plan->tokenRanges));
  plan->headRanges = calloc(ranks, sizeof(*plan->headRanges));
  plan->kvHeadRanges = calloc(ranks, sizeof(*plan->kvHeadRanges));
  plan->seqToHeadsBytes = calloc(ranks * ranks, sizeof(*plan->seqToHeadsBytes));
  plan->headsToSeqBytes = calloc(ranks * ranks, sizeof(*plan->headsToSeqBytes));
  plan->arenaBytes = calloc(ranks, sizeof(*plan->arenaBytes));
  plan->seqReplicated = calloc(ranks, sizeof(*plan->seqReplicated));
  if (plan->tokenRanges != NULL && plan->headRanges != NULL && plan->kvHeadRanges != NULL &&
      plan->seqToHeadsBytes != NULL && plan->headsToSeqBytes != NULL && plan->arenaBytes != NULL &&
      plan->seqReplicated != NULL) {
    return true;
  }
  perfError("out of memory for %d ranks", nRanks);
  return false;
}

static void placeReplicated(const exchangeOptions_t* o, exchangePlan_t* plan) {
  const bool last = o->replicatedLast != 0;
  for (int rank = 0; rank < plan->nRanks; rank++) {
    const int64_t first = last ? perfRangeLength(plan->tokenRanges[rank]) : 0;
    plan->seqReplicated[rank] = (ulyxRange_t){first, first + o->replicatedTokens};
  }
  const int64_t first = last ? plan->tokenRanges[plan->nRanks - 1].stop : 0;
  plan->headsReplicated = (ulyxRange_t){first, first + o->replicatedTokens};
  plan->replicatedTokens = o->replicatedTokens;
}

static bool compute(const exchangeOptions_t* o, exchangePlan_t* plan) {
  ulyxShape_t shape = ULYX_SHAPE_INITIALIZER;
  shape.tokens = o->tokens;
  shape.heads = o->heads;
  shape.kvHeads = o->kvHeads;
  shape.headDim = o->headDim;
  shape.valueDim = o->valueDim;
  shape.batch = o->batch;
  shape.replicatedTokens = o->replicatedTokens;
  shape.replicatedPlace = o->replicatedLast != 0 ? ulyxReplicatedLast : ulyxReplicatedFirst;
  shape.tokenCounts = o->tokenCounts.values;
  shape.headCounts = o->headCounts.values;
  shape.type = o->type->type;
  const int n = plan->nRanks;
  ulyxResult_t result = ulyxShapeGetRanges(&shape, n, plan->tokenRanges, plan->headRanges, plan->kvHeadRanges);
  if (result == ulyxSuccess) result = ulyxShapeGetTraffic(&shape, n, ulyxOpSeqToHeads, plan->seqToHeadsBytes);
  if (result == ulyxSuccess) result = ulyxShapeGetTraffic(&shape, n, ulyxOpHeadsToSeq, plan->headsToSeqBytes);
  for (int rank = 0; result == ulyxSuccess && rank < n; rank++) {
    ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
    result = ulyxShapeGetBytes(&shape, n, rank, &bytes);
    plan->arenaBytes[rank] = bytes.arena;
  }
  if (result != ulyxSuccess) {
    perfError("%s", ulyxGetLastError(NULL));
    return false;
  }
  plan->kvHeads = o->kvHeads > 0 ? o->kvHeads : o->heads;
  plan->queriesOfKvHead = o->heads / plan->kvHeads;
  placeReplicated(o, plan);
  return true;
}

/* The place among its own of the key/value head that the rank's query head `head`, of all, uses. */
static int64_t localKvHead(const exchangePlan_t* plan, int rank, int64_t head) {
  return head / plan->queriesOfKvHead - plan->kvHeadRanges[rank].start;
}

static bool usesKvHead(const exchangePlan_t* plan, int rank, int64_t kvHead) {
  return kvHead >= plan->kvHeadRanges[rank].start && kvHead < plan->kvHeadRanges[rank].stop;
}

static void writeRange(perfJson_t* json, const char* name, ulyxRange_t range) {
  perfJsonOpenArray(json, name);
  perfJsonInt(json, NULL, range.start);
  perfJsonInt(json, NULL, range.stop);
  perfJsonCloseArray(json);
}

static void writeRanges(perfJson_t* json, const char* name, const ulyxRange_t* ranges, int n) {
  perfJsonOpenArray(json, name);
  for (int i = 0; i < n; i++) writeRange(json, NULL, ranges[i]);
  perfJsonCloseArray(json);
}

static void writeNumbers(perfJson_t* json, const char* name, const int64_t* numbers, int n) {
  perfJsonOpenArray(json, name);
  for (int i = 0; i < n; i++) perfJsonInt(json, NULL, numbers[i]);
  perfJsonCloseArray(json);
}

static void writeMatrix(perfJson_t* json, const char* name, const int64_t* bytes, int n) {
  perfJsonOpenArray(json, name);
  for (int source = 0; source < n; source++) writeNumbers(json, NULL, bytes + (size_t)source * (size_t)n, n);
  perfJsonCloseArray(json);
}

static void writeKvHeads(perfJson_t* json, const exchangePlan_t* plan) {
  perfJsonOpenArray(json, "kv_head_of_head");
  for (int rank = 0; rank < plan->nRanks; rank++) {
    const ulyxRange_t heads = plan->headRanges[rank];
    perfJsonOpenArray(json, NULL);
    for (int64_t head = heads.start; head < heads.stop; head++) perfJsonInt(json, NULL, localKvHead(plan, rank, head));
    perfJsonCloseArray(json);
  }
  perfJsonCloseArray(json);
  perfJsonOpenArray(json, "kv_head_ranks");
  for (int64_t kvHead = 0; kvHead < plan->kvHeads; kvHead++) {
    perfJsonOpenArray(json, NULL);
    for (int rank = 0; rank < plan->nRanks; rank++) {
      if (usesKvHead(plan, rank, kvHead)) perfJsonInt(json, NULL, rank);
    }
    perfJsonCloseArray(json);
  }
  perfJsonCloseArray(json);
}

static void writeJson(const exchangePlan_t* plan) {
  perfJson_t json = {stdout, false};
  perfJsonOpenObject(&json, NULL);
  writeRanges(&json, "token_ranges", plan->tokenRanges, plan->nRanks);
  writeRanges(&json, "head_ranges", plan->headRanges, plan->nRanks);
  writeRanges(&json, "kv_head_ranges", plan->kvHeadRanges, plan->nRanks);
  writeKvHeads(&json, plan);
  perfJsonInt(&json, "replicated_tokens", plan->replicatedTokens);
  writeRanges(&json, "seq_replicated", plan->seqReplicated, plan->nRanks);
  writeRange(&json, "heads_replicated", plan->headsReplicated);
  writeMatrix(&json, "seq_to_heads_bytes", plan->seqToHeadsBytes, plan->nRanks);
  writeMatrix(&json, "heads_to_seq_bytes", plan->headsToSeqBytes, plan->nRanks);
  writeNumbers(&json, "arena_bytes", plan->arenaBytes, plan->nRanks);
  perfJsonCloseObject(&json);
  (void)printf("\n");
}

static void printMatrix(const char* title, const int64_t* bytes, int n) {
  (void)printf("\n%s: bytes from rank (row) to rank (column)\n%6s", title, "");
  for (int to = 0; to < n; to++) (void)printf("  %14d", to);
  (void)printf("\n");
  for (int from = 0; from < n; from++) {
    (void)printf("%6d", from);
    for (int to = 0; to < n; to++) (void)printf("  %14" PRId64, bytes[(size_t)from * (size_t)n + (size_t)to]);
    (void)printf("\n");
  }
}

static void printRange(ulyxRange_t range) {
  char text[64];
  (void)snprintf(text, sizeof(text), "[%" PRId64 ", %" PRId64 ")", range.start, range.stop);
  (void)printf("  %20s", text);
}

/* Which of its own key/value heads a rank's query heads use, in runs of the latter. */
static void printKvHeadOfHead(const exchangePlan_t* plan, int rank) {
  const ulyxRange_t heads = plan->headRanges[rank];
  for (int64_t head = heads.start; head < heads.stop;) {
    const int64_t kvHead = localKvHead(plan, rank, head);
    const int64_t first = head;
    const int64_t nextKvHeads = (head / plan->queriesOfKvHead + 1) * plan->queriesOfKvHead;
    head = nextKvHeads < heads.stop ? nextKvHeads : heads.stop;
    (void)printf("  [%" PRId64 ", %" PRId64 ")->%" PRId64, first - heads.start, head - heads.start, kvHead);
  }
}

static void printRanks(const exchangePlan_t* plan) {
  const bool grouped = plan->queriesOfKvHead > 1;
  const bool replicated = plan->replicatedTokens > 0;
  (void)printf("%6s  %20s  %20s  %20s  %16s", "rank", "tokens", "query heads", "key/value heads", "arena bytes");
  if (replicated) (void)printf("  %20s  %20s", "replicated, seq", "replicated, heads");
  if (grouped) (void)printf("  own query heads->own key/value head");
  (void)printf("\n");
  for (int rank = 0; rank < plan->nRanks; rank++) {
    (void)printf("%6d", rank);
    printRange(plan->tokenRanges[rank]);
    printRange(plan->headRanges[rank]);
    printRange(plan->kvHeadRanges[rank]);
    (void)printf("  %16" PRId64, plan->arenaBytes[rank]);
    if (replicated) {
      printRange(plan->seqReplicated[rank]);
      printRange(plan->headsReplicated);
    }
    if (grouped) printKvHeadOfHead(plan, rank);
    (void)printf("\n");
  }
}

static void printKvHeads(const exchangePlan_t* plan) {
  (void)printf("\nkey/value heads: each crosses to each of its ranks once, however many query heads use it there\n");
  (void)printf("%6s  %20s  %s\n", "head", "query heads", "ranks");
  for (int64_t kvHead = 0; kvHead < plan->kvHeads; kvHead++) {
    const int64_t first = kvHead * plan->queriesOfKvHead;
    const char* before = "  ";
    (void)printf("%6" PRId64, kvHead);
    printRange((ulyxRange_t){first, first + plan->queriesOfKvHead});
    for (int rank = 0; rank < plan->nRanks; rank++) {
      if (!usesKvHead(plan, rank, kvHead)) continue;
      (void)printf("%s%d", before, rank);
      before = ",";
    }
    (void)printf("\n");
  }
}

static void printText(const exchangePlan_t* plan) {
  printRanks(plan);
  if (plan->queriesOfKvHead > 1) printKvHeads(plan);
  printMatrix("seq_to_heads", plan->seqToHeadsBytes, plan->nRanks);
  printMatrix("heads_to_seq", plan->headsToSeqBytes, plan->nRanks);
}

int planExchange(int argc, char** argv) {
  int status = perfExitUsage;
  exchangeOptions_t options;
  exchangePlan_t plan;
  memset(&options, 0, sizeof(options));
  memset(&plan, 0, sizeof(plan));
  options.type = perfTypeByName("bfloat16");
  const perfParse_t parsed = parse(argc, argv, &options);
  if (parsed == perfHelpAsked) status = perfExitOk;
  if (parsed != perfParsed || !settle(&options)) goto freePlanAndOptions;
  if (!allocPlan((int)options.ranks, &plan) || !compute(&options, &plan)) goto freePlanAndOptions;
  if (options.json != 0) {
    writeJson(&plan);
  } else {
    printText(&plan);
  }
  status = perfExitOk;

freePlanAndOptions:
  freePlan(&plan);
  perfCountsFree(&options.tokenCounts);
  perfCountsFree(&options.headCounts);
  return status;
}
