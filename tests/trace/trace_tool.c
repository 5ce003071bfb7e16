/* SPDX-License-Identifier: MIT
 *
 * A tool as NVTX loads one (NVTX_INJECTION64_PATH): it writes down what is told to it, and traceToolLog hands it out.
 * With TRACE_TOOL_WITHOUT_PAYLOADS it does not know what payloads with a schema are, as older ones. */
#include <inttypes.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace.h"

#define EXPORTED __attribute__((visibility("default")))
#define PAYLOAD_SCHEMA 77
#define TRANSPORT_ENUM 66

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char text[1 << 16];
static _Thread_local int depth;

__attribute__((format(printf, 1, 2))) static void note(const char* format, ...) {
  va_list arguments;
  pthread_mutex_lock(&mutex);
  const size_t used = strlen(text);
  va_start(arguments, format);
  (void)vsnprintf(text + used, sizeof text - used, format, arguments);
  va_end(arguments);
  pthread_mutex_unlock(&mutex);
}

EXPORTED const char* traceToolLog(void);
EXPORTED const char* traceToolLog(void) {
  return text;
}

static nvtxDomainHandle_t NVTX_API createDomain(const char* name) {
  note("domain %s\n", name);
  return (nvtxDomainHandle_t)(void*)text;
}

static void NVTX_API destroyDomain(nvtxDomainHandle_t domain) {
  note("end %s\n", domain == (nvtxDomainHandle_t)(void*)text ? "of domain" : "of what?");
}

static int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  (void)domain;
  const nvtxPayloadData_t* const data = (const nvtxPayloadData_t*)(uintptr_t)event->payload.ullValue;
  ulyxTracePayload payload;
  ++depth;
  if (event->payloadType == NVTX_PAYLOAD_TYPE_INT64) {
    note("push %s sent %" PRId64 "\n", event->message.ascii, event->payload.llValue);
    return depth - 1;
  }
  if (event->payloadType != NVTX_PAYLOAD_TYPE_EXT || event->reserved0 != 1 || data->size != sizeof payload ||
      data->schemaId != PAYLOAD_SCHEMA) {
    note("push %s with a strange payload\n", event->message.ascii);
    return depth - 1;
  }
  memcpy(&payload, data->payload, sizeof payload);
  note("push %s exchange %" PRId64 " sent %" PRId64 " received %" PRId64 " rank %" PRId32 " peers %" PRId32
       " transport %" PRIu32 "\n",
       event->message.ascii, payload.exchange, payload.sentBytes, payload.receivedBytes, payload.rank, payload.peers,
       payload.transport);
  return depth - 1;
}

static int NVTX_API pop(nvtxDomainHandle_t domain) {
  (void)domain;
  note("pop to %d\n", --depth);
  return depth;
}

static uint64_t NVTX_API registerSchema(nvtxDomainHandle_t domain, const nvtxPayloadSchemaAttr_t* schema) {
  (void)domain;
  note("schema %s of %zu bytes:", schema->name, schema->payloadStaticSize);
  for (size_t i = 0; i < schema->numEntries; ++i) {
    note(" %s@%" PRIu64 "%s", schema->entries[i].name, schema->entries[i].offset,
         schema->entries[i].type == TRANSPORT_ENUM ? "(enum)" : "");
  }
  note("\n");
  return PAYLOAD_SCHEMA;
}

static uint64_t NVTX_API registerEnum(nvtxDomainHandle_t domain, const nvtxPayloadEnumAttr_t* values) {
  (void)domain;
  note("enum %s:", values->name);
  for (size_t i = 0; i < values->numEntries; ++i) {
    note(" %s=%" PRIu64, values->entries[i].name, values->entries[i].value);
  }
  note("\n");
  return TRANSPORT_ENUM;
}

EXPORTED int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t getExportTable);
EXPORTED int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t getExportTable) {
  NvtxFunctionTable table = NULL;
  unsigned int size = 0;
  const NvtxExportTableCallbacks* const callbacks = getExportTable(NVTX_ETID_CALLBACKS);
  if (callbacks == NULL || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)createDomain;
  *table[NVTX_CBID_CORE2_DomainDestroy] = (NvtxFunctionPointer)destroyDomain;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
  *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
  return 1;
}

EXPORTED int NVTX_API InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t* module);
EXPORTED int NVTX_API InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t* module) {
  if (module->moduleId != NVTX_EXT_PAYLOAD_MODULEID || module->segmentsCount < 1 ||
      getenv("TRACE_TOOL_WITHOUT_PAYLOADS") != NULL) {
    return 0;
  }
  module->segments[0].functionSlots[NVTX3EXT_CBID_nvtxPayloadSchemaRegister] = (intptr_t)registerSchema;
  module->segments[0].functionSlots[NVTX3EXT_CBID_nvtxPayloadEnumRegister] = (intptr_t)registerEnum;
  return 1;
}
