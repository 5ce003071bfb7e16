/* SPDX-License-Identifier: MIT */
#include "trace.h"

#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stddef.h>

/* CUDA 12's NVTX has no payloads, and does not go with the header of a later one: ranges then have names alone. */
#if defined(NVTX_NULLPTR) && __has_include(<nvtx3/nvToolsExtPayload.h>)
#include <nvtx3/nvToolsExtPayload.h>
#define HAS_PAYLOADS 1
#else
#define HAS_PAYLOADS 0
#endif

#if HAS_PAYLOADS
static uint64_t registerTransports(nvtxDomainHandle_t domain) {
  nvtxPayloadEnum_t entries[ulyxTransportCopyEngine + 1];
  const size_t count = sizeof entries / sizeof *entries;
  for (size_t i = 0; i < count; ++i) {
    entries[i] = (nvtxPayloadEnum_t){.name = ulyxTransportName((ulyxTransport_t)i), .value = i};
  }
  const nvtxPayloadEnumAttr_t attributes = {
      .fieldMask = NVTX_PAYLOAD_ENUM_ATTR_FIELD_NAME | NVTX_PAYLOAD_ENUM_ATTR_FIELD_ENTRIES |
                   NVTX_PAYLOAD_ENUM_ATTR_FIELD_NUM_ENTRIES | NVTX_PAYLOAD_ENUM_ATTR_FIELD_SIZE,
      .name = "ulyxTransport_t",
      .entries = entries,
      .numEntries = count,
      .sizeOfEnum = sizeof(uint32_t)};
  return nvtxPayloadEnumRegister(domain, &attributes);
}

#define ENTRY(field, entryType) \
  { .type = (entryType), .name = #field, .offset = offsetof(ulyxTracePayload, field) }

static uint64_t registerPayload(nvtxDomainHandle_t domain) {
  const uint64_t transports = registerTransports(domain);
  if (transports == 0) return 0;
  const nvtxPayloadSchemaEntry_t entries[] = {
      ENTRY(exchange, NVTX_PAYLOAD_ENTRY_TYPE_INT64),      ENTRY(sentBytes, NVTX_PAYLOAD_ENTRY_TYPE_INT64),
      ENTRY(receivedBytes, NVTX_PAYLOAD_ENTRY_TYPE_INT64), ENTRY(rank, NVTX_PAYLOAD_ENTRY_TYPE_INT32),
      ENTRY(peers, NVTX_PAYLOAD_ENTRY_TYPE_INT32),         ENTRY(transport, transports)};
  const nvtxPayloadSchemaAttr_t attributes = {
      .fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
                   NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                   NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE,
      .name = "ulyx exchange",
      .type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC,
      .entries = entries,
      .numEntries = sizeof entries / sizeof *entries,
      .payloadStaticSize = sizeof(ulyxTracePayload)};
  return nvtxPayloadSchemaRegister(domain, &attributes);
}
#endif

/* NVTX sets itself up for the process in its first calls, and not safely where threads make them at once. */
static pthread_mutex_t firstCalls = PTHREAD_MUTEX_INITIALIZER;

/* One for the process: Nsight Systems knows domains by their names, and where several threads have made one of the same
 * name its reports count each range once for each of them. Nobody can know which runtime is the last to need it. */
static ulyxTrace shared;

ulyxTrace ulyxTraceGet(bool wanted) {
  if (!wanted) return (ulyxTrace){0};
  pthread_mutex_lock(&firstCalls);
  if (shared.domain == NULL) {
    shared.domain = nvtxDomainCreateA("ulyx");
#if HAS_PAYLOADS
    if (shared.domain != NULL) shared.payloadSchema = registerPayload(shared.domain);
#endif
  }
  const ulyxTrace trace = shared;
  pthread_mutex_unlock(&firstCalls);
  return trace;
}

static ulyxTracePayload payloadOf(const ulyxExchange* exchange, ulyxTransport_t transport) {
  const ulyxPhase* const phase = exchange->phase;
  ulyxTracePayload payload = {.exchange = exchange->number, .rank = phase->rank, .transport = (uint32_t)transport};
  for (int peer = 0; peer < phase->nRanks; ++peer) {
    const int64_t sent = exchange->peerBytes[peer], received = exchange->peerBytes[phase->nRanks + peer];
    if (peer == phase->rank) continue;
    payload.sentBytes += sent;
    payload.receivedBytes += received;
    payload.peers += sent + received > 0;
  }
  return payload;
}

void ulyxTraceBegin(const ulyxTrace* trace, const ulyxExchange* exchange, ulyxTransport_t transport) {
  if (trace->domain == NULL) return;
  const ulyxTracePayload payload = payloadOf(exchange, transport);
  nvtxEventAttributes_t event = {.version = NVTX_VERSION,
                                 .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                 .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                 .message.ascii = exchange->operation};
  event.payloadType = NVTX_PAYLOAD_TYPE_INT64;
  event.payload.llValue = payload.sentBytes;
#if HAS_PAYLOADS
  const nvtxPayloadData_t data = {.schemaId = trace->payloadSchema, .size = sizeof payload, .payload = &payload};
  if (trace->payloadSchema != 0) {
    event.payloadType = NVTX_PAYLOAD_TYPE_EXT;
    event.reserved0 = 1; /* how many payloads */
    event.payload.ullValue = (uint64_t)(uintptr_t)&data;
  }
#endif
  (void)nvtxDomainRangePushEx(trace->domain, &event);
}

void ulyxTraceEnd(const ulyxTrace* trace) {
  if (trace->domain != NULL) (void)nvtxDomainRangePop(trace->domain);
}
