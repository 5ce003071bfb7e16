/* SPDX-License-Identifier: MIT */
#include "wire.h"

#include "check.h"
#include "status.h"

/* One pair's copies, seen from the side whose buffers matter. */
typedef struct Side {
  int buffer;
  int64_t offset, pitch;
} Side;

static Side srcSide(const ulyxCopy* copy) {
  return (Side){copy->srcBuffer, copy->srcOffset, copy->srcPitch};
}

static Side dstSide(const ulyxCopy* copy) {
  return (Side){copy->dstBuffer, copy->dstOffset, copy->dstPitch};
}

static bool isDense(const ulyxCopy* copy, Side side) {
  return copy->rows == 1 || side.pitch == copy->rowBytes;
}

/* NCCL 2.28 gives each (peer, message) a batch on up to 32 channels of one kernel, and cuts at 254 batches.
 * Within 8 ranks 6 messages a pair stay below that, within 16 ranks 3, within 48 ranks 1; 7 distances of one
 * message stay below it at any world size. */
int ulyxWireMessagesPerPair(int nRanks) {
  return nRanks <= 8 ? 6 : nRanks <= 16 ? 3 : 1;
}

int ulyxWireDistancesPerGroup(int nRanks) {
  return nRanks <= 48 ? nRanks : 7;
}

/* Whether copies into one buffer fill a dense range of it; *start is the range's. Copies of one tensor never
 * overlap, so comparing bytes is enough. */
static bool fillRange(const ulyxCopy* copies, int64_t count, int64_t* start) {
  int64_t stop = 0;
  *start = INT64_MAX;
  for (int64_t i = 0; i < count; ++i) {
    const ulyxCopy* const copy = &copies[i];
    *start = ulyxMin64(*start, copy->dstOffset);
    stop = ulyxMax64(stop, copy->dstOffset + (copy->rows - 1) * copy->dstPitch + copy->rowBytes);
  }
  return stop - *start == ulyxCopiesBytes(copies, count);
}

/* Places one pair's copies in pieces; pieces of one message follow one another at multiples of 16. */
typedef struct Pieces {
  int64_t count;   /* pieces */
  int64_t singles; /* copies of the present run that are pieces of their own */
  int64_t bytes;   /* of all, were they one message */
  bool denseAtSrc; /* every piece is some range of a source buffer */
  bool denseAtDst; /* every piece is some range of a destination buffer */
} Pieces;

/* Copies of the piece that starts at `copies`; sets their places relative to the piece. */
static int64_t placePiece(const ulyxCopy* copies, int64_t count, ulyxWirePlace* places, Pieces* pieces) {
  if (pieces->singles == 0) {
    int64_t run = 1, start = 0;
    while (run < count && copies[run].dstBuffer == copies[0].dstBuffer) ++run;
    if (run > 1 && fillRange(copies, run, &start)) {
      for (int64_t i = 0; i < run; ++i) {
        places[i] = (ulyxWirePlace){copies[i].dstOffset - start, copies[i].dstPitch};
      }
      pieces->denseAtSrc = false;
      return run;
    }
    pieces->singles = run;
  }
  --pieces->singles;
  places[0] = (ulyxWirePlace){0, copies[0].rowBytes};
  if (!isDense(&copies[0], srcSide(&copies[0]))) pieces->denseAtSrc = false;
  if (!isDense(&copies[0], dstSide(&copies[0]))) pieces->denseAtDst = false;
  return 1;
}

/* The local buffer range that equals the message's image, if there is one. A message with padding between its
 * pieces has none: received in place, the padding would land in bytes that are nobody's to write. */
static void findImage(const ulyxCopy* copies, const ulyxWirePlace* places, bool sending, ulyxMessage* message) {
  message->buffer = -1;
  if (ulyxCopiesBytes(copies, message->copyCount) != message->bytes) return;
  for (int64_t i = 0; i < message->copyCount; ++i) {
    const Side side = sending ? srcSide(&copies[i]) : dstSide(&copies[i]);
    const int64_t start = side.offset - places[i].offset;
    if (copies[i].rows > 1 && side.pitch != places[i].pitch) break;
    if (i > 0 && (side.buffer != message->buffer || start != message->bufferOffset)) break;
    message->buffer = side.buffer;
    message->bufferOffset = start;
    if (i + 1 == message->copyCount) return;
  }
  message->buffer = -1;
}

typedef struct Builder {
  const ulyxPhase* phase;
  ulyxWire* wire;
  int64_t arenaBytes;
} Builder;

static void addMessage(Builder* builder, bool sending, ulyxMessage message) {
  const ulyxPhase* const phase = builder->phase;
  ulyxWire* const wire = builder->wire;
  findImage(phase->copies + message.firstCopy, wire->places + message.firstCopy, sending, &message);
  message.arenaOffset = builder->arenaBytes;
  message.isFirst = message.firstCopy == (sending ? phase->sendStart : phase->recvStart)[message.peer];
  /* scratch lies in the arena itself: what arrives there whole is never staged */
  const bool staged = sending || message.buffer != ULYX_SCRATCH;
  if (staged) builder->arenaBytes += ulyxAlignUp(message.bytes, ULYX_WIRE_ALIGNMENT);
  if (sending) {
    wire->sends[wire->sendCount++] = message;
  } else {
    wire->recvs[wire->recvCount++] = message;
  }
}

/* One direction of one pair: places its copies, then makes one message of them, or one a piece. */
static void addPair(Builder* builder, bool sending, int peer, int group) {
  const ulyxPhase* const phase = builder->phase;
  const int64_t* const start = sending ? phase->sendStart : phase->recvStart;
  const int64_t first = start[peer], count = start[peer + 1] - first;
  if (count == 0) return;
  const ulyxCopy* const copies = phase->copies + first;
  ulyxWirePlace* const places = builder->wire->places + first;

  Pieces pieces = {.denseAtSrc = true, .denseAtDst = true};
  for (int64_t i = 0; i < count; ++pieces.count) {
    const int64_t run = placePiece(copies + i, count - i, places + i, &pieces);
    const int64_t pieceStart = ulyxAlignUp(pieces.bytes, 16);
    for (int64_t j = 0; j < run; ++j) places[i + j].offset += pieceStart;
    pieces.bytes = pieceStart + ulyxCopiesBytes(copies + i, run);
    i += run;
  }
  const bool split = pieces.count > 1 && pieces.count <= ulyxWireMessagesPerPair(phase->nRanks) &&
                     pieces.bytes >= ULYX_WIRE_SPLIT_BYTES && (pieces.denseAtSrc || pieces.denseAtDst);
  if (!split) {
    addMessage(
        builder, sending,
        (ulyxMessage){.peer = peer, .group = group, .bytes = pieces.bytes, .firstCopy = first, .copyCount = count});
    return;
  }
  for (int64_t i = 0; i < count;) {
    const int64_t run = placePiece(copies + i, count - i, places + i, &pieces);
    addMessage(builder, sending,
               (ulyxMessage){.peer = peer,
                             .group = group,
                             .bytes = ulyxCopiesBytes(copies + i, run),
                             .firstCopy = first + i,
                             .copyCount = run});
    i += run;
  }
}

ulyxResult_t ulyxWireBuild(const ulyxPhase* phase, ulyxWire* wire) {
  const int nRanks = phase->nRanks;
  const size_t copies = (size_t)phase->recvStart[nRanks];
  const size_t messages = 2 * (size_t)nRanks * (size_t)ulyxWireMessagesPerPair(nRanks);
  ULYX_TRY(ulyxStorageEnsure(&wire->placeMemory, copies, sizeof(ulyxWirePlace), "places on the wire"));
  ULYX_TRY(ulyxStorageEnsure(&wire->messageMemory, messages, sizeof(ulyxMessage), "messages"));
  ulyxMessage* const list = wire->messageMemory.data;
  *wire = (ulyxWire){.sends = list,
                     .recvs = list + messages / 2,
                     .places = wire->placeMemory.data,
                     .placeMemory = wire->placeMemory,
                     .messageMemory = wire->messageMemory};
  Builder builder = {phase, wire, 0};
  const int perGroup = ulyxWireDistancesPerGroup(nRanks);
  for (int distance = 1; distance < nRanks; ++distance) {
    const int group = (distance - 1) / perGroup;
    addPair(&builder, true, (phase->rank + distance) % nRanks, group);
    addPair(&builder, false, (phase->rank - distance + nRanks) % nRanks, group);
    wire->groups = group + 1;
  }
  wire->arenaBytes = builder.arenaBytes;
  return ulyxSuccess;
}

void ulyxWireFree(ulyxWire* wire) {
  ulyxStorageFree(&wire->placeMemory);
  ulyxStorageFree(&wire->messageMemory);
  *wire = (ulyxWire){0};
}
