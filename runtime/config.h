/* SPDX-License-Identifier: MIT
 *
 * Settings: what the caller's config says, else the environment, else the default. Read once, at creation. */
#ifndef ULYX_RUNTIME_CONFIG_H_
#define ULYX_RUNTIME_CONFIG_H_

#include <stdbool.h>

#include "ulyx.h"

typedef struct ulyxSettings {
  ulyxTransport_t transport;
  bool agreePlans;
  int timeoutMs; /* 0: for ever */
  int maxCtas;   /* 0: no cap */
  int64_t arenaBytes;
  int streamPriority;
  bool undisturbed;
  int copyStreams; /* 0: one a peer */
  bool traced;     /* for profilers; ULYX_NVTX alone says */
} ulyxSettings;

/* config may be NULL. */
ulyxResult_t ulyxSettingsResolve(const ulyxConfig_t* config, ulyxSettings* settings);

/* As ULYX_TRANSPORT spells it. */
const char* ulyxTransportName(ulyxTransport_t transport);

#endif /* ULYX_RUNTIME_CONFIG_H_ */
