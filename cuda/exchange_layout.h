/* SPDX-License-Identifier: MIT
 *
 * What the host hands the exchange kernel: whom to meet, and what to store into their memory meanwhile.
 *
 * Ranks meet through records. Every rank has, in a window that its peers can write, one entry record and one exit
 * record from each rank. A record is slots of 16 bytes, {value, epoch}, each written by one 16-byte store that
 * arrives whole: no slot is read before its epoch is there, and nothing has to be flushed between value and epoch.
 * An older epoch waits, an equal one passes, anything else is a fault.
 *
 * The entry record says what the rank means to do (signature) and where its outputs are (places); the exit record
 * that its stores have landed, or (value 1) that it has refused and made none. What copy engines carry besides has an
 * exit record of its own, which the engine copies into place behind its data. A rank's own record of itself is unused.
 *
 * Between the two, the kernel makes copies. Those to a peer name the peer and one of its places instead of an
 * address: the address is known only once the entry record is there. Entering, copying and leaving are separate, so
 * that one kernel is the whole of the direct transport, and twice the two ends of copy_engine. */
#ifndef ULYX_EXCHANGE_LAYOUT_H_
#define ULYX_EXCHANGE_LAYOUT_H_

#include "copy_layout.h"

#define ULYX_EXCHANGE_MAX_RANKS 64
#define ULYX_EXCHANGE_PLACES 4

typedef struct ulyxSlot {
  uint64_t value;
  uint64_t epoch;
} ulyxSlot;

/* An entry record: slot 0 is the signature, then the places; the rest pads to 128 bytes. */
#define ULYX_ENTRY_SLOTS (1 + ULYX_EXCHANGE_PLACES)
typedef struct ulyxEntryRecord {
  ulyxSlot slot[8];
} ulyxEntryRecord;

/* Window of records of one rank: written by the peers, each at its own index. */
typedef struct ulyxRecords {
  ulyxEntryRecord entry[ULYX_EXCHANGE_MAX_RANKS];
  ulyxSlot exit[ULYX_EXCHANGE_MAX_RANKS];
  ulyxSlot engineExit[ULYX_EXCHANGE_MAX_RANKS]; /* the epoch alone is written, by the kernel where no engine does */
} ulyxRecords;

/* In place of an epoch: the writer has given up, and so does whoever reads it. */
#define ULYX_EPOCH_ABORTED UINT64_MAX

/* A place: a window's number and a byte in it; 0: none. Every rank numbers its windows alike. */
#define ULYX_PLACE_OFFSET_BITS 48
#define ULYX_PLACE_NONE 0

static inline uint64_t ulyxPlaceMake(int window, uint64_t offset) {
  return ((uint64_t)window + 1) << ULYX_PLACE_OFFSET_BITS | offset;
}

/* What a rank keeps from exchange to exchange, in its own device memory. */
typedef struct ulyxSyncState {
  uint64_t epoch;      /* of the last exchange that ended */
  uint64_t entered;    /* of the last that began: what engines copy into engineExit. Not `epoch`: one is inside */
  uint32_t arrived;    /* blocks of the running kernel that have finished their copies */
  ulyxVerdict verdict; /* of the last exchange */
} ulyxSyncState;

typedef enum {
  ulyxFoundNothing = 0,
  ulyxFoundMismatch = 1, /* a peer means another exchange; passes with it */
  ulyxFoundRefusal,      /* a peer met a mismatch with another rank, and has sent nothing; passes with it */
  ulyxFoundMisplaced,    /* copy_engine: a peer's output lies elsewhere in the window; passes with it */
  ulyxFoundTimeout,      /* a peer did not come; stays */
  ulyxFoundOrder,        /* a peer is ahead; stays */
  ulyxFoundAborted,      /* a peer gave up; stays */
  ulyxFoundOverlap       /* another exchange of this rank was running; stays */
} ulyxFound;

/* What a kernel found, in host memory that the device writes: kind last. */
typedef struct ulyxReport {
  uint64_t epoch;
  uint64_t mine, theirs; /* signatures or places, by kind */
  uint32_t peer;
  uint32_t kind; /* ulyxFound */
} ulyxReport;

typedef struct ulyxMeeting {
  const uint64_t* windows; /* [window * nRanks + rank]: where this rank sees that rank's window; [0]: the records */
  ulyxSyncState* state;
  volatile ulyxReport* passing;   /* of a mismatch */
  volatile ulyxReport* final;     /* of what loses the world; written once */
  const volatile uint32_t* abort; /* host memory; not 0: give up */
  uint64_t signature;
  uint64_t places[ULYX_EXCHANGE_PLACES]; /* of this rank's outputs */
  uint64_t timeoutNs;
  int32_t rank, nRanks;
  uint16_t enters;     /* 1: write the entry records */
  uint16_t leaves;     /* 1: write and await the exit records, and end the epoch */
  uint16_t samePlaces; /* 1: the peers' places must be this rank's own */
  uint16_t engines;    /* 1: this rank's engines write its engineExit themselves */
} ulyxMeeting;

/* Towards peer p, starts[p] is added to place 0 and the signature is mixed with pairs[p], both 0 unless a pair knows
 * what the others do not: where its rows start, and how many they are.
 *
 * Copies of the batch with target 0 are this rank's own and have addresses; otherwise target is
 * 1 + peer * ULYX_EXCHANGE_PLACES + place, and dst is an offset from there. The copies to peers come first: their
 * tiles are [0, remoteTiles). `mix` is their share of the turns in which tiles are taken, in units of 2^-32, until one
 * of the two kinds has none left: remoteTiles / tiles, rounded up, interleaves them evenly, so that neither the wire
 * nor the memory waits for the other; 1 takes those to peers first. */
#define ULYX_EXCHANGE_BATCH_FIELDS(n)       \
  ulyxMeeting meeting;                      \
  uint64_t starts[ULYX_EXCHANGE_MAX_RANKS]; \
  uint64_t pairs[ULYX_EXCHANGE_MAX_RANKS];  \
  uint32_t count;                           \
  uint32_t tiles;                           \
  uint32_t remoteTiles;                     \
  uint32_t reserved;                        \
  uint64_t mix;                             \
  ulyxCopyDesc desc[n]

#define ULYX_EXCHANGE_BATCH_SMALL 64
#define ULYX_EXCHANGE_BATCH_LARGE 512

typedef struct ulyxExchangeBatch {
  ULYX_EXCHANGE_BATCH_FIELDS(ULYX_EXCHANGE_BATCH_LARGE);
} ulyxExchangeBatch;

#define ULYX_EXCHANGE_PEERS_FIRST (UINT64_C(1) << 32)

static inline uint64_t ulyxExchangeMix(uint32_t remoteTiles, uint32_t tiles) {
  return tiles == 0 ? 0 : (((uint64_t)remoteTiles << 32) + tiles - 1) / tiles;
}

#ifdef __cplusplus
static_assert(sizeof(ulyxEntryRecord) == 128, "the layout is shared by two compilers");
static_assert(sizeof(ulyxExchangeBatch) <= 32764, "a batch must fit in kernel parameters");
#else
_Static_assert(sizeof(ulyxEntryRecord) == 128, "the layout is shared by two compilers");
_Static_assert(sizeof(ulyxExchangeBatch) <= 32764, "a batch must fit in kernel parameters");
#endif

#endif /* ULYX_EXCHANGE_LAYOUT_H_ */
