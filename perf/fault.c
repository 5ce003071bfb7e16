/* SPDX-License-Identifier: MIT
 *
 * A preloaded library that breaks ulyx on purpose, so that a test can see the perf programs notice. From its
 * call number ULYX_FAULT_AFTER of each rank's (counted from 0) on it does what ULYX_FAULT says:
 *
 *   byte      flips a byte of the output
 *   canary    writes a byte before the output
 *   stale     reports success and moves nothing
 *   refuse    refuses the call on rank 0's thread only; the others wait for it in vain
 */
#define _GNU_SOURCE 1 /* RTLD_NEXT */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "ulyx.h"

typedef ulyxResult_t (*seqToHeads_t)(ulyxPlan_t, const ulyxQkv_t*, const ulyxQkv_t*, ulyxStream_t);
typedef ulyxResult_t (*headsToSeq_t)(ulyxPlan_t, const ulyxTensor_t*, const ulyxTensor_t*, ulyxStream_t);

typedef enum { faultNone, faultByte, faultCanary, faultStale, faultRefuse } fault_t;

/* The fault that the calling rank's next call has. */
static fault_t nextFault(ulyxPlan_t plan) {
  static _Thread_local int calls = 0;
  const char* after = getenv("ULYX_FAULT_AFTER");
  const char* name = getenv("ULYX_FAULT");
  ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
  if (name == NULL || calls++ < atoi(after != NULL ? after : "0")) return faultNone;
  if (strcmp(name, "byte") == 0) return faultByte;
  if (strcmp(name, "canary") == 0) return faultCanary;
  if (strcmp(name, "stale") == 0) return faultStale;
  if (strcmp(name, "refuse") != 0 || ulyxPlanGetInfo(plan, &info) != ulyxSuccess) return faultNone;
  return info.rank == 0 ? faultRefuse : faultNone;
}

static void damage(fault_t fault, void* output) {
  unsigned char* bytes = output;
  if (fault == faultByte) bytes[0] ^= 1u;
  if (fault == faultCanary) bytes[-1] ^= 1u;
}

ULYX_API ulyxResult_t ulyxSeqToHeads(ulyxPlan_t plan, const ulyxQkv_t* in, const ulyxQkv_t* out, ulyxStream_t stream) {
  seqToHeads_t real = NULL;
  *(void**)&real = dlsym(RTLD_NEXT, "ulyxSeqToHeads");
  const fault_t fault = nextFault(plan);
  if (fault == faultStale) return ulyxSuccess;
  if (fault == faultRefuse) return ulyxRemoteError;
  const ulyxResult_t result = real(plan, in, out, stream);
  damage(fault, out->q.data);
  return result;
}

ULYX_API ulyxResult_t ulyxHeadsToSeq(ulyxPlan_t plan, const ulyxTensor_t* in, const ulyxTensor_t* out,
                                     ulyxStream_t stream) {
  headsToSeq_t real = NULL;
  *(void**)&real = dlsym(RTLD_NEXT, "ulyxHeadsToSeq");
  const fault_t fault = nextFault(plan);
  if (fault == faultStale) return ulyxSuccess;
  if (fault == faultRefuse) return ulyxRemoteError;
  const ulyxResult_t result = real(plan, in, out, stream);
  damage(fault, out->data);
  return result;
}
