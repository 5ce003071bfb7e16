/* SPDX-License-Identifier: MIT
 *
 * Which transport moves a phase on GPUs. Every rank decides for itself, from numbers that all ranks know alike, so all
 * decide the same: the facts of the phase and what each transport should cost (cost.h). */
#ifndef ULYX_RUNTIME_CHOICE_H_
#define ULYX_RUNTIME_CHOICE_H_

#include "plan.h"

/* What all ranks know of the world alike. */
typedef struct ulyxWorldFacts {
  int nRanks;
  ulyxTransport_t fixed; /* what the configuration asks for; auto: choose */
  bool reachable;        /* every rank can write every other's memory over NVLink */
  bool undisturbed;      /* the multiprocessors are somebody else's */
} ulyxWorldFacts;

/* Never auto or loopback. `reason` is a constant. */
ulyxChoice_t ulyxChoose(const ulyxWorldFacts* world, const ulyxPhaseFacts* phase);

#endif /* ULYX_RUNTIME_CHOICE_H_ */
