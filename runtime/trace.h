/* SPDX-License-Identifier: MIT
 *
 * What profilers see: the NVTX domain "ulyx", with a range around the enqueuing of each exchange that says what it
 * moves. Without a tool there is no domain, and an exchange pays one comparison. */
#ifndef ULYX_RUNTIME_TRACE_H_
#define ULYX_RUNTIME_TRACE_H_

#include "transport.h"

/* The payload of a range. Its layout is the one that trace.c registers. */
typedef struct ulyxTracePayload {
  int64_t exchange; /* number since the runtime's creation */
  int64_t sentBytes;
  int64_t receivedBytes; /* both: to and from other ranks */
  int32_t rank;
  int32_t peers;      /* ranks that something goes to or comes from */
  uint32_t transport; /* ulyxTransport_t */
} ulyxTracePayload;

/* All zeros trace nothing. */
typedef struct ulyxTrace {
  struct nvtxDomainRegistration_st* domain;
  uint64_t payloadSchema; /* 0: the tool knows none */
} ulyxTrace;

/* Every runtime of the process gets the same, and nobody takes it back. */
ulyxTrace ulyxTraceGet(bool wanted);

void ulyxTraceBegin(const ulyxTrace* trace, const ulyxExchange* exchange, ulyxTransport_t transport);
void ulyxTraceEnd(const ulyxTrace* trace);

#endif /* ULYX_RUNTIME_TRACE_H_ */
