/* SPDX-License-Identifier: MIT
 *
 * A peer that dies or stands still in a loop of exchanges, again and again, on two GPUs with a process each:
 *
 *   peer_loss [-t nccl|direct|copy_engine] [-s kill|stop|absent|order|overlap|rest] [-n TRIALS]
 *             [-j SIDE_BY_SIDE] [-T TIMEOUT_MS] [-H]
 *
 * -H makes NCCL take each process for a host of its own, so that it goes through the network, and one GPU is enough;
 * for direct and copy_engine the processes load shared_gpu.c before it.
 *
 * In each trial rank 1 gets a signal at a random moment, or never starts, or (nccl alone) makes an exchange of another
 * plan, with other numbers of bytes, that both have agreed upon; then one rank at least must name both plans. Or it
 * replays two graphs of exchanges beside each other, and must be told so. Rank 0 must get an error by the deadline and
 * a second, be refused after that, destroy its runtime in bounded time, and then go on with a world of its own. Where
 * rank 1 is killed while both rest, nobody is told, and rank 0 destroys at once. Every output until then is checked.
 * Exit status: 0 all trials right, 1 some wrong, 2 wrong usage, 77 too few GPUs.
 */
#include <cuda_runtime_api.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peer_loss.h"

#define MOST_SIDE_BY_SIDE 32
#define MOST_STARTING 4 /* joining has the same deadline as exchanges, and takes longer the more do */
#define SETTLE_MS 1000  /* what an error may take past the deadline, and a destruction past another */

/* A process that could not be made is no process to signal: kill would take its -1 for all of them. */
static pid_t forkOrDie(void) {
  const pid_t process = fork();
  if (process >= 0) return process;
  perror("peer_loss: fork");
  exit(3);
}

static void start(const Options* options, Trial* trial) {
  memset(trial, 0, sizeof *trial);
  const pid_t first = forkOrDie();
  if (first == 0) options->signal == ABSENT ? waitForNobody(options, trial) : survive(options, trial);
  trial->ranks[0] = first; /* by the parent alone: the memory is shared */
  if (options->signal == ABSENT) return;
  const pid_t second = forkOrDie();
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
  return trial->exchanges[0] >= EXCHANGES_BEFORE && trial->exchanges[1] >= EXCHANGES_BEFORE;
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
  const int signal = options->signal == REST ? SIGKILL : options->signal;
  if (options->signal != REST) trial->struckNs = nowNs();
  const bool sent = signal < 0 || kill(trial->ranks[1], signal) == 0;
  if (options->signal == REST) trial->struckNs = nowNs(); /* the survivor destroys its runtime then */
  return sent;
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

/* Rank 1 goes on, and gets told what it did. */
static bool speaks(const Options* options) {
  return options->signal == ORDER || options->signal == OVERLAP;
}

/* What was wrong with a trial; NULL: nothing. */
static const char* finish(const Options* options, Trial* trial, bool struck) {
  int status = -1;
  for (int ms = 0; ms < 60000 && waitpid(trial->ranks[0], &status, WNOHANG) == 0; ms += 5) sleepMs(5);
  const bool hung = status == -1;
  if (hung) (void)kill(trial->ranks[0], SIGKILL);
  if (hung) (void)waitpid(trial->ranks[0], NULL, 0);
  if (speaks(options) && struck) {
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
  if (options->signal == REST) return trial->result == ulyxSuccess ? NULL : "an exchange failed";
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
  const pid_t asker = forkOrDie(); /* CUDA does not survive a fork */
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
  static const char* const signals[] = {"kill", "stop", "absent", "order", "overlap", "rest"};
  static const int numbers[] = {SIGKILL, SIGSTOP, ABSENT, ORDER, OVERLAP, REST};
  for (int option; (option = getopt(argc, argv, "t:s:n:j:T:H")) != -1;) {
    const int transport = option == 't' ? indexOf(optarg, transports, 3) : 0;
    const int sent = option == 's' ? indexOf(optarg, signals, 6) : 0;
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
            "usage: peer_loss [-t nccl|direct|copy_engine] [-s kill|stop|absent|order|overlap|rest] "
            "[-n trials] [-j side by side] [-T ms] [-H]\n");
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
  if (speaks(&options)) {
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
