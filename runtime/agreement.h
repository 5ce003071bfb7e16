/* SPDX-License-Identifier: MIT
 *
 * Before a plan exists, every rank states what it means to do, and all compare. A rank that refuses its own
 * shape takes part too, so that nobody waits for it. */
#ifndef ULYX_RUNTIME_AGREEMENT_H_
#define ULYX_RUNTIME_AGREEMENT_H_

#include "statement.h"
#include "transport.h"

/* `mine` is what this rank found wrong with its own plan (ulyxSuccess: nothing), already said. The statement is
 * looked at only when mine is ulyxSuccess or ulyxArenaTooSmall. `memory` is for the words of all ranks, the same at
 * every call. Collective and blocking. */
ulyxResult_t ulyxAgree(ulyxTransport* transport, ulyxResult_t mine, const ulyxStatement* statement, int64_t arenaNeeded,
                       ulyxStorage* memory);

/* Words that a gather may carry per rank. */
int ulyxAgreementWords(int nRanks);

#endif /* ULYX_RUNTIME_AGREEMENT_H_ */
