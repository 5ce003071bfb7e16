/* SPDX-License-Identifier: MIT
 *
 * The listers of the two exchanges: seq_to_heads takes a token shard's slice of heads, heads_to_seq a head
 * shard's slice of tokens. Each lists what goes from rank src to rank dst, from global ranges alone. */
#ifndef ULYX_RUNTIME_EXCHANGE_H_
#define ULYX_RUNTIME_EXCHANGE_H_

#include "copy.h"

/* Appends the copies from src to dst, in canonical order. */
typedef ulyxResult_t (*ulyxLister)(const ulyxGeometry* geometry, int src, int dst, ulyxCopyList* list);

ulyxResult_t ulyxListSeqToHeads(const ulyxGeometry* geometry, int src, int dst, ulyxCopyList* list);
ulyxResult_t ulyxListHeadsToSeq(const ulyxGeometry* geometry, int src, int dst, ulyxCopyList* list);

#endif /* ULYX_RUNTIME_EXCHANGE_H_ */
