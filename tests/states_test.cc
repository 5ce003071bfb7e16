// SPDX-License-Identifier: MIT
//
// Every public function that takes a runtime, a plan or a context, in every state that these can be in: open, lost in
// each way that a world can be, closed, destroyed where that is defined, and NULL. A function that ulyx.h gains and
// this table does not fails the test.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "fake.h"
#include "support/kinds.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

constexpr int kRanks = 2;

// One rank with what its calls need: handles, which a state takes away, and tensors, which it does not.
struct Actor {
  Actor(const Session& session, int rank)
      : runtime(session.Runtime(rank)), stream(session.Stream(rank)), kinds(session.GetWorld(), kRanks, rank) {
    for (Kind kind : kKinds) MUST(kinds.Make(runtime, kind, &plans[int(kind)]));
    MUST(kinds.Make(runtime, Kind::kGather, &spare));
    MUST(ulyxMemAlloc(runtime, 100, &memory));
    MUST(ulyxContextCopy(kinds.Context(), &context));
    MakeWithSequences();
    MUST(ulyxPlanGetQkv(plans[0], &qkvIn, &qkvOut));
    MUST(ulyxPlanGetOutput(plans[0], &oIn, &oOut));
    for (int i = 0; i < 3; i++) MUST(ulyxPlanGetRows(plans[1 + i], &rowsIn[i], &rowsOut[i]));
    MUST(ulyxPlanGetHalo(plans[4], &local, &halo));
    MUST(ulyxPlanGetStates(plans[5], &states));
    qkvIn.q.data = oIn.data = local.data = states.state.data = kinds.Piece(0);
    qkvIn.k.data = oOut.data = halo.data = states.transition.data = kinds.Piece(1);
    qkvIn.v.data = states.received.data = kinds.Piece(2);
    qkvOut.q.data = states.final.data = kinds.Piece(3);
    qkvOut.k.data = kinds.Piece(4);
    qkvOut.v.data = kinds.Piece(5);
    for (int i = 0; i < 3; i++) rowsIn[i].data = kinds.Piece(0), rowsOut[i].data = kinds.Piece(1);
  }
  ~Actor() {
    (void)ulyxContextDestroy(context);
    (void)ulyxContextDestroy(ownContext);
  }
  Actor(const Actor&) = delete;
  Actor& operator=(const Actor&) = delete;

  void MakeWithSequences() {
    Shape shape(4, 2, 8);
    const int32_t bounds[] = {0, 1, 4};
    MUST(ulyxSequencesCreate(bounds, 3, ulyxInt32, &shape.c.sequences));
    const ulyxResult_t made = ulyxPlanCreate(runtime, &shape.c, &withSequences);
    MUST(ulyxSequencesDestroy(shape.c.sequences));
    MUST(made);
  }
  void TakeHandlesAway() {
    ownContext = context;
    runtime = nullptr;
    context = nullptr;
    spare = withSequences = nullptr;
    for (ulyxPlan_t& plan : plans) plan = nullptr;
  }
  void DestroyPlans() const {
    for (ulyxPlan_t plan : plans) MUST(ulyxPlanDestroy(plan));
    MUST(ulyxPlanDestroy(withSequences));
    MUST(ulyxPlanDestroy(spare));
  }

  ulyxRuntime_t runtime;
  const ulyxStream_t stream;
  const Kinds kinds;
  ulyxPlan_t plans[std::size(kKinds)] = {};
  ulyxPlan_t withSequences = nullptr, spare = nullptr;
  ulyxContext_t context = nullptr, ownContext = nullptr;
  void* memory = nullptr;
  ulyxQkv_t qkvIn = ULYX_QKV_INITIALIZER, qkvOut = ULYX_QKV_INITIALIZER;
  ulyxTensor_t oIn, oOut, rowsIn[3], rowsOut[3], local, halo;
  ulyxStates_t states = {};
};

// What a call does in a state.
enum Verdict {
  kWorks,
  kLost,     // says why its world was lost
  kClosed,   // ulyxClosed
  kInvalid,  // ulyxInvalidArgument
};

struct Row {
  const char* name;
  std::function<ulyxResult_t(Actor& actor)> call;
  Verdict lost, closed, null, destroyed;  // the plan or context; kInvalid is not asked of contexts
};

ulyxResult_t MakePlan(Actor& actor, Kind kind) {
  ulyxPlan_t plan = nullptr;
  const ulyxResult_t result = actor.kinds.Make(actor.runtime, kind, &plan);
  EXPECT_EQ(plan != nullptr, result == ulyxSuccess);
  if (plan != nullptr) MUST(ulyxPlanDestroy(plan));
  return result;
}

ulyxHaloShape_t HaloOf(ulyxContext_t context) {
  ulyxHaloShape_t shape = ULYX_HALO_SHAPE_INITIALIZER;
  shape.context = context;
  shape.rowElements = 4;
  return shape;
}

ulyxStateShape_t StateOf(ulyxContext_t context) {
  ulyxStateShape_t shape = ULYX_STATE_SHAPE_INITIALIZER;
  shape.context = context;
  shape.heads = shape.keyDim = shape.valueDim = 1;
  return shape;
}

constexpr int64_t kBounds[] = {0, 4};

// Calls that leave what they were called on as it was; then those that end it.
std::vector<Row> RuntimeRows(const World& world) {
  const bool onCpu = world.Transport() == ulyxTransportLoopback;
  return {
      {"ulyxGetLastError",
       [](Actor& a) { return ulyxGetLastError(a.runtime) != nullptr ? ulyxSuccess : ulyxInternalError; }, kWorks,
       kWorks, kWorks, kWorks},
      {"ulyxRuntimeReserve", [](Actor& a) { return ulyxRuntimeReserve(a.runtime, 1 << 20); }, onCpu ? kWorks : kLost,
       kClosed, kInvalid, kWorks},
      {"ulyxRuntimeGetInfo",
       [](Actor& a) {
         ulyxRuntimeInfo_t info = ULYX_RUNTIME_INFO_INITIALIZER;
         return ulyxRuntimeGetInfo(a.runtime, &info);
       },
       kWorks, kWorks, kInvalid, kWorks},
      {"ulyxRuntimeGetAsyncError",
       [](Actor& a) {
         ulyxResult_t error = ulyxSuccess;
         return ulyxRuntimeGetAsyncError(a.runtime, &error);
       },
       kWorks, kWorks, kInvalid, kWorks},
      {"ulyxMemAlloc",
       [](Actor& a) {
         void* memory = nullptr;
         const ulyxResult_t result = ulyxMemAlloc(a.runtime, 10, &memory);
         EXPECT_EQ(memory != nullptr, result == ulyxSuccess);
         return result;
       },
       kLost, kClosed, kInvalid, kWorks},
      {"ulyxPlanCreate", [](Actor& a) { return MakePlan(a, Kind::kExchange); }, kLost, kClosed, kInvalid, kWorks},
      {"ulyxRowsPlanCreate", [](Actor& a) { return MakePlan(a, Kind::kGather); }, kLost, kClosed, kInvalid, kWorks},
      {"ulyxHaloPlanCreate", [](Actor& a) { return MakePlan(a, Kind::kHalo); }, kLost, kClosed, kInvalid, kWorks},
      {"ulyxStatePlanCreate", [](Actor& a) { return MakePlan(a, Kind::kChain); }, kLost, kClosed, kInvalid, kWorks},
      {"ulyxRuntimeGetContext",
       [](Actor& a) {
         ulyxContext_t context = nullptr;
         const ulyxResult_t result = ulyxRuntimeGetContext(a.runtime, kBounds, 2, ulyxInt64, 0, 0, &context);
         EXPECT_EQ(context != nullptr, result == ulyxSuccess);
         MUST(ulyxContextDestroy(context));
         return result;
       },
       kWorks, kWorks, kInvalid, kWorks},
      {"ulyxContextStoreCuSeqlens",
       [](Actor& a) {
         return ulyxContextStoreCuSeqlens(a.runtime, a.context, static_cast<int32_t*>(a.kinds.Piece(6)), a.stream);
       },
       kWorks, kClosed, kInvalid, kWorks},
      {"ulyxMemFree", [](Actor& a) { return ulyxMemFree(a.runtime, a.memory); }, kWorks, kWorks, kInvalid, kWorks},
      {"ulyxRuntimeClose", [](Actor& a) { return ulyxRuntimeClose(a.runtime); }, kWorks, kWorks, kInvalid, kWorks},
      {"ulyxRuntimeAbort", [](Actor& a) { return ulyxRuntimeAbort(a.runtime); }, kWorks, kWorks, kInvalid, kWorks},
      {"ulyxRuntimeDestroy",
       [](Actor& a) {
         const ulyxResult_t result = ulyxRuntimeDestroy(&a.runtime);
         EXPECT_EQ(a.runtime, nullptr);
         return result;
       },
       kWorks, kWorks, kWorks, kWorks},
  };
}

// A row of a getter or of an exchange.
Row Get(const char* name, const std::function<ulyxResult_t(Actor&)>& call) {
  return {name, call, kWorks, kClosed, kInvalid, kInvalid};
}
Row Run(const char* name, const std::function<ulyxResult_t(Actor&)>& call) {
  return {name, call, kLost, kClosed, kInvalid, kInvalid};
}

std::vector<Row> PlanRows() {
  return {
      Get("ulyxPlanGetInfo",
          [](Actor& a) {
            ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
            return ulyxPlanGetInfo(a.plans[0], &info);
          }),
      Get("ulyxPlanGetChoice",
          [](Actor& a) {
            ulyxChoice_t choice;
            return ulyxPlanGetChoice(a.plans[0], 1, &choice);
          }),
      Get("ulyxPlanStoreCuSeqlens",
          [](Actor& a) {
            return ulyxPlanStoreCuSeqlens(a.withSequences, static_cast<int32_t*>(a.kinds.Piece(6)), a.stream);
          }),
      Get("ulyxPlanGetQkv", [](Actor& a) { return ulyxPlanGetQkv(a.plans[0], &a.qkvIn, nullptr); }),
      Get("ulyxPlanGetOutput", [](Actor& a) { return ulyxPlanGetOutput(a.plans[0], nullptr, nullptr); }),
      Get("ulyxPlanGetRows", [](Actor& a) { return ulyxPlanGetRows(a.plans[1], nullptr, nullptr); }),
      Get("ulyxPlanGetHalo", [](Actor& a) { return ulyxPlanGetHalo(a.plans[4], nullptr, nullptr); }),
      Get("ulyxPlanGetStates",
          [](Actor& a) {
            ulyxStates_t states;
            return ulyxPlanGetStates(a.plans[5], &states);
          }),
      Run("ulyxHeadsToSeq", [](Actor& a) { return ulyxHeadsToSeq(a.plans[0], &a.oIn, &a.oOut, a.stream); }),
      Run("ulyxSeqToHeads",
          [](Actor& a) {
            a.qkvIn.q.data = a.kinds.Piece(0);  // ulyxPlanGetQkv above has taken it away
            a.qkvIn.k.data = a.kinds.Piece(1);
            a.qkvIn.v.data = a.kinds.Piece(2);
            return ulyxSeqToHeads(a.plans[0], &a.qkvIn, &a.qkvOut, a.stream);
          }),
      Run("ulyxAllGatherRows",
          [](Actor& a) { return ulyxAllGatherRows(a.plans[1], &a.rowsIn[0], &a.rowsOut[0], a.stream); }),
      Run("ulyxReduceScatterRows",
          [](Actor& a) { return ulyxReduceScatterRows(a.plans[2], &a.rowsIn[1], &a.rowsOut[1], a.stream); }),
      Run("ulyxAllToAllRows",
          [](Actor& a) { return ulyxAllToAllRows(a.plans[3], &a.rowsIn[2], &a.rowsOut[2], a.stream); }),
      Run("ulyxConvHalo", [](Actor& a) { return ulyxConvHalo(a.plans[4], &a.local, &a.halo, a.stream); }),
      Run("ulyxConvHaloBackward",
          [](Actor& a) { return ulyxConvHaloBackward(a.plans[4], &a.halo, &a.local, a.stream); }),
      Run("ulyxStateChain", [](Actor& a) { return ulyxStateChain(a.plans[5], &a.states, a.stream); }),
      Run("ulyxStateChainBackward", [](Actor& a) { return ulyxStateChainBackward(a.plans[5], &a.states, a.stream); }),
      {"ulyxPlanDestroy", [](Actor& a) { return ulyxPlanDestroy(a.spare); }, kWorks, kWorks, kWorks, kInvalid},
  };
}

// Contexts know no runtime: they are there or not.
std::vector<Row> ContextRows() {
  return {
      {"ulyxContextGetInfo",
       [](Actor& a) {
         ulyxContextInfo_t info = ULYX_CONTEXT_INFO_INITIALIZER;
         return ulyxContextGetInfo(a.context, &info);
       },
       kWorks, kWorks, kInvalid, kWorks},
      {"ulyxContextCopy",
       [](Actor& a) {
         ulyxContext_t copy = nullptr;
         const ulyxResult_t result = ulyxContextCopy(a.context, &copy);
         EXPECT_EQ(copy != nullptr, result == ulyxSuccess);
         MUST(ulyxContextDestroy(copy));
         return result;
       },
       kWorks, kWorks, kInvalid, kWorks},
      {"ulyxHaloShapeGetArenaBytes",
       [](Actor& a) {
         int64_t bytes = 0;
         const ulyxHaloShape_t shape = HaloOf(a.context);
         return ulyxHaloShapeGetArenaBytes(&shape, &bytes);
       },
       kWorks, kWorks, kInvalid, kWorks},
      {"ulyxStateShapeGetArenaBytes",
       [](Actor& a) {
         int64_t bytes = 0;
         const ulyxStateShape_t shape = StateOf(a.context);
         return ulyxStateShapeGetArenaBytes(&shape, &bytes);
       },
       kWorks, kWorks, kInvalid, kWorks},
      {"ulyxContextDestroy",
       [](Actor& a) {
         const ulyxResult_t result = ulyxContextDestroy(a.context);
         a.context = nullptr;
         return result;
       },
       kWorks, kWorks, kWorks, kWorks},
  };
}

// Contexts first and runtimes last, whose last calls end everything.
std::vector<Row> AllRows(const World& world) {
  std::vector<Row> rows = PlanRows();
  for (const Row& row : RuntimeRows(world)) {
    if (row.name == std::string("ulyxMemFree")) {
      for (const Row& other : ContextRows()) rows.push_back(other);
    }
    rows.push_back(row);
  }
  return rows;
}

// Those of no runtime, plan or context, and what makes one.
const std::set<std::string> kStateless = {
    "ulyxBalancedRanges",        "ulyxContextCacheCreate", "ulyxContextCacheDestroy",
    "ulyxContextCacheGet",       "ulyxContextCreate",      "ulyxGetErrorString",
    "ulyxGetUniqueId",           "ulyxGetVersion",         "ulyxKvHeadRange",
    "ulyxLocalizeSegments",      "ulyxPlugin_v1",          "ulyxRangeLengths",
    "ulyxRangesFromCounts",      "ulyxRuntimeCreate",      "ulyxRowsShapeGetArenaBytes",
    "ulyxRuntimeCreateFromComm", "ulyxRuntimeCreateLocal", "ulyxSequencesCreate",
    "ulyxSequencesDestroy",      "ulyxShapeGetBytes",      "ulyxShapeGetRanges",
    "ulyxShapeGetTimes",         "ulyxShapeGetTraffic",    "ulyxTargetCounts",
    "ulyxTargetIntersection",
};

class States : public ::testing::TestWithParam<const World*> {
 protected:
  static ulyxConfig_t Config(int timeoutMs) {
    ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
    config.arenaBytes = kKindsArenaBytes;
    config.timeoutMs = timeoutMs;
    return config;
  }
  static bool OnCpu() { return GetParam()->Transport() == ulyxTransportLoopback; }
  static bool Meets() { return GetParam()->Transport() >= ulyxTransportDirect; }
};
ULYX_ON_EVERY_WORLD(States);

void Expect(const Row& row, Verdict verdict, ulyxResult_t result, ulyxRuntime_t runtime) {
  SCOPED_TRACE(row.name);
  const std::string said = ulyxGetLastError(nullptr);
  switch (verdict) {
    case kWorks:
      EXPECT_EQ(result, ulyxSuccess) << said;
      return;
    case kLost:
      EXPECT_TRUE(result == ulyxTimeout || result == ulyxRemoteError) << ulyxGetErrorString(result) << ": " << said;
      break;
    case kClosed:
      EXPECT_EQ(result, ulyxClosed) << said;
      break;
    case kInvalid:
      EXPECT_EQ(result, ulyxInvalidArgument) << said;
      return;
  }
  EXPECT_NE(said, "");
  EXPECT_EQ(said, ulyxGetLastError(runtime));
}

void Call(Actor* actor, const std::vector<Row>& rows, Verdict Row::*state) {
  for (const Row& row : rows) {
    const ulyxResult_t result = row.call(*actor);
    Expect(row, row.*state, result, actor->runtime);
  }
}

}  // namespace

TEST_P(States, AreKnownForEveryFunctionThatTheLibraryExports) {
  std::set<std::string> known = kStateless, exported;
  for (const Row& row : AllRows(*GetParam())) EXPECT_TRUE(known.insert(row.name).second) << row.name << " twice";
  std::ifstream file(ULYX_EXPORTED_SYMBOLS);
  for (std::string name; std::getline(file, name);) exported.insert(name);
  EXPECT_EQ(known, exported);
}

TEST_P(States, OfOpenRuntimesLetEveryCallThrough) {
  const ulyxConfig_t config = Config(20000);
  Session session(*GetParam(), kRanks, &config);
  std::vector<Row> rows = AllRows(*GetParam());
  session.Run([&](int rank) {
    GetParam()->Use(rank);
    Actor actor(session, rank);
    for (const Row& row : rows) {
      if (row.name == std::string("ulyxRuntimeClose")) break;  // the states below begin with the rest
      Expect(row, kWorks, row.call(actor), actor.runtime);
    }
  });
  session.Destroy();
}

TEST_P(States, OfClosedRuntimesLetThroughWhatEndsThem) {
  const ulyxConfig_t config = Config(20000);
  Session session(*GetParam(), kRanks, &config);
  session.Run([&](int rank) {
    GetParam()->Use(rank);
    Actor actor(session, rank);
    MUST(ulyxRuntimeClose(actor.runtime));
    Call(&actor, AllRows(*GetParam()), &Row::closed);
    *session.RuntimePtr(rank) = actor.runtime;  // destroyed
  });
}

TEST_P(States, OfAbortedWorldsSayWhyWhereOthersAreNeeded) {
  const ulyxConfig_t config = Config(20000);
  Session session(*GetParam(), kRanks, &config);
  session.Run([&](int rank) {
    GetParam()->Use(rank);
    Actor actor(session, rank);
    MUST(ulyxRuntimeAbort(actor.runtime));
    std::vector<Row> rows = AllRows(*GetParam());
    Call(&actor, rows, &Row::lost);
    *session.RuntimePtr(rank) = actor.runtime;
  });
}

// The other rank makes no further call.
TEST_P(States, OfWorldsThatARankDidNotComeToSayWhyWhereItIsNeeded) {
  const ulyxConfig_t config = Config(150);
  Session session(*GetParam(), kRanks, &config);
  std::unique_ptr<Actor> actors[kRanks];
  session.Run([&](int rank) {
    GetParam()->Use(rank);
    actors[rank] = std::make_unique<Actor>(session, rank);
  });
  Actor& actor = *actors[0];
  GetParam()->Use(0);
  const ulyxResult_t met = ulyxHeadsToSeq(actor.plans[0], &actor.oIn, &actor.oOut, actor.stream);
  EXPECT_EQ(met, Meets() ? ulyxSuccess : ulyxTimeout);  // a device tells later
  Call(&actor, AllRows(*GetParam()), &Row::lost);
  *session.RuntimePtr(0) = actor.runtime;
}

TEST_P(States, OfWorldsThatThisRankBrokeSayWhyWhereOthersAreNeeded) {
  if (!Meets()) GTEST_SKIP() << GetParam()->Name() << " leaves no exchange half made";
  const ulyxConfig_t config = Config(150);
  Session session(*GetParam(), kRanks, &config);
  std::unique_ptr<Actor> actors[kRanks];
  session.Run([&](int rank) {
    GetParam()->Use(rank);
    actors[rank] = std::make_unique<Actor>(session, rank);
  });
  Actor& actor = *actors[0];
  GetParam()->Use(0);
  fakeFailNthHere("ulyxLaunchExchange", 1);
  EXPECT_EQ(ulyxHeadsToSeq(actor.plans[0], &actor.oIn, &actor.oOut, actor.stream), ulyxUnhandledCudaError);
  Call(&actor, AllRows(*GetParam()), &Row::lost);
  *session.RuntimePtr(0) = actor.runtime;
}

TEST_P(States, OfHandlesThatAreNullAreRefusedOrLeftAlone) {
  const ulyxConfig_t config = Config(20000);
  Session session(*GetParam(), kRanks, &config);
  session.Run([&](int rank) {
    GetParam()->Use(rank);
    Actor actor(session, rank);
    const ulyxRuntime_t runtime = actor.runtime;
    actor.TakeHandlesAway();
    Call(&actor, AllRows(*GetParam()), &Row::null);
    EXPECT_STREQ(ulyxGetLastError(runtime), "") << "it was no call of this runtime's";
    MUST(ulyxMemFree(runtime, actor.memory));
  });
}

// The runtime keeps the memory of its plans, so that this use after the end is always caught.
TEST_P(States, OfDestroyedPlansAreRefused) {
  const ulyxConfig_t config = Config(20000);
  Session session(*GetParam(), kRanks, &config);
  session.Run([&](int rank) {
    GetParam()->Use(rank);
    Actor actor(session, rank);
    actor.DestroyPlans();
    for (const Row& row : PlanRows()) {
      Expect(row, row.destroyed, row.call(actor), actor.runtime);
      EXPECT_NE(std::string(ulyxGetLastError(nullptr)).find("destroyed"), std::string::npos) << row.name;
    }
  });
}

}  // namespace ulyx_test
