// SPDX-License-Identifier: MIT
//
// A refused call has written nothing: every function that fills what a caller points to, with each of its allocations
// failing in turn and with arguments that cannot be right, leaves every byte there as it was.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "fake.h"
#include "support/contexts.h"
#include "support/held.h"
#include "support/kinds.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

constexpr int kRanks = 3;
constexpr uint8_t kCanaryByte = 0xa7;

// What a caller points to, with canaries in it: as many bytes as a call may fill.
class Target {
 public:
  Target() : bytes_(4096, kCanaryByte), before_(bytes_) {}
  template <class T>
  T* As() {
    return reinterpret_cast<T*>(bytes_.data());
  }
  // A struct that must be initialised, its other fields with canaries in them.
  template <class T>
  T* Struct(const T& initial) {
    std::memcpy(bytes_.data(), &initial, offsetof(T, version) + sizeof initial.version);
    before_ = bytes_;
    return As<T>();
  }
  bool IsUntouched() const { return bytes_ == before_; }

 private:
  std::vector<uint8_t> bytes_, before_;
};

// Sequences, a context and arguments that calls share; made without faults.
struct Scene {
  Scene() {
    const int64_t bounds[] = {0, 2, 2, 9};
    MUST(ulyxSequencesCreate(bounds, 4, ulyxInt64, &sequences));
    MUST(ulyxContextCreate(sequences, kRanks, 1, ulyxSplitBalanced, 4, &context));
    MUST(ulyxContextCacheCreate(2, &cache));
    halo.context = state.context = context;
    halo.rowElements = 8;
    halo.type = ulyxFloat32;
    state.heads = state.keyDim = state.valueDim = 2;
    rows.op = ulyxRowsReduceScatter;
    rows.total = 7;
    rows.rowElements = 5;
  }
  ~Scene() {
    (void)ulyxContextCacheDestroy(cache);
    (void)ulyxContextDestroy(context);
    (void)ulyxSequencesDestroy(sequences);
  }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  ulyxSequences_t sequences = nullptr;
  ulyxContext_t context = nullptr;
  ulyxContextCache_t cache = nullptr;
  Shape shape = Shape(10, 6, 8).KvHeads(3);
  ulyxHaloShape_t halo = ULYX_HALO_SHAPE_INITIALIZER;
  ulyxStateShape_t state = ULYX_STATE_SHAPE_INITIALIZER;
  ulyxRowsShape_t rows = ULYX_ROWS_SHAPE_INITIALIZER;
};

struct Filler {
  const char* name;
  std::function<ulyxResult_t(const Scene& scene, Target* target)> call;
  std::function<void(Target* target)> release;  // what a successful call has made
};

template <class T>
std::function<void(Target*)> Release(ulyxResult_t (*destroy)(T)) {
  return [destroy](Target* target) { MUST(destroy(*target->As<T>())); };
}

const int64_t kCounts[] = {1, 2, 3};
const int64_t kBounds[] = {0, 5, 7};

std::vector<Filler> Fillers() {
  const auto nothing = [](Target*) {};
  return {
      {"ShapeGetTraffic",
       [](const Scene& s, Target* t) {
         return ulyxShapeGetTraffic(&s.shape.c, kRanks, ulyxOpSeqToHeads, t->As<int64_t>());
       },
       nothing},
      {"ShapeGetRanges",
       [](const Scene& s, Target* t) {
         ulyxRange_t* const ranges = t->As<ulyxRange_t>();
         return ulyxShapeGetRanges(&s.shape.c, kRanks, ranges, ranges + kRanks, ranges + 2 * kRanks);
       },
       nothing},
      {"ShapeGetBytes",
       [](const Scene& s, Target* t) {
         return ulyxShapeGetBytes(&s.shape.c, kRanks, 1, t->Struct<ulyxShapeBytes_t>(ULYX_SHAPE_BYTES_INITIALIZER));
       },
       nothing},
      {"ShapeGetTimes",
       [](const Scene& s, Target* t) {
         return ulyxShapeGetTimes(&s.shape.c, kRanks, ulyxOpHeadsToSeq,
                                  t->Struct<ulyxShapeTimes_t>(ULYX_SHAPE_TIMES_INITIALIZER));
       },
       nothing},
      {"RowsShapeGetArenaBytes",
       [](const Scene& s, Target* t) { return ulyxRowsShapeGetArenaBytes(&s.rows, kRanks, 2, t->As<int64_t>()); },
       nothing},
      {"HaloShapeGetArenaBytes",
       [](const Scene& s, Target* t) { return ulyxHaloShapeGetArenaBytes(&s.halo, t->As<int64_t>()); }, nothing},
      {"StateShapeGetArenaBytes",
       [](const Scene& s, Target* t) { return ulyxStateShapeGetArenaBytes(&s.state, t->As<int64_t>()); }, nothing},
      {"SequencesCreate",
       [](const Scene&, Target* t) { return ulyxSequencesCreate(kBounds, 3, ulyxInt64, t->As<ulyxSequences_t>()); },
       Release(ulyxSequencesDestroy)},
      {"ContextCreate",
       [](const Scene& s, Target* t) {
         return ulyxContextCreate(s.sequences, kRanks, 0, ulyxSplitBalanced, 3, t->As<ulyxContext_t>());
       },
       Release(ulyxContextDestroy)},
      {"ContextCopy", [](const Scene& s, Target* t) { return ulyxContextCopy(s.context, t->As<ulyxContext_t>()); },
       Release(ulyxContextDestroy)},
      {"ContextCacheCreate",
       [](const Scene&, Target* t) { return ulyxContextCacheCreate(5, t->As<ulyxContextCache_t>()); },
       Release(ulyxContextCacheDestroy)},
      {"ContextCacheGet",
       [](const Scene& s, Target* t) {
         return ulyxContextCacheGet(s.cache, kBounds, 3, ulyxInt64, kRanks, 1, ulyxSplitBalanced, 2,
                                    t->As<ulyxContext_t>());
       },
       Release(ulyxContextDestroy)},
      {"RuntimeCreateLocal",
       [](const Scene&, Target* t) {
         ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
         config.transport = ulyxTransportLoopback;
         return ulyxRuntimeCreateLocal(&config, kRanks, nullptr, t->As<ulyxRuntime_t>());
       },
       [](Target* t) {
         for (int rank = 0; rank < kRanks; rank++) MUST(ulyxRuntimeDestroy(&t->As<ulyxRuntime_t>()[rank]));
       }},
  };
}

void PrintTo(const Filler& filler, std::ostream* out) {
  *out << filler.name;
}

class Refusals : public ::testing::TestWithParam<Filler> {};
INSTANTIATE_TEST_SUITE_P(Of, Refusals, ::testing::ValuesIn(Fillers()),
                         [](const ::testing::TestParamInfo<Filler>& param) { return std::string(param.param.name); });

}  // namespace

TEST_P(Refusals, ForWantOfMemoryWriteNothingAndHoldNothing) {
  const Filler& filler = GetParam();
  int call = 1;
  for (bool struck = true; struck && !HasFailure(); call++) {
    SCOPED_TRACE("allocation " + std::to_string(call));
    const Scene scene;
    const Held before;
    Target target;
    fakeFailNthHere("malloc", call);
    const ulyxResult_t result = filler.call(scene, &target);
    struck = fakeIsArmedHere() == 0;
    fakeFailNthHere(nullptr, 0);
    if (!struck) {
      EXPECT_EQ(result, ulyxSuccess);
      filler.release(&target);
      break;
    }
    EXPECT_TRUE(Refused(result, ulyxSystemError, {"no host memory"}));
    EXPECT_TRUE(target.IsUntouched());
    EXPECT_EQ(Held().Beyond(before), "");
  }
  EXPECT_GT(call, 1) << "it allocates nothing: take it off the list";
}

// ---- Of a runtime -------------------------------------------------------------------------------------------

namespace {

class RuntimeRefusals : public ::testing::TestWithParam<const World*> {};
ULYX_ON_EVERY_WORLD(RuntimeRefusals);

// What a runtime of one rank makes with the host's memory, and plans with nothing spare to be built in.
std::vector<std::function<ulyxResult_t(ulyxRuntime_t runtime, const Kinds& kinds, Target* target)>> Makers() {
  std::vector<std::function<ulyxResult_t(ulyxRuntime_t, const Kinds&, Target*)>> makers = {
      [](ulyxRuntime_t runtime, const Kinds&, Target* t) { return ulyxMemAlloc(runtime, 100, t->As<void*>()); },
      [](ulyxRuntime_t runtime, const Kinds&, Target* t) {
        return ulyxRuntimeGetContext(runtime, kBounds, 3, ulyxInt64, ulyxSplitBalanced, 0, t->As<ulyxContext_t>());
      },
  };
  for (Kind kind : kKinds) {
    makers.push_back([kind](ulyxRuntime_t runtime, const Kinds& kinds, Target* t) {
      return kinds.Make(runtime, kind, t->As<ulyxPlan_t>());
    });
  }
  return makers;
}

}  // namespace

TEST_P(RuntimeRefusals, ForWantOfMemoryWriteNothing) {
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.arenaBytes = kKindsArenaBytes;
  const Kinds kinds(*GetParam(), 1, 0);
  const auto makers = Makers();
  for (size_t maker = 0; maker < makers.size(); maker++) {
    SCOPED_TRACE("maker " + std::to_string(maker));
    for (int call = 1; !HasFailure(); call++) {
      const Session session(*GetParam(), 1, &config);
      Target target;
      fakeFailNthHere("malloc", call);
      const ulyxResult_t result = makers[maker](session.Runtime(0), kinds, &target);
      const bool struck = fakeIsArmedHere() == 0;
      fakeFailNthHere(nullptr, 0);
      EXPECT_EQ(result, struck ? ulyxSystemError : ulyxSuccess) << ulyxGetLastError(nullptr);
      EXPECT_EQ(target.IsUntouched(), struck);
      if (struck) continue;
      EXPECT_GT(call, 1);
      if (maker == 1) MUST(ulyxContextDestroy(*target.As<ulyxContext_t>()));
      break;
    }
  }
}

TEST_P(RuntimeRefusals, OfPlansOfAnotherKindAndOfClosedRuntimesWriteNothing) {
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.arenaBytes = kKindsArenaBytes;
  const Kinds kinds(*GetParam(), 1, 0);
  const Session session(*GetParam(), 1, &config);
  const ulyxRuntime_t runtime = session.Runtime(0);
  ulyxPlan_t plans[std::size(kKinds)] = {};
  for (Kind kind : kKinds) MUST(kinds.Make(runtime, kind, &plans[int(kind)]));
  const auto expectNothing = [](ulyxResult_t expected, const std::function<ulyxResult_t(Target*)>& call) {
    Target target;
    EXPECT_EQ(call(&target), expected) << ulyxGetLastError(nullptr);
    EXPECT_TRUE(target.IsUntouched());
  };
  for (const ulyxResult_t expected : {ulyxInvalidUsage, ulyxClosed}) {
    const ulyxPlan_t exchange = plans[0], other = plans[expected == ulyxClosed ? 0 : 1];
    const auto ownOr = [&](Kind kind) { return expected == ulyxClosed ? plans[int(kind)] : exchange; };
    expectNothing(expected, [&](Target* t) {
      return ulyxPlanGetInfo(other, t->Struct<ulyxPlanInfo_t>(ULYX_PLAN_INFO_INITIALIZER));
    });
    expectNothing(expected,
                  [&](Target* t) { return ulyxPlanGetQkv(other, t->As<ulyxQkv_t>(), t->As<ulyxQkv_t>() + 1); });
    expectNothing(expected, [&](Target* t) {
      return ulyxPlanGetOutput(other, t->As<ulyxTensor_t>(), t->As<ulyxTensor_t>() + 1);
    });
    expectNothing(expected, [&](Target* t) {
      return ulyxPlanGetRows(ownOr(Kind::kGather), t->As<ulyxTensor_t>(), t->As<ulyxTensor_t>() + 1);
    });
    expectNothing(expected, [&](Target* t) {
      return ulyxPlanGetHalo(ownOr(Kind::kHalo), t->As<ulyxTensor_t>(), t->As<ulyxTensor_t>() + 1);
    });
    expectNothing(expected, [&](Target* t) { return ulyxPlanGetStates(ownOr(Kind::kChain), t->As<ulyxStates_t>()); });
    if (expected == ulyxClosed) {
      expectNothing(expected, [&](Target* t) { return ulyxPlanGetChoice(exchange, 0, t->As<ulyxChoice_t>()); });
      expectNothing(expected, [&](Target* t) { return ulyxMemAlloc(runtime, 10, t->As<void*>()); });
      expectNothing(expected, [&](Target* t) { return kinds.Make(runtime, Kind::kHalo, t->As<ulyxPlan_t>()); });
    } else {
      expectNothing(ulyxInvalidArgument,
                    [&](Target* t) { return ulyxPlanGetChoice(plans[0], 2, t->As<ulyxChoice_t>()); });
      expectNothing(ulyxInvalidArgument, [&](Target* t) { return ulyxMemAlloc(runtime, -1, t->As<void*>()); });
      MUST(ulyxRuntimeClose(runtime));
    }
  }
}

}  // namespace ulyx_test
