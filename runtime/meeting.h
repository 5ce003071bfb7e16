/* SPDX-License-Identifier: MIT
 *
 * How ranks that write each other's memory meet on the device (exchange_layout.h): the window of records, the state
 * that lives from exchange to exchange, and what devices report back. */
#ifndef ULYX_RUNTIME_MEETING_H_
#define ULYX_RUNTIME_MEETING_H_

#include "arena.h"
#include "config.h"
#include "exchange_layout.h"

/* What both sides of the bus see: pinned host memory. */
typedef struct ulyxMailbox {
  ulyxReport passing; /* cleared by whoever has read it */
  ulyxReport final;   /* never cleared */
  uint32_t abort;     /* not 0: whoever waits gives up */
} ulyxMailbox;

/* The words of a rank that has given up. */
typedef struct ulyxGivenUp {
  ulyxEntryRecord entry;
  ulyxVerdict verdict;
} ulyxGivenUp;

typedef struct ulyxMeetings {
  ulyxArena* records;   /* window 0; NULL: the ranks do not reach each other */
  ulyxSyncState* state; /* device memory */
  ulyxMailbox* mailbox;
  ulyxGivenUp* givenUp;     /* device memory: what abort copies to the peers and to `state` */
  cudaStream_t abortStream; /* on which nothing else runs */
  uint64_t timeoutNs;
  int timeoutMs;
} ulyxMeetings;

/* Where the peers can be reached, else leaves windows->reachable false. Collective and blocking. */
ulyxResult_t ulyxMeetingsCreate(ulyxNcclWorld* world, ulyxWindows* windows, const ulyxSettings* settings,
                                ulyxMeetings* meetings);
ulyxResult_t ulyxMeetingsDestroy(ulyxNcclWorld* world, ulyxWindows* windows, ulyxMeetings* meetings);
/* A meeting that enters and leaves, to be changed by the caller. */
ulyxMeeting ulyxMeetingsNext(const ulyxMeetings* meetings, const ulyxWindows* windows, const ulyxNcclWorld* world,
                             uint64_t signature);

/* What devices have reported, spoken: that the world is lost, for good; or a mismatch, which passes with the asking. */
ulyxResult_t ulyxMeetingsLost(const ulyxMeetings* meetings);
ulyxResult_t ulyxMeetingsPassing(ulyxMeetings* meetings);
bool ulyxMeetingsHavePassing(const ulyxMeetings* meetings);

/* Loses the world from any thread: kernels of this rank that wait give up, later ones do nothing. The current device
 * is the rank's. */
ulyxResult_t ulyxMeetingsGiveUp(ulyxMeetings* meetings);
/* After that: writes into the peers' records that this rank has given up, since none of its kernels may be waiting. One
 * that has reported a lost world has done so. */
ulyxResult_t ulyxMeetingsTellPeers(ulyxMeetings* meetings, const ulyxWindows* windows, const ulyxNcclWorld* world);

#endif /* ULYX_RUNTIME_MEETING_H_ */
