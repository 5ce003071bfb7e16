/* SPDX-License-Identifier: MIT
 *
 * What a geometry costs before anything runs: bytes from rank to rank, and staging. */
#ifndef ULYX_RUNTIME_FOOTPRINT_H_
#define ULYX_RUNTIME_FOOTPRINT_H_

#include "exchange.h"
#include "plan.h"

/* Bytes that an operation moves from src to dst. */
ulyxResult_t ulyxFootprintPairBytes(const ulyxGeometry* geometry, ulyxOp_t op, int src, int dst, int64_t* bytes);

/* Staging that is enough for a phase on any transport of GPUs, scratch included. */
ulyxResult_t ulyxFootprintPhase(const ulyxPhase* phase, int64_t* bytes);

/* Staging that is enough on `rank`: the larger of the two operations'. */
ulyxResult_t ulyxFootprintArenaBytes(const ulyxGeometry* geometry, int rank, int64_t* bytes);

#endif /* ULYX_RUNTIME_FOOTPRINT_H_ */
