/* SPDX-License-Identifier: MIT
 *
 * The persistent object. A runtime owns one transport, its plans and its last error; a plan owns its geometry,
 * its copies and what the transport prepared from them. A server makes a plan for every step, so a destroyed plan
 * becomes a spare, and the next is built in its memory: there are as many objects as plans were alive at once.
 *
 * States: open until ulyxRuntimeClose, then closed until ulyxRuntimeDestroy. Entry functions hold the runtime
 * between ulyxRuntimeEnter and ulyxRuntimeLeave; a second thread is told so rather than made to wait. */
#ifndef ULYX_RUNTIME_RUNTIME_H_
#define ULYX_RUNTIME_RUNTIME_H_

#include <stdatomic.h>

#include "chain.h"
#include "flight.h"
#include "halo.h"
#include "plan.h"
#include "rows.h"
#include "status.h"
#include "tensor.h"
#include "transport.h"

struct ulyxRuntime {
  unsigned int magic;
  atomic_bool entered;
  bool closed;
  bool agreePlans;
  ulyxTransport* transport;
  ulyxPlan_t plans;            /* those not yet destroyed */
  ulyxPlan_t spares;           /* those destroyed */
  ulyxStorage agreement;       /* words that making a plan compares */
  ulyxContextCache_t contexts; /* has a lock of its own */
  ulyxFlight flight;
  ulyxLogger_t logger; /* NULL: nobody is told */
  void* loggerUser;
  bool lost;               /* a call has said that the world is, for ever: the record ends there */
  int64_t loggedExchanges; /* how many the record had, and what was wrong, when it was last logged for an error */
  ulyxResult_t loggedError;
  char lastError[ULYX_MESSAGE_BYTES];
};

/* One operation of a plan, ready to run. */
typedef struct ulyxPlanOp {
  const char* name;
  ulyxPhase phase;
  void* prepared;
  int inCount, outCount; /* tensors; a packed side has one */
  const char* inNames[ULYX_MAX_BUFFERS];
  const char* outNames[ULYX_MAX_BUFFERS];
  ulyxExpected in[ULYX_MAX_BUFFERS];
  ulyxExpected out[ULYX_MAX_BUFFERS];
} ulyxPlanOp;

#define ULYX_MAX_OPS 2

/* What a plan is about: it resolves itself from what the caller described, fills in the plan's operations (names,
 * phases, tensors; not `prepared`) and states what the ranks must agree on. */
typedef struct ulyxSubject {
  const char* what; /* for errors: "an exchange" */
  ulyxResult_t (*build)(ulyxPlan_t plan, const void* description);
  ulyxStatement (*state)(ulyxPlan_t plan);
} ulyxSubject;

/* What a spare plan keeps is memory; all else is built anew. */
struct ulyxPlan {
  unsigned int magic;
  ulyxRuntime_t rt;
  ulyxPlan_t next;
  ulyxPlan_t* link; /* what points to this plan */
  const ulyxSubject* subject;
  uint64_t signature;
  int opCount;
  ulyxPlanOp ops[ULYX_MAX_OPS];
  int64_t arenaBytes;
  struct {
    ulyxGeometry geometry;
    ulyxRows rows;
    ulyxHalo halo;
    ulyxStateChainPlan chain;
  } about;               /* one of them, by subject; the memory of the others waits for theirs */
  ulyxStorage peerBytes; /* int64_t [op][sent, received][nRanks] */
  ulyxStorage
      kvHeadOfHead; /* of exchanges: int64_t of each own query head, counted from the first own key/value head */
};

extern const ulyxSubject ulyxExchangeSubject; /* built from a ulyxShape_t */
extern const ulyxSubject ulyxRowsSubject;     /* built from a ulyxRowsShape_t */
extern const ulyxSubject ulyxHaloSubject;     /* built from a ulyxHaloShape_t */
extern const ulyxSubject ulyxChainSubject;    /* built from a ulyxStateShape_t */

typedef enum { ulyxOpenOnly, ulyxOpenOrClosed } ulyxAdmission;

ulyxResult_t ulyxRuntimeCheckHandle(ulyxRuntime_t rt);
ulyxResult_t ulyxRuntimeEnter(ulyxRuntime_t rt, ulyxAdmission admission);
/* Keeps the message of a failure with the runtime; returns result. */
ulyxResult_t ulyxRuntimeLeave(ulyxRuntime_t rt, ulyxResult_t result);

/* Hands the flight record to the logger, where there is one. */
void ulyxRuntimeTellRecord(ulyxRuntime_t rt);

/* Whether int32 values can be stored at `data` by the runtime's transport. */
ulyxResult_t ulyxRuntimeCheckStoreTarget(ulyxRuntime_t rt, const int32_t* data, const char* name);

/* Wraps transports that are one world's; on failure they are destroyed. */
ulyxResult_t ulyxRuntimeWrap(const ulyxSettings* settings, int count, ulyxTransport** transports, ulyxRuntime_t* rts);
/* Destroys plans, transport and the object, whatever it returns. */
ulyxResult_t ulyxRuntimeUnwrap(ulyxRuntime_t rt);

ulyxResult_t ulyxPlanCheckHandle(ulyxPlan_t plan);
/* Enters the runtime of a plan about `subject` (NULL: anything). */
ulyxResult_t ulyxPlanEnter(ulyxPlan_t plan, const ulyxSubject* subject);

/* An entry point that makes a plan: checks, enters, builds, leaves. */
ulyxResult_t ulyxPlanCreateAbout(ulyxRuntime_t rt, const ulyxSubject* subject, const void* description,
                                 ulyxPlan_t* plan);
/* Makes a plan a spare. */
void ulyxPlanRelease(ulyxPlan_t plan);
/* Frees plans and spares. */
void ulyxPlansFree(ulyxRuntime_t rt);

/* [2 * nRanks]: what an operation sends to each rank, then what it receives. */
static inline int64_t* ulyxPlanPeerBytes(ulyxPlan_t plan, int op) {
  return (int64_t*)plan->peerBytes.data + 2 * op * plan->rt->transport->nRanks;
}

/* Checks in[] and out[] (the operation's buffers) against the plan and one another, then runs it. */
ulyxResult_t ulyxPlanRun(ulyxPlan_t plan, int op, const ulyxTensor_t* const* in, const ulyxTensor_t* const* out,
                         ulyxStream_t stream);

#endif /* ULYX_RUNTIME_RUNTIME_H_ */
