// SPDX-License-Identifier: MIT
//
// Corners that were once wrong: waits that end too early, offsets of nothing, structs that lie about their size,
// outputs that share a start.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "support/contexts.h"
#include "support/ranks.h"
#include "support/status.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

using Clock = std::chrono::steady_clock;

ulyxShape_t ShapeOf(int64_t tokens, int64_t heads, int64_t headDim) {
  ulyxShape_t shape = ULYX_SHAPE_INITIALIZER;
  shape.tokens = tokens;
  shape.heads = heads;
  shape.headDim = headDim;
  shape.type = ulyxInt8;
  return shape;
}

class Ranks {
 public:
  explicit Ranks(int nRanks, int timeoutMs = 10000, bool agreePlans = true) : runtimes(nRanks) {
    ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
    config.agreePlans = agreePlans ? 1 : 0;
    config.timeoutMs = timeoutMs;
    config.transport = ulyxTransportLoopback;
    MUST(ulyxRuntimeCreateLocal(&config, nRanks, nullptr, runtimes.data()));
  }
  ~Ranks() {
    for (ulyxRuntime_t& rt : runtimes) EXPECT_EQ(ulyxRuntimeDestroy(&rt), ulyxSuccess);
  }
  std::vector<ulyxRuntime_t> runtimes;
};

int64_t Elements(const ulyxTensor_t& tensor) {
  return tensor.extents[0] * tensor.extents[1] * tensor.extents[2] * tensor.extents[3];
}

}  // namespace

// Rank 0 has no heads and is done at once; rank 1 copies millions of single bytes out of rank 0's memory, for longer
// than the deadline.
TEST(Edges, ARankThatIsStillCopyingIsWaitedForPastTheDeadline) {
  const Ranks ranks(2, 60, false);
  std::atomic<int> ready{0};
  const int64_t tokenCounts[] = {1 << 19, 1 << 19}, headCounts[] = {0, 8};
  ulyxShape_t shape = ShapeOf(0, 8, 1);
  shape.tokenCounts = tokenCounts;
  shape.headCounts = headCounts;
  shape.qOut.head = shape.kOut.head = shape.vOut.head = 2;
  RunRanks(2, [&](int rank) {
    ulyxPlan_t plan = nullptr;
    ulyxQkv_t in, out;
    MUST(ulyxPlanCreate(ranks.runtimes[rank], &shape, &plan));
    MUST(ulyxPlanGetQkv(plan, &in, &out));
    std::vector<std::vector<unsigned char>> memory;
    for (ulyxTensor_t* tensor : {&in.q, &in.k, &in.v, &out.q, &out.k, &out.v}) {
      memory.emplace_back(static_cast<size_t>(2 * Elements(*tensor)), static_cast<unsigned char>(rank + 1));
      tensor->data = memory.back().data();
    }
    if (rank == 1) memory[3].assign(memory[3].size(), 9);
    ready++;
    while (ready < 2) std::this_thread::yield();
    MUST(ulyxSeqToHeads(plan, &in, &out, nullptr));
    if (rank == 1) {
      EXPECT_EQ(memory[3].front(), 1);
      EXPECT_EQ(memory[3][1], 9);
      EXPECT_EQ(memory[3][memory[3].size() - 2], 2);
    }
  });
}

TEST(Edges, AnEmptyRanksOffsetIsNeverComputed) {
  const int64_t tokenCounts[] = {1, 0};
  ulyxShape_t shape = ShapeOf(0, 2, 4);
  shape.tokenCounts = tokenCounts;
  shape.packedOut = 1;
  shape.qOut.token = INT64_MAX;
  int64_t traffic[4] = {0};
  EXPECT_EQ(ulyxShapeGetTraffic(&shape, 2, ulyxOpSeqToHeads, traffic), ulyxSuccess) << ulyxGetLastError(nullptr);
  EXPECT_EQ(traffic[0] + traffic[1], 3 * 2 * 4);
  EXPECT_EQ(traffic[2] + traffic[3], 0);
}

TEST(Edges, ManySmallCopiesMakeAPlanInTimeThatGrowsWithTheirNumber) {
  ulyxShape_t shape = ShapeOf(100, 100, 1);
  shape.batch = 100;
  for (ulyxStrides_t* strides : {&shape.qIn, &shape.kIn, &shape.vIn, &shape.oIn, &shape.oOut}) strides->head = 2;
  shape.qOut.token = 1000;
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(ulyxShapeGetBytes(&shape, 2, 0, &bytes), ulyxSuccess) << ulyxGetLastError(nullptr);
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - start).count(), 1.0);
}

TEST(Edges, AStructThatClaimsAnImpossibleSizeIsNotReadToItsEnd) {
  ulyxShape_t shape = ShapeOf(4, 2, 4);
  int64_t traffic[1];
  shape.size = SIZE_MAX;
  EXPECT_TRUE(Refused(ulyxShapeGetTraffic(&shape, 1, ulyxOpSeqToHeads, traffic), ulyxInvalidArgument,
                      {"shape", "size", "4096"}));
}

TEST(Edges, OutputsWithGapsMayInterleaveButNotStartTogether) {
  Ranks ranks(1);
  ulyxShape_t shape = ShapeOf(3, 2, 4);
  for (ulyxStrides_t* strides : {&shape.qOut, &shape.kOut, &shape.vOut}) strides->token = 24;
  ulyxPlan_t plan = nullptr;
  ulyxQkv_t in, out;
  MUST(ulyxPlanCreate(ranks.runtimes[0], &shape, &plan));
  MUST(ulyxPlanGetQkv(plan, &in, &out));
  std::vector<unsigned char> source(3 * 8, 7), fused(3 * 24, 0);
  in.q.data = in.k.data = in.v.data = source.data();
  out.q.data = out.k.data = out.v.data = fused.data();
  EXPECT_TRUE(Refused(ulyxSeqToHeads(plan, &in, &out, nullptr), ulyxInvalidArgument, {"out.q", "out.k", "overlap"}));
  EXPECT_EQ(fused, std::vector<unsigned char>(3 * 24, 0));
  out.k.data = fused.data() + 8;
  out.v.data = fused.data() + 16;
  MUST(ulyxSeqToHeads(plan, &in, &out, nullptr));
  EXPECT_EQ(fused, std::vector<unsigned char>(3 * 24, 7));
}

TEST(Edges, ARankThatGivesNowhereToPutThePlanStillTakesPart) {
  Ranks ranks(3);
  const ulyxShape_t shape = ShapeOf(9, 3, 4);
  const Clock::time_point start = Clock::now();
  RunRanks(3, [&](int rank) {
    ulyxPlan_t plan = nullptr;
    if (rank == 1) {
      EXPECT_TRUE(
          Refused(ulyxPlanCreate(ranks.runtimes[rank], &shape, nullptr), ulyxInvalidArgument, {"plan is NULL"}));
    } else {
      EXPECT_TRUE(Refused(ulyxPlanCreate(ranks.runtimes[rank], &shape, &plan), ulyxMismatch, {"rank 1"}));
    }
    MUST(ulyxPlanCreate(ranks.runtimes[rank], &shape, &plan));
  });
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - start).count(), 5.0);
}

// Without agreement nobody compares counts beforehand; a rank still never reads past what a peer has.
TEST(Edges, UnequalCountsOfAnAllToAllWithoutAgreementAreRefusedByTheRankThatExpectsOthers) {
  Ranks ranks(2, 10000, false);
  RunRanks(2, [&](int rank) {
    const int64_t send[2][2] = {{1, 1}, {1, 1}}, expect[2][2] = {{1, 1}, {1000, 1}};
    ulyxRowsShape_t shape = ULYX_ROWS_SHAPE_INITIALIZER;
    shape.op = ulyxRowsAllToAll;
    shape.type = ulyxInt8;
    shape.rowElements = 8;
    shape.sendCounts = send[rank];
    shape.recvCounts = expect[rank];
    ulyxPlan_t plan = nullptr;
    ulyxTensor_t in, out;
    MUST(ulyxRowsPlanCreate(ranks.runtimes[rank], &shape, &plan));
    MUST(ulyxPlanGetRows(plan, &in, &out));
    std::vector<unsigned char> from(static_cast<size_t>(Elements(in)), 7), to(static_cast<size_t>(Elements(out)), 0);
    in.data = from.data();
    out.data = to.data();
    const ulyxResult_t result = ulyxAllToAllRows(plan, &in, &out, nullptr);
    if (rank == 0) {
      EXPECT_EQ(result, ulyxSuccess) << ulyxGetLastError(nullptr);
    } else {
      EXPECT_TRUE(Refused(result, ulyxMismatch, {"rank 0 sends 8 bytes to rank 1", "expects 8000"}));
      EXPECT_EQ(to, std::vector<unsigned char>(to.size(), 0));
    }
  });
}

TEST(Edges, MoreAddendsThanASumTakesAreRefusedAndNothingLeaks) {
  ulyxRowsShape_t shape = ULYX_ROWS_SHAPE_INITIALIZER;
  shape.op = ulyxRowsReduceScatter;
  shape.rowElements = 8;
  shape.total = 1000;
  int64_t bytes = -1;
  EXPECT_TRUE(Refused(ulyxRowsShapeGetArenaBytes(&shape, 513, 0, &bytes), ulyxUnsupported, {"513", "512"}));
  EXPECT_TRUE(Refused(ulyxRowsShapeGetArenaBytes(&shape, INT32_MIN, 0, &bytes), ulyxInvalidArgument, {"nRanks"}));
  EXPECT_EQ(bytes, -1);
  EXPECT_EQ(ulyxRowsShapeGetArenaBytes(&shape, 8, 0, &bytes), ulyxSuccess);
  // 125 rows of 16 bytes to and from each of 7 peers; what arrives is not staged again.
  EXPECT_EQ(bytes, 7 * 2048 + 7 * 125 * 16);
}

TEST(Edges, StagingOfHalosAndStatesIsKnownBeforeARuntimeExists) {
  const std::vector<int64_t> cuSeqlens = {0, 100};
  ulyxHaloShape_t halo = ULYX_HALO_SHAPE_INITIALIZER;
  ulyxStateShape_t state = ULYX_STATE_SHAPE_INITIALIZER;
  halo.rowElements = 512;
  state.heads = 2;
  state.keyDim = state.valueDim = 8;
  int64_t bytes = -1;
  EXPECT_TRUE(Refused(ulyxHaloShapeGetArenaBytes(&halo, &bytes), ulyxInvalidArgument, {"context", "NULL"}));
  EXPECT_TRUE(Refused(ulyxStateShapeGetArenaBytes(&state, &bytes), ulyxInvalidArgument, {"context", "NULL"}));
  for (int rank = 0; rank < 3; rank++) {
    ulyxContext_t context = MakeContext(cuSeqlens, 3, rank, ulyxSplitBalanced, 4);
    halo.context = state.context = context;
    EXPECT_TRUE(Refused(ulyxHaloShapeGetArenaBytes(&halo, nullptr), ulyxInvalidArgument, {"bytes", "NULL"}));
    EXPECT_TRUE(Refused(ulyxStateShapeGetArenaBytes(&state, nullptr), ulyxInvalidArgument, {"bytes", "NULL"}));
    EXPECT_EQ(bytes, -1);
    MUST(ulyxHaloShapeGetArenaBytes(&halo, &bytes));
    EXPECT_GE(bytes, 3 * 512 * 2);  // three rows of bf16, coming or going
    MUST(ulyxStateShapeGetArenaBytes(&state, &bytes));
    EXPECT_GE(bytes, 2 * 8 * (8 + 8) * 4);  // a state and its transition, coming or going
    bytes = -1;
    state.hasInitial = 2;
    EXPECT_TRUE(Refused(ulyxStateShapeGetArenaBytes(&state, &bytes), ulyxInvalidArgument, {"hasInitial", "2"}));
    EXPECT_EQ(bytes, -1);
    state.hasInitial = 0;
    MUST(ulyxContextDestroy(context));
  }
}

TEST(Edges, WhatIsNoHandleIsRefusedByWhatItShouldBe) {
  alignas(64) static unsigned char nothing[8192] = {};
  ulyxContextCache_t cache = reinterpret_cast<ulyxContextCache_t>(nothing);
  EXPECT_TRUE(Refused(ulyxRuntimeClose(reinterpret_cast<ulyxRuntime_t>(nothing)), ulyxInvalidArgument, {"no runtime"}));
  EXPECT_TRUE(Refused(ulyxPlanDestroy(reinterpret_cast<ulyxPlan_t>(nothing)), ulyxInvalidArgument, {"no plan"}));
  EXPECT_TRUE(
      Refused(ulyxContextDestroy(reinterpret_cast<ulyxContext_t>(nothing)), ulyxInvalidArgument, {"no context:"}));
  EXPECT_TRUE(Refused(ulyxContextCacheDestroy(cache), ulyxInvalidArgument, {"no context cache"}));
  EXPECT_TRUE(
      Refused(ulyxSequencesDestroy(reinterpret_cast<ulyxSequences_t>(nothing)), ulyxInvalidArgument, {"no sequences"}));
}

// Infinity times zero is a NaN whose sign and payload differ between processors; the bits of a merge must not.
TEST(Edges, ANaNThatAChainComputesHasTheSameBitsEverywhere) {
  Ranks ranks(1);
  const int32_t cuSeqlens[] = {0, 4};
  ulyxContext_t context = nullptr;
  MUST(ulyxRuntimeGetContext(ranks.runtimes[0], cuSeqlens, 2, ulyxInt32, ulyxSplitBalanced, 0, &context));
  ulyxStateShape_t shape = ULYX_STATE_SHAPE_INITIALIZER;
  shape.context = context;
  shape.heads = shape.keyDim = shape.valueDim = 1;
  shape.wantsFinal = 1;
  ulyxPlan_t plan = nullptr;
  ulyxStates_t states;
  MUST(ulyxStatePlanCreate(ranks.runtimes[0], &shape, &plan));
  MUST(ulyxPlanGetStates(plan, &states));
  float state = 1, transition = HUGE_VALF, received = 5, final = 5;
  states.state.data = &state;
  states.transition.data = &transition;
  states.received.data = &received;
  states.final.data = &final;
  MUST(ulyxStateChain(plan, &states, nullptr));
  uint32_t bits = 0;
  std::memcpy(&bits, &final, sizeof bits);
  EXPECT_EQ(bits, 0x7fffffffu);
  EXPECT_EQ(received, 0);
  MUST(ulyxContextDestroy(context));
}

}  // namespace ulyx_test
