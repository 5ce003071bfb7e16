/* SPDX-License-Identifier: MIT */
#include "windows.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "exchange_layout.h"
#include "kernels.h"
#include "nvlink.h"

/* What a rank found; the first rank that found something decides for all. */
typedef enum {
  verdictGood,
  verdictTooMany,
  verdictVersion,
  verdictHost,
  verdictLink,
  verdictWindow,
  verdictNumber
} Verdict;

/* Text of a verdict of `rank`; `detail` is a number that the rank gave with it. */
static void explain(int rank, int64_t verdict, int64_t detail, char* why) {
  switch ((Verdict)verdict) {
    case verdictGood:
      break;
    case verdictTooMany:
      (void)snprintf(why, ULYX_WHY_BYTES, "%lld ranks are more than the %d that write each other's memory",
                     (long long)detail, ULYX_EXCHANGE_MAX_RANKS);
      break;
    case verdictVersion:
      (void)snprintf(why, ULYX_WHY_BYTES, "rank %d has NCCL %lld, whose windows this build cannot read", rank,
                     (long long)detail);
      break;
    case verdictHost:
      (void)snprintf(why, ULYX_WHY_BYTES, "ranks %d and %lld are on different hosts", rank, (long long)detail);
      break;
    case verdictLink:
      (void)snprintf(why, ULYX_WHY_BYTES, "no NVLink joins the GPUs of ranks %d and %lld", rank, (long long)detail);
      break;
    case verdictWindow:
      (void)snprintf(why, ULYX_WHY_BYTES,
                     "rank %d does not see rank %lld's memory: no peer access, or NCCL without "
                     "windows",
                     rank, (long long)detail);
      break;
    case verdictNumber:
      (void)snprintf(why, ULYX_WHY_BYTES, "rank %d has no number left for a window, or not the others' (%lld)", rank,
                     (long long)detail);
      break;
  }
}

/* All ranks' verdicts become one. */
static ulyxResult_t decide(ulyxNcclWorld* world, Verdict mine, int64_t detail, char* why, bool* good) {
  int64_t *verdicts = NULL, *details = NULL;
  ULYX_TRY(ulyxNcclWorldGatherWord(world, mine, &verdicts));
  const ulyxResult_t result = ulyxNcclWorldGatherWord(world, detail, &details);
  *good = true;
  for (int rank = 0; result == ulyxSuccess && rank < world->nRanks && *good; ++rank) {
    if (verdicts[rank] == verdictGood) continue;
    *good = false;
    explain(rank, verdicts[rank], details[rank], why);
  }
  free(details);
  free(verdicts);
  return result;
}

/* A number for the machine that this process runs on. */
static int64_t hostNumber(void) {
  char text[256] = "";
  FILE* const file = fopen("/proc/sys/kernel/random/boot_id", "r");
  const size_t length = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
  if (file != NULL) (void)fclose(file);
  if (length == 0 && gethostname(text, sizeof text - 1) != 0) text[0] = '\0';
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (const char* at = text; *at != '\0'; ++at) hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
  return (int64_t)hash;
}

static ulyxResult_t judgePeers(ulyxNcclWorld* world, Verdict* verdict, int64_t* detail) {
  int64_t *hosts = NULL, *places = NULL;
  int64_t place = -1;
  const bool known = ulyxPciPlace(world->device, &place);
  ULYX_TRY(ulyxNcclWorldGatherWord(world, hostNumber(), &hosts));
  const ulyxResult_t result = ulyxNcclWorldGatherWord(world, known ? place : -1, &places);
  for (int rank = 0; result == ulyxSuccess && rank < world->nRanks && *verdict == verdictGood; ++rank) {
    if (rank == world->rank) continue;
    *detail = rank;
    if (hosts[rank] != hosts[world->rank]) {
      *verdict = verdictHost;
    } else if (!known || places[rank] < 0 || !ulyxNvlinkReaches(world->device, places[rank])) {
      *verdict = verdictLink;
    }
  }
  free(places);
  free(hosts);
  return result;
}

static ulyxResult_t judge(ulyxNcclWorld* world, ulyxWindows* windows) {
  Verdict verdict = verdictGood;
  int64_t detail = 0;
  int version = 0;
  ULYX_TRY(ULYX_NCCL(NULL, ncclGetVersion(&version)));
  ULYX_TRY(judgePeers(world, &verdict, &detail));
  if (!ulyxWindowsAreReadable(version)) {
    verdict = verdictVersion;
    detail = version;
  }
  if (world->nRanks > ULYX_EXCHANGE_MAX_RANKS) {
    verdict = verdictTooMany;
    detail = world->nRanks;
  }
  return decide(world, verdict, detail, windows->why, &windows->reachable);
}

ulyxResult_t ulyxWindowsCreate(ulyxNcclWorld* world, bool wanted, ulyxWindows* windows) {
  ulyxResult_t result = ulyxSuccess;
  *windows = (ulyxWindows){.nRanks = world->nRanks};
  (void)snprintf(windows->why, sizeof windows->why, "%s",
                 world->nRanks == 1 ? "one rank has no peers" : "the configuration asks for nccl");
  if (!wanted || world->nRanks == 1) return ulyxSuccess;
  ULYX_TRY(judge(world, windows));
  if (!windows->reachable) return ulyxSuccess;
  void* peers = NULL;
  const size_t count = (size_t)ULYX_MAX_WINDOWS * (size_t)world->nRanks;
  ULYX_TRY_GOTO(ulyxAllocate(&peers, count, sizeof(void*), "peers' addresses"), destroyWindows);
  windows->peers = peers;
  ULYX_TRY_GOTO(ULYX_CUDA(cudaMalloc((void**)&windows->device, count * sizeof(uint64_t))), destroyWindows);
  ULYX_TRY_GOTO(ULYX_CUDA(cudaMalloc((void**)&windows->words, (size_t)world->nRanks * sizeof(uint64_t))),
                destroyWindows);
  return ulyxSuccess;

destroyWindows:
  ulyxUndoBegin();
  (void)ulyxWindowsDestroy(windows);
  ulyxUndoEnd();
  return result;
}

ulyxResult_t ulyxWindowsDestroy(ulyxWindows* windows) {
  ulyxResult_t result = ulyxSuccess;
  if (windows->words != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaFree(windows->words)));
  if (windows->device != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaFree(windows->device)));
  ulyxWindowsForget(windows);
  return result;
}

void ulyxWindowsForget(ulyxWindows* windows) {
  free(windows->peers);
  windows->peers = NULL;
  windows->device = windows->words = NULL;
  windows->reachable = false;
}

static int lowestFree(const ulyxWindows* windows) {
  for (int number = 0; number < ULYX_MAX_WINDOWS; ++number) {
    if (!windows->taken[number]) return number;
  }
  return ULYX_NO_WINDOW;
}

/* Where this rank sees the peers' memory; its own it sees where it allocated it. */
static ulyxResult_t readPeers(ulyxWindows* windows, ulyxNcclWorld* world, void* data, ncclWindow_t handle, void** peers,
                              Verdict* verdict, int64_t* detail) {
  for (int rank = 0; rank < world->nRanks; ++rank) peers[rank] = NULL;
  if (handle != NULL) {
    struct ncclWindow_vidmem* const window = (struct ncclWindow_vidmem*)handle; /* another name for it in NCCL 2.27 */
    ULYX_TRY(ULYX_CUDA(ulyxWindowReadPeers(window, world->nRanks, windows->words, peers, world->side)));
  }
  peers[world->rank] = data;
  for (int rank = 0; rank < world->nRanks && *verdict == verdictGood; ++rank) {
    if (peers[rank] != NULL) continue;
    *verdict = verdictWindow;
    *detail = rank;
  }
  return ulyxSuccess;
}

ulyxResult_t ulyxWindowsAdd(ulyxWindows* windows, ulyxNcclWorld* world, void* data, ncclWindow_t handle, int* number) {
  *number = ULYX_NO_WINDOW;
  if (!windows->reachable) return ulyxSuccess;
  const int found = lowestFree(windows);
  Verdict verdict = verdictGood;
  int64_t detail = 0, largest = 0;
  ULYX_TRY(ulyxNcclWorldLargest(world, found, &largest));
  if (found != largest || found == ULYX_NO_WINDOW) { /* every rank takes part in what is decided */
    bool none = false;
    return decide(world, verdictNumber, found, windows->why, &none);
  }
  void** const peers = windows->peers + (int64_t)found * world->nRanks;
  uint64_t* const device = windows->device + (int64_t)found * world->nRanks;
  ULYX_TRY(readPeers(windows, world, data, handle, peers, &verdict, &detail));
  bool good = false;
  ULYX_TRY(decide(world, verdict, detail, windows->why, &good));
  if (!good) return ulyxSuccess;
  _Static_assert(sizeof(void*) == sizeof(uint64_t), "addresses go to kernels as they are");
  ULYX_TRY(ULYX_CUDA(cudaMemcpy(device, peers, (size_t)world->nRanks * sizeof(void*), cudaMemcpyHostToDevice)));
  windows->taken[found] = true;
  *number = found;
  return ulyxSuccess;
}

void ulyxWindowsRemove(ulyxWindows* windows, int number) {
  if (number != ULYX_NO_WINDOW) windows->taken[number] = false;
}
