/* SPDX-License-Identifier: MIT
 *
 * The ways into a world of GPUs: by unique id, from a caller's communicator, or all ranks in this process. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "cuda_check.h"
#include "gpu.h"

#define OLDEST_NCCL 21900 /* ncclMemAlloc */

static ulyxResult_t checkNccl(void) {
  int version = 0;
  ULYX_TRY(ULYX_NCCL(NULL, ncclGetVersion(&version)));
  if (version >= OLDEST_NCCL) return ulyxSuccess;
  return ulyxFail(ulyxUnsupported, "the NCCL loaded has version %d, expected %d or newer", version, OLDEST_NCCL);
}

ulyxResult_t ulyxNcclGetUniqueId(ulyxUniqueId_t* id) {
  _Static_assert(ULYX_UNIQUE_ID_BYTES == NCCL_UNIQUE_ID_BYTES, "an id is NCCL's");
  ncclUniqueId made;
  ULYX_TRY(checkNccl());
  ULYX_TRY(ULYX_NCCL(NULL, ncclGetUniqueId(&made)));
  memcpy(id->internal, made.internal, sizeof made.internal);
  return ulyxSuccess;
}

/* Waits until what was begun on a communicator that does not block has ended, or the deadline has passed (0: never). */
static ulyxResult_t settleComm(ncclComm_t comm, ncclResult_t begun, int64_t deadlineNs, const char* call) {
  ncclResult_t state = begun;
  while (state == ncclInProgress || state == ncclSuccess) {
    ULYX_TRY(ULYX_NCCL(comm, ncclCommGetAsyncError(comm, &state)));
    if (state != ncclInProgress) break;
    if (deadlineNs > 0 && ulyxNowNs() > deadlineNs) return ulyxTimeout; /* said by the caller */
    ulyxSleepUs(200);
  }
  return ulyxNcclResult(comm, state, call);
}

static int64_t deadlineIn(int timeoutMs) {
  return timeoutMs > 0 ? ulyxNowNs() + timeoutMs * ULYX_NS_A_MS : 0;
}

static ulyxResult_t speakOfDeadline(ulyxResult_t result, int nRanks, int rank, int timeoutMs) {
  if (result != ulyxTimeout) return result;
  if (nRanks == 1) return ulyxFail(ulyxTimeout, "NCCL made no communicator of one rank within %d ms", timeoutMs);
  return ulyxFail(ulyxTimeout, "rank %d waited %d ms for the other ranks of %d to join; one did not come", rank,
                  timeoutMs, nRanks);
}

/* Only a communicator that does not block can be given up while ranks are missing, and only one that blocks enqueues
 * without a thread: the first waits for all to come, and the second, made of it, is what is used. */
static ulyxResult_t joinByDeadline(int nRanks, ncclUniqueId id, int rank, int timeoutMs, ncclComm_t* joined) {
  ncclComm_t meeting = NULL, comm = NULL;
  ncclConfig_t patient = NCCL_CONFIG_INITIALIZER, plain = NCCL_CONFIG_INITIALIZER;
  const int64_t deadline = deadlineIn(timeoutMs);
  patient.blocking = 0;
  plain.blocking = 1;
  ncclResult_t begun = ncclCommInitRankConfig(&meeting, nRanks, id, rank, &patient);
  if (meeting == NULL) return ulyxNcclResult(NULL, begun, "ncclCommInitRankConfig");
  ulyxResult_t result = settleComm(meeting, begun, deadline, "ncclCommInitRankConfig");
  if (result == ulyxSuccess) {
    begun = ncclCommSplit(meeting, 0, rank, &comm, &plain);
    result = settleComm(meeting, begun, deadline, "ncclCommSplit");
  }
  if (result == ulyxSuccess) result = settleComm(comm, ncclSuccess, deadline, "ncclCommSplit");
  if (result != ulyxSuccess) {
    (void)ncclCommAbort(meeting);
    if (comm != NULL) (void)ncclCommAbort(comm);
  } else { /* not aborted: NCCL would abort what was split from it as well */
    begun = ncclCommFinalize(meeting);
    result = settleComm(meeting, begun, deadline, "ncclCommFinalize");
    if (result == ulyxSuccess) {
      result = ULYX_NCCL(NULL, ncclCommDestroy(meeting));
    } else {
      (void)ncclCommAbort(meeting);
    }
    if (result != ulyxSuccess) (void)ncclCommAbort(comm);
  }
  if (result == ulyxSuccess) *joined = comm;
  return speakOfDeadline(result, nRanks, rank, timeoutMs);
}

static ulyxResult_t join(const ulyxSettings* settings, int nRanks, ulyxUniqueId_t id, int rank,
                         ulyxTransport** transport) {
  ncclUniqueId ncclId;
  ncclComm_t comm = NULL;
  memcpy(ncclId.internal, id.internal, sizeof ncclId.internal);
  if (settings->timeoutMs > 0) {
    ULYX_TRY(joinByDeadline(nRanks, ncclId, rank, settings->timeoutMs, &comm));
  } else {
    ULYX_TRY(ULYX_NCCL(NULL, ncclCommInitRank(&comm, nRanks, ncclId, rank)));
  }
  return ulyxGpuCreate(settings, comm, transport);
}

ulyxResult_t ulyxNcclCreate(const ulyxSettings* settings, int nRanks, ulyxUniqueId_t id, int rank,
                            ulyxTransport** transport) {
  ULYX_TRY(checkNccl());
  return join(settings, nRanks, id, rank, transport);
}

/* The child blocks, whatever the parent does. A parent that blocks holds this rank until all have come: it is the
 * caller's, and the caller's to abort. */
static ulyxResult_t splitFrom(ncclComm_t parent, int rank, int timeoutMs, ncclComm_t* child) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  int nRanks = 0;
  void* memory = NULL;
  const int64_t deadline = deadlineIn(timeoutMs);
  ULYX_TRY(ULYX_NCCL(parent, ncclCommCount(parent, &nRanks)));
  ULYX_TRY(ulyxAllocate(&memory, 1, sizeof(ncclComm_t), "a communicator"));
  ncclComm_t* const made = memory;
  config.blocking = 1;
  const ncclResult_t begun = ncclCommSplit(parent, 0, rank, made, &config);
  ulyxResult_t result = settleComm(parent, begun, deadline, "ncclCommSplit");
  /* NCCL writes there when the last rank comes, also after this one has gone: the word stays */
  if (result == ulyxTimeout) return speakOfDeadline(result, nRanks, rank, timeoutMs);
  if (result == ulyxSuccess) result = settleComm(*made, ncclSuccess, deadline, "ncclCommSplit");
  if (result != ulyxSuccess && *made != NULL) (void)ncclCommAbort(*made);
  if (result == ulyxSuccess) *child = *made;
  free(memory);
  return speakOfDeadline(result, nRanks, rank, timeoutMs);
}

ulyxResult_t ulyxNcclCreateFromComm(const ulyxSettings* settings, struct ncclComm* parent, ulyxTransport** transport) {
  int rank = 0, device = 0, previous = 0;
  ncclComm_t child = NULL;
  ULYX_TRY(checkNccl());
  ULYX_TRY(ULYX_NCCL(parent, ncclCommUserRank(parent, &rank)));
  ULYX_TRY(ULYX_NCCL(parent, ncclCommCuDevice(parent, &device)));
  ULYX_TRY(ulyxDeviceEnter(device, &previous));
  ulyxResult_t result = splitFrom(parent, rank, settings->timeoutMs, &child);
  if (result == ulyxSuccess) result = ulyxGpuCreate(settings, child, transport);
  ulyxDeviceLeave(device, previous);
  return result;
}

/* One rank's part of creating a local world: it blocks until all ranks have come, so each has a thread. None joins
 * before all have done what may fail without the others. */
typedef struct Start {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int ready;    /* ranks that are about to join */
  bool givenUp; /* one cannot */
} Start;

typedef struct Job {
  Start* start;
  const ulyxSettings* settings;
  ulyxUniqueId_t id;
  int nRanks, rank, device;
  ulyxTransport* transport;
  ulyxResult_t result;
  char message[ULYX_MESSAGE_BYTES];
  pthread_t thread;
} Job;

static void giveUp(Start* start) {
  pthread_mutex_lock(&start->lock);
  start->givenUp = true;
  pthread_cond_broadcast(&start->changed);
  pthread_mutex_unlock(&start->lock);
}

/* Whether all ranks are about to join. */
static bool meetAll(Start* start, int nRanks) {
  pthread_mutex_lock(&start->lock);
  ++start->ready;
  pthread_cond_broadcast(&start->changed);
  while (start->ready < nRanks && !start->givenUp) pthread_cond_wait(&start->changed, &start->lock);
  const bool all = start->ready == nRanks;
  pthread_mutex_unlock(&start->lock);
  return all;
}

static void* rankMain(void* argument) {
  Job* const job = argument;
  job->result = ULYX_CUDA(cudaSetDevice(job->device));
  if (job->result != ulyxSuccess) {
    giveUp(job->start);
  } else if (meetAll(job->start, job->nRanks)) {
    job->result = join(job->settings, job->nRanks, job->id, job->rank, &job->transport);
  }
  if (job->result != ulyxSuccess) strcpy(job->message, ulyxThreadMessage());
  return NULL;
}

static ulyxResult_t runJobs(Start* start, Job* jobs, int nRanks) {
  int started = 0;
  while (started < nRanks && pthread_create(&jobs[started].thread, NULL, rankMain, &jobs[started]) == 0) ++started;
  if (started < nRanks) giveUp(start);
  for (int i = 0; i < started; ++i) pthread_join(jobs[i].thread, NULL);
  if (started < nRanks) return ulyxFail(ulyxSystemError, "thread %d of %d could not be started", started, nRanks);
  for (int i = 0; i < nRanks; ++i) {
    if (jobs[i].result != ulyxSuccess) return ulyxFail(jobs[i].result, "rank %d: %s", i, jobs[i].message);
  }
  return ulyxSuccess;
}

static ulyxResult_t checkDevices(int nRanks, const int* devices) {
  int count = 0;
  ULYX_TRY(ULYX_CUDA(cudaGetDeviceCount(&count)));
  for (int rank = 0; rank < nRanks; ++rank) {
    if (devices[rank] < 0 || devices[rank] >= count) {
      return ulyxFail(ulyxInvalidArgument, "devices[%d] is %d, expected 0 to %d", rank, devices[rank], count - 1);
    }
  }
  return ulyxSuccess;
}

ulyxResult_t ulyxNcclCreateLocal(const ulyxSettings* settings, int nRanks, const int* devices,
                                 ulyxTransport** transports) {
  ulyxUniqueId_t id;
  void* memory = NULL;
  Start start = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
  ULYX_TRY(checkDevices(nRanks, devices));
  ULYX_TRY(ulyxNcclGetUniqueId(&id));
  ULYX_TRY(ulyxAllocate(&memory, (size_t)nRanks, sizeof(Job), "ranks to create"));
  Job* const jobs = memory;
  for (int rank = 0; rank < nRanks; ++rank) {
    jobs[rank] =
        (Job){.start = &start, .settings = settings, .id = id, .nRanks = nRanks, .rank = rank, .device = devices[rank]};
  }
  const ulyxResult_t result = runJobs(&start, jobs, nRanks);
  for (int rank = 0; rank < nRanks; ++rank) {
    ulyxTransport* const made = jobs[rank].transport;
    if (result == ulyxSuccess) {
      transports[rank] = made;
    } else if (made != NULL) {
      (void)made->ops->destroy(made);
    }
  }
  free(jobs);
  return result;
}
