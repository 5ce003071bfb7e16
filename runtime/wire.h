/* SPDX-License-Identifier: MIT
 *
 * How a phase becomes messages. A message is a dense run of bytes between two ranks; its image is chosen so
 * that staging can be left out where a side already holds, or wants, exactly these bytes:
 *
 *   - copies into one buffer that together fill a dense range of it travel as that range looks there;
 *   - every other copy travels as dense rows.
 *
 * How many messages a pair exchanges, and their images, follow from facts that both ends share. Whether a
 * side then stages a message in its arena or hands the tensor itself to the wire is that side's own affair.
 *
 * Rank r sends to r + 1, r + 2, ... and receives from r - 1, r - 2, ...; a group holds the same distances on
 * every rank, so that groups match. */
#ifndef ULYX_RUNTIME_WIRE_H_
#define ULYX_RUNTIME_WIRE_H_

#include "plan.h"

/* From this many bytes a pair on, several dense pieces go as several messages without staging rather than as
 * one message with: a message costs NCCL some 8 us more, staging costs two passes over the bytes. */
#define ULYX_WIRE_SPLIT_BYTES (INT64_C(32) << 20)

/* Messages start at multiples of this in the arena, and pieces at multiples of 16 in a message, so that the
 * widest loads and stores apply. */
#define ULYX_WIRE_ALIGNMENT 256

typedef struct ulyxMessage {
  int peer;
  int group;
  bool isFirst; /* of the pair's, in this direction */
  int64_t bytes;
  int64_t arenaOffset;          /* where it is staged, if it is */
  int64_t firstCopy, copyCount; /* of the phase's copies */
  int buffer;                   /* the local buffer that holds exactly its image, or -1 */
  int64_t bufferOffset;
} ulyxMessage;

/* Where a copy lies in its message. */
typedef struct ulyxWirePlace {
  int64_t offset, pitch;
} ulyxWirePlace;

typedef struct ulyxWire {
  int groups;
  int64_t sendCount, recvCount;
  ulyxMessage* sends; /* ascending groups; empty pairs have none */
  ulyxMessage* recvs;
  ulyxWirePlace* places; /* one a copy of the phase; own copies unused */
  int64_t arenaBytes;    /* with every message staged */
  ulyxStorage placeMemory, messageMemory;
} ulyxWire;

/* `wire` is all zeros or has been built before, and its memory is used again; it is the caller's to free, also after a
 * failure. */
ulyxResult_t ulyxWireBuild(const ulyxPhase* phase, ulyxWire* wire);
void ulyxWireFree(ulyxWire* wire);

/* Messages that a pair may exchange in one group, and distances in one group, so that NCCL never cuts a
 * group into several kernels: ranks could then cut at different messages and wait for each other. */
int ulyxWireMessagesPerPair(int nRanks);
int ulyxWireDistancesPerGroup(int nRanks);

#endif /* ULYX_RUNTIME_WIRE_H_ */
