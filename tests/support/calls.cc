// SPDX-License-Identifier: MIT
#include "support/calls.h"

#include <gtest/gtest.h>

#include "support/shapes.h"
#include "support/status.h"

namespace ulyx_test {

Actor::Actor(const Session& session, int rank)
    : runtime(session.Runtime(rank)), stream(session.Stream(rank)), kinds(session.GetWorld(), kActors, rank) {
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

Actor::~Actor() {
  (void)ulyxContextDestroy(context);
  (void)ulyxContextDestroy(ownContext);
}

void Actor::MakeWithSequences() {
  Shape shape(4, 2, 8);
  const int32_t bounds[] = {0, 1, 4};
  MUST(ulyxSequencesCreate(bounds, 3, ulyxInt32, &shape.c.sequences));
  const ulyxResult_t made = ulyxPlanCreate(runtime, &shape.c, &withSequences);
  MUST(ulyxSequencesDestroy(shape.c.sequences));
  MUST(made);
}

void Actor::TakeHandlesAway() {
  ownContext = context;
  runtime = nullptr;
  context = nullptr;
  spare = withSequences = nullptr;
  for (ulyxPlan_t& plan : plans) plan = nullptr;
}

void Actor::DestroyPlans() const {
  for (ulyxPlan_t plan : plans) MUST(ulyxPlanDestroy(plan));
  MUST(ulyxPlanDestroy(withSequences));
  MUST(ulyxPlanDestroy(spare));
}

namespace {

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
       kWorks, kWorks, kWorks, kWorks},
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
      {"ulyxRuntimeSetLogger",
       [](Actor& a) {
         return ulyxRuntimeSetLogger(
             a.runtime, [](void*, ulyxLogLevel_t, const char*) {}, nullptr);
       },
       kWorks, kWorks, kInvalid, kWorks},
      {"ulyxRuntimeLogRecord", [](Actor& a) { return ulyxRuntimeLogRecord(a.runtime); }, kWorks, kWorks, kInvalid,
       kWorks},
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
       kWorks, kWorks, kInvalid, kWorks, kWorks},
      {"ulyxContextStoreCuSeqlens",
       [](Actor& a) {
         return ulyxContextStoreCuSeqlens(a.runtime, a.context, static_cast<int32_t*>(a.kinds.Piece(6)), a.stream);
       },
       kWorks, kClosed, kInvalid, kWorks},
      {"ulyxMemFree", [](Actor& a) { return ulyxMemFree(a.runtime, a.memory); }, kWorks, kWorks, kInvalid, kWorks},
      {"ulyxRuntimeClose", [](Actor& a) { return ulyxRuntimeClose(a.runtime); }, kWorks, kWorks, kInvalid, kWorks},
      {"ulyxRuntimeAbort", [](Actor& a) { return ulyxRuntimeAbort(a.runtime); }, kWorks, kWorks, kInvalid, kWorks,
       kWorks},
      {"ulyxRuntimeDestroy",
       [](Actor& a) {
         const ulyxResult_t result = ulyxRuntimeDestroy(&a.runtime);
         EXPECT_EQ(a.runtime == nullptr, result == ulyxSuccess);
         return result;
       },
       kWorks, kWorks, kWorks, kWorks},
  };
}

// A row of a getter or of an exchange.
Row Get(const char* name, const std::function<ulyxResult_t(Actor&)>& call) {
  return {name, call, kWorks, kClosed, kInvalid, kInvalid, kTaken};
}
Row Run(const char* name, const std::function<ulyxResult_t(Actor&)>& call) {
  return {name, call, kLost, kClosed, kInvalid, kInvalid, kTaken};
}

// Contexts know no runtime: they are there or not.
std::vector<Row> ContextRows() {
  return {
      {"ulyxContextGetInfo",
       [](Actor& a) {
         ulyxContextInfo_t info = ULYX_CONTEXT_INFO_INITIALIZER;
         return ulyxContextGetInfo(a.context, &info);
       },
       kWorks, kWorks, kInvalid, kWorks, kWorks},
      {"ulyxContextCopy",
       [](Actor& a) {
         ulyxContext_t copy = nullptr;
         const ulyxResult_t result = ulyxContextCopy(a.context, &copy);
         EXPECT_EQ(copy != nullptr, result == ulyxSuccess);
         MUST(ulyxContextDestroy(copy));
         return result;
       },
       kWorks, kWorks, kInvalid, kWorks, kWorks},
      {"ulyxHaloShapeGetArenaBytes",
       [](Actor& a) {
         int64_t bytes = 0;
         const ulyxHaloShape_t shape = HaloOf(a.context);
         return ulyxHaloShapeGetArenaBytes(&shape, &bytes);
       },
       kWorks, kWorks, kInvalid, kWorks, kWorks},
      {"ulyxStateShapeGetArenaBytes",
       [](Actor& a) {
         int64_t bytes = 0;
         const ulyxStateShape_t shape = StateOf(a.context);
         return ulyxStateShapeGetArenaBytes(&shape, &bytes);
       },
       kWorks, kWorks, kInvalid, kWorks, kWorks},
      {"ulyxContextDestroy",
       [](Actor& a) {
         const ulyxResult_t result = ulyxContextDestroy(a.context);
         a.context = nullptr;
         return result;
       },
       kWorks, kWorks, kWorks, kWorks, kWorks},
  };
}

}  // namespace

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

const std::set<std::string>& StatelessFunctions() {
  static const std::set<std::string> names = {
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
  return names;
}

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
    case kTaken:
      EXPECT_EQ(result, ulyxInvalidUsage) << said;
      EXPECT_NE(said.find("another thread is inside this runtime (rank 0)"), std::string::npos) << said;
      return;
  }
  EXPECT_NE(said, "");
  EXPECT_EQ(said, ulyxGetLastError(runtime));
}

}  // namespace ulyx_test
