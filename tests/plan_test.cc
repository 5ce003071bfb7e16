// SPDX-License-Identifier: MIT
//
// What a plan tells: every field of ulyxPlanInfo_t and every expected tensor against the oracle's arithmetic.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

#include "support/exchange_check.h"
#include "support/oracle.h"
#include "support/rng.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

class Plans : public ::testing::TestWithParam<const World*> {
 protected:
  // Plans that one thread can make by itself.
  static ulyxConfig_t Alone() {
    ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
    config.agreePlans = 0;
    config.arenaBytes = 8 << 20;
    return config;
  }
};
ULYX_ON_EVERY_WORLD(Plans);

void ExpectRange(ulyxRange_t found, Span expected) {
  EXPECT_EQ(found.start, expected.first);
  EXPECT_EQ(found.stop, expected.end);
}

// A rank without peers meets nobody.
int CarrierOf(const World& world, int nRanks) {
  return nRanks == 1 && world.Transport() != ulyxTransportLoopback ? int(ulyxTransportNccl) : world.Transport();
}

void ExpectInfo(const ulyxPlanInfo_t& info, const ulyxShape_t& shape, const Oracle& oracle, int rank) {
  const int nRanks = oracle.NRanks();
  EXPECT_EQ(info.rank, rank);
  EXPECT_EQ(info.nRanks, nRanks);
  EXPECT_EQ(info.type, shape.type);
  EXPECT_EQ(info.elementBytes, oracle.ElementBytes());
  EXPECT_EQ(info.tokens, oracle.TokenTotal());
  EXPECT_EQ(info.heads, shape.heads);
  EXPECT_EQ(info.kvHeads, shape.kvHeads == 0 ? shape.heads : shape.kvHeads);
  EXPECT_EQ(info.headDim, shape.headDim);
  EXPECT_EQ(info.valueDim, shape.valueDim == 0 ? shape.headDim : shape.valueDim);
  EXPECT_EQ(info.batch, shape.batch == 0 ? 1 : shape.batch);
  const bool last = shape.replicatedPlace == ulyxReplicatedLast;
  const int64_t seqFirst = last ? oracle.Tokens(rank).Count() : 0, headsFirst = last ? oracle.TokenTotal() : 0;
  EXPECT_EQ(info.replicatedTokens, shape.replicatedTokens);
  ExpectRange(info.seqReplicated, {seqFirst, seqFirst + shape.replicatedTokens});
  ExpectRange(info.headsReplicated, {headsFirst, headsFirst + shape.replicatedTokens});
  ExpectRange(info.tokenRange, oracle.Tokens(rank));
  ExpectRange(info.headRange, oracle.Heads(rank));
  ExpectRange(info.kvHeadRange, oracle.KvHeads(rank));
  EXPECT_EQ(info.tokenCount, oracle.Tokens(rank).Count());
  EXPECT_EQ(info.headCount, oracle.Heads(rank).Count());
  EXPECT_EQ(info.kvHeadCount, oracle.KvHeads(rank).Count());
  for (int64_t i = 0; i < info.headCount; i++) {
    const int64_t group = shape.kvHeads == 0 ? 1 : shape.heads / shape.kvHeads;
    EXPECT_EQ(oracle.KvHeads(rank).first + info.kvHeadOfHead[i], (oracle.Heads(rank).first + i) / group);
  }
  for (int peer = 0; peer < nRanks; peer++) {
    ExpectRange(info.tokenRanges[peer], oracle.Tokens(peer));
    ExpectRange(info.headRanges[peer], oracle.Heads(peer));
    ExpectRange(info.kvHeadRanges[peer], oracle.KvHeads(peer));
    EXPECT_EQ(info.tokenCounts[peer], oracle.Tokens(peer).Count());
    EXPECT_EQ(info.headCounts[peer], oracle.Heads(peer).Count());
    EXPECT_EQ(info.kvHeadCounts[peer], oracle.KvHeads(peer).Count());
    EXPECT_EQ(info.seqToHeadsSendBytes[peer], oracle.SeqToHeadsBytes(rank, peer));
    EXPECT_EQ(info.seqToHeadsRecvBytes[peer], oracle.SeqToHeadsBytes(peer, rank));
    EXPECT_EQ(info.headsToSeqSendBytes[peer], oracle.HeadsToSeqBytes(rank, peer));
    EXPECT_EQ(info.headsToSeqRecvBytes[peer], oracle.HeadsToSeqBytes(peer, rank));
  }
}

// A separate tensor has the block's extents and pitches; a packed one's heads x dim is the row.
void ExpectTensor(const ulyxTensor_t& tensor, const ulyxShape_t& shape, const Oracle& oracle, int rank, Slot slot) {
  SCOPED_TRACE(SlotName(slot));
  const bool packed = (slot == kQIn && shape.packedIn) || (slot == kQOut && shape.packedOut);
  const Layout layout = oracle.LayoutOf(rank, slot);
  const int64_t e = oracle.ElementBytes();
  EXPECT_EQ(tensor.size, sizeof tensor);
  EXPECT_EQ(tensor.magic, ULYX_TENSOR_MAGIC);
  EXPECT_EQ(tensor.data, nullptr);
  EXPECT_EQ(tensor.type, shape.type);
  EXPECT_EQ(tensor.elementBytes, e);
  EXPECT_EQ(tensor.strides[3], 1);
  EXPECT_EQ(tensor.extents[0], shape.batch == 0 ? 1 : shape.batch);
  const bool seqSide = slot <= kVIn || slot == kOOut;
  EXPECT_EQ(tensor.extents[1], (seqSide ? oracle.Tokens(rank).Count() : oracle.TokenTotal()) + shape.replicatedTokens);
  if (layout.blocks.empty()) {
    EXPECT_EQ(tensor.extents[0] * tensor.extents[1] * tensor.extents[2] * tensor.extents[3], 0);
    return;
  }
  int64_t row = 0;
  for (const Block& block : layout.blocks) row += block.heads.Count() * block.headBytes / e;
  EXPECT_EQ(tensor.extents[2] * tensor.extents[3], row);
  const Block& first = layout.blocks.front();
  EXPECT_EQ(tensor.strides[0], first.batchPitch / e);
  EXPECT_EQ(tensor.strides[1], first.tokenPitch / e);
  if (packed) return;
  EXPECT_EQ(tensor.extents[2], first.heads.Count());
  EXPECT_EQ(tensor.extents[3], first.headBytes / e);
  EXPECT_EQ(tensor.strides[2], first.headPitch / e);
}

void ExpectTensors(ulyxPlan_t plan, const ulyxShape_t& shape, const Oracle& oracle, int rank) {
  ulyxQkv_t in = ULYX_QKV_INITIALIZER, out = ULYX_QKV_INITIALIZER;
  MUST(ulyxPlanGetQkv(plan, &in, &out));
  ulyxTensor_t outputIn = ULYX_TENSOR_INITIALIZER, outputOut = ULYX_TENSOR_INITIALIZER;
  MUST(ulyxPlanGetOutput(plan, &outputIn, &outputOut));
  ExpectTensor(in.q, shape, oracle, rank, kQIn);
  ExpectTensor(out.q, shape, oracle, rank, kQOut);
  if (!shape.packedIn) {
    ExpectTensor(in.k, shape, oracle, rank, kKIn);
    ExpectTensor(in.v, shape, oracle, rank, kVIn);
  }
  if (!shape.packedOut) {
    ExpectTensor(out.k, shape, oracle, rank, kKOut);
    ExpectTensor(out.v, shape, oracle, rank, kVOut);
  }
  ExpectTensor(outputIn, shape, oracle, rank, kOIn);
  ExpectTensor(outputOut, shape, oracle, rank, kOOut);
}

}  // namespace

TEST_P(Plans, TellWhatTheirShapeComesTo) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  const ulyxConfig_t config = Alone();
  const uint64_t seed = TestSeed();
  for (int nRanks : {1, 2, 3, 5, 8}) {
    if (nRanks > GetParam()->MaxRanks()) break;
    const Session session(*GetParam(), nRanks, &config);
    for (int i = 0; i < std::max(CasesOn(*GetParam(), 120) / 6, 1); i++) {
      const uint64_t own = seed + uint64_t(i);
      const Shape shape = RandomShape(nRanks, own);
      SCOPED_TRACE(Describe(shape.c, nRanks));
      const Oracle oracle(shape.c, nRanks, own);
      std::set<uint64_t> signatures;
      for (int rank = 0; rank < nRanks; rank++) {
        ulyxPlan_t plan = nullptr;
        MUST(ulyxPlanCreate(session.Runtime(rank), &shape.c, &plan));
        ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
        MUST(ulyxPlanGetInfo(plan, &info));
        ExpectInfo(info, shape.c, oracle, rank);
        EXPECT_EQ(info.transport, CarrierOf(*GetParam(), nRanks));
        ExpectTensors(plan, shape.c, oracle, rank);
        signatures.insert(info.signature);
        MUST(ulyxPlanDestroy(plan));
      }
      EXPECT_EQ(signatures.size(), 1u);
    }
  }
}

TEST_P(Plans, ThatDifferHaveOtherSignatures) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  const ulyxConfig_t config = Alone();
  const Session session(*GetParam(), 1, &config);
  const auto signatureOf = [&](const Shape& shape) {
    ulyxPlan_t plan = nullptr;
    MUST(ulyxPlanCreate(session.Runtime(0), &shape.c, &plan));
    ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
    MUST(ulyxPlanGetInfo(plan, &info));
    MUST(ulyxPlanDestroy(plan));
    return info.signature;
  };
  const std::vector<std::function<void(ulyxShape_t*)>> changes = {
      [](ulyxShape_t*) {},
      [](ulyxShape_t* s) { s->tokens++; },
      [](ulyxShape_t* s) { s->heads = s->kvHeads = 9; },
      [](ulyxShape_t* s) { s->kvHeads = 2; },
      [](ulyxShape_t* s) { s->headDim = 7; },
      [](ulyxShape_t* s) { s->valueDim = 7; },
      [](ulyxShape_t* s) { s->batch = 2; },
      [](ulyxShape_t* s) { s->type = ulyxFloat16; },
      [](ulyxShape_t* s) { s->type = ulyxOpaque, s->elementBytes = 2; },
      [](ulyxShape_t* s) { s->type = ulyxOpaque, s->elementBytes = 3; },
      [](ulyxShape_t* s) { s->seqOrder = 1; },
      [](ulyxShape_t* s) { s->headsOrder = 1; },
      [](ulyxShape_t* s) { s->packedIn = 1; },
      [](ulyxShape_t* s) { s->packedOut = 1; },
      [](ulyxShape_t* s) { s->qIn.token = 999; },
      [](ulyxShape_t* s) { s->vIn.batch = 9999; },
      [](ulyxShape_t* s) { s->oOut.head = 10; },
  };
  std::set<uint64_t> signatures;
  for (const auto& change : changes) {
    Shape shape(8, 4, 8);
    change(&shape.c);
    signatures.insert(signatureOf(shape));
  }
  EXPECT_EQ(signatures.size(), changes.size());
}

TEST_P(Plans, ThatDealDifferentlyHaveOtherSignatures) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const ulyxConfig_t config = Alone();
  const Session session(*GetParam(), 2, &config);
  std::set<uint64_t> signatures;
  for (int tokens = 0; tokens <= 8; tokens++) {
    for (int heads = 0; heads <= 4; heads++) {
      const Shape shape = Shape(8, 4, 8).TokenCounts({tokens, 8 - tokens}).HeadCounts({heads, 4 - heads});
      ulyxPlan_t plan = nullptr;
      MUST(ulyxPlanCreate(session.Runtime(1), &shape.c, &plan));
      ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
      MUST(ulyxPlanGetInfo(plan, &info));
      signatures.insert(info.signature);
    }
  }
  EXPECT_EQ(signatures.size(), 9u * 5u);
}

TEST_P(Plans, NeedNoMoreStagingThanTheirShapeSays) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const ulyxConfig_t config = Alone();
  const Session session(*GetParam(), 2, &config);
  for (int i = 0; i < 20; i++) {
    const Shape shape = RandomShape(2, TestSeed() + uint64_t(i));
    for (int rank = 0; rank < 2; rank++) {
      ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
      MUST(ulyxShapeGetBytes(&shape.c, 2, rank, &bytes));
      ulyxPlan_t plan = nullptr;
      MUST(ulyxPlanCreate(session.Runtime(rank), &shape.c, &plan));
      ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
      MUST(ulyxPlanGetInfo(plan, &info));
      EXPECT_LE(info.arenaBytes, bytes.arena);
      if (GetParam()->Transport() == ulyxTransportLoopback) {
        EXPECT_EQ(info.arenaBytes, 0);
      }
      MUST(ulyxPlanDestroy(plan));
    }
  }
}

TEST_P(Plans, OutliveTheShapeAndTheCountsTheyWereMadeFrom) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const Session session(*GetParam(), 2);
  const Shape kept = Shape(0, 5, 8).TokenCounts({2, 5}).HeadCounts({1, 4});
  const Oracle oracle(kept.c, 2, TestSeed());
  session.Run([&](int rank) {
    ulyxPlan_t plan = nullptr;
    {
      Shape shape = kept;
      plan = MakePlan(session, shape.c, rank);
      shape.TokenCounts({-1, -1}).HeadCounts({-1, -1});
    }
    const RankTensors tensors(session, oracle, rank, Ordinary);
    Exchange(session, plan, tensors, rank);
    session.Synchronize(rank);
    tensors.ExpectWritten();
    MUST(ulyxPlanDestroy(plan));
  });
}

TEST_P(Plans, AndTheirGettersRefuseNullAndForeignStructs) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  const ulyxConfig_t config = Alone();
  const Session session(*GetParam(), 1, &config);
  const Shape shape(4, 2, 8);
  ulyxPlan_t plan = nullptr;
  EXPECT_TRUE(Refused(ulyxPlanCreate(session.Runtime(0), &shape.c, nullptr), ulyxInvalidArgument, {"plan", "NULL"}));
  EXPECT_TRUE(Refused(ulyxPlanCreate(session.Runtime(0), nullptr, &plan), ulyxInvalidArgument, {"shape", "NULL"}));
  EXPECT_TRUE(Refused(ulyxPlanCreate(nullptr, &shape.c, &plan), ulyxInvalidArgument, {"runtime", "NULL"}));
  EXPECT_EQ(plan, nullptr);
  MUST(ulyxPlanCreate(session.Runtime(0), &shape.c, &plan));
  ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
  EXPECT_TRUE(Refused(ulyxPlanGetInfo(plan, nullptr), ulyxInvalidArgument, {"info", "NULL"}));
  EXPECT_TRUE(Refused(ulyxPlanGetInfo(nullptr, &info), ulyxInvalidArgument, {"plan", "NULL"}));
  info.magic++;
  EXPECT_TRUE(Refused(ulyxPlanGetInfo(plan, &info), ulyxInvalidArgument, {"info", "magic"}));
  EXPECT_EQ(info.heads, 0);
  EXPECT_TRUE(Refused(ulyxPlanGetQkv(nullptr, nullptr, nullptr), ulyxInvalidArgument, {"plan", "NULL"}));
  EXPECT_TRUE(Refused(ulyxPlanGetOutput(nullptr, nullptr, nullptr), ulyxInvalidArgument, {"plan", "NULL"}));
  MUST(ulyxPlanGetQkv(plan, nullptr, nullptr));
  MUST(ulyxPlanGetOutput(plan, nullptr, nullptr));
  MUST(ulyxPlanDestroy(plan));
  MUST(ulyxPlanDestroy(nullptr));
}

}  // namespace ulyx_test
