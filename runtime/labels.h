/* SPDX-License-Identifier: MIT
 *
 * Labels of the exchanges by nccl (label_layout.h): whose messages came is compared on the device, and told on the host
 * by the next call; and the host says who came, and with what, where an exchange does not end. */
#ifndef ULYX_RUNTIME_LABELS_H_
#define ULYX_RUNTIME_LABELS_H_

#include "guard.h"
#include "label_layout.h"
#include "transport.h"

typedef struct ulyxLabels {
  ulyxLabel* device;         /* [1 + nRanks]; NULL: exchanges have no labels */
  ulyxMislabelled* found;    /* pinned */
  ulyxLabelOverlap* overlap; /* pinned */
  ulyxLabelRun* run;         /* behind `device` */
  ulyxLabel* seen;           /* [1 + nRanks], pinned: what explaining looks at */
  cudaStream_t looking;      /* on which nothing else runs */
  int nRanks, rank;
} ulyxLabels;

ulyxResult_t ulyxLabelsCreate(int nRanks, int rank, ulyxLabels* labels);
ulyxResult_t ulyxLabelsDestroy(ulyxLabels* labels);

/* First of all that the exchange does on its stream: its label, and from whom one is expected. On failure it has not
 * begun. */
ulyxResult_t ulyxLabelsWrite(const ulyxLabels* labels, const ulyxExchange* exchange);
/* Last, also where nothing was sent: the next one begins behind it. */
ulyxResult_t ulyxLabelsCompare(const ulyxLabels* labels, const ulyxExchange* exchange);

/* What was found since the last call, spoken as ulyxMismatch; it passes with the asking. */
ulyxResult_t ulyxLabelsPassing(ulyxLabels* labels);
/* Speaks of an exchange that found another of this rank's running; ulyxSuccess while none has. */
ulyxResult_t ulyxLabelsLost(const ulyxLabels* labels);
bool ulyxLabelsHavePassing(const ulyxLabels* labels);

/* Writes why an exchange that was enqueued has not ended, as far as the labels tell; within ULYX_GRACE_MS, while the
 * device waits. Any one thread; the current device is the rank's. The label of a rank that did come can be missing:
 * over a network NCCL gives up where a pair means different numbers of bytes. The pair's other rank has this one's
 * then. */
void ulyxLabelsExplain(const ulyxLabels* labels, const ulyxGuardExchange* exchange, char* text, size_t bytes);

#endif /* ULYX_RUNTIME_LABELS_H_ */
