/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_nccl.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static fakeWorld* worlds;

static _Thread_local char lastError[512];

static void makeCondition(void) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&changed, &attributes);
  pthread_condattr_destroy(&attributes);
}

void fakeLock(void) {
  pthread_once(&once, makeCondition);
  pthread_mutex_lock(&mutex);
}

void fakeUnlock(void) {
  pthread_mutex_unlock(&mutex);
}

void fakeWakeAll(void) {
  pthread_cond_broadcast(&changed);
}

int64_t fakeDeadline(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + fakeDeadlineMs();
}

bool fakeWaitChange(const struct ncclComm* comm, int64_t deadline) {
  if (comm->aborted) return false;
  const struct timespec until = {(time_t)(deadline / 1000), (long)(deadline % 1000) * 1000000};
  return pthread_cond_timedwait(&changed, &mutex, &until) == 0 && !comm->aborted;
}

void fakeWaitPatiently(void) {
  pthread_cond_wait(&changed, &mutex);
}

ncclResult_t fakeRefuse(ncclResult_t code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(lastError, sizeof lastError, format, arguments);
  va_end(arguments);
  fprintf(stderr, "fake nccl: %s\n", lastError);
  return code;
}

ncclResult_t fakeNcclEnter(const char* function, ncclResult_t whenStruck) {
  if (fakeCudaGone()) {
    fakeViolation("%s called after CUDA has gone", function);
    return ncclUnhandledCudaError;
  }
  if (!fakeStrikes(function)) return ncclSuccess;
  snprintf(lastError, sizeof lastError, "%s: injected fault", function);
  return whenStruck;
}

const char* ncclGetLastError(ncclComm_t comm) {
  (void)comm;
  return lastError;
}

ncclResult_t fakeCheckComm(ncclComm_t comm, const char* function) {
  if (comm == NULL) return fakeRefuse(ncclInvalidArgument, "%s: comm is NULL", function);
  if (comm->magic != FAKE_COMM_MAGIC) {
    fakeViolation("%s: %p is not a communicator", function, (void*)comm);
    return ncclInvalidArgument;
  }
  return ncclSuccess;
}

fakeWorld* fakeWorldOfId(const ncclUniqueId* id) {
  fakeWorld* world = worlds;
  while (world != NULL && memcmp(&world->id, id, sizeof *id) != 0) world = world->next;
  return world;
}

fakeWorld* fakeWorldAdd(const ncclUniqueId* id, int nRanks, int joined) {
  fakeWorld* world = calloc(1, sizeof *world);
  if (world == NULL) return NULL;
  if (id != NULL) world->id = *id;
  world->nRanks = nRanks;
  world->joined = joined;
  world->next = worlds;
  worlds = world;
  return world;
}

static void removeWorld(fakeWorld* world) {
  fakeWorld** link = &worlds;
  while (*link != world) link = &(*link)->next;
  *link = world->next;
  while (world->steps != NULL) {
    fakeStep* step = world->steps;
    world->steps = step->next;
    free(step);
  }
  free(world);
}

ncclComm_t fakeCommAdd(fakeWorld* world, int rank, int device) {
  ncclComm_t comm = calloc(1, sizeof *comm);
  if (comm == NULL) return NULL;
  comm->magic = FAKE_COMM_MAGIC;
  comm->rank = rank;
  comm->device = device;
  comm->world = world;
  comm->birth = fakeBorn(FAKE_COUNTER(comms));
  return comm;
}

void fakeCommRemove(ncclComm_t comm) {
  fakeDied(FAKE_COUNTER(comms), comm->birth);
  if (++comm->world->gone == comm->world->joined) removeWorld(comm->world);
  comm->magic = 0;
  free(comm);
}

/* ---- Steps ------------------------------------------------------------------------------------------- */

static const char* nameOf(fakeStepKind kind) {
  switch (kind) {
    case FAKE_STEP_INIT:
      return "ncclCommInitRank";
    case FAKE_STEP_SPLIT:
      return "ncclCommSplit";
    default:
      return "ncclCommWindowRegister";
  }
}

fakeStep* fakeStepReach(ncclComm_t comm, fakeStepKind kind, fakeTicket ticket) {
  fakeWorld* world = comm->world;
  const int64_t number = comm->nextStep++;
  fakeStep* step = world->steps;
  while (step != NULL && step->number != number) step = step->next;
  if (step == NULL) {
    step = calloc(1, sizeof *step);
    if (step == NULL) return NULL;
    step->number = number;
    step->kind = kind;
    step->next = world->steps;
    world->steps = step;
  }
  if (step->kind != kind) {
    fakeRefuse(ncclInvalidUsage, "rank %d calls %s where other ranks call %s", comm->rank, nameOf(kind),
               nameOf(step->kind));
    return NULL;
  }
  ticket.present = true;
  step->tickets[comm->rank] = ticket;
  step->arrived++;
  fakeWakeAll();
  return step;
}

ncclResult_t fakeStepWait(ncclComm_t comm, fakeStep* step, int64_t deadline) {
  const int nRanks = comm->world->nRanks;
  while (step->arrived < nRanks || step->broken) {
    if (step->broken) {
      return fakeRefuse(ncclRemoteError, "rank %d came to %s after another rank gave up", comm->rank,
                        nameOf(step->kind));
    }
    if (fakeWaitChange(comm, deadline) || step->arrived == nRanks) continue;
    step->broken = true;
    fakeWakeAll();
    if (comm->aborted) return fakeRefuse(ncclInternalError, "rank %d was aborted", comm->rank);
    int missing = 0;
    while (step->tickets[missing].present) missing++;
    return fakeRefuse(ncclSystemError, "rank %d waited %d ms in %s for rank %d", comm->rank, fakeDeadlineMs(),
                      nameOf(step->kind), missing);
  }
  return ncclSuccess;
}

void fakeStepLeave(ncclComm_t comm, fakeStep* step) {
  if (++step->left < comm->world->nRanks) return;
  fakeStep** link = &comm->world->steps;
  while (*link != step) link = &(*link)->next;
  *link = step->next;
  free(step);
}
