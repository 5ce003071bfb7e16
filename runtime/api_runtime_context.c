/* SPDX-License-Identifier: MIT
 *
 * Entry points of contexts that know their runtime: found by content in its cache, and their cu_seqlens on its
 * device. */
#include "context_cache.h"
#include "runtime.h"

/* Not entered: the cache has a lock of its own, and any thread may ask. */
ulyxResult_t ulyxRuntimeGetContext(ulyxRuntime_t rt, const void* cuSeqlens, int64_t count, int type, int split,
                                   int convKernel, ulyxContext_t* context) {
  ULYX_TRY(ulyxRuntimeCheckHandle(rt));
  return ulyxContextCacheGet(rt->contexts, cuSeqlens, count, type, rt->transport->nRanks, rt->transport->rank, split,
                             convKernel, context);
}

static ulyxResult_t store(ulyxRuntime_t rt, ulyxContext_t context, int32_t* data, ulyxStream_t stream) {
  ulyxTransport* const transport = rt->transport;
  ULYX_TRY(ulyxContextCheckHandle(context));
  ULYX_TRY(ulyxContextCheckWorld(context, transport->nRanks, transport->rank));
  ULYX_TRY(ulyxRuntimeCheckStoreTarget(rt, data, "data"));
  return transport->ops->store(transport, context->info.localCuSeqlens, context->info.numSequences + 1, data, stream);
}

ulyxResult_t ulyxContextStoreCuSeqlens(ulyxRuntime_t rt, ulyxContext_t context, int32_t* data, ulyxStream_t stream) {
  ULYX_TRY(ulyxRuntimeEnter(rt, ulyxOpenOnly));
  return ulyxRuntimeLeave(rt, store(rt, context, data, stream));
}
