// SPDX-License-Identifier: MIT
//
// A runtime's own cache of contexts, and their cu_seqlens in the memory of its device, on every world.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "support/contexts.h"
#include "support/row_tensor.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

class ContextStore : public ::testing::TestWithParam<const World*> {};
ULYX_ON_EVERY_WORLD(ContextStore);

// Sequences of one token each, `perRank` on every rank.
std::vector<int64_t> SingleTokens(int64_t count) {
  std::vector<int64_t> cuSeqlens;
  for (int64_t i = 0; i <= count; i++) cuSeqlens.push_back(i);
  return cuSeqlens;
}

}  // namespace

TEST_P(ContextStore, OfARuntimeIsItsRanksContext) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session session(*GetParam(), 2);
  session.Run([&](int rank) {
    const int64_t cuSeqlens[] = {0, 3, 8};
    ulyxContext_t context = nullptr;
    MUST(ulyxRuntimeGetContext(session.Runtime(rank), cuSeqlens, 3, ulyxInt64, ulyxSplitBalanced, 4, &context));
    const ulyxContextInfo_t info = InfoOf(context);
    EXPECT_EQ(info.rank, rank);
    EXPECT_EQ(info.nRanks, 2);
    EXPECT_EQ(info.haloTokens, rank == 0 ? 0 : 1);
    MUST(ulyxContextDestroy(context));
    EXPECT_TRUE(Refused(ulyxRuntimeGetContext(nullptr, cuSeqlens, 3, ulyxInt64, 0, 4, &context), ulyxInvalidArgument,
                        {"runtime"}));
    MUST(ulyxRuntimeClose(session.Runtime(rank)));
    MUST(ulyxRuntimeGetContext(session.Runtime(rank), cuSeqlens, 3, ulyxInt64, ulyxSplitBalanced, 4, &context));
    MUST(ulyxContextDestroy(context));
  });
}

TEST_P(ContextStore, OutlivesTheRuntimeThatGaveIt) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  const int64_t cuSeqlens[] = {0, 3, 8};
  ulyxContext_t context = nullptr;
  {
    const Session session(*GetParam(), 1);
    MUST(ulyxRuntimeGetContext(session.Runtime(0), cuSeqlens, 3, ulyxInt64, ulyxSplitBalanced, 4, &context));
  }
  EXPECT_EQ(InfoOf(context).numSequences, 2);
  MUST(ulyxContextDestroy(context));
}

TEST_P(ContextStore, WritesCuSeqlensOfAnyLengthAndNothingElse) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session session(*GetParam(), 2);
  session.Run([&](int rank) {
    // Both sizes of the kernel's batch, their edges, and more than one batch.
    for (int64_t count : {0, 1, 3, 998, 1000, 1002, 14996, 14998, 15000, 31000}) {
      const ulyxContext_t context = MakeContext(SingleTokens(count), 2, rank, ulyxSplitBalanced, 0);
      const ulyxContextInfo_t info = InfoOf(context);
      const int64_t length = info.numSequences + 1;
      RowTensor stored(session, rank, "cu_seqlens", length, 1, ulyxInt32, 4, 4, {}, uint64_t(count));
      Bytes expected(size_t(4 * length));
      std::memcpy(expected.data(), info.localCuSeqlens, expected.size());
      MUST(ulyxContextStoreCuSeqlens(session.Runtime(rank), context, static_cast<int32_t*>(stored.Tensor().data),
                                     session.Stream(rank)));
      MUST(ulyxContextDestroy(context));  // read during the call only
      session.Synchronize(rank);
      stored.Expect(expected);
    }
  });
}

TEST_P(ContextStore, RefusesWhatItCannotWriteTo) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  const Session session(*GetParam(), 1);
  const ulyxContext_t context = MakeContext({0, 3, 8}, 1, 0, ulyxSplitBalanced, 0);
  int32_t host[3] = {};
  EXPECT_TRUE(Refused(ulyxContextStoreCuSeqlens(session.Runtime(0), context, nullptr, nullptr), ulyxInvalidArgument,
                      {"data is NULL"}));
  EXPECT_TRUE(Refused(ulyxContextStoreCuSeqlens(session.Runtime(0), nullptr, host, nullptr), ulyxInvalidArgument,
                      {"context is NULL"}));
  if (GetParam()->Transport() != ulyxTransportLoopback) {
    EXPECT_TRUE(Refused(ulyxContextStoreCuSeqlens(session.Runtime(0), context, host, nullptr), ulyxInvalidArgument,
                        {"host memory"}));
  }
  MUST(ulyxRuntimeClose(session.Runtime(0)));
  EXPECT_TRUE(Refused(ulyxContextStoreCuSeqlens(session.Runtime(0), context, host, nullptr), ulyxClosed, {"closed"}));
  MUST(ulyxContextDestroy(context));
}

}  // namespace ulyx_test
