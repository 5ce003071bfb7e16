/* SPDX-License-Identifier: MIT */
#include "meeting.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

/* The bound of a wait that is to be for ever: no spin on a device is without one. */
#define LONGEST_WAIT_MS 600000

static ulyxResult_t createGivenUp(ulyxMeetings* meetings) {
  ulyxGivenUp words = {.verdict = {.lost = 1, .refused = 1, .voided = 1}};
  for (size_t i = 0; i < sizeof words.entry.slot / sizeof *words.entry.slot; ++i) {
    words.entry.slot[i].epoch = ULYX_EPOCH_ABORTED;
  }
  ULYX_TRY(ULYX_CUDA(cudaMalloc((void**)&meetings->givenUp, sizeof words)));
  ULYX_TRY(ULYX_CUDA(cudaMemcpy(meetings->givenUp, &words, sizeof words, cudaMemcpyHostToDevice)));
  return ULYX_CUDA(cudaStreamCreateWithFlags(&meetings->abortStream, cudaStreamNonBlocking));
}

static ulyxResult_t createHere(ulyxMeetings* meetings) {
  ULYX_TRY(createGivenUp(meetings));
  ULYX_TRY(ULYX_CUDA(cudaMalloc((void**)&meetings->state, sizeof *meetings->state)));
  ULYX_TRY(ULYX_CUDA(cudaMemset(meetings->state, 0, sizeof *meetings->state)));
  ULYX_TRY(ULYX_CUDA(cudaMemset(meetings->records->data, 0, sizeof(ulyxRecords))));
  ULYX_TRY(ULYX_CUDA(cudaMallocHost((void**)&meetings->mailbox, sizeof *meetings->mailbox)));
  memset(meetings->mailbox, 0, sizeof *meetings->mailbox);
  return ULYX_CUDA(cudaDeviceSynchronize());
}

ulyxResult_t ulyxMeetingsCreate(ulyxNcclWorld* world, ulyxWindows* windows, const ulyxSettings* settings,
                                ulyxMeetings* meetings) {
  ulyxResult_t result = ulyxSuccess;
  int64_t nothing = 0;
  *meetings = (ulyxMeetings){.timeoutMs = settings->timeoutMs > 0 ? settings->timeoutMs : LONGEST_WAIT_MS};
  meetings->timeoutNs = (uint64_t)meetings->timeoutMs * 1000000;
  if (!windows->reachable) return ulyxSuccess;
  ULYX_TRY(ulyxArenaCreate(world, windows, sizeof(ulyxRecords), &meetings->records));
  if (meetings->records->number == ULYX_NO_WINDOW) {
    windows->reachable = false;
    return ulyxMeetingsDestroy(world, windows, meetings);
  }
  ULYX_TRY_GOTO(createHere(meetings), destroyMeetings);
  /* no rank writes records that another is still clearing */
  ULYX_TRY_GOTO(ulyxNcclWorldLargest(world, 0, &nothing), destroyMeetings);
  return ulyxSuccess;

destroyMeetings:
  ulyxUndoBegin();
  ulyxGuardDisown(&world->guard);
  (void)ulyxMeetingsDestroy(world, windows, meetings);
  ulyxUndoEnd();
  return result;
}

ulyxResult_t ulyxMeetingsDestroy(ulyxNcclWorld* world, ulyxWindows* windows, ulyxMeetings* meetings) {
  ulyxResult_t result = ulyxSuccess;
  if (meetings->mailbox != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaFreeHost(meetings->mailbox)));
  if (meetings->state != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaFree(meetings->state)));
  if (meetings->records != NULL) ulyxKeepFirst(&result, ulyxArenaDestroy(world, windows, meetings->records));
  if (meetings->givenUp != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaFree(meetings->givenUp)));
  if (meetings->abortStream != NULL) ulyxKeepFirst(&result, ULYX_CUDA(cudaStreamDestroy(meetings->abortStream)));
  meetings->mailbox = NULL;
  meetings->givenUp = NULL;
  meetings->abortStream = NULL;
  meetings->state = NULL;
  meetings->records = NULL;
  return result;
}

ulyxMeeting ulyxMeetingsNext(const ulyxMeetings* meetings, const ulyxWindows* windows, const ulyxNcclWorld* world,
                             uint64_t signature) {
  return (ulyxMeeting){.windows = windows->device,
                       .state = meetings->state,
                       .passing = &meetings->mailbox->passing,
                       .final = &meetings->mailbox->final,
                       .abort = &meetings->mailbox->abort,
                       .signature = signature,
                       .timeoutNs = meetings->timeoutNs,
                       .rank = world->rank,
                       .nRanks = world->nRanks,
                       .enters = 1,
                       .leaves = 1};
}

static ulyxResult_t speak(const ulyxMeetings* meetings, const ulyxReport* report) {
  switch ((ulyxFound)report->kind) {
    case ulyxFoundNothing:
      break;
    case ulyxFoundMismatch:
      return ulyxFail(ulyxMismatch,
                      "exchange %" PRIu64 ": rank %u means another exchange (signature %016" PRIx64 ", here %016" PRIx64
                      "); every rank must make the same calls on equal plans in the same order",
                      report->epoch, report->peer, report->theirs, report->mine);
    case ulyxFoundRefusal:
      return ulyxFail(ulyxMismatch,
                      "exchange %" PRIu64
                      ": rank %u means another exchange than some third rank and has sent nothing; the "
                      "output is void; every rank must make the same calls on matching plans in the same order",
                      report->epoch, report->peer);
    case ulyxFoundMisplaced:
      return ulyxFail(ulyxMismatch,
                      "exchange %" PRIu64 ": rank %u has its output at place %016" PRIx64 ", here at %016" PRIx64
                      "; copy_engine needs it at the same offset of the same ulyxMemAlloc on every rank: "
                      "allocate each output by itself, or set transport direct",
                      report->epoch, report->peer, report->theirs, report->mine);
    case ulyxFoundTimeout:
      return ulyxFail(ulyxTimeout, "rank %u did not reach exchange %" PRIu64 " within %d ms; destroy the runtime",
                      report->peer, report->epoch, meetings->timeoutMs);
    case ulyxFoundOrder:
      return ulyxFail(ulyxRemoteError, "rank %u is ahead of exchange %" PRIu64 "; destroy the runtime", report->peer,
                      report->epoch);
    case ulyxFoundAborted:
      return ulyxFail(ulyxRemoteError, "rank %u gave up at exchange %" PRIu64 "; destroy the runtime", report->peer,
                      report->epoch);
    case ulyxFoundOverlap:
      return ulyxFail(
          ulyxRemoteError,
          "exchange %" PRIu64
          " began while another of this runtime (rank %u) was running: a graph replayed beside an exchange or another "
          "graph, or exchanges on two branches of one; order them by events; destroy the runtime",
          report->epoch, report->peer);
  }
  return ulyxSuccess;
}

/* A device writes it, its kind last: while there is none the rest may be being written. */
static ulyxReport restOf(const volatile ulyxReport* report, uint32_t kind) {
  if (kind == ulyxFoundNothing) return (ulyxReport){.kind = ulyxFoundNothing};
  return (ulyxReport){report->epoch, report->mine, report->theirs, report->peer, kind};
}

static ulyxReport readReport(volatile ulyxReport* report) {
  return restOf(report, __atomic_load_n(&report->kind, __ATOMIC_ACQUIRE));
}

/* The kind goes before the rest is read: a report that the device writes meanwhile is told by the next call. */
static ulyxReport takeReport(volatile ulyxReport* report) {
  return restOf(report, __atomic_exchange_n(&report->kind, (uint32_t)ulyxFoundNothing, __ATOMIC_ACQ_REL));
}

ulyxResult_t ulyxMeetingsLost(const ulyxMeetings* meetings) {
  if (meetings->mailbox == NULL) return ulyxSuccess;
  const ulyxReport final = readReport(&meetings->mailbox->final);
  return speak(meetings, &final);
}

bool ulyxMeetingsHavePassing(const ulyxMeetings* meetings) {
  return meetings->mailbox != NULL && readReport(&meetings->mailbox->passing).kind != ulyxFoundNothing;
}

ulyxResult_t ulyxMeetingsPassing(ulyxMeetings* meetings) {
  if (meetings->mailbox == NULL) return ulyxSuccess;
  const ulyxReport passing = takeReport(&meetings->mailbox->passing);
  return speak(meetings, &passing);
}

static ulyxResult_t copyWords(const ulyxMeetings* meetings, void* to, const void* from, size_t bytes) {
  return ULYX_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, meetings->abortStream));
}

/* This rank's records with a peer: a later entry of ours does not hide it, since no later kernel enters. */
static ulyxResult_t tellPeer(const ulyxMeetings* meetings, unsigned char* records, int rank) {
  const size_t index = (size_t)rank;
  const ulyxEntryRecord* const words = &meetings->givenUp->entry;
  ULYX_TRY(copyWords(meetings, records + offsetof(ulyxRecords, entry) + index * sizeof *words, words, sizeof *words));
  ULYX_TRY(
      copyWords(meetings, records + offsetof(ulyxRecords, exit) + index * sizeof(ulyxSlot), words, sizeof(ulyxSlot)));
  return copyWords(meetings, records + offsetof(ulyxRecords, engineExit) + index * sizeof(ulyxSlot), words,
                   sizeof(ulyxSlot));
}

ulyxResult_t ulyxMeetingsGiveUp(ulyxMeetings* meetings) {
  if (meetings->mailbox == NULL) return ulyxSuccess;
  __atomic_store_n(&meetings->mailbox->abort, 1, __ATOMIC_RELEASE);
  return copyWords(meetings, &meetings->state->verdict, &meetings->givenUp->verdict, sizeof(ulyxVerdict));
}

ulyxResult_t ulyxMeetingsTellPeers(ulyxMeetings* meetings, const ulyxWindows* windows, const ulyxNcclWorld* world) {
  ulyxResult_t result = ulyxSuccess;
  if (meetings->mailbox == NULL || readReport(&meetings->mailbox->final).kind != ulyxFoundNothing) return ulyxSuccess;
  for (int peer = 0; peer < world->nRanks; ++peer) {
    if (peer == world->rank) continue;
    ulyxKeepFirst(&result, tellPeer(meetings, ulyxWindowsPeer(windows, meetings->records->number, peer), world->rank));
  }
  return result;
}
