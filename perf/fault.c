/* SPDX-License-Identifier: MIT
 *
 * A preloaded library that breaks ulyx on purpose, so that a test can see the perf programs notice. From its
 * call number ULYX_FAULT_AFTER of each rank's (counted from 0) on it does what ULYX_FAULT says:
 *
 *   byte      flips a byte of the output, where the rank has one
 *   canary    writes a byte before the output
 *   stale     reports success and moves nothing
 *   refuse    refuses the call on one rank's thread only; the others wait for it in vain
 */
#define _GNU_SOURCE 1 /* RTLD_NEXT */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "ulyx.h"

typedef ulyxResult_t (*seqToHeads_t)(ulyxPlan_t, const ulyxQkv_t*, const ulyxQkv_t*, ulyxStream_t);
typedef ulyxResult_t (*oneTensor_t)(ulyxPlan_t, const ulyxTensor_t*, const ulyxTensor_t*, ulyxStream_t);
typedef ulyxResult_t (*stateChain_t)(ulyxPlan_t, const ulyxStates_t*, ulyxStream_t);

typedef enum { faultNone, faultByte, faultCanary, faultStale, faultRefuse } fault_t;

/* True on the first thread that asks, and on it only. */
static bool isFirstThread(void) {
  static atomic_flag taken = ATOMIC_FLAG_INIT;
  static _Thread_local bool first = false;
  if (!first) first = !atomic_flag_test_and_set(&taken);
  return first;
}

/* The fault that the calling rank's next call has. */
static fault_t nextFault(void) {
  static _Thread_local int calls = 0;
  const char* after = getenv("ULYX_FAULT_AFTER");
  const char* name = getenv("ULYX_FAULT");
  if (name == NULL || calls++ < atoi(after != NULL ? after : "0")) return faultNone;
  if (strcmp(name, "byte") == 0) return faultByte;
  if (strcmp(name, "canary") == 0) return faultCanary;
  if (strcmp(name, "stale") == 0) return faultStale;
  return strcmp(name, "refuse") == 0 && isFirstThread() ? faultRefuse : faultNone;
}

static void damage(fault_t fault, const ulyxTensor_t* output) {
  unsigned char* bytes = output->data;
  if (fault == faultByte && output->extents[1] > 0) bytes[0] ^= 1u;
  if (fault == faultCanary) bytes[-1] ^= 1u;
}

/* A call with one input and one output tensor, by its name. */
static ulyxResult_t callOneTensor(const char* name, ulyxPlan_t plan, const ulyxTensor_t* in, const ulyxTensor_t* out,
                                  ulyxStream_t stream) {
  oneTensor_t real = NULL;
  *(void**)&real = dlsym(RTLD_NEXT, name);
  const fault_t fault = nextFault();
  if (fault == faultStale) return ulyxSuccess;
  if (fault == faultRefuse) return ulyxRemoteError;
  const ulyxResult_t result = real(plan, in, out, stream);
  damage(fault, out);
  return result;
}

static ulyxResult_t callStateChain(const char* name, ulyxPlan_t plan, const ulyxStates_t* states, ulyxStream_t stream) {
  stateChain_t real = NULL;
  *(void**)&real = dlsym(RTLD_NEXT, name);
  const fault_t fault = nextFault();
  if (fault == faultStale) return ulyxSuccess;
  if (fault == faultRefuse) return ulyxRemoteError;
  const ulyxResult_t result = real(plan, states, stream);
  damage(fault, &states->received);
  return result;
}

ULYX_API ulyxResult_t ulyxSeqToHeads(ulyxPlan_t plan, const ulyxQkv_t* in, const ulyxQkv_t* out, ulyxStream_t stream) {
  seqToHeads_t real = NULL;
  *(void**)&real = dlsym(RTLD_NEXT, "ulyxSeqToHeads");
  const fault_t fault = nextFault();
  if (fault == faultStale) return ulyxSuccess;
  if (fault == faultRefuse) return ulyxRemoteError;
  const ulyxResult_t result = real(plan, in, out, stream);
  damage(fault, &out->q);
  return result;
}

ULYX_API ulyxResult_t ulyxHeadsToSeq(ulyxPlan_t plan, const ulyxTensor_t* in, const ulyxTensor_t* out,
                                     ulyxStream_t stream) {
  return callOneTensor("ulyxHeadsToSeq", plan, in, out, stream);
}

ULYX_API ulyxResult_t ulyxAllGatherRows(ulyxPlan_t plan, const ulyxTensor_t* in, const ulyxTensor_t* out,
                                        ulyxStream_t stream) {
  return callOneTensor("ulyxAllGatherRows", plan, in, out, stream);
}

ULYX_API ulyxResult_t ulyxReduceScatterRows(ulyxPlan_t plan, const ulyxTensor_t* in, const ulyxTensor_t* out,
                                            ulyxStream_t stream) {
  return callOneTensor("ulyxReduceScatterRows", plan, in, out, stream);
}

ULYX_API ulyxResult_t ulyxAllToAllRows(ulyxPlan_t plan, const ulyxTensor_t* in, const ulyxTensor_t* out,
                                       ulyxStream_t stream) {
  return callOneTensor("ulyxAllToAllRows", plan, in, out, stream);
}

ULYX_API ulyxResult_t ulyxConvHalo(ulyxPlan_t plan, const ulyxTensor_t* local, const ulyxTensor_t* halo,
                                   ulyxStream_t stream) {
  return callOneTensor("ulyxConvHalo", plan, local, halo, stream);
}

ULYX_API ulyxResult_t ulyxStateChain(ulyxPlan_t plan, const ulyxStates_t* states, ulyxStream_t stream) {
  return callStateChain("ulyxStateChain", plan, states, stream);
}

ULYX_API ulyxResult_t ulyxStateChainBackward(ulyxPlan_t plan, const ulyxStates_t* states, ulyxStream_t stream) {
  return callStateChain("ulyxStateChainBackward", plan, states, stream);
}
