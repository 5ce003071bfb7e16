/* SPDX-License-Identifier: MIT */
#include "options.h"

#include <string.h>

#include "models.h"
#include "report.h"
#include "stats.h"

#define PERF_DEFAULT_TOKENS 4096
#define PERF_DEFAULT_HEADS 24
#define PERF_DEFAULT_FACTOR 2

static perfOptions_t startingOptions(void) {
  perfOptions_t o;
  memset(&o, 0, sizeof(o));
  o.beginTokens = PERF_UNSET;
  o.endTokens = PERF_UNSET;
  o.headDim = 128;
  o.batch = 1;
  o.type = perfTypeByName("bfloat16");
  o.tokensDivide = 1;
  o.iterations = 20;
  o.warmup = 5;
  o.checks = 1;
  o.cycles = 1;
  o.average = perfAverageMax;
  o.memory = perfMemorySymmetric;
  o.timeoutSeconds = 60;
  return o;
}

static void printHelp(const char* program, const perfFlag_t* flags, int nFlags) {
  char models[1024];
  perfModelNames(models, sizeof(models));
  (void)printf(
      "usage: %s [flags]\n\n"
      "Checks and times one of ulyx's exchanges. Ranks are threads of this process on the CPU (--ranks N) or on N\n"
      "GPUs (-g N), or processes with a GPU each under torchrun, srun or mpirun, which then need NCCL_COMM_ID or\n"
      "--id-file. Without any of these: all GPUs if there are two or more, otherwise --ranks 2.\n\n"
      "Models: %s\n\n"
      "Exit status: 0 all right, 1 wrong data, 2 wrong usage, 3 any other failure.\n\n"
      "flags (a default in brackets):\n",
      program, models);
  perfPrintFlags(stdout, flags, nFlags);
}

static perfParse_t parse(const char* program, int argc, char** argv, perfOptions_t* o, int64_t* localRegister) {
  enum { thousand = 1000, million = 1000000 };
  const perfFlag_t flags[] = {
      {"-b,--mintokens", perfFlagTokens, &o->beginTokens, 1, INT64_MAX, NULL,
       "tokens of the whole sequence to begin with; K and M suffixes [4096]"},
      {"-e,--maxtokens", perfFlagTokens, &o->endTokens, 1, INT64_MAX, NULL, "tokens to end with [-b's]"},
      {"-f,--stepfactor", perfFlagInt, &o->tokensFactor, 2, INT64_MAX, NULL,
       "multiplies the tokens from step to step [2]"},
      {"-i,--steptokens", perfFlagTokens, &o->tokensStep, 1, INT64_MAX, NULL, "adds to the tokens instead"},
      {"--heads", perfFlagInt, &o->heads, 1, INT64_MAX, NULL, "query heads [24, or the sum of --head-counts]"},
      {"--kv-heads", perfFlagInt, &o->kvHeads, 1, INT64_MAX, NULL, "key/value heads [as many as query heads]"},
      {"--head-dim", perfFlagInt, &o->headDim, 1, INT64_MAX, NULL, "elements of a query or key head [128]"},
      {"--value-dim", perfFlagInt, &o->valueDim, 1, INT64_MAX, NULL, "elements of a value head [--head-dim's]"},
      {"--batch", perfFlagInt, &o->batch, 1, INT64_MAX, NULL, "sequences [1]"},
      {"-d,--type,--datatype", perfFlagType, &o->type, 0, 0, NULL,
       "element type: ulyx's names (bfloat16, float8e4m3, ...) or nccl-tests' (half, float, ...) [bfloat16]"},
      {"--token-counts", perfFlagCounts, &o->tokenCounts, 0, INT64_MAX, NULL, "tokens of each rank [balanced]"},
      {"--head-counts", perfFlagCounts, &o->headCounts, 0, INT64_MAX, NULL, "query heads of each rank [balanced]"},
      {"--packed-in", perfFlagSwitch, &o->packedIn, 0, 0, NULL, "q, k and v lie in one tensor on the sequence side"},
      {"--packed-out", perfFlagSwitch, &o->packedOut, 0, 0, NULL, "q, k and v lie in one tensor on the heads side"},
      {"--model", perfFlagText, &o->model, 0, 0, "NAME",
       "a model's heads and dims, and its tokens unless -b is given; 'all' runs every model"},
      {"--tokens-divide", perfFlagInt, &o->tokensDivide, 1, INT64_MAX, NULL, "divides a model's tokens [1]"},
      {"--ranks", perfFlagInt, &o->ranks, 1, PERF_MAX_LOCAL_RANKS, NULL, "ranks on the CPU, one thread each"},
      {"-g,--ngpus", perfFlagInt, &o->gpus, 1, PERF_MAX_LOCAL_RANKS, NULL,
       "GPUs of this process, one thread and one rank each"},
      {"-t,--nthreads", perfFlagInt, &o->threads, 1, PERF_MAX_LOCAL_RANKS, NULL,
       "nccl-tests' threads: -t N -g G are N x G GPUs. A rank has its own thread however they are split [1]"},
      {"--id-file", perfFlagText, &o->idFile, 0, 0, "PATH",
       "where rank 0 leaves the unique id for the other processes; a path not used before, on a shared disk"},
      {"-T,--timeout", perfFlagInt, &o->timeoutSeconds, 1, million, NULL, "seconds a rank waits for the others [60]"},
      {"-n,--iters", perfFlagInt, &o->iterations, 1, million, NULL,
       "timed iterations; with -G exchanges in the graph, 20 at least [20]"},
      {"-w,--warmup_iters", perfFlagInt, &o->warmup, 0, million, NULL, "iterations before them [5]"},
      {"-m,--agg_iters", perfFlagInt, &o->perIteration, 1, thousand, NULL,
       "exchanges of one timed iteration, back to back: a runtime's exchanges are never merged [CPU 1, GPUs 5]"},
      {"-N,--run_cycles", perfFlagInt, &o->cycles, 1, million, NULL, "runs of the whole sweep [1]"},
      {"-c,--check", perfFlagInt, &o->checks, 0, million, NULL,
       "exchanges checked before timing, each with new data; what the timed ones leave is checked too; 0: no checks "
       "[1]"},
      {"-G,--cudagraph", perfFlagInt, &o->graphLaunches, 0, million, NULL,
       "times this many launches of a CUDA graph of the exchanges; 0: no graph [0]"},
      {"-a,--average", perfFlagInt, &o->average, 0, 3, NULL,
       "time of a row from its ranks' times: 0 rank 0's, 1 mean, 2 least, 3 most [3]"},
      {"--memory", perfFlagChoice, &o->memory, 0, 0, "plain|symmetric",
       "where received data lies: ulyxMemAlloc's memory (symmetric) or any other [symmetric]"},
      {"-R,--local_register", perfFlagInt, localRegister, 0, 2, NULL,
       "nccl-tests' registration: 0 is --memory plain, 1 and 2 are --memory symmetric"},
      {"--baseline", perfFlagInt, &o->baseline, 0, 1, NULL,
       "1: also time registered NCCL sends and receives of the same bytes, 1 and 3 messages a peer; GPUs [0]"},
      {"--enqueue", perfFlagInt, &o->enqueue, 0, 1, NULL, "1: also report host time a call; GPUs [0]"},
      {"-J,--output_file", perfFlagText, &o->jsonPath, 0, 0, "PATH", "writes the results to this file as JSON"},
  };
  enum { nFlags = sizeof(flags) / sizeof(flags[0]) };
  const perfParse_t parsed = perfParseFlags(flags, nFlags, argc, argv, 1);
  if (parsed == perfHelpAsked) printHelp(program, flags, nFlags);
  return parsed;
}

/* Flags that exclude each other. */
static const char* disagreement(const perfOptions_t* o) {
  const bool sweeps = o->beginTokens != PERF_UNSET || o->endTokens != PERF_UNSET;
  const bool gpus = o->gpus > 0 || o->threads > 0;
  if (o->tokensFactor > 0 && o->tokensStep > 0) return "-f and -i exclude each other";
  if (o->tokenCounts.values != NULL && sweeps) return "--token-counts and -b, -e exclude each other";
  if (o->tokenCounts.values != NULL && o->model != NULL) return "--token-counts and --model exclude each other";
  if (o->model != NULL && o->heads > 0) return "--model and --heads exclude each other";
  if (o->model != NULL && o->kvHeads > 0) return "--model and --kv-heads exclude each other";
  if (o->model == NULL && o->tokensDivide > 1) return "--tokens-divide needs --model";
  if (o->ranks > 0 && gpus) return "--ranks is for the CPU, -g and -t are for GPUs: give one of them";
  return NULL;
}

static bool settle(perfOptions_t* o) {
  const char* why = disagreement(o);
  perfModel_t model;
  if (why != NULL) {
    perfError("%s", why);
    return false;
  }
  if (o->model != NULL && strcmp(o->model, "all") != 0 && !perfModelByName(o->model, &model)) {
    perfError("unknown model '%s' (-h lists the models)", o->model);
    return false;
  }
  if (o->headCounts.values != NULL && o->heads == 0 && o->model == NULL) {
    if (!perfCountsSum(&o->headCounts, &o->heads)) {
      perfError("the sum of --head-counts exceeds 64 bits");
      return false;
    }
  }
  if (o->heads == 0) o->heads = PERF_DEFAULT_HEADS;
  if (o->beginTokens == PERF_UNSET && o->endTokens != PERF_UNSET) {
    perfError("-e needs -b");
    return false;
  }
  if (o->beginTokens == PERF_UNSET && o->model == NULL) o->beginTokens = PERF_DEFAULT_TOKENS;
  if (o->endTokens == PERF_UNSET) o->endTokens = o->beginTokens;
  if (o->endTokens < o->beginTokens) {
    perfError("-e must not be below -b");
    return false;
  }
  if (o->tokensFactor == 0 && o->tokensStep == 0) o->tokensFactor = PERF_DEFAULT_FACTOR;
  return true;
}

perfParse_t perfOptionsParse(const char* program, int argc, char** argv, perfOptions_t* options) {
  *options = startingOptions();
  int64_t localRegister = PERF_UNSET;
  const perfParse_t parsed = parse(program, argc, argv, options, &localRegister);
  if (parsed != perfParsed) return parsed;
  if (localRegister != PERF_UNSET) options->memory = localRegister == 0 ? perfMemoryPlain : perfMemorySymmetric;
  return settle(options) ? perfParsed : perfRefused;
}

void perfOptionsFree(perfOptions_t* options) {
  perfCountsFree(&options->tokenCounts);
  perfCountsFree(&options->headCounts);
}
