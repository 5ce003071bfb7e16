/* SPDX-License-Identifier: MIT
 *
 * The listers of the two exchanges: seq_to_heads takes a token shard's slice of heads, heads_to_seq a head
 * shard's slice of tokens. Each lists what goes from rank src to rank dst, from global ranges alone. */
#ifndef ULYX_RUNTIME_EXCHANGE_H_
#define ULYX_RUNTIME_EXCHANGE_H_

#include "plan.h"

#define ULYX_OP_COUNT 2

typedef struct ulyxOperation {
  const char* name;
  ulyxLister list; /* of a ulyxGeometry */
  ulyxSide from, to;
  ulyxRole firstRole, lastRole; /* the tensors that it moves */
} ulyxOperation;

/* By ulyxOp_t. */
extern const ulyxOperation ulyxOperations[ULYX_OP_COUNT];

/* What every rank knows of an operation's phase alike. */
ulyxPhaseFacts ulyxExchangeFacts(const ulyxGeometry* geometry, const ulyxOperation* operation);

#endif /* ULYX_RUNTIME_EXCHANGE_H_ */
