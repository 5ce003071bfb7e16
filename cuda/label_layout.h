/* SPDX-License-Identifier: MIT
 *
 * Whose messages are, which NCCL does not say: it moves bytes whatever they are, and waits for ever where a pair means
 * different numbers of them. So in every exchange a rank sends a label to each peer that it sends anything, before all
 * else. A kernel writes it; the exchange's last one compares the labels that came with this rank's own. While NCCL
 * waits the host can look at them: they have the same size whatever follows. Exchanges of a rank share its labels and
 * its arena, so the first kernel also finds an exchange that has not had its last. */
#ifndef ULYX_LABEL_LAYOUT_H_
#define ULYX_LABEL_LAYOUT_H_

#include <stdint.h>

#define ULYX_LABEL_NAME_BYTES 32

typedef enum {
  ulyxLabelNone = 0, /* the peer sends nothing in this exchange */
  ulyxLabelAwaited,
  ulyxLabelWritten
} ulyxLabelState;

typedef struct ulyxLabel {
  uint64_t state;     /* ulyxLabelState */
  uint64_t signature; /* equal on ranks that mean the same */
  uint64_t plan;
  uint64_t number; /* of the exchange, where the label was written */
  char operation[ULYX_LABEL_NAME_BYTES];
} ulyxLabel;

/* A rank's labels in its device memory: its own, then that from each rank. */
#define ULYX_LABEL_OWN 0
#define ULYX_LABEL_FROM(rank) (1 + (rank))

#define ULYX_LABEL_RANKS_A_LAUNCH 512

/* Behind a rank's labels, in the same memory. */
typedef struct ulyxLabelRun {
  uint64_t running; /* the number of the exchange that has begun and not ended; 0: none */
  uint32_t told;    /* 1: an overlap was found */
} ulyxLabelRun;

/* An exchange that began while another was running, in host memory that the device writes once: found last. */
typedef struct ulyxLabelOverlap {
  uint64_t number, running;
  uint32_t found; /* 1 */
} ulyxLabelOverlap;

/* What a launch writes: what is expected from ranks [firstRank, firstRank + count), and that from rank 0 on, the last
 * of an exchange's, its own label. */
typedef struct ulyxLabelWrite {
  ulyxLabel* labels;
  ulyxLabelRun* run;
  volatile ulyxLabelOverlap* overlap;
  ulyxLabel own;
  int32_t firstRank, count;
  uint64_t awaited[ULYX_LABEL_RANKS_A_LAUNCH / 64]; /* bit r: from rank firstRank + r */
} ulyxLabelWrite;

/* A label that was not this rank's own, in host memory that the device writes where there is none yet: peer last. */
typedef struct ulyxMislabelled {
  ulyxLabel mine, theirs;
  uint32_t peer; /* 1 + rank; 0: none was found */
} ulyxMislabelled;

typedef struct ulyxLabelCompare {
  const ulyxLabel* labels;
  ulyxLabelRun* run;
  volatile ulyxMislabelled* found;
  int32_t nRanks;
} ulyxLabelCompare;

#ifdef __cplusplus
static_assert(sizeof(ulyxLabel) == 64, "the layout is shared by two compilers");
#else
_Static_assert(sizeof(ulyxLabel) == 64, "the layout is shared by two compilers");
#endif

#endif /* ULYX_LABEL_LAYOUT_H_ */
