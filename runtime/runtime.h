/* SPDX-License-Identifier: MIT
 *
 * The persistent object. A runtime owns one transport, its plans and its last error; a plan owns its geometry,
 * its copies and what the transport prepared from them.
 *
 * States: open until ulyxRuntimeClose, then closed until ulyxRuntimeDestroy. Entry functions hold the runtime
 * between ulyxRuntimeEnter and ulyxRuntimeLeave; a second thread is told so rather than made to wait. */
#ifndef ULYX_RUNTIME_RUNTIME_H_
#define ULYX_RUNTIME_RUNTIME_H_

#include <stdatomic.h>

#include "plan.h"
#include "status.h"
#include "tensor.h"
#include "transport.h"

struct ulyxRuntime {
  unsigned int magic;
  atomic_bool entered;
  bool closed;
  bool agreePlans;
  ulyxTransport* transport;
  ulyxPlan_t plans; /* those not yet destroyed */
  char lastError[ULYX_MESSAGE_BYTES];
};

#define ULYX_MAX_BUFFERS 3 /* q, k, v */

/* One operation of a plan. */
typedef struct ulyxPlanOp {
  ulyxPhase phase;
  void* prepared;
  int inCount, outCount; /* tensors; a packed side has one */
  ulyxExpected in[ULYX_MAX_BUFFERS];
  ulyxExpected out[ULYX_MAX_BUFFERS];
  int64_t* sendBytes; /* [nRanks] */
  int64_t* recvBytes;
} ulyxPlanOp;

struct ulyxPlan {
  unsigned int magic;
  ulyxRuntime_t rt;
  ulyxPlan_t next;
  ulyxPlan_t* link; /* what points to this plan */
  ulyxGeometry geometry;
  ulyxPlanOp ops[ULYX_OP_COUNT];
  int64_t arenaBytes;
  int64_t* counts; /* token, head and key/value head counts, then bytes by peer: one allocation */
};

typedef enum { ulyxOpenOnly, ulyxOpenOrClosed } ulyxAdmission;

ulyxResult_t ulyxRuntimeEnter(ulyxRuntime_t rt, ulyxAdmission admission);
/* Keeps the message of a failure with the runtime; returns result. */
ulyxResult_t ulyxRuntimeLeave(ulyxRuntime_t rt, ulyxResult_t result);

/* Wraps transports that are one world's; on failure they are destroyed. */
ulyxResult_t ulyxRuntimeWrap(const ulyxSettings* settings, int count, ulyxTransport** transports, ulyxRuntime_t* rts);
/* Destroys plans, transport and the object, whatever it returns. */
ulyxResult_t ulyxRuntimeUnwrap(ulyxRuntime_t rt);

ulyxResult_t ulyxPlanCheckHandle(ulyxPlan_t plan);
ulyxResult_t ulyxPlanBuild(ulyxRuntime_t rt, const ulyxShape_t* shape, ulyxPlan_t* plan);
void ulyxPlanRelease(ulyxPlan_t plan);

/* Checks in[] and out[] (the operation's buffers) against the plan and one another, then runs it. */
ulyxResult_t ulyxPlanRun(ulyxPlan_t plan, ulyxOp_t op, const ulyxTensor_t* const* in, const ulyxTensor_t* const* out,
                         ulyxStream_t stream);

#endif /* ULYX_RUNTIME_RUNTIME_H_ */
