/* SPDX-License-Identifier: MIT
 *
 * The flight record: the last exchanges of a runtime, for whoever asks what went before an error. It is written into
 * memory that was there before, so that it costs an exchange next to nothing. */
#ifndef ULYX_RUNTIME_FLIGHT_H_
#define ULYX_RUNTIME_FLIGHT_H_

#include <stdbool.h>
#include <stdint.h>

#include "ulyx.h"

#define ULYX_FLIGHT_EXCHANGES 32

typedef enum { ulyxFlightInCall, ulyxFlightEnqueued, ulyxFlightFailed } ulyxFlightState;

typedef struct ulyxFlightExchange {
  const char* operation;
  uint64_t plan; /* its signature */
  ulyxTransport_t transport;
  ulyxFlightState state;
  ulyxResult_t result;
} ulyxFlightExchange;

/* Exchange i, counted from 1, is at (i - 1) mod their number. */
typedef struct ulyxFlight {
  int nRanks;
  int64_t count;
  int64_t* bytes; /* [ULYX_FLIGHT_EXCHANGES][sent, received][nRanks] */
  ulyxFlightExchange exchanges[ULYX_FLIGHT_EXCHANGES];
} ulyxFlight;

ulyxResult_t ulyxFlightCreate(int nRanks, ulyxFlight* flight);
void ulyxFlightFree(ulyxFlight* flight);

/* An exchange begins, about to be handed to the transport; bytes[2 * nRanks] are sent, then received, by peer. */
void ulyxFlightBegin(ulyxFlight* flight, const char* operation, uint64_t plan, ulyxTransport_t transport,
                     const int64_t* bytes);
/* It has been handed over, or was not. */
void ulyxFlightEnd(ulyxFlight* flight, ulyxResult_t result);

/* Hands the record to the logger, a line a call, oldest first. `ended`: nothing that was enqueued runs any more. */
void ulyxFlightLog(const ulyxFlight* flight, int rank, bool ended, ulyxLogger_t logger, void* user);

#endif /* ULYX_RUNTIME_FLIGHT_H_ */
