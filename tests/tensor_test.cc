// SPDX-License-Identifier: MIT
//
// Tensors that are not what the plan expects: refused with both numbers before anything moves, on every world.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "support/exchange_check.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

// What a rank passes to both exchanges.
struct Arguments {
  ulyxQkv_t in, out;
  ulyxTensor_t outputIn, outputOut;
};

class Tensors : public ::testing::TestWithParam<const World*> {
 protected:
  // Calls body(rank, plan, tensors, arguments) with everything right, each rank on its thread.
  using Body = std::function<void(int rank, ulyxPlan_t plan, const RankTensors& tensors, Arguments arguments)>;
  void With(const Shape& shape, int nRanks, const Body& body) {
    const Session session(*GetParam(), nRanks);
    const Oracle oracle(shape.c, nRanks, TestSeed());
    session.Run([&](int rank) {
      const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
      {
        const RankTensors tensors(session, oracle, rank, Ordinary);
        body(rank, plan, tensors,
             {tensors.In(plan), tensors.Out(plan), tensors.OutputIn(plan), tensors.OutputOut(plan)});
        session.Synchronize(rank);
      }
      MUST(ulyxPlanDestroy(plan));
    });
    // Nothing sticks.
    CheckExchanges(session, shape.c, TestSeed());
  }
};
ULYX_ON_EVERY_WORLD(Tensors);

struct Wrong {
  std::function<void(ulyxTensor_t*)> spoil;
  ulyxResult_t code;
  std::vector<std::string> words;
};

const std::vector<Wrong>& EveryWrong() {
  static const std::vector<Wrong> all = {
      {[](ulyxTensor_t* t) { t->extents[0]++; }, ulyxMismatch, {"batch"}},
      {[](ulyxTensor_t* t) { t->extents[1] = 4711; }, ulyxMismatch, {"tokens", "4711"}},
      {[](ulyxTensor_t* t) { t->extents[2] = 4712; }, ulyxMismatch, {"heads", "4712"}},
      {[](ulyxTensor_t* t) { t->extents[3] = 4713; }, ulyxMismatch, {"dim", "4713"}},
      {[](ulyxTensor_t* t) { t->extents[1] = -1; }, ulyxMismatch, {"tokens", "-1"}},
      {[](ulyxTensor_t* t) { t->strides[0] = 4714; }, ulyxMismatch, {"batch", "4714"}},
      {[](ulyxTensor_t* t) { t->strides[1] = 4715; }, ulyxMismatch, {"tokens", "4715"}},
      {[](ulyxTensor_t* t) { t->strides[2] = 4716; }, ulyxMismatch, {"heads", "4716"}},
      {[](ulyxTensor_t* t) { t->strides[3] = 2; }, ulyxMismatch, {"dim", "2"}},
      {[](ulyxTensor_t* t) { t->type = ulyxFloat16; }, ulyxMismatch, {"type", "6", "9"}},
      {[](ulyxTensor_t* t) { t->elementBytes = 4; }, ulyxMismatch, {"4", "2"}},
      {[](ulyxTensor_t* t) { t->data = nullptr; }, ulyxInvalidArgument, {"data", "NULL"}},
      {[](ulyxTensor_t* t) { t->magic = 1; }, ulyxInvalidArgument, {"magic"}},
      {[](ulyxTensor_t* t) { t->version = 0; }, ulyxInvalidArgument, {"version"}},
      {[](ulyxTensor_t* t) { t->size = 8; }, ulyxInvalidArgument, {"size", "8"}},
  };
  return all;
}

Shape Right() {
  Shape shape = Shape(12, 8, 16).KvHeads(4);
  shape.c.batch = 2;
  return shape;
}

}  // namespace

TEST_P(Tensors, ThatDifferFromThePlanAreRefusedByNameWithBothNumbers) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  With(Right(), 2, [](int, ulyxPlan_t plan, const RankTensors& tensors, const Arguments& right) {
    struct Argument {
      const char* name;
      std::function<ulyxTensor_t*(Arguments*)> tensor;
      bool output;
    };
    const Argument all[] = {{"in.q", [](Arguments* a) { return &a->in.q; }, false},
                            {"in.k", [](Arguments* a) { return &a->in.k; }, false},
                            {"in.v", [](Arguments* a) { return &a->in.v; }, false},
                            {"out.q", [](Arguments* a) { return &a->out.q; }, false},
                            {"out.k", [](Arguments* a) { return &a->out.k; }, false},
                            {"out.v", [](Arguments* a) { return &a->out.v; }, false},
                            {"in", [](Arguments* a) { return &a->outputIn; }, true},
                            {"out", [](Arguments* a) { return &a->outputOut; }, true}};
    for (const Argument& one : all) {
      for (const Wrong& wrong : EveryWrong()) {
        Arguments arguments = right;
        wrong.spoil(one.tensor(&arguments));
        const ulyxResult_t result = one.output
                                        ? ulyxHeadsToSeq(plan, &arguments.outputIn, &arguments.outputOut, nullptr)
                                        : ulyxSeqToHeads(plan, &arguments.in, &arguments.out, nullptr);
        EXPECT_TRUE(Refused(result, wrong.code, {one.name}));
        for (const std::string& word : wrong.words) EXPECT_TRUE(Refused(result, wrong.code, {word})) << one.name;
      }
    }
    tensors.ExpectUntouched();
  });
}

TEST_P(Tensors, MayLeaveTheirStridesToThePlan) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  Shape shape = Right();
  shape.c.qOut.token = 300;
  const Session session(*GetParam(), 2);
  const Oracle oracle(shape.c, 2, TestSeed());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
    ulyxTensor_t outputIn = tensors.OutputIn(plan), outputOut = tensors.OutputOut(plan);
    for (ulyxTensor_t* tensor : {&in.q, &in.k, &in.v, &out.q, &out.k, &out.v, &outputIn, &outputOut}) {
      for (int64_t& stride : tensor->strides) stride = 0;
      tensor->elementBytes = 0;
    }
    MUST(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)));
    MUST(ulyxHeadsToSeq(plan, &outputIn, &outputOut, session.Stream(rank)));
    session.Synchronize(rank);
    tensors.ExpectWritten();
    MUST(ulyxPlanDestroy(plan));
  });
}

TEST_P(Tensors, OfAPackedSideAreLookedAtUnderQOnly) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  Shape shape = Right();
  shape.c.packedIn = shape.c.packedOut = 1;
  const Session session(*GetParam(), 2);
  const Oracle oracle(shape.c, 2, TestSeed());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
    for (ulyxTensor_t* tensor : {&in.k, &in.v, &out.k, &out.v}) *tensor = ulyxTensor_t{};
    MUST(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)));
    const ulyxTensor_t outputIn = tensors.OutputIn(plan), outputOut = tensors.OutputOut(plan);
    MUST(ulyxHeadsToSeq(plan, &outputIn, &outputOut, session.Stream(rank)));
    session.Synchronize(rank);
    tensors.ExpectWritten();
    in.q.extents[1]++;
    EXPECT_TRUE(Refused(ulyxSeqToHeads(plan, &in, &out, nullptr), ulyxMismatch, {"in.q", "tokens"}));
    MUST(ulyxPlanDestroy(plan));
  });
}

TEST_P(Tensors, MissingAltogetherAreRefused) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  With(Right(), 2, [](int, ulyxPlan_t plan, const RankTensors& tensors, const Arguments& right) {
    EXPECT_TRUE(Refused(ulyxSeqToHeads(plan, nullptr, &right.out, nullptr), ulyxInvalidArgument, {"in", "NULL"}));
    EXPECT_TRUE(Refused(ulyxSeqToHeads(plan, &right.in, nullptr, nullptr), ulyxInvalidArgument, {"out", "NULL"}));
    EXPECT_TRUE(Refused(ulyxHeadsToSeq(plan, nullptr, &right.outputOut, nullptr), ulyxInvalidArgument, {"in", "NULL"}));
    EXPECT_TRUE(Refused(ulyxHeadsToSeq(plan, &right.outputIn, nullptr, nullptr), ulyxInvalidArgument, {"out", "NULL"}));
    EXPECT_TRUE(Refused(ulyxSeqToHeads(nullptr, &right.in, &right.out, nullptr), ulyxInvalidArgument, {"plan"}));
    EXPECT_TRUE(
        Refused(ulyxHeadsToSeq(nullptr, &right.outputIn, &right.outputOut, nullptr), ulyxInvalidArgument, {"plan"}));
    tensors.ExpectUntouched();
  });
}

TEST_P(Tensors, ThatOverlapBetweenInAndOutAreRefusedByName) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  With(Right(), 2, [](int, ulyxPlan_t plan, const RankTensors& tensors, const Arguments& right) {
    const auto shifted = [](const ulyxTensor_t& tensor, int64_t bytes) {
      return static_cast<void*>(static_cast<uint8_t*>(tensor.data) + bytes);
    };
    Arguments arguments = right;
    arguments.out.k.data = right.in.v.data;
    EXPECT_TRUE(Refused(ulyxSeqToHeads(plan, &arguments.in, &arguments.out, nullptr), ulyxInvalidArgument,
                        {"in.v", "out.k", "overlap"}));
    // By its last byte only: in.q is 2 x 6 x 8 x 16 x 2 bytes.
    arguments = right;
    arguments.out.q.data = shifted(right.in.q, 2 * 6 * 8 * 16 * 2 - 1);
    EXPECT_TRUE(Refused(ulyxSeqToHeads(plan, &arguments.in, &arguments.out, nullptr), ulyxInvalidArgument,
                        {"in.q", "out.q", "overlap"}));
    // And by its first: out.q is 2 x 12 x 4 x 16 x 2 bytes.
    arguments = right;
    arguments.in.q.data = shifted(right.out.q, 2 * 12 * 4 * 16 * 2 - 1);
    EXPECT_TRUE(Refused(ulyxSeqToHeads(plan, &arguments.in, &arguments.out, nullptr), ulyxInvalidArgument,
                        {"in.q", "out.q", "overlap"}));
    arguments = right;
    arguments.outputOut.data = right.outputIn.data;
    EXPECT_TRUE(Refused(ulyxHeadsToSeq(plan, &arguments.outputIn, &arguments.outputOut, nullptr), ulyxInvalidArgument,
                        {"in", "out", "overlap"}));
    arguments = right;
    arguments.out.v.data = right.out.q.data;
    EXPECT_TRUE(Refused(ulyxSeqToHeads(plan, &arguments.in, &arguments.out, nullptr), ulyxInvalidArgument,
                        {"out.q", "out.v", "overlap"}));
    tensors.ExpectUntouched();
  });
}

TEST_P(Tensors, ThatTouchWithoutOverlappingAreFine) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  // One allocation: in right before out, byte to byte.
  const Shape shape(10, 2, 3);
  const Session session(*GetParam(), 2);
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    ulyxTensor_t in = ULYX_TENSOR_INITIALIZER, out = ULYX_TENSOR_INITIALIZER;
    MUST(ulyxPlanGetOutput(plan, &in, &out));
    constexpr int64_t kBytes = 10 * 3 * 2;  // of either side: half the heads of all tokens, all of half
    const World& world = session.GetWorld();
    auto* const memory = static_cast<uint8_t*>(world.Alloc(rank, 2 * kBytes));
    const std::vector<uint8_t> content(2 * kBytes, uint8_t(rank + 1));
    world.Upload(rank, memory, content.data(), content.size());
    in.data = memory;
    out.data = memory + kBytes;
    MUST(ulyxHeadsToSeq(plan, &in, &out, session.Stream(rank)));
    session.Synchronize(rank);
    std::vector<uint8_t> found(content.size());
    world.Download(rank, found.data(), memory, found.size());
    for (int64_t i = 0; i < kBytes; i++) EXPECT_EQ(found[kBytes + i], i % 12 < 6 ? 1 : 2) << i;
    world.Free(rank, memory);
    MUST(ulyxPlanDestroy(plan));
  });
}

TEST_P(Tensors, OfOneRankThatPartlyOverlapOrChangeLayoutInPlaceAreRefused) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  Shape turned = Right();
  turned.c.headsOrder = ulyxSeqFirst;
  With(turned, 1, [](int, ulyxPlan_t plan, const RankTensors& tensors, const Arguments& right) {
    Arguments arguments = right;
    arguments.out.q.data = right.in.q.data;
    EXPECT_TRUE(Refused(ulyxSeqToHeads(plan, &arguments.in, &arguments.out, nullptr), ulyxInvalidArgument,
                        {"in.q", "out.q", "overlap"}));
    tensors.ExpectUntouched();
  });
  Shape padded = Right();
  padded.c.qIn.token = padded.c.kIn.token = padded.c.vIn.token = 8 * 16 + 2;
  With(padded, 1, [](int, ulyxPlan_t plan, const RankTensors& tensors, const Arguments& right) {
    Arguments arguments = right;
    arguments.out.q.data = right.in.q.data;
    arguments.out.k.data = right.in.k.data;
    arguments.out.v.data = right.in.v.data;
    EXPECT_TRUE(
        Refused(ulyxSeqToHeads(plan, &arguments.in, &arguments.out, nullptr), ulyxInvalidArgument, {"overlap"}));
    tensors.ExpectUntouched();
  });
  With(Right(), 1, [](int, ulyxPlan_t plan, const RankTensors& tensors, const Arguments& right) {
    Arguments arguments = right;
    arguments.outputOut.data = static_cast<uint8_t*>(right.outputIn.data) + 2;
    EXPECT_TRUE(Refused(ulyxHeadsToSeq(plan, &arguments.outputIn, &arguments.outputOut, nullptr), ulyxInvalidArgument,
                        {"overlap"}));
    tensors.ExpectUntouched();
  });
}

}  // namespace ulyx_test
