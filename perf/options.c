/* SPDX-License-Identifier: MIT */
#include "options.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "habits.h"
#include "op.h"
#include "report.h"
#include "stats.h"

#define PERF_DEFAULT_TOKENS 4096
#define PERF_DEFAULT_FACTOR 2
#define PERF_MAX_FLAGS (PERF_MAX_OP_FLAGS + 48)
#define SECONDS_OF_NEVER 1000000

static perfOptions_t startingOptions(void) {
  perfOptions_t o;
  memset(&o, 0, sizeof(o));
  o.beginTokens = PERF_UNSET;
  o.endTokens = PERF_UNSET;
  o.beginBytes = PERF_UNSET;
  o.endBytes = PERF_UNSET;
  o.type = perfTypeByName("bfloat16");
  o.replicatedTokens = PERF_UNSET;
  o.tokensDivide = 1;
  o.matrixUnit = PERF_UNSET;
  o.matrixScale = PERF_UNSET;
  o.iterations = 20;
  o.warmup = 5;
  o.checks = 1;
  o.cycles = 1;
  o.average = perfAverageMax;
  o.memory = perfMemorySymmetric;
  o.timeoutSeconds = 60;
  o.transport = PERF_UNSET;
  o.maxCtas = PERF_UNSET;
  o.copyStreams = PERF_UNSET;
  return o;
}

static void printHelp(const perfOp_t* op, const perfFlag_t* flags, int nFlags) {
  (void)printf(
      "usage: %s [flags]\n\n"
      "Checks and times %s (%s).\n"
      "Ranks are threads of this process on the CPU (--ranks N) or on N GPUs (-g N), or processes with a GPU each\n"
      "under torchrun, srun or mpirun, which then need NCCL_COMM_ID or --id-file. Without any of these: all GPUs if\n"
      "there are two or more, otherwise --ranks 2.\n\n"
      "Exit status: 0 all right, 1 wrong data or less than NCCL_TESTS_MIN_BW, 2 wrong usage, 3 any other failure.\n\n",
      op->name, op->summary, op->call);
  if (op->printMore != NULL) op->printMore();
  (void)printf("flags (a default in brackets):\n");
  perfPrintFlags(stdout, flags, nFlags);
}

perfFlag_t perfTypeFlag(perfOptions_t* options) {
  return (perfFlag_t){
      "-d,--type,--datatype",
      perfFlagType,
      &options->type,
      0,
      0,
      NULL,
      "element type: ulyx's names (bfloat16, float8e4m3, ...) or nccl-tests' (half, float, ...) [bfloat16]"};
}

static int sweepFlags(perfOptions_t* o, perfFlag_t* flags) {
  const perfFlag_t sweep[] = {
      {"-b,--mintokens,--minrows", perfFlagTokens, &o->beginTokens, 1, INT64_MAX, NULL,
       "tokens (rows) of the whole sequence to begin with; K, M and G suffixes [4096]"},
      {"-e,--maxtokens,--maxrows", perfFlagTokens, &o->endTokens, 1, INT64_MAX, NULL, "tokens to end with [-b's]"},
      {"-f,--stepfactor", perfFlagInt, &o->tokensFactor, 1, INT64_MAX, NULL,
       "multiplies the tokens from step to step; 1: -i adds to them [2]"},
      {"-i,--steptokens,--steprows", perfFlagTokens, &o->tokensStep, 1, INT64_MAX, NULL, "adds to the tokens instead"},
      {"--minbytes", perfFlagTokens, &o->beginBytes, 1, INT64_MAX, NULL,
       "in place of -b: as many tokens as make the size column no more than this, one a rank at least"},
      {"--maxbytes", perfFlagTokens, &o->endBytes, 1, INT64_MAX, NULL, "in place of -e [--minbytes's]"},
      {"--stepbytes", perfFlagTokens, &o->stepBytes, 1, INT64_MAX, NULL, "in place of -i"},
  };
  memcpy(flags, sweep, sizeof(sweep));
  return (int)(sizeof(sweep) / sizeof(sweep[0]));
}

static int runtimeFlags(perfOptions_t* o, perfFlag_t* flags) {
  /* The place of a choice is the transport's number. */
  _Static_assert(ulyxTransportAuto == 0 && ulyxTransportLoopback == 1 && ulyxTransportNccl == 2 &&
                     ulyxTransportDirect == 3 && ulyxTransportCopyEngine == 4,
                 "--transport lists ulyxTransport_t in order");
  const perfFlag_t runtime[] = {
      {"--transport", perfFlagChoice, &o->transport, 0, 0, "auto|loopback|nccl|direct|copy_engine",
       "how the data travels; auto lets each plan choose [ULYX_TRANSPORT, else auto]"},
      {"--max-ctas,-V,--device_cta_count", perfFlagInt, &o->maxCtas, 0, INT_MAX, NULL,
       "most thread blocks of one ulyx kernel; 0: as many as pay [ULYX_MAX_CTAS, else 0]"},
      {"--undisturbed", perfFlagSwitch, &o->undisturbed, 0, 0, NULL,
       "leaves the multiprocessors to attention: copy engines, also where they are slower [ULYX_UNDISTURBED, else "
       "not]"},
      {"--copy-streams", perfFlagInt, &o->copyStreams, 0, INT_MAX, NULL,
       "most streams that copy_engine copies on; 0: one a peer [ULYX_COPY_STREAMS, else 1]"},
  };
  memcpy(flags, runtime, sizeof(runtime));
  return (int)(sizeof(runtime) / sizeof(runtime[0]));
}

static int commonFlags(perfOptions_t* o, int64_t* localRegister, perfFlag_t* flags) {
  enum { thousand = 1000, million = 1000000 };
  const perfFlag_t common[] = {
      {"--ranks", perfFlagInt, &o->ranks, 1, PERF_MAX_LOCAL_RANKS, NULL, "ranks on the CPU, one thread each"},
      {"-g,--ngpus", perfFlagInt, &o->gpus, 1, PERF_MAX_LOCAL_RANKS, NULL,
       "GPUs of this process, one thread and one rank each"},
      {"-t,--nthreads", perfFlagInt, &o->threads, 1, PERF_MAX_LOCAL_RANKS, NULL,
       "nccl-tests' threads: -t N -g G are N x G GPUs. A rank has its own thread however they are split [1]"},
      {"--id-file", perfFlagText, &o->idFile, 0, 0, "PATH",
       "where rank 0 leaves the unique id for the other processes; a path not used before, on a shared disk"},
      {"-T,--timeout", perfFlagInt, &o->timeoutSeconds, 0, million, NULL,
       "seconds a rank waits for the others; 0: for ever [60]"},
      {"-n,--iters", perfFlagInt, &o->iterations, 1, million, NULL,
       "timed iterations; with -G exchanges in the graph, 20 at least [20]"},
      {"-w,--warmup_iters", perfFlagInt, &o->warmup, 0, million, NULL, "iterations before them [5]"},
      {"-K,--per_iter_skip", perfFlagInt, &o->skip, 0, million, NULL, "leading timed iterations that do not count [0]"},
      {"-m,--agg_iters", perfFlagInt, &o->perIteration, 1, thousand, NULL,
       "exchanges of one timed iteration, back to back: a runtime's exchanges are never merged [CPU 1, GPUs 5]"},
      {"-N,--run_cycles", perfFlagInt, &o->cycles, 0, million, NULL,
       "runs of the whole sweep; 0: until it is interrupted [1]"},
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
       "1: also time how NCCL alone moves the same bytes; GPUs [0]"},
      {"--enqueue,-C,--report_cputime", perfFlagInt, &o->enqueue, 0, 1, NULL,
       "1: also report host time a call; GPUs [0]"},
      {"-u,--unalign", perfFlagInt, &o->unalign, 0, thousand, NULL,
       "elements by which every tensor's data lies off its alignment [0]"},
      {"-M", perfFlagInt, &o->memoryReport, 0, 1, NULL,
       "1: also report the memory that a rank's tensors and arena take; its long name, --memory, is taken [0]"},
      {"-S,--report_timestamps", perfFlagInt, &o->timestamps, 0, 1, NULL, "1: each row says when it was done [0]"},
      {"-J,--output_file", perfFlagText, &o->jsonPath, 0, 0, "PATH", "writes the results to this file as JSON"},
  };
  memcpy(flags, common, sizeof(common));
  return (int)(sizeof(common) / sizeof(common[0]));
}

static perfParse_t parse(const perfOp_t* op, int argc, char** argv, perfOptions_t* o, int64_t* localRegister) {
  perfFlag_t flags[PERF_MAX_FLAGS];
  int nFlags = sweepFlags(o, flags);
  nFlags += op->flags(o, flags + nFlags);
  nFlags += runtimeFlags(o, flags + nFlags);
  nFlags += commonFlags(o, localRegister, flags + nFlags);
  nFlags += perfHabitFlags(flags + nFlags);
  const perfParse_t parsed = perfParseFlags(flags, nFlags, argc, argv, 1);
  if (parsed == perfHelpAsked) printHelp(op, flags, nFlags);
  return parsed;
}

/* Flags that exclude each other. */
static const char* disagreement(const perfOptions_t* o) {
  const bool gpus = o->gpus > 0 || o->threads > 0;
  const bool tokens = o->beginTokens != PERF_UNSET || o->endTokens != PERF_UNSET || o->tokensStep > 0;
  const bool bytes = o->beginBytes != PERF_UNSET || o->endBytes != PERF_UNSET || o->stepBytes > 0;
  const bool given =
      o->counts.values != NULL || o->cuSeqlens.values != NULL || o->model != NULL || o->matrixPath != NULL;
  const bool steps = o->tokensStep > 0 || o->stepBytes > 0;
  if (o->tokensFactor > 1 && steps) return "-f and -i exclude each other";
  if (o->tokensFactor == 1 && !steps) return "-f 1 needs -i";
  if (tokens && bytes) return "a sweep is in tokens (-b, -e, -i) or in bytes (--minbytes, --maxbytes, --stepbytes)";
  if (given && bytes) return "a sweep in bytes has no counts, no sequences, no model and no matrix";
  if (o->beginBytes == PERF_UNSET && bytes) return "--maxbytes and --stepbytes need --minbytes";
  if (o->endBytes != PERF_UNSET && o->endBytes < o->beginBytes) return "--maxbytes must not be below --minbytes";
  if (o->cycles == 0 && o->jsonPath != NULL) return "-N 0 never ends, so there is no whole file for -J";
  if (o->skip >= (o->graphLaunches > 0 ? o->graphLaunches : o->iterations)) {
    return "-K must leave some of the timed iterations, which -n counts and with -G -G does";
  }
  if (o->ranks > 0 && gpus) return "--ranks is for the CPU, -g and -t are for GPUs: give one of them";
  if (o->beginTokens == PERF_UNSET && o->endTokens != PERF_UNSET) return "-e needs -b";
  if (o->endTokens != PERF_UNSET && o->endTokens < o->beginTokens) return "-e must not be below -b";
  return NULL;
}

/* nccl-tests' bound on the average bus bandwidth, which scripts set in the environment. */
static bool readLeastBandwidth(perfOptions_t* o) {
  const char* text = getenv("NCCL_TESTS_MIN_BW");
  if (text == NULL || perfParseReal(text, &o->leastGBps)) return true;
  perfError("NCCL_TESTS_MIN_BW takes a number, not '%s'", text);
  return false;
}

static bool settle(perfOptions_t* o) {
  const char* why = disagreement(o);
  if (why != NULL) {
    perfError("%s", why);
    return false;
  }
  if (!readLeastBandwidth(o)) return false;
  if (o->timeoutSeconds == 0) o->timeoutSeconds = SECONDS_OF_NEVER;
  if (o->beginTokens == PERF_UNSET && o->model == NULL) o->beginTokens = PERF_DEFAULT_TOKENS;
  if (o->endTokens == PERF_UNSET) o->endTokens = o->beginTokens;
  if (o->tokensFactor == 0) o->tokensFactor = PERF_DEFAULT_FACTOR;
  return true;
}

perfParse_t perfOptionsParse(const perfOp_t* op, int argc, char** argv, perfOptions_t* options) {
  *options = startingOptions();
  options->argc = argc;
  options->argv = argv;
  int64_t localRegister = PERF_UNSET;
  const perfParse_t parsed = parse(op, argc, argv, options, &localRegister);
  if (parsed != perfParsed) return parsed;
  if (localRegister != PERF_UNSET) options->memory = localRegister == 0 ? perfMemoryPlain : perfMemorySymmetric;
  return op->settle(options) && settle(options) ? perfParsed : perfRefused;
}

void perfOptionsFree(perfOptions_t* options) {
  perfCounts_t* const counts[] = {&options->counts, &options->headCounts, &options->target, &options->matrix,
                                  &options->cuSeqlens};
  for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) perfCountsFree(counts[i]);
}

bool perfOneCountARank(const char* flag, const perfCounts_t* counts, int nRanks) {
  if (counts->values == NULL || counts->count == nRanks) return true;
  perfError("%s needs one count a rank, %d, not %d", flag, nRanks, counts->count);
  return false;
}
