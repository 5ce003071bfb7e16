/* SPDX-License-Identifier: MIT
 *
 * Are exchanges ever wrong, however the ranks arrive? Every rank repeats rounds: idle for a random time, write inputs
 * that no round before had, exchange, idle again while the others may go on, and check every element of the outputs.
 * Rounds run back to back on the device, as replays of a graph, so that ranks are apart by what the delays and the
 * exchange make of it and not by host threads. With --skew-us it measures instead what a late peer costs a rank. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_backend.h"
#include "flags.h"
#include "gpu_ranks.h"
#include "report.h"
#include "soak.h"
#include "stats.h"
#include "table.h"

#define SOAK_ROUNDS 50   /* of a chunk: one graph */
#define SOAK_IN_FLIGHT 2 /* chunks */
#define SOAK_POLL_NS 20000
#define SOAK_PROGRESS_STRIDE 8 /* a line of memory a rank */
#define SOAK_MOST_BUFFERS 8

typedef struct soakOptions {
  int64_t gpus;
  int64_t exchanges;
  int64_t tokens;
  int64_t heads;
  int64_t headDim;
  int64_t transport;
  int64_t maxCtas;
  int64_t plain;
  int64_t both;
  int64_t delayUs;
  int64_t skewUs; /* negative: no skew mode */
  int64_t eager;
  int64_t seed;
  int64_t spoil;
  int64_t timeoutSeconds;
} soakOptions_t;

typedef enum { soakSettingUp, soakMeeting, soakRunning, soakDone } soakStage_t;

/* Shared by all ranks; a rank writes its own entries only. */
typedef struct soakRun {
  soakOptions_t options;
  ulyxShape_t shape;
  int64_t chunks; /* of one pass */
  double startUs;
  uint64_t* progress; /* pinned host memory, one word a rank: see soakProgress_t */
  atomic_int stages[PERF_MAX_LOCAL_RANKS];
  int64_t wrong[PERF_MAX_LOCAL_RANKS];
  double seconds[PERF_MAX_LOCAL_RANKS];
  int transports[2];  /* of each ulyxOp_t, by rank 0 */
  double medianUs[2]; /* skew mode: without and with the skew, of rank 0 */
} soakRun_t;

typedef struct soakRank {
  const perfGpuRank_t* gpu;
  soakRun_t* run;
  cudaStream_t stream;
  ulyxPlan_t plan;
  ulyxQkv_t qkvIn, qkvOut;
  ulyxTensor_t oIn, oOut;
  soakTensors_t written[2];         /* by ulyxOp_t: the inputs */
  soakTensors_t checked[2];         /* and the outputs */
  void* buffers[SOAK_MOST_BUFFERS]; /* of cudaMalloc */
  int nBuffers;
  soakState_t* state;       /* device memory */
  soakState_t* seen;        /* [SOAK_IN_FLIGHT], pinned host memory */
  soakProgress_t* progress; /* the device's address of this rank's word */
  cudaEvent_t ended[SOAK_IN_FLIGHT];
  cudaEvent_t* marks; /* [2 * SOAK_ROUNDS] round each exchange of a chunk; NULL: none */
  double* samplesUs;  /* of this pass, with marks */
  int samples;
  soakDelay_t before, after;
  int notesPrinted;
} soakRank_t;

static perfParse_t parse(int argc, char** argv, soakOptions_t* o) {
  const perfFlag_t flags[] = {
      {"-g,--gpus", perfFlagInt, &o->gpus, 1, PERF_MAX_LOCAL_RANKS, NULL, "ranks, one a GPU [2]"},
      {"-n", perfFlagInt, &o->exchanges, 1, INT64_MAX / 4, NULL,
       "exchanges, rounded up to whole chunks of 50 [1000000; with --skew-us 2000, twice]"},
      {"--tokens", perfFlagTokens, &o->tokens, 1, INT64_MAX, NULL, "of the whole sequence [37 a rank and 5]"},
      {"--heads", perfFlagInt, &o->heads, 1, INT64_MAX, NULL, "of the whole model [3 a rank and 1]"},
      {"--head-dim", perfFlagInt, &o->headDim, 1, INT64_MAX, NULL, "bfloat16 elements of a head [64]"},
      {"--transport", perfFlagChoice, &o->transport, 0, 0, "auto|nccl|direct|copy_engine", "of the runtimes [auto]"},
      {"--max-ctas", perfFlagInt, &o->maxCtas, 0, INT32_MAX, NULL,
       "most thread blocks of a kernel of ulyx; 0: as many as pay [0]"},
      {"--plain", perfFlagSwitch, &o->plain, 0, 0, NULL,
       "outputs, and inputs of heads_to_seq, in memory from cudaMalloc instead of ulyxMemAlloc"},
      {"--both", perfFlagSwitch, &o->both, 0, 0, NULL, "every second exchange is a heads_to_seq"},
      {"--delay-us", perfFlagInt, &o->delayUs, 0, 1000000, NULL,
       "most microseconds that a rank idles before an exchange, and once more before its check [3]"},
      {"--skew-us", perfFlagInt, &o->skewUs, 0, 1000000, NULL,
       "every rank but 0 comes this much later to each exchange: measures rank 0's exchanges without and with it"},
      {"--eager", perfFlagSwitch, &o->eager, 0, 0, NULL, "enqueues every round instead of replaying a graph of 50"},
      {"--seed", perfFlagInt, &o->seed, 0, INT64_MAX, NULL, "of the delays [1]"},
      {"--spoil", perfFlagInt, &o->spoil, 1, INT64_MAX, NULL,
       "changes one element of rank 0's output in this exchange (the first is 1), to see that the check notices"},
      {"-T,--timeout", perfFlagInt, &o->timeoutSeconds, 1, 86400, NULL,
       "seconds without any progress after which the program says who stands, and ends [60]"},
  };
  enum { nFlags = sizeof(flags) / sizeof(flags[0]) };
  const perfParse_t parsed = perfParseFlags(flags, nFlags, argc, argv, 1);
  if (parsed == perfHelpAsked) {
    (void)printf(
        "usage: soak [flags]\n\n"
        "Exchanges under random delays between the ranks, every element checked every time. One process, a thread a\n"
        "GPU. Exit status: 0 all data right, 1 wrong data, 2 wrong flags, 3 a failure or a rank that stands, 77 fewer\n"
        "GPUs than asked for.\n\nflags (a default in brackets):\n");
    perfPrintFlags(stdout, flags, nFlags);
  }
  return parsed;
}

/* Fills in what depends on other flags. */
static bool settle(soakRun_t* run) {
  soakOptions_t* o = &run->options;
  if (o->tokens == 0) o->tokens = 37 * o->gpus + 5;
  if (o->heads == 0) o->heads = 3 * o->gpus + 1;
  if (o->exchanges == 0) o->exchanges = o->skewUs >= 0 ? 2000 : 1000000;
  if (o->skewUs >= 0 && o->both != 0) {
    perfError("--skew-us measures one kind of exchange: drop --both");
    return false;
  }
  if (o->skewUs >= 0 && o->gpus < 2) {
    perfError("--skew-us needs two GPUs or more");
    return false;
  }
  run->chunks = (o->exchanges + SOAK_ROUNDS - 1) / SOAK_ROUNDS;
  if (o->skewUs >= 0 && run->chunks > INT32_MAX / SOAK_ROUNDS) {
    perfError("-n must be at most %d with --skew-us", INT32_MAX / SOAK_ROUNDS * SOAK_ROUNDS);
    return false;
  }
  run->shape = (ulyxShape_t)ULYX_SHAPE_INITIALIZER;
  run->shape.tokens = o->tokens;
  run->shape.heads = o->heads;
  run->shape.headDim = o->headDim;
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  return perfUlyxOk(ulyxShapeGetBytes(&run->shape, (int)o->gpus, 0, &bytes), NULL, "ulyxShapeGetBytes");
}

/* ---- What a rank holds ---- */

static bool allocPlain(soakRank_t* me, int64_t bytes, void** ptr) {
  if (!perfCudaOk(cudaMalloc(ptr, (size_t)bytes), "cudaMalloc")) return false;
  me->buffers[me->nBuffers++] = *ptr;
  return true;
}

/* ulyxMemAlloc's goes with the runtime. */
static bool allocWired(soakRank_t* me, int64_t bytes, void** ptr) {
  if (me->run->options.plain != 0) return allocPlain(me, bytes, ptr);
  return perfUlyxOk(ulyxMemAlloc(me->gpu->rt, bytes, ptr), me->gpu->rt, "ulyxMemAlloc");
}

static void addTensor(soakTensors_t* tensors, perfTensor_t tensor, void* data, ulyxRange_t tokens, ulyxRange_t heads,
                      int64_t headDim) {
  const int i = tensors->count++;
  tensors->data[i] = data;
  tensors->views[i] = (perfView_t){.tensor = (int32_t)tensor,
                                   .batch = 1,
                                   .tokens = tokens.stop - tokens.start,
                                   .heads = heads.stop - heads.start,
                                   .headBytes = headDim * SOAK_ELEMENT_BYTES,
                                   .firstToken = tokens.start,
                                   .firstHead = heads.start};
}

/* Q, K and V on both sides. */
static bool setUpSeqToHeads(soakRank_t* me, const ulyxPlanInfo_t* info, const ulyxShapeBytes_t* bytes) {
  if (!perfUlyxOk(ulyxPlanGetQkv(me->plan, &me->qkvIn, &me->qkvOut), me->gpu->rt, "ulyxPlanGetQkv")) return false;
  ulyxTensor_t* const in[] = {&me->qkvIn.q, &me->qkvIn.k, &me->qkvIn.v};
  ulyxTensor_t* const out[] = {&me->qkvOut.q, &me->qkvOut.k, &me->qkvOut.v};
  const int64_t inBytes[] = {bytes->qIn, bytes->kIn, bytes->vIn};
  const int64_t outBytes[] = {bytes->qOut, bytes->kOut, bytes->vOut};
  const perfTensor_t tensors[] = {perfTensorQ, perfTensorK, perfTensorV};
  const int64_t dims[] = {info->headDim, info->headDim, info->valueDim};
  const ulyxRange_t allTokens = {0, info->tokens};
  for (int i = 0; i < 3; i++) {
    const ulyxRange_t allHeads = {0, i == 0 ? info->heads : info->kvHeads};
    const ulyxRange_t ownHeads = i == 0 ? info->headRange : info->kvHeadRange;
    if (!allocPlain(me, inBytes[i], &in[i]->data) || !allocWired(me, outBytes[i], &out[i]->data)) return false;
    addTensor(&me->written[ulyxOpSeqToHeads], tensors[i], in[i]->data, info->tokenRange, allHeads, dims[i]);
    addTensor(&me->checked[ulyxOpSeqToHeads], tensors[i], out[i]->data, allTokens, ownHeads, dims[i]);
  }
  return true;
}

static bool setUpHeadsToSeq(soakRank_t* me, const ulyxPlanInfo_t* info, const ulyxShapeBytes_t* bytes) {
  if (!perfUlyxOk(ulyxPlanGetOutput(me->plan, &me->oIn, &me->oOut), me->gpu->rt, "ulyxPlanGetOutput")) return false;
  const ulyxRange_t allTokens = {0, info->tokens};
  const ulyxRange_t allHeads = {0, info->heads};
  if (!allocWired(me, bytes->oIn, &me->oIn.data) || !allocWired(me, bytes->oOut, &me->oOut.data)) return false;
  addTensor(&me->written[ulyxOpHeadsToSeq], perfTensorO, me->oIn.data, allTokens, info->headRange, info->valueDim);
  addTensor(&me->checked[ulyxOpHeadsToSeq], perfTensorO, me->oOut.data, info->tokenRange, allHeads, info->valueDim);
  return true;
}

static bool noteTransports(soakRank_t* me) {
  for (int op = 0; op < 2; op++) {
    ulyxChoice_t choice;
    if (!perfUlyxOk(ulyxPlanGetChoice(me->plan, op, &choice), me->gpu->rt, "ulyxPlanGetChoice")) return false;
    me->run->transports[op] = choice.transport;
  }
  return true;
}

static bool setUpMarks(soakRank_t* me) {
  const int64_t most = me->run->chunks * SOAK_ROUNDS;
  me->marks = calloc(2 * SOAK_ROUNDS, sizeof(*me->marks));
  me->samplesUs = calloc((size_t)most, sizeof(*me->samplesUs));
  if (me->marks == NULL || me->samplesUs == NULL) {
    perfError("out of memory for %" PRId64 " times", most);
    return false;
  }
  for (int i = 0; i < 2 * SOAK_ROUNDS; i++) {
    if (!perfCudaOk(cudaEventCreate(&me->marks[i]), "cudaEventCreate")) return false;
  }
  return true;
}

static bool setUp(soakRank_t* me) {
  const soakRun_t* run = me->run;
  const int rank = me->gpu->rank;
  ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  if (!perfUlyxOk(ulyxPlanCreate(me->gpu->rt, &run->shape, &me->plan), me->gpu->rt, "ulyxPlanCreate") ||
      !perfUlyxOk(ulyxPlanGetInfo(me->plan, &info), me->gpu->rt, "ulyxPlanGetInfo") ||
      !perfUlyxOk(ulyxShapeGetBytes(&run->shape, me->gpu->nRanks, rank, &bytes), NULL, "ulyxShapeGetBytes") ||
      !setUpSeqToHeads(me, &info, &bytes) || (run->options.both != 0 && !setUpHeadsToSeq(me, &info, &bytes))) {
    return false;
  }
  if (rank == 0 && !noteTransports(me)) return false;
  if (rank == 0 && run->options.skewUs >= 0 && !setUpMarks(me)) return false;
  void* word = NULL;
  if (!perfCudaOk(cudaStreamCreateWithFlags(&me->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags") ||
      !perfCudaOk(cudaMalloc((void**)&me->state, sizeof(*me->state)), "cudaMalloc") ||
      !perfCudaOk(cudaMemset(me->state, 0, sizeof(*me->state)), "cudaMemset") ||
      !perfCudaOk(cudaHostAlloc((void**)&me->seen, SOAK_IN_FLIGHT * sizeof(*me->seen), cudaHostAllocDefault),
                  "cudaHostAlloc") ||
      !perfCudaOk(cudaHostGetDevicePointer(&word, &run->progress[rank * SOAK_PROGRESS_STRIDE], 0),
                  "cudaHostGetDevicePointer")) {
    return false;
  }
  me->progress = word;
  for (int i = 0; i < SOAK_IN_FLIGHT; i++) {
    if (!perfCudaOk(cudaEventCreateWithFlags(&me->ended[i], cudaEventDisableTiming), "cudaEventCreateWithFlags")) {
      return false;
    }
  }
  return perfCudaOk(soakLoad(), "loading the kernels") && perfCudaOk(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

static bool tearDown(soakRank_t* me) {
  bool ok = perfUlyxOk(ulyxPlanDestroy(me->plan), me->gpu->rt, "ulyxPlanDestroy");
  for (int i = 0; me->marks != NULL && i < 2 * SOAK_ROUNDS; i++) {
    if (!perfCudaOk(cudaEventDestroy(me->marks[i]), "cudaEventDestroy")) ok = false;
  }
  for (int i = 0; i < SOAK_IN_FLIGHT; i++) {
    if (!perfCudaOk(cudaEventDestroy(me->ended[i]), "cudaEventDestroy")) ok = false;
  }
  for (int i = 0; i < me->nBuffers; i++) {
    if (!perfCudaOk(cudaFree(me->buffers[i]), "cudaFree")) ok = false;
  }
  if (!perfCudaOk(cudaFree(me->state), "cudaFree")) ok = false;
  if (!perfCudaOk(cudaFreeHost(me->seen), "cudaFreeHost")) ok = false;
  if (!perfCudaOk(cudaStreamDestroy(me->stream), "cudaStreamDestroy")) ok = false;
  free(me->marks);
  free(me->samplesUs);
  return ok;
}

/* ---- Rounds ---- */

static bool mark(const soakRank_t* me, int i, bool capturing) {
  if (me->marks == NULL) return true;
  return perfCudaOk(
      cudaEventRecordWithFlags(me->marks[i], me->stream, capturing ? cudaEventRecordExternal : cudaEventRecordDefault),
      "cudaEventRecordWithFlags");
}

static bool exchange(const soakRank_t* me, ulyxOp_t op) {
  if (op == ulyxOpSeqToHeads) {
    return perfUlyxOk(ulyxSeqToHeads(me->plan, &me->qkvIn, &me->qkvOut, me->stream), me->gpu->rt, "ulyxSeqToHeads");
  }
  return perfUlyxOk(ulyxHeadsToSeq(me->plan, &me->oIn, &me->oOut, me->stream), me->gpu->rt, "ulyxHeadsToSeq");
}

/* Once of each kind, unchecked, so that what is made or loaded at first use is there before anything is captured. No
 * rank allocates memory meanwhile. */
static bool warmUp(const soakRank_t* me) {
  return perfTeamBarrier(me->gpu->team, me->gpu->rank) && exchange(me, ulyxOpSeqToHeads) &&
         (me->run->options.both == 0 || exchange(me, ulyxOpHeadsToSeq)) &&
         perfCudaOk(cudaStreamSynchronize(me->stream), "cudaStreamSynchronize") &&
         perfTeamBarrier(me->gpu->team, me->gpu->rank);
}

static bool enqueueRound(const soakRank_t* me, int i, bool capturing) {
  const ulyxOp_t op = me->run->options.both != 0 && i % 2 == 1 ? ulyxOpHeadsToSeq : ulyxOpSeqToHeads;
  soakSpoil_t spoil = {0, NULL};
  if (me->gpu->rank == 0 && me->run->options.spoil > 0) {
    spoil = (soakSpoil_t){(unsigned long long)me->run->options.spoil, me->checked[op].data[0]};
  }
  return perfCudaOk(soakLaunchBegin(me->state, me->progress, me->before, me->stream), "launch of the delay") &&
         perfCudaOk(soakLaunchFill(&me->written[op], me->state, me->stream), "launch of the fill") &&
         mark(me, 2 * i, capturing) && exchange(me, op) && mark(me, 2 * i + 1, capturing) &&
         perfCudaOk(soakLaunchArrive(me->state, me->progress, me->after, spoil, me->stream),
                    "launch of the second delay") &&
         perfCudaOk(soakLaunchCheck(&me->checked[op], me->state, me->stream), "launch of the check");
}

static bool enqueueChunk(const soakRank_t* me, bool capturing) {
  for (int i = 0; i < SOAK_ROUNDS; i++) {
    if (!enqueueRound(me, i, capturing)) return false;
  }
  return true;
}

static bool capture(const soakRank_t* me, cudaGraphExec_t* ready) {
  cudaGraph_t graph = NULL;
  /* Other ranks' threads go on with their own calls meanwhile. */
  return perfCudaOk(cudaStreamBeginCapture(me->stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture") &&
         enqueueChunk(me, true) && perfCudaOk(cudaStreamEndCapture(me->stream, &graph), "cudaStreamEndCapture") &&
         perfCudaOk(cudaGraphInstantiate(ready, graph, 0), "cudaGraphInstantiate") &&
         perfCudaOk(cudaGraphDestroy(graph), "cudaGraphDestroy") &&
         perfCudaOk(cudaGraphUpload(*ready, me->stream), "cudaGraphUpload") &&
         perfCudaOk(cudaStreamSynchronize(me->stream), "cudaStreamSynchronize");
}

static void printNotes(soakRank_t* me, const soakState_t* seen) {
  static const char* const tensors[] = {"q", "k", "v", "o"};
  for (; me->notesPrinted < SOAK_NOTES && seen->notes[me->notesPrinted].round != 0; me->notesPrinted++) {
    const soakNote_t* note = &seen->notes[me->notesPrinted];
    (void)printf("wrong: rank %d, exchange %llu: %llu elements, such as %s of token %" PRId64 ", head %" PRId64
                 ", element %" PRId64 ": 0x%04x instead of 0x%04x\n",
                 me->gpu->rank, note->round, note->wrong, tensors[note->tensor], note->token, note->head, note->element,
                 (unsigned)note->found, (unsigned)note->expected);
    (void)fflush(stdout);
    if (me->notesPrinted + 1 == SOAK_NOTES) {
      (void)printf("wrong: rank %d: further exchanges are only counted\n", me->gpu->rank);
    }
  }
}

static bool takeSamples(soakRank_t* me) {
  /* Ranks do not begin a chunk together, so its first exchange says nothing. */
  for (int i = 1; me->marks != NULL && i < SOAK_ROUNDS; i++) {
    float ms = 0;
    if (!perfCudaOk(cudaEventElapsedTime(&ms, me->marks[2 * i], me->marks[2 * i + 1]), "cudaEventElapsedTime")) {
      return false;
    }
    me->samplesUs[me->samples++] = (double)ms * 1e3;
  }
  return true;
}

/* Waits for the chunk of that slot; the main thread watches over the time that takes. */
static bool finishChunk(soakRank_t* me, int slot) {
  const struct timespec pause = {0, SOAK_POLL_NS};
  cudaError_t error = cudaEventQuery(me->ended[slot]);
  while (error == cudaErrorNotReady) {
    (void)nanosleep(&pause, NULL);
    error = cudaEventQuery(me->ended[slot]);
  }
  if (!perfCudaOk(error, "cudaEventQuery")) return false;
  ulyxResult_t found = ulyxSuccess;
  if (!perfUlyxOk(ulyxRuntimeGetAsyncError(me->gpu->rt, &found), me->gpu->rt, "ulyxRuntimeGetAsyncError") ||
      !perfUlyxOk(found, me->gpu->rt, "an exchange on the device")) {
    return false;
  }
  printNotes(me, &me->seen[slot]);
  return takeSamples(me);
}

/* Runs the chunks with the rank's delays; from the barrier on ranks meet in exchanges only. */
static bool runPass(soakRank_t* me) {
  soakRun_t* run = me->run;
  const int rank = me->gpu->rank;
  const int inFlight = run->options.skewUs >= 0 ? 1 : SOAK_IN_FLIGHT; /* marks are read before they are written again */
  cudaGraphExec_t graph = NULL;
  me->samples = 0;
  if (run->options.eager == 0 && !capture(me, &graph)) return false;
  atomic_store(&run->stages[rank], soakMeeting);
  if (!perfTeamBarrier(me->gpu->team, rank)) return false;
  atomic_store(&run->stages[rank], soakRunning);
  const double startUs = perfNowUs();
  for (int64_t chunk = 0; chunk < run->chunks; chunk++) {
    const int slot = (int)(chunk % inFlight);
    if (chunk >= inFlight && !finishChunk(me, slot)) return false;
    const bool enqueued =
        graph != NULL ? perfCudaOk(cudaGraphLaunch(graph, me->stream), "cudaGraphLaunch") : enqueueChunk(me, false);
    if (!enqueued ||
        !perfCudaOk(cudaMemcpyAsync(&me->seen[slot], me->state, sizeof(*me->state), cudaMemcpyDeviceToHost, me->stream),
                    "cudaMemcpyAsync") ||
        !perfCudaOk(cudaEventRecord(me->ended[slot], me->stream), "cudaEventRecord")) {
      return false;
    }
  }
  const int64_t last = run->chunks < inFlight ? run->chunks : inFlight;
  for (int64_t chunk = run->chunks - last; chunk < run->chunks; chunk++) {
    if (!finishChunk(me, (int)(chunk % inFlight))) return false;
  }
  run->seconds[rank] += (perfNowUs() - startUs) * 1e-6;
  run->wrong[rank] = (int64_t)me->seen[(run->chunks - 1) % inFlight].wrong;
  if (graph != NULL && !perfCudaOk(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy")) return false;
  return perfTeamBarrier(me->gpu->team, rank);
}

static bool runRandom(soakRank_t* me) {
  const soakOptions_t* o = &me->run->options;
  const uint64_t ns = (uint64_t)o->delayUs * 1000;
  const uint64_t key = perfMix(perfMix((uint64_t)o->seed) ^ (uint64_t)me->gpu->rank);
  me->before = (soakDelay_t){ns, perfMix(key ^ 1) | 1}; /* a key is not 0 */
  me->after = (soakDelay_t){ns, perfMix(key ^ 2) | 1};
  return runPass(me);
}

static bool runSkewed(soakRank_t* me) {
  const uint64_t skewNs = (uint64_t)me->run->options.skewUs * 1000;
  me->after = (soakDelay_t){0, 0};
  for (int skewed = 0; skewed < 2; skewed++) {
    me->before = (soakDelay_t){skewed != 0 && me->gpu->rank > 0 ? skewNs : 0, 0};
    if (!runPass(me)) return false;
    if (me->marks != NULL) me->run->medianUs[skewed] = perfTimesOfSamples(me->samplesUs, me->samples).medianUs;
  }
  return true;
}

/* That every round has run, and so has been checked. */
static bool countRounds(const soakRank_t* me) {
  const soakRun_t* run = me->run;
  const int passes = run->options.skewUs >= 0 ? 2 : 1;
  const uint64_t expected = (uint64_t)(run->chunks * SOAK_ROUNDS * passes);
  soakState_t state;
  if (!perfCudaOk(cudaMemcpy(&state, me->state, sizeof(state), cudaMemcpyDeviceToHost), "cudaMemcpy")) return false;
  if (state.round == expected) return true;
  perfError("rank %d ran %llu rounds instead of %" PRIu64, me->gpu->rank, state.round, expected);
  return false;
}

static bool runRank(const perfGpuRank_t* gpu, void* shared) {
  soakRun_t* run = shared;
  soakRank_t me;
  memset(&me, 0, sizeof(me));
  me.gpu = gpu;
  me.run = run;
  if (!setUp(&me) || !warmUp(&me)) return false;
  if (!(run->options.skewUs >= 0 ? runSkewed(&me) : runRandom(&me))) return false;
  if (!countRounds(&me) || !tearDown(&me)) return false;
  atomic_store(&run->stages[gpu->rank], soakDone);
  return true;
}

/* ---- What the main thread sees ---- */

static uint64_t wordOf(const soakRun_t* run, int64_t rank) {
  const soakProgress_t* words = run->progress;
  return words[rank * SOAK_PROGRESS_STRIDE];
}

static uint64_t progressOf(const void* shared) {
  const soakRun_t* run = shared;
  uint64_t sum = 0;
  for (int64_t rank = 0; rank < run->options.gpus; rank++) {
    sum += wordOf(run, rank) + ((uint64_t)atomic_load(&run->stages[rank]) << 56);
  }
  return sum;
}

static void reportStanding(const void* shared) {
  const soakRun_t* run = shared;
  uint64_t least = UINT64_MAX;
  for (int64_t rank = 0; rank < run->options.gpus; rank++) {
    if (wordOf(run, rank) < least) least = wordOf(run, rank);
  }
  for (int64_t rank = 0; rank < run->options.gpus; rank++) {
    static const char* const stages[] = {"setting up", "waiting for the ranks to set up", "", "done"};
    const uint64_t word = wordOf(run, rank);
    const int stage = atomic_load(&run->stages[rank]);
    const char* stands = word == least ? " stands" : "";
    if (stage != soakRunning) {
      perfError("rank %" PRId64 "%s: %s", rank, stands, stages[stage]);
    } else if (word == 0) {
      perfError("rank %" PRId64 "%s: its first round has not begun", rank, stands);
    } else {
      perfError("rank %" PRId64 "%s: exchange %" PRIu64 " %s", rank, stands, (word + 1) / 2,
                word % 2 == 1 ? "has not ended" : "has ended, and no round began after it");
    }
  }
}

static void tick(const void* shared) {
  const soakRun_t* run = shared;
  uint64_t least = UINT64_MAX;
  for (int64_t rank = 0; rank < run->options.gpus; rank++) {
    if (wordOf(run, rank) < least) least = wordOf(run, rank);
  }
  (void)fprintf(stderr, "soak: %" PRIu64 " of %" PRId64 " exchanges, %.0f s\n", least / 2,
                run->chunks * SOAK_ROUNDS * (run->options.skewUs >= 0 ? 2 : 1), (perfNowUs() - run->startUs) * 1e-6);
}

static int reportResult(const soakRun_t* run) {
  const soakOptions_t* o = &run->options;
  int64_t wrong = 0;
  double seconds = 0;
  char transport[64];
  for (int64_t rank = 0; rank < o->gpus; rank++) {
    wrong += run->wrong[rank];
    if (run->seconds[rank] > seconds) seconds = run->seconds[rank];
  }
  const char* forth = perfTransportName(run->transports[ulyxOpSeqToHeads]);
  const char* back = perfTransportName(run->transports[ulyxOpHeadsToSeq]);
  if (o->both != 0 && strcmp(forth, back) != 0) {
    (void)snprintf(transport, sizeof(transport), "%s and %s", forth, back);
  } else {
    (void)snprintf(transport, sizeof(transport), "%s", forth);
  }
  if (o->skewUs >= 0) {
    (void)printf("soak: rank 0's exchange takes %.2f us, and %.2f us with the others %" PRId64
                 " us late: %+.2f us on their sum\n",
                 run->medianUs[0], run->medianUs[1], o->skewUs,
                 run->medianUs[1] - run->medianUs[0] - (double)o->skewUs);
  }
  (void)printf("soak: %" PRId64 " exchanges on %" PRId64 " GPUs by %s, %" PRId64 " wrong elements, %.1f s\n",
               run->chunks * SOAK_ROUNDS * (o->skewUs >= 0 ? 2 : 1), o->gpus, transport, wrong, seconds);
  return wrong > 0 ? perfExitWrongData : perfExitOk;
}

/* The arena is for the rank that stages most. */
static bool configure(const soakRun_t* run, ulyxConfig_t* config) {
  static const int transports[] = {ulyxTransportAuto, ulyxTransportNccl, ulyxTransportDirect, ulyxTransportCopyEngine};
  const soakOptions_t* o = &run->options;
  config->transport = transports[o->transport];
  config->maxCtas = (int)o->maxCtas;
  config->arenaBytes = 0;
  for (int rank = 0; rank < (int)o->gpus; rank++) {
    ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
    if (!perfUlyxOk(ulyxShapeGetBytes(&run->shape, (int)o->gpus, rank, &bytes), NULL, "ulyxShapeGetBytes")) {
      return false;
    }
    if (bytes.arena > config->arenaBytes) config->arenaBytes = bytes.arena;
  }
  return true;
}

int main(int argc, char** argv) {
  static soakRun_t run; /* zeros */
  run.options = (soakOptions_t){.gpus = 2, .headDim = 64, .delayUs = 3, .skewUs = -1, .seed = 1, .timeoutSeconds = 60};
  const perfParse_t parsed = parse(argc, argv, &run.options);
  if (parsed == perfHelpAsked) return perfExitOk;
  if (parsed != perfParsed || !settle(&run)) return perfExitUsage;
  if (!perfGpusAreThere(run.options.gpus)) return PERF_EXIT_SKIPPED;
  const size_t bytes = (size_t)run.options.gpus * SOAK_PROGRESS_STRIDE * sizeof(*run.progress);
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  const perfGpuProgram_t program = {runRank, progressOf, reportStanding, tick, &run, run.options.timeoutSeconds};
  if (!configure(&run, &config) ||
      !perfCudaOk(cudaHostAlloc((void**)&run.progress, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
                  "cudaHostAlloc")) {
    return perfExitFailure;
  }
  memset(run.progress, 0, bytes);
  run.startUs = perfNowUs();
  int status = perfExitFailure;
  if (perfGpuRun(&config, (int)run.options.gpus, &program)) status = reportResult(&run);
  if (!perfCudaOk(cudaFreeHost(run.progress), "cudaFreeHost")) status = perfExitFailure;
  return status;
}
