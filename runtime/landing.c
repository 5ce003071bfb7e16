/* SPDX-License-Identifier: MIT */
#include "landing.h"

#include "check.h"

/* Any copy's rows may then be read and written as wide as in the output itself. */
#define LANDING_ALIGNMENT 256

/* The bytes of its own output that this rank has written by peers. */
static int64_t receivedSpan(const ulyxPhase* phase, int buffer) {
  int64_t span = 0;
  for (int64_t c = phase->recvStart[0]; c < phase->recvStart[phase->nRanks]; ++c) {
    const ulyxCopy* const copy = &phase->copies[c];
    if (copy->dstBuffer != buffer) continue;
    span = ulyxMax64(span, copy->dstOffset + (copy->rows - 1) * copy->dstPitch + copy->rowBytes);
  }
  return span;
}

ulyxLanding ulyxLandingMake(const ulyxPhase* phase) {
  ulyxLanding landing = {.bytes = 0};
  for (int buffer = 0; buffer < ULYX_MAX_BUFFERS; ++buffer) {
    const int64_t known = phase->facts.dstSpan[buffer];
    landing.offset[buffer] = landing.bytes;
    landing.written[buffer] = known != 0;
    landing.span[buffer] = receivedSpan(phase, buffer);
    landing.bytes += ulyxAlignUp(known >= 0 ? known : landing.span[buffer], LANDING_ALIGNMENT);
  }
  landing.offset[ULYX_SCRATCH] = landing.bytes;
  landing.written[ULYX_SCRATCH] = true; /* on some rank, perhaps */
  landing.span[ULYX_SCRATCH] = phase->scratchBytes;
  landing.bytes += phase->scratchBytes;
  return landing;
}
