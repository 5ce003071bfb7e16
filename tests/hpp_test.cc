// SPDX-License-Identifier: MIT
//
// ulyx.hpp: who holds what and when it goes, what is thrown, and exchanges through it. The address sanitizer sees
// what is used too late and what is lost.
#include "ulyx.hpp"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "hpp_without_exceptions.h"
#include "support/ranks.h"
#include "ulyx_plugin.h"

namespace ulyx_test {

// A handle that tells when it goes.
struct Fake {
  std::string* log;
  char name;
  bool refuses = false;
};

static ulyxResult_t destroy(Fake*& fake) noexcept {
  if (fake == nullptr) return ulyxSuccess;
  if (fake->refuses) return ulyxInvalidUsage;
  fake->log->push_back(fake->name);
  fake = nullptr;
  return ulyxSuccess;
}

namespace {

class FakeOwner : public ulyx::detail::Owner<Fake*> {
 public:
  using Owner::Owner;
};

template <class Owner>
constexpr bool kIsOnePointer = sizeof(Owner) == sizeof(void*) &&
                               std::is_nothrow_move_constructible_v<Owner>&& std::is_nothrow_move_assignable_v<Owner> &&
                               !std::is_copy_constructible_v<Owner> && !std::is_copy_assignable_v<Owner>;
static_assert(kIsOnePointer<ulyx::Runtime> && kIsOnePointer<ulyx::Plan> && kIsOnePointer<ulyx::RowsPlan> &&
              kIsOnePointer<ulyx::HaloPlan> && kIsOnePointer<ulyx::StatePlan> && kIsOnePointer<ulyx::Sequences> &&
              kIsOnePointer<ulyx::Context> && kIsOnePointer<ulyx::ContextCache>);
static_assert(!std::is_copy_constructible_v<ulyx::Memory<float>> &&
              std::is_nothrow_move_constructible_v<ulyx::Memory<float>>);
// Who holds what is never mistaken: no handle becomes an owner, and no kind of plan another, by itself.
static_assert(!std::is_convertible_v<ulyxPlan_t, ulyx::Plan> && !std::is_convertible_v<ulyx::RowsPlan, ulyx::Plan>);

ulyx::Shape SmallShape() {
  ulyx::Shape shape;
  shape.tokens = 5;
  shape.heads = 3;
  shape.headDim = 2;
  shape.type = ulyx::dataType<float>;
  return shape;
}

TEST(Hpp, OwnersGiveBackOnceAndInReverseOrder) {
  std::string log;
  Fake a{&log, 'a'}, b{&log, 'b'}, c{&log, 'c'};
  {
    FakeOwner first(&a), second(&b);
    FakeOwner third(std::move(first));
    EXPECT_FALSE(first);
    EXPECT_EQ(third.get(), &a);
    EXPECT_EQ(log, "");
  }
  EXPECT_EQ(log, "ab");
  log.clear();
  {
    FakeOwner owner(&a);
    EXPECT_EQ(owner.release(), &a);
  }
  EXPECT_EQ(log, "");
  {
    FakeOwner owner(&a);
    *owner.put() = &b;  // a goes first
    EXPECT_EQ(log, "a");
    FakeOwner& self = owner;
    owner = std::move(self);
    EXPECT_EQ(owner.get(), &b);
    EXPECT_EQ(owner.reset(), ulyxSuccess);
    EXPECT_EQ(owner.reset(), ulyxSuccess);
    EXPECT_EQ(log, "ab");
  }
  log.clear();
  c.refuses = true;
  FakeOwner owner(&c);
  EXPECT_EQ(owner.reset(), ulyxInvalidUsage);
  EXPECT_EQ(owner.get(), &c);
  c.refuses = false;
  EXPECT_EQ(owner.reset(), ulyxSuccess);
  EXPECT_EQ(log, "c");
}

TEST(Hpp, AssigningAStructOfOwnersDestroysTheOldOnesLastMemberFirst) {
  struct Pair {
    FakeOwner runtime, plan;
  };
  std::string log;
  Fake r{&log, 'r'}, p{&log, 'p'}, newR{&log, 'R'}, newP{&log, 'P'};
  Pair pair{FakeOwner(&r), FakeOwner(&p)};
  pair = Pair{FakeOwner(&newR), FakeOwner(&newP)};
  EXPECT_EQ(log, "pr");
  pair = Pair{};
  EXPECT_EQ(log, "prPR");
}

TEST(Hpp, UnwindingGivesBack) {
  std::string log;
  Fake a{&log, 'a'}, b{&log, 'b'};
  try {
    const FakeOwner first(&a), second(&b);
    ulyx::check(ulyxBalancedRanges(1, 2, nullptr));
    FAIL() << "nothing was thrown";
  } catch (const ulyx::Error&) {
    EXPECT_EQ(log, "ba");
  }
}

TEST(Hpp, ErrorsCarryCodeAndMessage) {
  try {
    (void)ulyx::Runtime::local(0);
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "invalid argument: nRanks is 0, expected 1 to 64");
    EXPECT_EQ(dynamic_cast<const ulyx::Error&>(error).code(), ulyxInvalidArgument);
  }
  EXPECT_THROW((void)ulyx::Runtime::local(-1), ulyx::Error);
  EXPECT_THROW((void)ulyx::Runtime::onDevices({}), ulyx::Error);
  EXPECT_THROW((void)ulyx::Sequences::create({1, 2}), ulyx::Error);
  EXPECT_THROW((void)ulyx::shapeBytes(ulyx::Shape(), 2, 0), ulyx::Error);
}

TEST(Hpp, AThrowLeavesTheWorldUsable) {
  std::vector<ulyx::Runtime> rts = ulyx::Runtime::local(2);
  RunRanks(2, [&](int rank) {
    const ulyx::Runtime rt = std::move(rts[size_t(rank)]);
    const ulyx::Memory<float> memory = rt.alloc<float>(6);
    EXPECT_THROW((void)rt.alloc<double>(INT64_MAX / 4), ulyx::Error);
    EXPECT_EQ(rt.asyncError(), ulyxSuccess);
    ulyx::Shape shape = SmallShape();
    shape.heads = 20 + 4 * rank;
    try {
      (void)rt.plan(shape);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const ulyx::Error& error) {
      EXPECT_EQ(error.code(), ulyxMismatch);
      EXPECT_STREQ(error.what(), "mismatch: shape.heads is 20 on rank 0 and 24 on rank 1");
      EXPECT_STREQ(rt.lastError(), "shape.heads is 20 on rank 0 and 24 on rank 1");
    }
    EXPECT_EQ(rt.plan(SmallShape()).info().heads, 3);
    rt.close();
    EXPECT_THROW((void)rt.plan(SmallShape()), ulyx::Error);
  });
}

// A rank as a model runner holds it. Members are declared in the order in which they are made.
struct Layers {
  ulyx::Runtime rt;
  ulyx::Plan plan;
  ulyx::Memory<float> memory;
};

Layers MakeLayers(ulyx::Runtime rt, int64_t tokens) {
  ulyx::Shape shape = SmallShape();
  shape.tokens = tokens;
  ulyx::Plan plan = rt.plan(shape);
  ulyx::Memory<float> memory = rt.alloc<float>(ulyx::span(plan.qkv().out.q));
  return {std::move(rt), std::move(plan), std::move(memory)};
}

TEST(Hpp, StructsOfOwnersMoveAndAreAssigned) {
  std::vector<ulyx::Runtime> rts = ulyx::Runtime::local(1);
  Layers layers = MakeLayers(std::move(rts[0]), 5);
  EXPECT_EQ(layers.memory.size(), 5 * 3 * 2);
  rts = ulyx::Runtime::local(1);
  layers = MakeLayers(std::move(rts[0]), 7);  // the first runtime goes after its plan and memory
  EXPECT_EQ(layers.plan.info().tokens, 7);
  std::vector<Layers> many;
  many.push_back(std::move(layers));
  rts = ulyx::Runtime::local(1);
  many.push_back(MakeLayers(std::move(rts[0]), 9));
  EXPECT_EQ(many[0].plan.info().tokens, 7);
  EXPECT_EQ(many[1].memory.size(), 9 * 3 * 2);
  EXPECT_EQ(many[1].memory.reset(), ulyxSuccess);
  EXPECT_EQ(many[1].plan.reset(), ulyxSuccess);
  EXPECT_EQ(many[1].rt.reset(), ulyxSuccess);
}

TEST(Hpp, TensorsAreViews) {
  float values[24];
  for (int i = 0; i < 24; i++) values[i] = float(i);
  const ulyx::Tensor<float> dense(values, {1, 3, 4, 2});
  EXPECT_EQ(dense(0, 2, 1, 1), 2 * 8 + 1 * 2 + 1);
  EXPECT_EQ(dense.elements(), 24);
  EXPECT_EQ(ulyx::span(dense), 24);
  const ulyx::Tensor<const float> everyOther(values, {1, 3, 2, 2}, {24, 8, 4, 1});
  EXPECT_EQ(everyOther(0, 1, 1, 0), 12);
  EXPECT_EQ(ulyx::span(everyOther), 2 * 8 + 4 + 2);
  EXPECT_EQ(ulyx::span(ulyx::Tensor<float>(nullptr, {1, 0, 4, 2})), 0);
  const ulyxTensor_t tensor = ulyx::Tensor<const float>(dense);
  EXPECT_EQ(tensor.data, values);
  EXPECT_EQ(tensor.type, ulyxFloat32);
  EXPECT_EQ(tensor.strides[1], 8);
  EXPECT_EQ(ulyx::Tensor<float>(tensor).extents(), dense.extents());
}

TEST(Hpp, ExchangesThereAndBack) {
  std::vector<ulyx::Runtime> rts = ulyx::Runtime::local(2);
  RunRanks(2, [&](int rank) {
    const ulyx::Runtime& rt = rts[size_t(rank)];
    const ulyx::Plan plan = rt.plan(SmallShape());
    const ulyxPlanInfo_t info = plan.info();
    EXPECT_EQ(info.rank, rank);
    EXPECT_EQ(plan.choice(ulyxOpHeadsToSeq).transport, ulyxTransportLoopback);
    const auto [in, out] = plan.qkv();
    std::vector<float> memory[3];
    for (std::vector<float>& tensor : memory) tensor.resize(size_t(ulyx::span(in.q)));
    const ulyx::Tensor<float> q(in.q, memory[0].data()), k(in.k, memory[1].data()), v(in.v, memory[2].data());
    for (int64_t token = 0; token < info.tokenCount; token++) {
      for (int64_t head = 0; head < 3; head++) {
        for (int64_t i = 0; i < 2; i++) {
          q(0, token, head, i) = float(100 * (info.tokenRange.start + token) + 10 * head + i);
          k(0, token, head, i) = 1000 + q(0, token, head, i);
          v(0, token, head, i) = 2000 + q(0, token, head, i);
        }
      }
    }
    const int64_t size = ulyx::span(out.q);
    const ulyx::Memory<float> memoryOut[3] = {rt.alloc<float>(size), rt.alloc<float>(size), rt.alloc<float>(size)};
    const ulyx::Tensor<float> qOut(out.q, memoryOut[0].data()), kOut(out.k, memoryOut[1].data()),
        vOut(out.v, memoryOut[2].data());
    plan.seqToHeads(ulyx::Qkv(q, k, v), ulyx::Qkv(qOut, kOut, vOut));
    for (int64_t token = 0; token < 5; token++) {
      for (int64_t head = 0; head < info.headCount; head++) {
        const float expected = float(100 * token + 10 * (info.headRange.start + head) + 1);
        EXPECT_EQ(qOut(0, token, head, 1), expected);
        EXPECT_EQ(kOut(0, token, head, 1), 1000 + expected);
        EXPECT_EQ(vOut(0, token, head, 1), 2000 + expected);
      }
    }
    const ulyx::Memory<float> back = rt.alloc<float>(ulyx::span(plan.output().out));
    plan.headsToSeq(qOut, ulyx::Tensor<float>(plan.output().out, back.data()));
    EXPECT_EQ(std::vector<float>(back.data(), back.data() + back.size()), memory[0]);
    EXPECT_THROW(plan.headsToSeq(qOut, qOut), ulyx::Error);
  });
}

TEST(Hpp, SequencesContextsAndTheirPlans) {
  const std::vector<int32_t> cuSeqlens = {0, 3, 8};
  std::vector<ulyx::Runtime> rts = ulyx::Runtime::local(2);
  RunRanks(2, [&](int rank) {
    const ulyx::Runtime& rt = rts[size_t(rank)];
    const ulyx::Sequences sequences = ulyx::Sequences::create({0, 3, 8});
    const ulyx::ContextCache cache = ulyx::ContextCache::create();
    const ulyx::Context made = ulyx::Context::create(sequences, 2, rank, ulyxSplitBalanced, 4);
    const ulyx::Context contexts[] = {made.copy(), cache.context(cuSeqlens, 2, rank, ulyxSplitBalanced, 4),
                                      rt.context(cuSeqlens, ulyxSplitBalanced, 4)};
    for (const ulyx::Context& context : contexts) {
      EXPECT_EQ(context.info().haloTokens, rank == 0 ? 0 : 1);
      EXPECT_EQ(ulyx::length(context.info().tokenRange), 4);
    }
    int32_t stored[3] = {-1, -1, -1};
    rt.storeCuSeqlens(contexts[0], stored);
    EXPECT_EQ(stored[1], rank == 0 ? 3 : 4);

    ulyx::Shape shape = SmallShape();
    shape.tokens = 8;
    shape.sequences = sequences.get();
    rt.plan(shape).storeCuSeqlens(stored);
    EXPECT_EQ(stored[2], 8);

    ulyx::HaloShape halo;
    halo.context = contexts[0].get();
    halo.rowElements = 1;
    halo.type = ulyx::dataType<float>;
    const ulyx::HaloPlan haloPlan = rt.haloPlan(halo);
    float own[4] = {float(rank), 1, 2, 3}, before[1] = {-1};
    auto [local, ahead] = haloPlan.tensors();
    local.data = own;
    ahead.data = before;
    haloPlan.convHalo(local, ahead);
    EXPECT_EQ(before[0], rank == 0 ? -1 : 3);
    haloPlan.convHaloBackward(ahead, local);
    EXPECT_EQ(own[3], rank == 0 ? 6 : 3);

    ulyx::StateShape state;
    state.context = contexts[0].get();
    state.heads = state.keyDim = state.valueDim = 1;
    const ulyx::StatePlan statePlan = rt.statePlan(state);
    float external = 5, transition = 2, received = -1;
    ulyxStates_t states = statePlan.states();
    states.state.data = &external;
    states.transition.data = &transition;
    states.received.data = &received;
    statePlan.stateChain(states);
    EXPECT_EQ(received, rank == 0 ? 0 : 5);

    ulyx::RowsShape rows;
    rows.op = ulyxRowsAllGather;
    rows.type = ulyx::dataType<int32_t>;
    rows.rowElements = 1;
    rows.total = 3;
    const ulyx::RowsPlan rowsPlan = rt.rowsPlan(rows);
    int32_t mine[2] = {10 * rank, 10 * rank + 1}, all[3];
    auto [in, out] = rowsPlan.rows();
    in.data = mine;
    out.data = all;
    rowsPlan.allGather(in, out);
    EXPECT_EQ(all[1], 1);
    EXPECT_EQ(all[2], 10);
    EXPECT_EQ(rowsPlan.choice().transport, ulyxTransportLoopback);
    EXPECT_THROW(rowsPlan.reduceScatter(in, out), ulyx::Error);
  });
}

TEST(Hpp, WorksWithoutExceptions) {
  EXPECT_STREQ(ExchangeWithoutExceptions(), nullptr);
}

}  // namespace
}  // namespace ulyx_test
