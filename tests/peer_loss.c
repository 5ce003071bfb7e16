/* SPDX-License-Identifier: MIT
 *
 * A peer that dies or stands still in a loop of exchanges, again and again, on two GPUs with a process each:
 *
 *   peer_loss [-t nccl|direct|copy_engine] [-s kill|stop|absent|order|overlap] [-n TRIALS] [-j SIDE_BY_SIDE]
 *             [-T TIMEOUT_MS] [-H]
 *
 * -H makes NCCL take each process for a host of its own, so that it goes through the network, and one GPU is enough;
 * for direct and copy_engine the processes load shared_gpu.c before it.
 *
 * In each trial rank 1 gets a signal at a random moment, or never starts, or (nccl alone) makes an exchange of another
 * plan, with other numbers of bytes, that both have agreed upon; then one rank at least must name both plans. Or it
 * replays two graphs of exchanges beside each other, and must be told so. Rank 0 must get an error by the deadline and
 * a second, be refused after that, destroy its runtime in bounded time, and then go on with a world of its own. Every
 * output until then is checked. Exit status: 0 all trials right, 1 some wrong, 2 wrong usage, 77 too few GPUs.
 */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ulyx.h"

#define TOKENS 4099
#define HEADS 7
#define DIM 64
#define MOST_SIDE_BY_SIDE 32
#define MOST_STARTING 4 /* joining has the same deadline as exchanges, and takes longer the more do */
#define SETTLE_MS 1000  /* what an error may take past the deadline, and a destruction past another */

typedef struct Options {
  int transport, signal, trials, sideBySide, timeoutMs;
  bool hosts; /* each rank is one of its own */
  int gpus;
} Options;

/* Shared by the three processes of a trial. */
typedef struct Trial {
  ulyxUniqueId_t id;
  volatile int idReady;
  volatile int joined[2];
  volatile int go;               /* the exchanges may begin: those of many trials hold up each other's joining */
  volatile int64_t exchanges[2]; /* that each rank has seen to end */
  volatile int64_t struckNs;     /* when the signal was sent; 0: not yet */
  volatile int64_t errorMs, destroyMs;
  volatile int result;    /* ulyxResult_t that rank 0 got */
  char said[2][512];      /* what each rank got told */
  char plans[2][17];      /* of each rank's last exchange */
  volatile int otherSaid; /* rank 1's words are there */
  pid_t ranks[2];
} Trial;

static int64_t nowNs(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static void sleepMs(int64_t ms) {
  (void)nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* ---- A rank ------------------------------------------------------------------------------------------------ */

static _Noreturn void die(const char* what, const char* why) {
  fprintf(stderr, "peer_loss: %s: %s\n", what, why);
  _exit(3);
}

static void must(ulyxResult_t result, const char* what) {
  if (result != ulyxSuccess) die(what, ulyxGetLastError(NULL));
}

static void mustCuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) die(what, cudaGetErrorString(error));
}

/* One world's exchange of this rank. */
typedef struct Rank {
  ulyxRuntime_t rt;
  ulyxPlan_t plan, otherPlan;
  ulyxTensor_t in, out, otherIn, otherOut;
  int64_t outBytes;
  unsigned char* found; /* on the host */
  int nRanks, rank;
  cudaStream_t stream;
} Rank;

static void fill(unsigned char* bytes, int64_t count, int rank) {
  for (int64_t i = 0; i < count; ++i) bytes[i] = (unsigned char)(i * 7 + rank * 31 + 1);
}

static void setUp(const Options* options, Rank* self, const ulyxUniqueId_t* id, int nRanks, int rank) {
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  ulyxShape_t shape = ULYX_SHAPE_INITIALIZER;
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  config.transport = nRanks > 1 ? options->transport : ulyxTransportAuto;
  shape.tokens = TOKENS;
  shape.heads = HEADS;
  shape.headDim = DIM;
  *self = (Rank){.nRanks = nRanks, .rank = rank};
  config.timeoutMs = options->timeoutMs;
  must(ulyxRuntimeCreate(&config, nRanks, *id, rank, &self->rt), "ulyxRuntimeCreate");
  must(ulyxShapeGetBytes(&shape, nRanks, rank, &bytes), "ulyxShapeGetBytes");
  must(ulyxRuntimeReserve(self->rt, bytes.arena), "ulyxRuntimeReserve");
  must(ulyxPlanCreate(self->rt, &shape, &self->plan), "ulyxPlanCreate");
  must(ulyxPlanGetOutput(self->plan, &self->in, &self->out), "ulyxPlanGetOutput");
  shape.headDim = DIM / 2;
  must(ulyxPlanCreate(self->rt, &shape, &self->otherPlan), "ulyxPlanCreate of another plan");
  must(ulyxPlanGetOutput(self->otherPlan, &self->otherIn, &self->otherOut), "ulyxPlanGetOutput of another plan");
  unsigned char* const data = malloc((size_t)bytes.oIn);
  self->found = malloc((size_t)bytes.oOut);
  if (data == NULL || self->found == NULL) die("malloc", strerror(errno));
  fill(data, bytes.oIn, rank);
  mustCuda(cudaMalloc(&self->in.data, (size_t)bytes.oIn), "cudaMalloc");
  must(ulyxMemAlloc(self->rt, bytes.oOut, &self->out.data), "ulyxMemAlloc");
  self->otherIn.data = self->in.data;
  self->otherOut.data = self->out.data;
  mustCuda(cudaMemcpy(self->in.data, data, (size_t)bytes.oIn, cudaMemcpyHostToDevice), "cudaMemcpy");
  mustCuda(cudaStreamCreateWithFlags(&self->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  self->outBytes = bytes.oOut;
  free(data);
}

/* Heads of rank r of this rank's tokens, as rank r has filled them. */
static bool isRight(const Rank* self) {
  const int64_t rowBytes = HEADS * DIM * 2, tokens = self->out.extents[1];
  const int64_t firstToken = self->rank == 0 ? 0 : TOKENS - tokens;
  for (int64_t at = 0; at < self->outBytes; ++at) {
    const int64_t token = at / rowBytes, byte = at % rowBytes, head = byte / (DIM * 2);
    const int64_t split = self->nRanks == 1 ? HEADS : (HEADS + 1) / 2;
    const int owner = head < split ? 0 : 1;
    const int64_t heads = owner == 0 ? split : HEADS - split;
    const int64_t column = byte - (owner == 0 ? 0 : split * DIM * 2);
    const int64_t there = (firstToken + token) * heads * DIM * 2 + column;
    if (self->found[at] != (unsigned char)(there * 7 + owner * 31 + 1)) return false;
  }
  return true;
}

/* One exchange, checked now and then. */
static ulyxResult_t exchange(Rank* self, int64_t number) {
  ulyxResult_t result = ulyxHeadsToSeq(self->plan, &self->in, &self->out, self->stream);
  if (result != ulyxSuccess) return result;
  mustCuda(cudaStreamSynchronize(self->stream), "cudaStreamSynchronize");
  must(ulyxRuntimeGetAsyncError(self->rt, &result), "ulyxRuntimeGetAsyncError");
  if (result != ulyxSuccess || number % 16 != 0) return result;
  mustCuda(cudaMemcpyAsync(self->found, self->out.data, (size_t)self->outBytes, cudaMemcpyDeviceToHost, self->stream),
           "cudaMemcpyAsync");
  mustCuda(cudaStreamSynchronize(self->stream), "cudaStreamSynchronize");
  if (!isRight(self)) die("exchange", "wrong data");
  return ulyxSuccess;
}

/* Ranks that share a GPU share it with kernels of stopped ones, which spin for as long as these are stopped. */
static void goOnAlone(const Options* given) {
  ulyxUniqueId_t id;
  Rank alone;
  Options patient = *given;
  const Options* const options = &patient;
  if (given->hosts) patient.timeoutMs = 30000;
  must(ulyxGetUniqueId(&id), "ulyxGetUniqueId of the next world");
  setUp(options, &alone, &id, 1, 0);
  must(exchange(&alone, 0), "exchange of the next world");
  must(ulyxRuntimeDestroy(&alone.rt), "ulyxRuntimeDestroy of the next world");
}

/* In place of a signal. */
#define ABSENT 0
#define ORDER (-1)
#define OVERLAP (-2)

/* Before NCCL is asked for anything, since it takes its host's name once. */
static void settle(const Options* options, int rank) {
  char host[32];
  (void)snprintf(host, sizeof host, "peer_loss-%d", rank);
  if (options->hosts && setenv("NCCL_HOSTID", host, 1) != 0) die("setenv", strerror(errno));
  mustCuda(cudaSetDevice(rank % options->gpus), "cudaSetDevice");
  mustCuda(cudaFree(NULL), "cudaFree");
}

static void join(const Options* options, Trial* trial, Rank* self, int rank) {
  setUp(options, self, &trial->id, 2, rank);
  trial->joined[rank] = 1;
  while (!trial->go) sleepMs(1);
}

static void keepWords(Trial* trial, const Rank* self) {
  ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
  must(ulyxPlanGetInfo(self->plan, &info), "ulyxPlanGetInfo");
  (void)snprintf(trial->plans[self->rank], sizeof trial->plans[0], "%016llx", (unsigned long long)info.signature);
  (void)snprintf(trial->said[self->rank], sizeof trial->said[0], "%s", ulyxGetLastError(self->rt));
}

/* Joining must end by the deadline. */
static _Noreturn void waitForNobody(const Options* options, Trial* trial) {
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  ulyxRuntime_t rt = NULL;
  ulyxUniqueId_t id;
  settle(options, 0);
  must(ulyxGetUniqueId(&id), "ulyxGetUniqueId");
  config.transport = options->transport;
  config.timeoutMs = options->timeoutMs;
  trial->struckNs = nowNs();
  trial->result = (int)ulyxRuntimeCreate(&config, 2, id, 0, &rt);
  trial->errorMs = (nowNs() - trial->struckNs) / 1000000;
  (void)snprintf(trial->said[0], sizeof trial->said[0], "%s", ulyxGetLastError(NULL));
  goOnAlone(options);
  _exit(0);
}

static _Noreturn void survive(const Options* options, Trial* trial) {
  Rank self;
  settle(options, 0);
  must(ulyxGetUniqueId(&trial->id), "ulyxGetUniqueId");
  __atomic_store_n(&trial->idReady, 1, __ATOMIC_RELEASE);
  join(options, trial, &self, 0);
  ulyxResult_t result = ulyxSuccess;
  for (int64_t number = 0; result == ulyxSuccess; ++number) {
    result = exchange(&self, number);
    trial->exchanges[0] = number + (result == ulyxSuccess ? 1 : 0);
  }
  trial->errorMs = (nowNs() - trial->struckNs) / 1000000;
  trial->result = (int)result;
  keepWords(trial, &self);
  if (ulyxHeadsToSeq(self.plan, &self.in, &self.out, self.stream) == ulyxSuccess) die("survivor", "was not refused");
  const int64_t destroyNs = nowNs();
  (void)ulyxRuntimeDestroy(&self.rt); /* it may say what was lost */
  trial->destroyMs = (nowNs() - destroyNs) / 1000000;
  goOnAlone(options);
  _exit(0);
}

static cudaGraphExec_t capture(const Rank* self) {
  cudaGraph_t graph = NULL;
  cudaGraphExec_t made = NULL;
  mustCuda(cudaStreamBeginCapture(self->stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  must(ulyxHeadsToSeq(self->plan, &self->in, &self->out, self->stream), "a captured exchange");
  mustCuda(cudaStreamEndCapture(self->stream, &graph), "cudaStreamEndCapture");
  mustCuda(cudaGraphInstantiate(&made, graph, 0), "cudaGraphInstantiate");
  mustCuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return made;
}

/* Of each two replays one begins before the other has ended, since the peer has yet to come for either. Returns what
 * the runtime then says. */
static ulyxResult_t overlap(const Rank* self) {
  cudaStream_t streams[] = {self->stream, NULL};
  const cudaGraphExec_t graphs[] = {capture(self), capture(self)};
  ulyxResult_t result = ulyxSuccess;
  mustCuda(cudaStreamCreateWithFlags(&streams[1], cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  while (result == ulyxSuccess) {
    for (int i = 0; i < 2; ++i) mustCuda(cudaGraphLaunch(graphs[i], streams[i]), "cudaGraphLaunch");
    do {
      must(ulyxRuntimeGetAsyncError(self->rt, &result), "ulyxRuntimeGetAsyncError");
    } while (result == ulyxSuccess &&
             (cudaStreamQuery(streams[0]) == cudaErrorNotReady || cudaStreamQuery(streams[1]) == cudaErrorNotReady));
  }
  return result;
}

static _Noreturn void beLost(const Options* options, Trial* trial) {
  Rank self;
  settle(options, 1);
  while (!__atomic_load_n(&trial->idReady, __ATOMIC_ACQUIRE)) sleepMs(1);
  join(options, trial, &self, 1);
  ulyxResult_t result = ulyxSuccess;
  for (int64_t number = 1; result == ulyxSuccess; ++number) {
    if (options->signal == ORDER && trial->struckNs != 0) {
      self.plan = self.otherPlan;
      self.in = self.otherIn;
      self.out = self.otherOut;
      number = 1; /* what comes of it is not looked at */
    }
    const bool overlaps = options->signal == OVERLAP && trial->struckNs != 0;
    result = overlaps ? overlap(&self) : exchange(&self, number);
    trial->exchanges[1] += result == ulyxSuccess ? 1 : 0;
  }
  keepWords(trial, &self);
  __atomic_store_n(&trial->otherSaid, 1, __ATOMIC_RELEASE);
  for (;;) pause(); /* killed by the parent */
}

/* ---- The parent -------------------------------------------------------------------------------------------- */

static void start(const Options* options, Trial* trial) {
  memset(trial, 0, sizeof *trial);
  const pid_t first = fork();
  if (first == 0) options->signal == ABSENT ? waitForNobody(options, trial) : survive(options, trial);
  trial->ranks[0] = first; /* by the parent alone: the memory is shared */
  if (options->signal == ABSENT) return;
  const pid_t second = fork();
  if (second == 0) beLost(options, trial);
  trial->ranks[1] = second;
}

static bool hasEnded(pid_t process) {
  siginfo_t info = {0};
  return waitid(P_PID, (id_t)process, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

static bool haveJoined(const Trial* trial) {
  return trial->joined[0] != 0 && trial->joined[1] != 0;
}

static bool loop(const Trial* trial) {
  return trial->exchanges[0] >= 20 && trial->exchanges[1] >= 20;
}

/* Waits until both ranks have come so far. False: they never did. */
static bool come(const Options* options, const Trial* trial, bool (*soFar)(const Trial* trial)) {
  if (options->signal == ABSENT) return true;
  for (int ms = 0; !soFar(trial); ++ms) {
    if (ms > 60000 || hasEnded(trial->ranks[0]) || hasEnded(trial->ranks[1])) return false;
    sleepMs(1);
  }
  return true;
}

/* Sends the signal at a random moment once both ranks loop. False: they never did. */
static bool strike(const Options* options, Trial* trial) {
  if (!come(options, trial, loop)) return false;
  if (options->signal == ABSENT) return true;
  (void)nanosleep(&(struct timespec){.tv_nsec = (long)(rand() % 50000000)}, NULL);
  trial->struckNs = nowNs();
  return options->signal < 0 || kill(trial->ranks[1], options->signal) == 0;
}

static bool namesBoth(const Trial* trial, int rank) {
  const char* const said = trial->said[rank];
  return strstr(said, trial->plans[0]) != NULL && strstr(said, trial->plans[1]) != NULL;
}

/* A rank names both plans, and so does the other, unless NCCL's network gave up before the label came. */
static bool namePlans(const Trial* trial) {
  if (trial->plans[1][0] == '\0' || strcmp(trial->plans[0], trial->plans[1]) == 0) return false;
  const bool named[] = {namesBoth(trial, 0), namesBoth(trial, 1)};
  if (!named[0] && !named[1]) return false;
  return (named[0] || strstr(trial->said[0], "NCCL failed") != NULL) &&
         (named[1] || strstr(trial->said[1], "NCCL failed") != NULL);
}

/* What was wrong with a trial; NULL: nothing. */
static const char* finish(const Options* options, Trial* trial, bool struck) {
  int status = -1;
  for (int ms = 0; ms < 60000 && waitpid(trial->ranks[0], &status, WNOHANG) == 0; ms += 5) sleepMs(5);
  const bool hung = status == -1;
  if (hung) (void)kill(trial->ranks[0], SIGKILL);
  if (hung) (void)waitpid(trial->ranks[0], NULL, 0);
  if (options->signal < 0 && struck) {
    for (int ms = 0; ms < options->timeoutMs + SETTLE_MS && !__atomic_load_n(&trial->otherSaid, __ATOMIC_ACQUIRE);
         ++ms) {
      sleepMs(1);
    }
  }
  if (options->signal != ABSENT) {
    (void)kill(trial->ranks[1], SIGKILL);
    (void)waitpid(trial->ranks[1], NULL, 0);
  }
  if (!struck) return "the ranks did not begin";
  if (hung) return "the survivor hung";
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return "the survivor failed";
  if (trial->errorMs > options->timeoutMs + SETTLE_MS) return "the error came too late";
  if (trial->destroyMs > options->timeoutMs + SETTLE_MS) return "the destruction took too long";
  if (trial->result != ulyxTimeout && trial->result != ulyxRemoteError) return "the survivor got another error";
  if (options->signal == ORDER && !namePlans(trial)) return "the plans were not named";
  if (options->signal == OVERLAP && strstr(trial->said[1], "of this runtime (rank 1) was running") == NULL) {
    return "exchanges that overlapped were not told";
  }
  return NULL;
}

/* Returns the number of wrong ones; *named: of those in which both ranks named both plans. */
static int runSome(const Options* options, Trial* trials, int count, int64_t* slowestErrorMs, int64_t* slowestDestroyMs,
                   int* named) {
  bool struck[MOST_SIDE_BY_SIDE];
  int wrong = 0;
  for (int i = 0; i < count; ++i) {
    if (i >= MOST_STARTING) (void)come(options, &trials[i - MOST_STARTING], haveJoined);
    start(options, &trials[i]);
  }
  for (int i = 0; i < count; ++i) (void)come(options, &trials[i], haveJoined);
  for (int i = 0; i < count; ++i) trials[i].go = 1;
  for (int i = 0; i < count; ++i) struck[i] = strike(options, &trials[i]);
  for (int i = 0; i < count; ++i) {
    const char* const why = finish(options, &trials[i], struck[i]);
    if (trials[i].errorMs > *slowestErrorMs) *slowestErrorMs = trials[i].errorMs;
    if (trials[i].destroyMs > *slowestDestroyMs) *slowestDestroyMs = trials[i].destroyMs;
    *named += namesBoth(&trials[i], 0) && namesBoth(&trials[i], 1) ? 1 : 0;
    if (why == NULL) continue;
    ++wrong;
    printf("wrong: %s (error %d after %lld ms, destroyed in %lld ms, %lld exchanges; \"%s\", \"%s\")\n", why,
           trials[i].result, (long long)trials[i].errorMs, (long long)trials[i].destroyMs,
           (long long)trials[i].exchanges[0], trials[i].said[0], trials[i].said[1]);
  }
  return wrong;
}

static int countGpus(void) {
  int channel[2], count = 0;
  if (pipe(channel) != 0) return 0;
  const pid_t asker = fork(); /* CUDA does not survive a fork */
  if (asker == 0) {
    if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
    _exit(write(channel[1], &count, sizeof count) == sizeof count ? 0 : 1);
  }
  (void)waitpid(asker, NULL, 0);
  (void)close(channel[1]);
  if (read(channel[0], &count, sizeof count) != (ssize_t)sizeof count) count = 0;
  (void)close(channel[0]);
  return count;
}

static int indexOf(const char* text, const char* const* names, int count) {
  for (int i = 0; i < count; ++i) {
    if (strcmp(text, names[i]) == 0) return i;
  }
  return -1;
}

static bool parse(int argc, char** argv, Options* options) {
  static const char* const transports[] = {"nccl", "direct", "copy_engine"};
  static const char* const signals[] = {"kill", "stop", "absent", "order", "overlap"};
  static const int numbers[] = {SIGKILL, SIGSTOP, ABSENT, ORDER, OVERLAP};
  for (int option; (option = getopt(argc, argv, "t:s:n:j:T:H")) != -1;) {
    const int transport = option == 't' ? indexOf(optarg, transports, 3) : 0;
    const int sent = option == 's' ? indexOf(optarg, signals, 5) : 0;
    const int number = option == '?' ? 0 : strchr("tsH", option) != NULL ? 1 : atoi(optarg);
    if (transport < 0 || sent < 0 || number < 1) return false;
    if (option == 't') options->transport = ulyxTransportNccl + transport;
    if (option == 's') options->signal = numbers[sent];
    if (option == 'n') options->trials = number;
    if (option == 'j') options->sideBySide = number < MOST_SIDE_BY_SIDE ? number : MOST_SIDE_BY_SIDE;
    if (option == 'T') options->timeoutMs = number;
    if (option == 'H') options->hosts = true;
  }
  return optind == argc;
}

int main(int argc, char** argv) {
  Options options = {ulyxTransportDirect, SIGKILL, 10, 1, 2000, false, 0};
  int64_t slowestErrorMs = 0, slowestDestroyMs = 0;
  int wrong = 0, named = 0;
  if (!parse(argc, argv, &options)) {
    fprintf(stderr,
            "usage: peer_loss [-t nccl|direct|copy_engine] [-s kill|stop|absent|order|overlap] [-n trials] "
            "[-j side by side] [-T ms] [-H]\n");
    return 2;
  }
  if (options.signal == ORDER && options.transport != ulyxTransportNccl) {
    fprintf(stderr, "error: an order (-s order) that is wrong ends by the deadline by nccl alone\n");
    return 2;
  }
  options.gpus = countGpus();
  if (options.gpus < (options.hosts ? 1 : 2)) {
    printf("peer_loss needs two GPUs, or one with -H\n");
    return 77;
  }
  Trial* const trials =
      mmap(NULL, MOST_SIDE_BY_SIDE * sizeof *trials, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (trials == MAP_FAILED) return 3;
  srand((unsigned)time(NULL));
  for (int done = 0; done < options.trials; done += options.sideBySide) {
    const int left = options.trials - done;
    wrong += runSome(&options, trials, left < options.sideBySide ? left : options.sideBySide, &slowestErrorMs,
                     &slowestDestroyMs, &named);
    (void)fflush(stdout);
  }
  if (options.signal < 0) {
    for (int rank = 0; rank < 2; ++rank) printf("rank %d: %s\n", rank, trials[0].said[rank]);
  }
  if (options.signal == ORDER) {
    printf("both ranks named both plans in %d trials, one rank alone in the others that were right\n", named);
  }
  printf(
      "peer_loss: transport %d, signal %d: %d of %d trials right; timeout %d ms, slowest error after %lld ms, slowest "
      "destruction %lld ms\n",
      options.transport, options.signal, options.trials - wrong, options.trials, options.timeoutMs,
      (long long)slowestErrorMs, (long long)slowestDestroyMs);
  return wrong == 0 ? 0 : 1;
}
