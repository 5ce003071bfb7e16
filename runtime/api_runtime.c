/* SPDX-License-Identifier: MIT
 *
 * Entry points of the runtime: check arguments, then call down. */
#include <stdlib.h>

#include "runtime.h"

const char* ulyxGetLastError(ulyxRuntime_t rt) {
  return rt != NULL ? rt->lastError : ulyxThreadMessage();
}

ulyxResult_t ulyxGetUniqueId(ulyxUniqueId_t* id) {
  if (id == NULL) return ulyxFail(ulyxInvalidArgument, "id is NULL");
  return ulyxNcclGetUniqueId(id);
}

static ulyxResult_t refuseLoopback(void) {
  return ulyxFail(ulyxUnsupported,
                  "transport loopback: its ranks are threads of one process; make them with ulyxRuntimeCreateLocal");
}

ulyxResult_t ulyxRuntimeCreate(const ulyxConfig_t* config, int nRanks, ulyxUniqueId_t id, int rank, ulyxRuntime_t* rt) {
  ulyxSettings settings;
  ulyxTransport* transport = NULL;
  if (rt == NULL) return ulyxFail(ulyxInvalidArgument, "rt is NULL");
  if (nRanks < 1) return ulyxFail(ulyxInvalidArgument, "nRanks is %d, expected 1 or more", nRanks);
  if (rank < 0 || rank >= nRanks) {
    return ulyxFail(ulyxInvalidArgument, "rank is %d, expected 0 to %d", rank, nRanks - 1);
  }
  ULYX_TRY(ulyxSettingsResolve(config, &settings));
  if (settings.transport == ulyxTransportLoopback) return refuseLoopback();
  ULYX_TRY(ulyxNcclCreate(&settings, nRanks, id, rank, &transport));
  return ulyxRuntimeWrap(&settings, 1, &transport, rt);
}

ulyxResult_t ulyxRuntimeCreateFromComm(const ulyxConfig_t* config, struct ncclComm* comm, ulyxRuntime_t* rt) {
  ulyxSettings settings;
  ulyxTransport* transport = NULL;
  if (rt == NULL || comm == NULL) return ulyxFail(ulyxInvalidArgument, "%s is NULL", rt == NULL ? "rt" : "comm");
  ULYX_TRY(ulyxSettingsResolve(config, &settings));
  if (settings.transport == ulyxTransportLoopback) return refuseLoopback();
  ULYX_TRY(ulyxNcclCreateFromComm(&settings, comm, &transport));
  return ulyxRuntimeWrap(&settings, 1, &transport, rt);
}

ulyxResult_t ulyxRuntimeCreateLocal(const ulyxConfig_t* config, int nRanks, const int* devices, ulyxRuntime_t* rts) {
  ulyxSettings settings;
  void* transports = NULL;
  if (rts == NULL) return ulyxFail(ulyxInvalidArgument, "rts is NULL");
  if (nRanks < 1 || nRanks > ULYX_LOCAL_MAX_RANKS) {
    return ulyxFail(ulyxInvalidArgument, "nRanks is %d, expected 1 to %d", nRanks, ULYX_LOCAL_MAX_RANKS);
  }
  ULYX_TRY(ulyxSettingsResolve(config, &settings));
  const bool loopback =
      settings.transport == ulyxTransportLoopback || (settings.transport == ulyxTransportAuto && devices == NULL);
  if (loopback && devices != NULL) {
    return ulyxFail(ulyxInvalidArgument, "transport loopback works on the CPU, but devices were given; pass NULL");
  }
  if (!loopback && devices == NULL) {
    return ulyxFail(ulyxInvalidArgument, "this transport needs devices, one a rank, but devices is NULL");
  }
  ULYX_TRY(ulyxAllocate(&transports, (size_t)nRanks, sizeof(ulyxTransport*), "transports"));
  ulyxResult_t result = loopback ? ulyxLoopbackCreateLocal(&settings, nRanks, transports)
                                 : ulyxNcclCreateLocal(&settings, nRanks, devices, transports);
  if (result == ulyxSuccess) result = ulyxRuntimeWrap(&settings, nRanks, transports, rts);
  free(transports);
  return result;
}

static ulyxResult_t checkBytes(const char* name, int64_t bytes) {
  if (bytes >= 0 && bytes <= INT64_MAX / 2) return ulyxSuccess;
  return ulyxFail(ulyxInvalidArgument, "%s is %lld, expected 0 to %lld", name, (long long)bytes,
                  (long long)(INT64_MAX / 2));
}

ulyxResult_t ulyxRuntimeReserve(ulyxRuntime_t rt, int64_t arenaBytes) {
  ULYX_TRY(ulyxRuntimeEnter(rt, ulyxOpenOnly));
  ulyxTransport* const transport = rt->transport;
  const ulyxResult_t checked = checkBytes("arenaBytes", arenaBytes);
  if (checked != ulyxSuccess) return ulyxRuntimeLeave(rt, checked);
  return ulyxRuntimeLeave(rt, transport->ops->reserve(transport, arenaBytes));
}

ulyxResult_t ulyxRuntimeGetInfo(ulyxRuntime_t rt, ulyxRuntimeInfo_t* info) {
  ULYX_TRY(ulyxRuntimeEnter(rt, ulyxOpenOrClosed));
  const ulyxTransport* const transport = rt->transport;
  const ulyxResult_t result = ulyxCheckStruct(info, sizeof *info, ULYX_RUNTIME_INFO_MAGIC, "info");
  if (result != ulyxSuccess) return ulyxRuntimeLeave(rt, result);
  info->rank = transport->rank;
  info->nRanks = transport->nRanks;
  info->transport = (int)transport->kind;
  info->device = transport->device;
  info->ncclVersion = transport->ncclVersion;
  info->closed = rt->closed ? 1 : 0;
  info->arenaBytes = transport->arenaBytes;
  info->transportReason = transport->reason;
  return ulyxRuntimeLeave(rt, ulyxSuccess);
}

ulyxResult_t ulyxRuntimeGetAsyncError(ulyxRuntime_t rt, ulyxResult_t* error) {
  ULYX_TRY(ulyxRuntimeEnter(rt, ulyxOpenOrClosed));
  if (error == NULL) return ulyxRuntimeLeave(rt, ulyxFail(ulyxInvalidArgument, "error is NULL"));
  *error = rt->transport->ops->found(rt->transport);
  (void)ulyxRuntimeLeave(rt, *error); /* keeps what was said */
  return ulyxSuccess;
}

/* Not entered: it is for when somebody else does not come out. */
ulyxResult_t ulyxRuntimeAbort(ulyxRuntime_t rt) {
  ULYX_TRY(ulyxRuntimeCheckHandle(rt));
  return rt->transport->ops->abort(rt->transport);
}

ulyxResult_t ulyxRuntimeSetLogger(ulyxRuntime_t rt, ulyxLogger_t logger, void* user) {
  ULYX_TRY(ulyxRuntimeEnter(rt, ulyxOpenOrClosed));
  rt->logger = logger;
  rt->loggerUser = user;
  return ulyxRuntimeLeave(rt, ulyxSuccess);
}

ulyxResult_t ulyxRuntimeLogRecord(ulyxRuntime_t rt) {
  ULYX_TRY(ulyxRuntimeEnter(rt, ulyxOpenOrClosed));
  if (rt->logger == NULL) {
    return ulyxRuntimeLeave(rt, ulyxFail(ulyxInvalidUsage, "there is no logger; call ulyxRuntimeSetLogger"));
  }
  ulyxRuntimeTellRecord(rt);
  return ulyxRuntimeLeave(rt, ulyxSuccess);
}

ulyxResult_t ulyxRuntimeClose(ulyxRuntime_t rt) {
  ULYX_TRY(ulyxRuntimeEnter(rt, ulyxOpenOrClosed));
  rt->closed = true;
  return ulyxRuntimeLeave(rt, ulyxSuccess);
}

ulyxResult_t ulyxRuntimeDestroy(ulyxRuntime_t* rt) {
  if (rt == NULL) return ulyxFail(ulyxInvalidArgument, "rt is NULL");
  if (*rt == NULL) return ulyxSuccess;
  ULYX_TRY(ulyxRuntimeEnter(*rt, ulyxOpenOrClosed));
  const ulyxRuntime_t destroyed = *rt;
  const ulyxResult_t unused = destroyed->transport->ops->checkUnused(destroyed->transport);
  if (unused != ulyxSuccess) return ulyxRuntimeLeave(destroyed, unused);
  const ulyxLogger_t logger = destroyed->logger;
  void* const user = destroyed->loggerUser;
  *rt = NULL;
  const ulyxResult_t result = ulyxRuntimeUnwrap(destroyed);
  if (result != ulyxSuccess && logger != NULL) logger(user, ulyxLogError, ulyxThreadMessage());
  return result;
}

ulyxResult_t ulyxMemAlloc(ulyxRuntime_t rt, int64_t bytes, void** ptr) {
  ULYX_TRY(ulyxRuntimeEnter(rt, ulyxOpenOnly));
  ulyxTransport* const transport = rt->transport;
  if (ptr == NULL) return ulyxRuntimeLeave(rt, ulyxFail(ulyxInvalidArgument, "ptr is NULL"));
  const ulyxResult_t checked = checkBytes("bytes", bytes);
  if (checked != ulyxSuccess) return ulyxRuntimeLeave(rt, checked);
  return ulyxRuntimeLeave(rt, transport->ops->memAlloc(transport, bytes, ptr));
}

ulyxResult_t ulyxMemFree(ulyxRuntime_t rt, void* ptr) {
  ULYX_TRY(ulyxRuntimeEnter(rt, ulyxOpenOrClosed));
  ulyxTransport* const transport = rt->transport;
  return ulyxRuntimeLeave(rt, ptr == NULL ? ulyxSuccess : transport->ops->memFree(transport, ptr));
}
