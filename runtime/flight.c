/* SPDX-License-Identifier: MIT */
#include "flight.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "config.h"
#include "status.h"

#define LINE_BYTES 1024

ulyxResult_t ulyxFlightCreate(int nRanks, ulyxFlight* flight) {
  void* bytes = NULL;
  ULYX_TRY(ulyxAllocate(&bytes, (size_t)nRanks * 2 * ULYX_FLIGHT_EXCHANGES, sizeof(int64_t), "a flight record"));
  *flight = (ulyxFlight){.nRanks = nRanks, .bytes = bytes};
  return ulyxSuccess;
}

void ulyxFlightFree(ulyxFlight* flight) {
  free(flight->bytes);
  flight->bytes = NULL;
}

static int64_t* bytesAt(const ulyxFlight* flight, int64_t place) {
  return flight->bytes + place * 2 * flight->nRanks;
}

void ulyxFlightBegin(ulyxFlight* flight, const char* operation, uint64_t plan, ulyxTransport_t transport,
                     const int64_t* bytes) {
  const int64_t place = flight->count++ % ULYX_FLIGHT_EXCHANGES;
  flight->exchanges[place] =
      (ulyxFlightExchange){.operation = operation, .plan = plan, .transport = transport, .state = ulyxFlightInCall};
  memcpy(bytesAt(flight, place), bytes, (size_t)flight->nRanks * 2 * sizeof *bytes);
}

void ulyxFlightEnd(ulyxFlight* flight, ulyxResult_t result) {
  ulyxFlightExchange* const exchange = &flight->exchanges[(flight->count - 1) % ULYX_FLIGHT_EXCHANGES];
  exchange->state = result == ulyxSuccess ? ulyxFlightEnqueued : ulyxFlightFailed;
  exchange->result = result;
}

/* Appends what fits; the line says where it does not. */
static void append(char* line, size_t* used, const int64_t* bytes, int nRanks, const char* name) {
  *used += (size_t)snprintf(line + *used, LINE_BYTES - *used, ", %s", name);
  for (int rank = 0; rank < nRanks; ++rank) {
    if (LINE_BYTES - *used < 128) {
      *used += (size_t)snprintf(line + *used, LINE_BYTES - *used, " ... (%d ranks)", nRanks);
      return;
    }
    *used += (size_t)snprintf(line + *used, LINE_BYTES - *used, " %" PRId64, bytes[rank]);
  }
}

static void logExchange(const ulyxFlight* flight, int64_t number, ulyxLogger_t logger, void* user) {
  static const char* const states[] = {"not yet enqueued", "enqueued", "failed"};
  char line[LINE_BYTES];
  const int64_t place = (number - 1) % ULYX_FLIGHT_EXCHANGES;
  const ulyxFlightExchange* const exchange = &flight->exchanges[place];
  const int64_t* const bytes = bytesAt(flight, place);
  size_t used = (size_t)snprintf(line, sizeof line, "exchange %" PRId64 ": %s by %s, %s", number, exchange->operation,
                                 ulyxTransportName(exchange->transport), states[exchange->state]);
  if (exchange->state == ulyxFlightFailed) {
    used += (size_t)snprintf(line + used, sizeof line - used, " (%s)", ulyxGetErrorString(exchange->result));
  }
  used += (size_t)snprintf(line + used, sizeof line - used, ", plan %016" PRIx64, exchange->plan);
  append(line, &used, bytes, flight->nRanks, "bytes to each rank");
  append(line, &used, bytes + flight->nRanks, flight->nRanks, "from each");
  logger(user, ulyxLogRecord, line);
}

void ulyxFlightLog(const ulyxFlight* flight, int rank, bool ended, ulyxLogger_t logger, void* user) {
  char line[LINE_BYTES];
  const int64_t kept = ulyxMin64(flight->count, ULYX_FLIGHT_EXCHANGES);
  (void)snprintf(line, sizeof line, "rank %d of %d: its last %" PRId64 " exchanges of %" PRId64 ", oldest first; %s",
                 rank, flight->nRanks, kept, flight->count,
                 ended ? "all that were enqueued outside graphs have ended"
                       : "the last that was enqueued outside graphs has not ended");
  logger(user, ulyxLogRecord, line);
  for (int64_t number = flight->count - kept + 1; number <= flight->count; ++number) {
    logExchange(flight, number, logger, user);
  }
}
