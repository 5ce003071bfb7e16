/* SPDX-License-Identifier: MIT */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

static const char* const transportNames[] = {"auto", "loopback", "nccl", "direct", "copy_engine"};
#define TRANSPORT_COUNT ((int)(sizeof transportNames / sizeof transportNames[0]))

const char* ulyxTransportName(ulyxTransport_t transport) {
  return transportNames[transport];
}

/* One integer setting and where it may come from. */
typedef struct Setting {
  const char* field;
  const char* variable;
  int64_t undefined, least, most, otherwise;
} Setting;

static ulyxResult_t readInteger(const Setting* setting, int64_t given, int64_t* value) {
  if (given != setting->undefined) {
    if (given < setting->least || given > setting->most) {
      return ulyxFail(ulyxInvalidArgument, "config.%s is %" PRId64 ", expected %" PRId64 " to %" PRId64, setting->field,
                      given, setting->least, setting->most);
    }
    *value = given;
    return ulyxSuccess;
  }
  const char* const text = getenv(setting->variable);
  if (text == NULL || text[0] == '\0') {
    *value = setting->otherwise;
    return ulyxSuccess;
  }
  char* end = NULL;
  errno = 0;
  const long long parsed = strtoll(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || parsed < setting->least || parsed > setting->most) {
    return ulyxFail(ulyxInvalidArgument, "%s is \"%s\", expected an integer from %" PRId64 " to %" PRId64,
                    setting->variable, text, setting->least, setting->most);
  }
  *value = parsed;
  return ulyxSuccess;
}

static ulyxResult_t readTransport(int given, ulyxTransport_t* transport) {
  if (given != ULYX_UNDEF_INT) {
    if (given < 0 || given >= TRANSPORT_COUNT) {
      return ulyxFail(ulyxInvalidArgument, "config.transport is %d, expected 0 to %d", given, TRANSPORT_COUNT - 1);
    }
    *transport = (ulyxTransport_t)given;
    return ulyxSuccess;
  }
  const char* const text = getenv("ULYX_TRANSPORT");
  *transport = ulyxTransportAuto;
  if (text == NULL || text[0] == '\0') return ulyxSuccess;
  for (int i = 0; i < TRANSPORT_COUNT; ++i) {
    if (strcmp(text, transportNames[i]) == 0) {
      *transport = (ulyxTransport_t)i;
      return ulyxSuccess;
    }
  }
  return ulyxFail(ulyxInvalidArgument, "ULYX_TRANSPORT is \"%s\", expected auto, loopback, nccl, direct or copy_engine",
                  text);
}

ulyxResult_t ulyxSettingsResolve(const ulyxConfig_t* config, ulyxSettings* settings) {
  const ulyxConfig_t nothing = ULYX_CONFIG_INITIALIZER;
  if (config == NULL) config = &nothing;
  ULYX_TRY(ulyxCheckStruct(config, sizeof *config, ULYX_CONFIG_MAGIC, "config"));
  const Setting agree = {"agreePlans", "ULYX_AGREE_PLANS", ULYX_UNDEF_INT, 0, 1, 1};
  const Setting timeout = {"timeoutMs", "ULYX_TIMEOUT_MS", ULYX_UNDEF_INT, 0, INT_MAX, 60000};
  const Setting ctas = {"maxCtas", "ULYX_MAX_CTAS", ULYX_UNDEF_INT, 0, INT_MAX, 0};
  const Setting arena = {"arenaBytes", "ULYX_ARENA_BYTES", ULYX_UNDEF_INT64, 0, INT64_MAX / 2, 0};
  const Setting priority = {"streamPriority", "ULYX_STREAM_PRIORITY", ULYX_UNDEF_INT, -100, 100, 0};
  const Setting undisturbed = {"undisturbed", "ULYX_UNDISTURBED", ULYX_UNDEF_INT, 0, 1, 0};
  const Setting streams = {"copyStreams", "ULYX_COPY_STREAMS", ULYX_UNDEF_INT, 0, INT_MAX, 1};
  const Setting nvtx = {"", "ULYX_NVTX", ULYX_UNDEF_INT, 0, 1, 1};
  ulyxTransport_t transport = ulyxTransportAuto;
  int64_t agreePlans = 0, timeoutMs = 0, maxCtas = 0, arenaBytes = 0;
  int64_t streamPriority = 0, leavesSms = 0, copyStreams = 0, traced = 0;
  ULYX_TRY(readTransport(config->transport, &transport));
  ULYX_TRY(readInteger(&agree, config->agreePlans, &agreePlans));
  ULYX_TRY(readInteger(&timeout, config->timeoutMs, &timeoutMs));
  ULYX_TRY(readInteger(&ctas, config->maxCtas, &maxCtas));
  ULYX_TRY(readInteger(&arena, config->arenaBytes, &arenaBytes));
  ULYX_TRY(readInteger(&priority, config->streamPriority, &streamPriority));
  ULYX_TRY(readInteger(&undisturbed, config->undisturbed, &leavesSms));
  ULYX_TRY(readInteger(&streams, config->copyStreams, &copyStreams));
  ULYX_TRY(readInteger(&nvtx, ULYX_UNDEF_INT, &traced));
  if (config->reserved != 0) {
    return ulyxFail(ulyxInvalidArgument, "config.reserved is %d, expected 0", config->reserved);
  }
  *settings = (ulyxSettings){.transport = transport,
                             .agreePlans = agreePlans == 1,
                             .timeoutMs = (int)timeoutMs,
                             .maxCtas = (int)maxCtas,
                             .arenaBytes = arenaBytes,
                             .streamPriority = (int)streamPriority,
                             .undisturbed = leavesSms == 1,
                             .copyStreams = (int)copyStreams,
                             .traced = traced == 1};
  return ulyxSuccess;
}
