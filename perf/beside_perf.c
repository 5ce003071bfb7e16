/* SPDX-License-Identifier: MIT
 *
 * What exchanges cost the work beside them. Every GPU multiplies matrices that fill it, alone and while exchanges run
 * without a pause on another stream of the same GPU.
 *
 * A rank's thread feeds two lanes, each a stream with a few operations in flight and an event after each of them. The
 * products are timed from the end of the first to the end of the last, and count only if exchanges were in flight all
 * that time: the lane of exchanges starts first, never runs dry and ends last, or the mode has failed. */
#include <cublas_v2.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "beside.h"
#include "cuda_backend.h"
#include "flags.h"
#include "gpu_ranks.h"
#include "report.h"
#include "stats.h"
#include "table.h"

#define BESIDE_RING 128        /* events of a lane; more than are in flight */
#define BESIDE_WARMUP 10       /* operations */
#define BESIDE_LEAST_US 10000. /* what is in flight on a lane takes this long */
#define BESIDE_LEAST_DEPTH 4
#define BESIDE_MOST_DEPTH 64
#define BESIDE_MOST_OPERATIONS 100000
#define BESIDE_PAUSE_NS 20000
#define BESIDE_WORKSPACE_BYTES ((size_t)64 << 20)
#define BESIDE_MOST_MODES 16

typedef struct besideMode {
  const char* name;
  int transport;
  int undisturbed;
} besideMode_t;

static const besideMode_t modes[] = {
    {"nccl", ulyxTransportNccl, 0},
    {"direct", ulyxTransportDirect, 0},
    {"copy_engine", ulyxTransportCopyEngine, 0},
    {"undisturbed", ulyxTransportAuto, 1},
    {"auto", ulyxTransportAuto, 0},
};

enum { nModes = sizeof(modes) / sizeof(modes[0]) };

typedef struct besideOptions {
  int64_t gpus;
  int64_t tokens;
  int64_t heads;
  int64_t headDim;
  int64_t size;
  int64_t windowMs;
  int64_t maxCtas;
  int64_t highPriority;
  int64_t timeoutSeconds;
  const char* modes;
} besideOptions_t;

/* What a rank measured. */
typedef struct besideResult {
  double aloneTflops;
  double besideTflops;
  double exchangeAloneUs;
  double exchangeBesideUs;
  bool overlapped;
} besideResult_t;

/* One mode; shared by all ranks. A rank writes its own entries only, but for what the mutex guards. */
typedef struct besideRun {
  besideOptions_t options;
  ulyxShape_t shape;
  int priority; /* of the stream of exchanges */
  pthread_mutex_t mutex;
  int64_t started; /* exchanges of the phase that some rank has begun to enqueue, so that all must */
  int finished;    /* ranks whose products are done: once all are, nobody starts another exchange */
  atomic_ullong moved[PERF_MAX_LOCAL_RANKS]; /* operations seen to end, and phases */
  _Atomic(const char*) phases[PERF_MAX_LOCAL_RANKS];
  besideResult_t results[PERF_MAX_LOCAL_RANKS];
  int transport; /* of the plan, by rank 0 */
} besideRun_t;

/* Operations on one stream. events[i % BESIDE_RING] follows operation i; base precedes the first. */
typedef struct lane {
  cudaStream_t stream;
  cudaEvent_t base;
  cudaEvent_t events[BESIDE_RING];
  int depth; /* most in flight */
  int64_t launched;
  int64_t done;
  double* tookUs; /* [BESIDE_MOST_OPERATIONS], each from the end of the one before; of the first from the base */
} lane_t;

typedef struct besideRank {
  const perfGpuRank_t* gpu;
  besideRun_t* run;
  ulyxPlan_t plan;
  ulyxQkv_t in, out;
  void* inputs[3];
  cublasHandle_t cublas;
  void* matrices[3];
  void* workspace;
  lane_t exchanges;
  lane_t products;
  double* endsMs[2]; /* [BESIDE_MOST_OPERATIONS] of exchanges and products beside each other, from one base */
} besideRank_t;

static bool cublasOk(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return true;
  perfError("%s: %s", what, cublasGetStatusString(status));
  return false;
}

/* ---- Flags ---- */

static perfParse_t parse(int argc, char** argv, besideOptions_t* o) {
  const perfFlag_t flags[] = {
      {"-g,--gpus", perfFlagInt, &o->gpus, 1, PERF_MAX_LOCAL_RANKS, NULL, "ranks, one a GPU [2]"},
      {"--modes", perfFlagText, &o->modes, 0, 0, "A,B,...",
       "of nccl, direct, copy_engine, undisturbed (auto, with config.undisturbed) and auto, in any order and number\n"
       "        [nccl,direct,copy_engine,undisturbed]"},
      {"--tokens", perfFlagTokens, &o->tokens, 1, INT64_MAX, NULL, "of the whole sequence [75600]"},
      {"--heads", perfFlagInt, &o->heads, 1, INT64_MAX, NULL, "of the whole model [40]"},
      {"--head-dim", perfFlagInt, &o->headDim, 1, INT64_MAX, NULL, "bfloat16 elements of a head [128]"},
      {"--size", perfFlagInt, &o->size, 8, 32768, NULL, "rows and columns of the matrices [8192]"},
      {"--window-ms", perfFlagInt, &o->windowMs, 10, 60000, NULL,
       "what the timed products take alone, and twice the exchanges alone [400]"},
      {"--max-ctas", perfFlagInt, &o->maxCtas, 0, INT32_MAX, NULL,
       "most thread blocks of a kernel of ulyx; 0: as many as pay [0]"},
      {"--high-priority", perfFlagSwitch, &o->highPriority, 0, 0, NULL,
       "exchanges run on streams of the highest priority"},
      {"-T,--timeout", perfFlagInt, &o->timeoutSeconds, 1, 86400, NULL,
       "seconds without any progress after which the program says who stands, and ends [60]"},
  };
  enum { nFlags = sizeof(flags) / sizeof(flags[0]) };
  const perfParse_t parsed = perfParseFlags(flags, nFlags, argc, argv, 1);
  if (parsed == perfHelpAsked) {
    (void)printf(
        "usage: beside_perf [flags]\n\n"
        "The rate of a bfloat16 matrix product alone and while exchanges (seq_to_heads) run all the time on another\n"
        "stream of the same GPU, and the time of an exchange alone and beside the products. One process, a thread a\n"
        "GPU; rates are means over GPUs, times those of the slowest GPU. Exit status: 0 measured, 2 wrong flags, 3 a\n"
        "failure, 'not overlapped' among them, 77 fewer GPUs than asked for.\n\nflags (a default in brackets):\n");
    perfPrintFlags(stdout, flags, nFlags);
  }
  return parsed;
}

/* The modes that the list names, in its order. */
static bool parseModes(const char* list, const besideMode_t** chosen, int* count) {
  *count = 0;
  for (const char* item = list;;) {
    const size_t length = strcspn(item, ",");
    const besideMode_t* mode = NULL;
    for (int i = 0; i < nModes && mode == NULL; i++) {
      if (strlen(modes[i].name) == length && strncmp(modes[i].name, item, length) == 0) mode = &modes[i];
    }
    if (mode == NULL) {
      perfError("--modes takes nccl, direct, copy_engine, undisturbed and auto, not '%.*s'", (int)length, item);
      return false;
    }
    if (*count == BESIDE_MOST_MODES) {
      perfError("--modes takes %d modes at most", BESIDE_MOST_MODES);
      return false;
    }
    chosen[(*count)++] = mode;
    if (item[length] == '\0') return true;
    item += length + 1;
  }
}

/* ---- Lanes ---- */

static bool laneOpen(lane_t* lane, int priority) {
  if (!perfCudaOk(cudaStreamCreateWithPriority(&lane->stream, cudaStreamNonBlocking, priority),
                  "cudaStreamCreateWithPriority") ||
      !perfCudaOk(cudaEventCreate(&lane->base), "cudaEventCreate")) {
    return false;
  }
  for (int i = 0; i < BESIDE_RING; i++) {
    if (!perfCudaOk(cudaEventCreate(&lane->events[i]), "cudaEventCreate")) return false;
  }
  lane->tookUs = calloc(BESIDE_MOST_OPERATIONS, sizeof(*lane->tookUs));
  if (lane->tookUs == NULL) perfError("out of memory for times");
  return lane->tookUs != NULL;
}

static bool laneClose(lane_t* lane) {
  bool ok = perfCudaOk(cudaEventDestroy(lane->base), "cudaEventDestroy");
  for (int i = 0; i < BESIDE_RING; i++) {
    if (!perfCudaOk(cudaEventDestroy(lane->events[i]), "cudaEventDestroy")) ok = false;
  }
  if (!perfCudaOk(cudaStreamDestroy(lane->stream), "cudaStreamDestroy")) ok = false;
  free(lane->tookUs);
  return ok;
}

/* Nothing may be in flight. */
static bool laneBegin(lane_t* lane, int depth) {
  lane->depth = depth;
  lane->launched = 0;
  lane->done = 0;
  return perfCudaOk(cudaEventRecord(lane->base, lane->stream), "cudaEventRecord");
}

static bool laneHasRoom(const lane_t* lane) {
  return lane->launched - lane->done < lane->depth && lane->launched < BESIDE_MOST_OPERATIONS;
}

/* After the operation has been enqueued. */
static bool laneLaunched(lane_t* lane) {
  return perfCudaOk(cudaEventRecord(lane->events[lane->launched++ % BESIDE_RING], lane->stream), "cudaEventRecord");
}

static bool elapsedMs(cudaEvent_t from, cudaEvent_t to, double* ms) {
  float value = 0;
  if (!perfCudaOk(cudaEventElapsedTime(&value, from, to), "cudaEventElapsedTime")) return false;
  *ms = (double)value;
  return true;
}

/* Takes the times of operations that have ended since; with endsMs, when they ended after `base` too. */
static bool laneCollect(lane_t* lane, cudaEvent_t base, double* endsMs, atomic_ullong* moved) {
  while (lane->done < lane->launched) {
    const cudaEvent_t end = lane->events[lane->done % BESIDE_RING];
    const cudaError_t error = cudaEventQuery(end);
    if (error == cudaErrorNotReady) return true;
    if (!perfCudaOk(error, "cudaEventQuery")) return false;
    const cudaEvent_t before = lane->done > 0 ? lane->events[(lane->done - 1) % BESIDE_RING] : lane->base;
    double ms = 0;
    if (!elapsedMs(before, end, &ms)) return false;
    lane->tookUs[lane->done] = ms * 1e3;
    if (endsMs != NULL && !elapsedMs(base, end, &endsMs[lane->done])) return false;
    lane->done++;
    atomic_fetch_add(moved, 1);
  }
  return true;
}

/* So many that the host may be away for a while and the lane not run dry. */
static int depthFor(double operationUs) {
  const double depth = BESIDE_LEAST_US / operationUs;
  if (depth < BESIDE_LEAST_DEPTH) return BESIDE_LEAST_DEPTH;
  return depth > BESIDE_MOST_DEPTH ? BESIDE_MOST_DEPTH : (int)depth;
}

/* The mean of all but the first, which starts with the lane. count >= 2. */
static double meanUs(const lane_t* lane) {
  double sum = 0;
  for (int64_t i = 1; i < lane->done; i++) sum += lane->tookUs[i];
  return sum / (double)(lane->done - 1);
}

static void rest(void) {
  const struct timespec pause = {0, BESIDE_PAUSE_NS};
  (void)nanosleep(&pause, NULL);
}

/* ---- The work ---- */

static bool enqueueExchange(besideRank_t* me) {
  return perfUlyxOk(ulyxSeqToHeads(me->plan, &me->in, &me->out, me->exchanges.stream), me->gpu->rt, "ulyxSeqToHeads") &&
         laneLaunched(&me->exchanges);
}

static bool enqueueProduct(besideRank_t* me) {
  const float one = 1;
  const float zero = 0;
  const int n = (int)me->run->options.size;
  return cublasOk(cublasGemmEx(me->cublas, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, me->matrices[0], CUDA_R_16BF, n,
                               me->matrices[1], CUDA_R_16BF, n, &zero, me->matrices[2], CUDA_R_16BF, n,
                               CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                  "cublasGemmEx") &&
         laneLaunched(&me->products);
}

/* Runs `count` operations of one lane, nothing else being in flight. */
static bool runAlone(besideRank_t* me, lane_t* lane, bool (*enqueue)(besideRank_t*), int64_t count, int depth) {
  if (!perfTeamBarrier(me->gpu->team, me->gpu->rank) || !laneBegin(lane, depth)) return false;
  while (lane->done < count) {
    while (lane->launched < count && laneHasRoom(lane)) {
      if (!enqueue(me)) return false;
    }
    if (!laneCollect(lane, NULL, NULL, &me->run->moved[me->gpu->rank])) return false;
    if (lane->done < count) rest();
  }
  return true;
}

/* Operations that fill the time, the same number on every rank. */
static bool agreeCount(besideRank_t* me, double operationUs, double us, int64_t* count) {
  double all[PERF_MAX_LOCAL_RANKS];
  if (!perfTeamGather(me->gpu->team, me->gpu->rank, &operationUs, sizeof(operationUs), all)) return false;
  double slowestUs = all[0];
  for (int rank = 1; rank < me->gpu->nRanks; rank++) {
    if (all[rank] > slowestUs) slowestUs = all[rank];
  }
  const double wanted = us / slowestUs;
  *count = wanted < 20 ? 20 : wanted > BESIDE_MOST_OPERATIONS / 8 ? BESIDE_MOST_OPERATIONS / 8 : (int64_t)wanted;
  return true;
}

/* True where this rank is to enqueue the exchange of that index: somebody has, or products still run somewhere. */
static bool mayStart(besideRun_t* run, int nRanks, int64_t index) {
  (void)pthread_mutex_lock(&run->mutex);
  const bool may = index < run->started || run->finished < nRanks;
  if (may && index == run->started) run->started++;
  (void)pthread_mutex_unlock(&run->mutex);
  return may;
}

static void finishProducts(besideRun_t* run) {
  (void)pthread_mutex_lock(&run->mutex);
  run->finished++;
  (void)pthread_mutex_unlock(&run->mutex);
}

/* Both lanes at once: exchanges first, then so many products, and exchanges until every rank's products are done. */
static bool runBeside(besideRank_t* me, int64_t products, int exchangeDepth, int productDepth, int64_t* dry) {
  besideRun_t* run = me->run;
  lane_t* exchanges = &me->exchanges;
  lane_t* gemms = &me->products;
  atomic_ullong* moved = &run->moved[me->gpu->rank];
  bool finished = false;
  *dry = 0;
  if (!perfTeamBarrier(me->gpu->team, me->gpu->rank)) return false;
  if (!laneBegin(exchanges, exchangeDepth) || !laneBegin(gemms, productDepth)) return false;
  for (;;) {
    if (!laneCollect(exchanges, exchanges->base, me->endsMs[0], moved) ||
        !laneCollect(gemms, exchanges->base, me->endsMs[1], moved)) {
      return false;
    }
    if (!finished && gemms->done == products) {
      finished = true;
      finishProducts(run);
    }
    const bool timed = gemms->launched > 0 && !finished;
    if (timed && exchanges->launched == exchanges->done) ++*dry;
    bool enqueued = false;
    bool ended = false;
    if (laneHasRoom(exchanges)) {
      if (mayStart(run, me->gpu->nRanks, exchanges->launched)) {
        if (!enqueueExchange(me)) return false;
        enqueued = true;
      } else {
        ended = true;
      }
    } else if (exchanges->launched == BESIDE_MOST_OPERATIONS) {
      perfError("exchanges this short are not measured: more than %d of them", BESIDE_MOST_OPERATIONS);
      return false;
    }
    /* Two exchanges have ended: they run. */
    if (exchanges->done >= 2 && gemms->launched < products && laneHasRoom(gemms)) {
      if (!enqueueProduct(me)) return false;
      enqueued = true;
    }
    if (ended && finished && exchanges->done == exchanges->launched) return true;
    if (!enqueued) rest();
  }
}

/* The median time of exchanges that ran wholly while products were timed; from ends, as the lane's times are. */
static double exchangeWithinUs(besideRank_t* me, double fromMs, double toMs) {
  lane_t* lane = &me->exchanges;
  int count = 0;
  for (int64_t i = 1; i < lane->done; i++) {
    if (me->endsMs[0][i - 1] >= fromMs && me->endsMs[0][i] <= toMs) lane->tookUs[count++] = lane->tookUs[i];
  }
  return count > 0 ? perfTimesOfSamples(lane->tookUs, count).medianUs : PERF_NOT_MEASURED;
}

static double tflopsOf(const besideRank_t* me, double productUs) {
  const double n = (double)me->run->options.size;
  return 2 * n * n * n / productUs * 1e-6;
}

static void enterPhase(besideRank_t* me, const char* phase) {
  atomic_store(&me->run->phases[me->gpu->rank], phase);
  atomic_fetch_add(&me->run->moved[me->gpu->rank], 1);
}

static bool measure(besideRank_t* me, besideResult_t* result) {
  const double windowUs = (double)me->run->options.windowMs * 1e3;
  int64_t exchanges = 0;
  int64_t products = 0;
  int64_t dry = 0;
  enterPhase(me, "warming up");
  /* Twice: the first time pays for what is made at first use. */
  for (int i = 0; i < 2; i++) {
    if (!runAlone(me, &me->exchanges, enqueueExchange, BESIDE_WARMUP, BESIDE_LEAST_DEPTH)) return false;
  }
  const int exchangeDepth = depthFor(meanUs(&me->exchanges));
  if (!agreeCount(me, meanUs(&me->exchanges), windowUs / 2, &exchanges)) return false;
  for (int i = 0; i < 2; i++) {
    if (!runAlone(me, &me->products, enqueueProduct, BESIDE_WARMUP, BESIDE_LEAST_DEPTH)) return false;
  }
  const int productDepth = depthFor(meanUs(&me->products));
  if (!agreeCount(me, meanUs(&me->products), windowUs, &products)) return false;

  enterPhase(me, "exchanges alone");
  if (!runAlone(me, &me->exchanges, enqueueExchange, exchanges, exchangeDepth)) return false;
  result->exchangeAloneUs = perfTimesOfSamples(me->exchanges.tookUs + 1, (int)exchanges - 1).medianUs;
  /* Alone before and after, since a warm GPU is a slower one. */
  enterPhase(me, "products alone");
  if (!runAlone(me, &me->products, enqueueProduct, products, productDepth)) return false;
  const double beforeUs = meanUs(&me->products);
  enterPhase(me, "products beside exchanges");
  if (!runBeside(me, products, exchangeDepth, productDepth, &dry)) return false;
  const double besideUs = meanUs(&me->products);
  const double fromMs = me->endsMs[1][0];
  const double toMs = me->endsMs[1][products - 1];
  const double lastMs = me->endsMs[0][me->exchanges.done - 1];
  result->overlapped = dry == 0 && me->endsMs[0][0] < fromMs && lastMs > toMs;
  result->exchangeBesideUs = exchangeWithinUs(me, fromMs, toMs);
  if (!result->overlapped) {
    perfError(
        "rank %d: not overlapped: products ran from %.3f to %.3f ms, exchanges from %.3f to %.3f ms, with none in "
        "flight %" PRId64 " times",
        me->gpu->rank, fromMs, toMs, me->endsMs[0][0], lastMs, dry);
  }
  enterPhase(me, "products alone again");
  if (!runAlone(me, &me->products, enqueueProduct, products, productDepth)) return false;
  result->aloneTflops = tflopsOf(me, (beforeUs + meanUs(&me->products)) / 2);
  result->besideTflops = tflopsOf(me, besideUs);
  return true;
}

/* ---- A rank ---- */

static bool setUpExchange(besideRank_t* me) {
  const ulyxRuntime_t rt = me->gpu->rt;
  const ulyxShape_t* shape = &me->run->shape;
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  if (!perfUlyxOk(ulyxPlanCreate(rt, shape, &me->plan), rt, "ulyxPlanCreate") ||
      !perfUlyxOk(ulyxPlanGetQkv(me->plan, &me->in, &me->out), rt, "ulyxPlanGetQkv") ||
      !perfUlyxOk(ulyxShapeGetBytes(shape, me->gpu->nRanks, me->gpu->rank, &bytes), NULL, "ulyxShapeGetBytes")) {
    return false;
  }
  ulyxTensor_t* const in[] = {&me->in.q, &me->in.k, &me->in.v};
  ulyxTensor_t* const out[] = {&me->out.q, &me->out.k, &me->out.v};
  const int64_t inBytes[] = {bytes.qIn, bytes.kIn, bytes.vIn};
  const int64_t outBytes[] = {bytes.qOut, bytes.kOut, bytes.vOut};
  for (int i = 0; i < 3; i++) {
    if (!perfCudaOk(cudaMalloc(&me->inputs[i], (size_t)inBytes[i]), "cudaMalloc") ||
        !perfCudaOk(besideLaunchRandom(me->inputs[i], inBytes[i] / 2, (uint64_t)i, me->exchanges.stream),
                    "launch of the random numbers") ||
        !perfUlyxOk(ulyxMemAlloc(rt, outBytes[i], &out[i]->data), rt, "ulyxMemAlloc")) {
      return false;
    }
    in[i]->data = me->inputs[i];
  }
  ulyxChoice_t choice;
  if (!perfUlyxOk(ulyxPlanGetChoice(me->plan, 0, &choice), rt, "ulyxPlanGetChoice")) return false;
  if (me->gpu->rank == 0) me->run->transport = choice.transport;
  return true;
}

static bool setUpProduct(besideRank_t* me) {
  const int64_t elements = me->run->options.size * me->run->options.size;
  for (int i = 0; i < 3; i++) {
    if (!perfCudaOk(cudaMalloc(&me->matrices[i], (size_t)elements * 2), "cudaMalloc") ||
        !perfCudaOk(besideLaunchRandom(me->matrices[i], elements, (uint64_t)(3 + i), me->products.stream),
                    "launch of the random numbers")) {
      return false;
    }
  }
  return perfCudaOk(cudaMalloc(&me->workspace, BESIDE_WORKSPACE_BYTES), "cudaMalloc") &&
         cublasOk(cublasCreate(&me->cublas), "cublasCreate") &&
         cublasOk(cublasSetStream(me->cublas, me->products.stream), "cublasSetStream") &&
         cublasOk(cublasSetWorkspace(me->cublas, me->workspace, BESIDE_WORKSPACE_BYTES), "cublasSetWorkspace");
}

static bool setUp(besideRank_t* me) {
  enterPhase(me, "setting up");
  for (int i = 0; i < 2; i++) {
    me->endsMs[i] = calloc(BESIDE_MOST_OPERATIONS, sizeof(*me->endsMs[i]));
    if (me->endsMs[i] == NULL) {
      perfError("out of memory for times");
      return false;
    }
  }
  return laneOpen(&me->exchanges, me->run->priority) && laneOpen(&me->products, 0) && setUpExchange(me) &&
         setUpProduct(me) && perfCudaOk(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

/* The outputs go with the runtime. */
static bool tearDown(besideRank_t* me) {
  enterPhase(me, "ending");
  bool ok = cublasOk(cublasDestroy(me->cublas), "cublasDestroy");
  if (!perfUlyxOk(ulyxPlanDestroy(me->plan), me->gpu->rt, "ulyxPlanDestroy")) ok = false;
  for (int i = 0; i < 3; i++) {
    if (!perfCudaOk(cudaFree(me->inputs[i]), "cudaFree")) ok = false;
    if (!perfCudaOk(cudaFree(me->matrices[i]), "cudaFree")) ok = false;
  }
  if (!perfCudaOk(cudaFree(me->workspace), "cudaFree")) ok = false;
  if (!laneClose(&me->exchanges)) ok = false;
  if (!laneClose(&me->products)) ok = false;
  for (int i = 0; i < 2; i++) free(me->endsMs[i]);
  return ok;
}

static bool runRank(const perfGpuRank_t* gpu, void* shared) {
  besideRun_t* run = shared;
  besideRank_t me;
  memset(&me, 0, sizeof(me));
  me.gpu = gpu;
  me.run = run;
  return setUp(&me) && measure(&me, &run->results[gpu->rank]) && perfTeamBarrier(gpu->team, gpu->rank) && tearDown(&me);
}

/* ---- What the main thread does ---- */

static uint64_t progressOf(const void* shared) {
  const besideRun_t* run = shared;
  uint64_t sum = 0;
  for (int64_t rank = 0; rank < run->options.gpus; rank++) sum += atomic_load(&run->moved[rank]);
  return sum;
}

static void reportStanding(const void* shared) {
  const besideRun_t* run = shared;
  for (int64_t rank = 0; rank < run->options.gpus; rank++) {
    const char* phase = atomic_load(&run->phases[rank]);
    perfError("rank %" PRId64 " stands: %s, %llu operations have ended", rank, phase != NULL ? phase : "not started",
              atomic_load(&run->moved[rank]));
  }
}

static void printHeader(const besideOptions_t* o) {
  (void)printf("# %" PRId64 " x %" PRId64 " x %" PRId64 " bfloat16 products beside seq_to_heads of %" PRId64
               " tokens, %" PRId64 " heads of %" PRId64 ", on %" PRId64 " GPUs\n",
               o->size, o->size, o->size, o->tokens, o->heads, o->headDim, o->gpus);
  (void)printf("# %13s  %12s  %14s  %15s  %8s  %17s  %18s\n", "mode", "transport", "TFLOP/s alone", "TFLOP/s beside",
               "loss (%)", "exchange alone us", "exchange beside us");
  (void)fflush(stdout);
}

/* False where a rank's lanes did not overlap. */
static bool printMode(const besideMode_t* mode, const besideRun_t* run) {
  const int nRanks = (int)run->options.gpus;
  besideResult_t sum = {0, 0, 0, 0, true};
  bool measured = true;
  for (int rank = 0; rank < nRanks; rank++) {
    const besideResult_t* one = &run->results[rank];
    sum.aloneTflops += one->aloneTflops;
    sum.besideTflops += one->besideTflops;
    if (one->exchangeAloneUs > sum.exchangeAloneUs) sum.exchangeAloneUs = one->exchangeAloneUs;
    if (one->exchangeBesideUs > sum.exchangeBesideUs) sum.exchangeBesideUs = one->exchangeBesideUs;
    if (one->exchangeBesideUs < 0) measured = false;
    sum.overlapped = sum.overlapped && one->overlapped;
  }
  (void)printf("  %13s  %12s  ", mode->name, perfTransportName(run->transport));
  if (!sum.overlapped) {
    (void)printf("not overlapped\n");
  } else {
    (void)printf("%14.1f  %15.1f  %8.1f  %17.1f  ", sum.aloneTflops / nRanks, sum.besideTflops / nRanks,
                 100 * (1 - sum.besideTflops / sum.aloneTflops), sum.exchangeAloneUs);
    if (measured) {
      (void)printf("%18.1f\n", sum.exchangeBesideUs);
    } else {
      (void)printf("%18s\n", "N/A"); /* none began and ended within the window */
    }
  }
  (void)fflush(stdout);
  return sum.overlapped;
}

static bool runMode(const besideOptions_t* o, const ulyxShape_t* shape, const besideMode_t* mode) {
  static besideRun_t run;
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  int least = 0;
  int greatest = 0;
  memset(&run, 0, sizeof(run));
  run.options = *o;
  run.shape = *shape;
  config.transport = mode->transport;
  config.undisturbed = mode->undisturbed;
  config.maxCtas = (int)o->maxCtas;
  config.arenaBytes = 0;
  for (int rank = 0; rank < (int)o->gpus; rank++) {
    ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
    if (!perfUlyxOk(ulyxShapeGetBytes(shape, (int)o->gpus, rank, &bytes), NULL, "ulyxShapeGetBytes")) return false;
    if (bytes.arena > config.arenaBytes) config.arenaBytes = bytes.arena;
  }
  if (o->highPriority != 0) {
    if (!perfCudaOk(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange")) {
      return false;
    }
    run.priority = greatest;
    config.streamPriority = greatest;
  }
  if (pthread_mutex_init(&run.mutex, NULL) != 0) {
    perfError("cannot make a mutex");
    return false;
  }
  const perfGpuProgram_t program = {runRank, progressOf, reportStanding, NULL, &run, o->timeoutSeconds};
  const bool ran = perfGpuRun(&config, (int)o->gpus, &program);
  (void)pthread_mutex_destroy(&run.mutex);
  if (!ran) perfError("mode %s was not measured", mode->name);
  return ran && printMode(mode, &run);
}

int main(int argc, char** argv) {
  besideOptions_t options = {.gpus = 2,
                             .tokens = 75600,
                             .heads = 40,
                             .headDim = 128,
                             .size = 8192,
                             .windowMs = 400,
                             .timeoutSeconds = 60,
                             .modes = "nccl,direct,copy_engine,undisturbed"};
  const besideMode_t* chosen[BESIDE_MOST_MODES];
  int count = 0;
  const perfParse_t parsed = parse(argc, argv, &options);
  if (parsed == perfHelpAsked) return perfExitOk;
  if (parsed != perfParsed || !parseModes(options.modes, chosen, &count)) return perfExitUsage;
  ulyxShape_t shape = ULYX_SHAPE_INITIALIZER;
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  shape.tokens = options.tokens;
  shape.heads = options.heads;
  shape.headDim = options.headDim;
  if (!perfUlyxOk(ulyxShapeGetBytes(&shape, (int)options.gpus, 0, &bytes), NULL, "ulyxShapeGetBytes")) {
    return perfExitUsage;
  }
  if (!perfGpusAreThere(options.gpus)) return PERF_EXIT_SKIPPED;
  printHeader(&options);
  int status = perfExitOk;
  for (int i = 0; i < count; i++) {
    if (!runMode(&options, &shape, chosen[i])) status = perfExitFailure;
  }
  return status;
}
