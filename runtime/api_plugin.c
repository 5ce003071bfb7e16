/* SPDX-License-Identifier: MIT
 *
 * The table of ulyx_plugin.h over the public functions: structs are translated field by field, refusals go to the
 * logger as well. A context holds the logger and each runtime a copy of it; a plan is the ulyxPlan_t itself, so that
 * making one allocates what ulyxPlanCreate does. */
#include "ulyx_plugin.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime.h"
#include "status.h"

struct ulyxPluginContext {
  ulyxPluginInit_v1_t init;
};

struct ulyxPluginRuntime {
  ulyxRuntime_t rt;
  ulyxPluginInit_v1_t init;
};

#define SAME(name) _Static_assert((int)ulyxPlugin##name == (int)ulyx##name, #name)
SAME(Success);
SAME(UnhandledCudaError);
SAME(SystemError);
SAME(InternalError);
SAME(InvalidArgument);
SAME(InvalidUsage);
SAME(RemoteError);
SAME(InProgress);
SAME(Mismatch);
SAME(Timeout);
SAME(ArenaTooSmall);
SAME(Closed);
SAME(Unsupported);
SAME(Int8);
SAME(Uint8);
SAME(Int32);
SAME(Uint32);
SAME(Int64);
SAME(Uint64);
SAME(Float16);
SAME(Float32);
SAME(Float64);
SAME(Bfloat16);
SAME(Float8e4m3);
SAME(Float8e5m2);
SAME(Bool);
SAME(Int16);
SAME(Uint16);
SAME(Opaque);
SAME(TransportAuto);
SAME(TransportLoopback);
SAME(TransportNccl);
SAME(TransportDirect);
SAME(TransportCopyEngine);
SAME(BatchFirst);
SAME(SeqFirst);
SAME(ReplicatedFirst);
SAME(ReplicatedLast);
/* NOLINTNEXTLINE(misc-redundant-expression): they are equal, which is what is asserted */
_Static_assert(ULYX_PLUGIN_UNDEF_INT == ULYX_UNDEF_INT && ULYX_PLUGIN_UNDEF_INT64 == ULYX_UNDEF_INT64, "undefined");
_Static_assert(sizeof(ulyxPluginUniqueId_v1_t) == sizeof(ulyxUniqueId_t), "unique id");

/* ---- Who is told ------------------------------------------------------------------------------------ */

static int32_t tell(const ulyxPluginInit_v1_t* init, const char* function, ulyxResult_t result) {
  char message[ULYX_MESSAGE_BYTES + 64];
  if (result != ulyxSuccess && init->log != NULL) {
    (void)snprintf(message, sizeof message, "%s: %s: %s", function, ulyxGetErrorString(result), ulyxGetLastError(NULL));
    init->log(init->user, ulyxPluginLogError, message);
  }
  return (int32_t)result;
}

static int32_t tellContext(ulyxPluginContext_t context, const char* function, ulyxResult_t result) {
  return context != NULL ? tell(&context->init, function, result) : (int32_t)result;
}

static int32_t tellRuntime(ulyxPluginRuntime_t rt, const char* function, ulyxResult_t result) {
  return rt != NULL ? tell(&rt->init, function, result) : (int32_t)result;
}

/* Errors are told with the name of the call (tell); what follows them is passed on. */
static void passRecord(void* user, ulyxLogLevel_t level, const char* line) {
  const ulyxPluginInit_v1_t* const init = &((ulyxPluginRuntime_t)user)->init;
  if (level == ulyxLogRecord && init->log != NULL) init->log(init->user, ulyxPluginLogInfo, line);
}

/* ---- What is refused here --------------------------------------------------------------------------- */

static ulyxResult_t checkSize(const uint64_t* size, size_t expected, const char* name) {
  if (size == NULL) return ulyxFail(ulyxInvalidArgument, "%s is NULL", name);
  if (*size == expected) return ulyxSuccess;
  return ulyxFail(ulyxInvalidArgument, "%s: size is %llu, expected %zu in version 1", name, (unsigned long long)*size,
                  expected);
}

/* Every struct of the plugin begins with its size. */
#define CHECK_SIZE(given) checkSize((given) != NULL ? &(given)->size : NULL, sizeof *(given), #given)

static ulyxResult_t checkContext(ulyxPluginContext_t context) {
  return context != NULL ? ulyxSuccess : ulyxFail(ulyxInvalidArgument, "the context is NULL");
}

static ulyxRuntime_t runtimeOf(ulyxPluginRuntime_t rt) {
  return rt != NULL ? rt->rt : NULL; /* NULL is refused by what it is handed to */
}

static ulyxPlan_t planOf(ulyxPluginPlan_t plan) {
  return (ulyxPlan_t)plan;
}

/* Plans do not know the plugin's runtimes, and a refusal is told to that of the call. */
static ulyxResult_t checkPlan(ulyxPluginRuntime_t rt, ulyxPluginPlan_t plan) {
  ULYX_TRY(ulyxRuntimeCheckHandle(runtimeOf(rt)));
  ULYX_TRY(ulyxPlanCheckHandle(planOf(plan)));
  if (planOf(plan)->rt == rt->rt) return ulyxSuccess;
  return ulyxFail(ulyxInvalidArgument, "the plan is of another runtime");
}

/* ---- Structs ---------------------------------------------------------------------------------------- */

static ulyxConfig_t configOf(const ulyxPluginConfig_v1_t* given) {
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  if (given == NULL) return config;
  config.transport = given->transport;
  config.agreePlans = given->agreePlans;
  config.timeoutMs = given->timeoutMs;
  config.maxCtas = given->maxCtas;
  config.arenaBytes = given->arenaBytes;
  config.streamPriority = given->streamPriority;
  config.undisturbed = given->undisturbed;
  config.copyStreams = given->copyStreams;
  config.reserved = given->reserved;
  return config;
}

static ulyxStrides_t stridesOf(const ulyxPluginStrides_v1_t* strides) {
  return (ulyxStrides_t){.batch = strides->batch, .token = strides->token, .head = strides->head};
}

/* All but sequences. */
static ulyxShape_t shapeOf(const ulyxPluginShape_v1_t* given) {
  ulyxShape_t shape = ULYX_SHAPE_INITIALIZER;
  shape.tokens = given->tokens;
  shape.heads = given->heads;
  shape.kvHeads = given->kvHeads;
  shape.headDim = given->headDim;
  shape.valueDim = given->valueDim;
  shape.batch = given->batch;
  shape.replicatedTokens = given->replicatedTokens;
  shape.tokenCounts = given->tokenCounts;
  shape.headCounts = given->headCounts;
  shape.type = given->type;
  shape.elementBytes = given->elementBytes;
  shape.seqOrder = given->seqOrder;
  shape.headsOrder = given->headsOrder;
  shape.packedIn = given->packedIn;
  shape.packedOut = given->packedOut;
  shape.replicatedPlace = given->replicatedPlace;
  shape.reserved = given->reserved;
  shape.qIn = stridesOf(&given->qIn);
  shape.kIn = stridesOf(&given->kIn);
  shape.vIn = stridesOf(&given->vIn);
  shape.qOut = stridesOf(&given->qOut);
  shape.kOut = stridesOf(&given->kOut);
  shape.vOut = stridesOf(&given->vOut);
  shape.oIn = stridesOf(&given->oIn);
  shape.oOut = stridesOf(&given->oOut);
  return shape;
}

static ulyxPluginRange_v1_t giveRange(ulyxRange_t range) {
  return (ulyxPluginRange_v1_t){.start = range.start, .stop = range.stop};
}

static void giveTensor(const ulyxTensor_t* tensor, ulyxPluginTensor_v1_t* given) {
  for (int i = 0; i < 4; ++i) {
    given->extents[i] = tensor->extents[i];
    given->strides[i] = tensor->strides[i];
  }
  given->data = tensor->data;
  given->type = tensor->type;
  given->elementBytes = tensor->elementBytes;
}

static ulyxTensor_t tensorOf(const ulyxPluginTensor_v1_t* given) {
  ulyxTensor_t tensor = ULYX_TENSOR_INITIALIZER;
  for (int i = 0; i < 4; ++i) {
    tensor.extents[i] = given->extents[i];
    tensor.strides[i] = given->strides[i];
  }
  tensor.data = given->data;
  tensor.type = given->type;
  tensor.elementBytes = given->elementBytes;
  return tensor;
}

/* ---- Contexts and errors ---------------------------------------------------------------------------- */

static int32_t init(const ulyxPluginInit_v1_t* init, ulyxPluginContext_t* context) {
  void* made = NULL;
  ULYX_TRY(CHECK_SIZE(init));
  if (context == NULL) return tell(init, "init", ulyxFail(ulyxInvalidArgument, "context is NULL"));
  const ulyxResult_t result = ulyxAllocate(&made, 1, sizeof(struct ulyxPluginContext), "a context");
  if (result != ulyxSuccess) return tell(init, "init", result);
  *context = made;
  (*context)->init = *init;
  return ulyxPluginSuccess;
}

static int32_t finalize(ulyxPluginContext_t context) {
  free(context);
  return ulyxPluginSuccess;
}

static const char* errorString(int32_t result) {
  return ulyxGetErrorString((ulyxResult_t)result);
}

static const char* lastError(void) {
  return ulyxGetLastError(NULL);
}

/* ---- Runtimes --------------------------------------------------------------------------------------- */

static int32_t getUniqueId(ulyxPluginContext_t context, ulyxPluginUniqueId_v1_t* id) {
  return tellContext(context, "getUniqueId", ulyxGetUniqueId((ulyxUniqueId_t*)id));
}

/* How a world is made: `make` writes handles[nRanks]. */
typedef struct World {
  ulyxConfig_t config;
  int nRanks;
  ulyxUniqueId_t id;
  int rank;
  struct ncclComm* comm;
  const int32_t* devices;
} World;

static ulyxResult_t makeByUniqueId(const World* world, ulyxRuntime_t* handles) {
  return ulyxRuntimeCreate(&world->config, world->nRanks, world->id, world->rank, handles);
}

static ulyxResult_t makeFromComm(const World* world, ulyxRuntime_t* handles) {
  return ulyxRuntimeCreateFromComm(&world->config, world->comm, handles);
}

static ulyxResult_t makeLocal(const World* world, ulyxRuntime_t* handles) {
  return ulyxRuntimeCreateLocal(&world->config, world->nRanks, world->devices, handles);
}

/* Makes `count` runtimes; all memory first, so that nothing made has to be undone. */
static ulyxResult_t createRuntimes(ulyxPluginContext_t context, const ulyxPluginConfig_v1_t* config, World* world,
                                   ulyxResult_t (*make)(const World* world, ulyxRuntime_t* handles), int count,
                                   ulyxPluginRuntime_t* rts) {
  void* handles = NULL;
  void* wrappers = NULL;
  int made = 0;
  ULYX_TRY(checkContext(context));
  if (rts == NULL) return ulyxFail(ulyxInvalidArgument, "%s is NULL", make == makeLocal ? "rts" : "rt");
  if (config != NULL) ULYX_TRY(CHECK_SIZE(config));
  if (count < 1 || count > ULYX_LOCAL_MAX_RANKS) {
    return ulyxFail(ulyxInvalidArgument, "nRanks is %d, expected 1 to %d", count, ULYX_LOCAL_MAX_RANKS);
  }
  world->config = configOf(config);
  ULYX_TRY(ulyxAllocate(&handles, (size_t)count, sizeof(ulyxRuntime_t), "runtimes"));
  ulyxResult_t result = ulyxAllocate(&wrappers, (size_t)count, sizeof(ulyxPluginRuntime_t), "runtimes");
  if (result != ulyxSuccess) goto freeHandles;
  ulyxPluginRuntime_t* const runtimes = wrappers;
  for (; made < count; ++made) {
    void* wrapper = NULL;
    ULYX_TRY_GOTO(ulyxAllocate(&wrapper, 1, sizeof(struct ulyxPluginRuntime), "a runtime"), freeWrappers);
    runtimes[made] = wrapper;
  }
  ULYX_TRY_GOTO(make(world, handles), freeWrappers);
  for (int i = 0; i < count; ++i) {
    runtimes[i]->rt = ((ulyxRuntime_t*)handles)[i];
    runtimes[i]->init = context->init;
    (void)ulyxRuntimeSetLogger(runtimes[i]->rt, passRecord, runtimes[i]); /* of a runtime that nobody else has yet */
    rts[i] = runtimes[i];
  }
  made = 0;

freeWrappers:
  for (int i = 0; i < made; ++i) free(((ulyxPluginRuntime_t*)wrappers)[i]);
  free(wrappers);
freeHandles:
  free(handles);
  return result;
}

static int32_t runtimeCreate(ulyxPluginContext_t context, const ulyxPluginConfig_v1_t* config, int32_t nRanks,
                             const ulyxPluginUniqueId_v1_t* id, int32_t rank, ulyxPluginRuntime_t* rt) {
  World world = {.nRanks = nRanks, .rank = rank};
  if (id == NULL) return tellContext(context, "runtimeCreate", ulyxFail(ulyxInvalidArgument, "id is NULL"));
  world.id = *(const ulyxUniqueId_t*)id;
  return tellContext(context, "runtimeCreate", createRuntimes(context, config, &world, makeByUniqueId, 1, rt));
}

static int32_t runtimeCreateFromComm(ulyxPluginContext_t context, const ulyxPluginConfig_v1_t* config, void* comm,
                                     ulyxPluginRuntime_t* rt) {
  World world = {.comm = comm};
  return tellContext(context, "runtimeCreateFromComm", createRuntimes(context, config, &world, makeFromComm, 1, rt));
}

static int32_t runtimeCreateLocal(ulyxPluginContext_t context, const ulyxPluginConfig_v1_t* config, int32_t nRanks,
                                  const int32_t* devices, ulyxPluginRuntime_t* rts) {
  World world = {.nRanks = nRanks, .devices = devices};
  return tellContext(context, "runtimeCreateLocal", createRuntimes(context, config, &world, makeLocal, nRanks, rts));
}

static ulyxResult_t giveRuntimeInfo(ulyxRuntime_t rt, ulyxPluginRuntimeInfo_v1_t* info) {
  ulyxRuntimeInfo_t known = ULYX_RUNTIME_INFO_INITIALIZER;
  ULYX_TRY(CHECK_SIZE(info));
  ULYX_TRY(ulyxRuntimeGetInfo(rt, &known));
  info->arenaBytes = known.arenaBytes;
  info->transportReason = known.transportReason;
  info->rank = known.rank;
  info->nRanks = known.nRanks;
  info->transport = known.transport;
  info->device = known.device;
  info->ncclVersion = known.ncclVersion;
  info->closed = known.closed;
  return ulyxSuccess;
}

static int32_t runtimeGetInfo(ulyxPluginRuntime_t rt, ulyxPluginRuntimeInfo_v1_t* info) {
  return tellRuntime(rt, "runtimeGetInfo", giveRuntimeInfo(runtimeOf(rt), info));
}

static int32_t runtimeReserve(ulyxPluginRuntime_t rt, int64_t arenaBytes) {
  return tellRuntime(rt, "runtimeReserve", ulyxRuntimeReserve(runtimeOf(rt), arenaBytes));
}

static int32_t runtimeGetAsyncError(ulyxPluginRuntime_t rt, int32_t* error) {
  ulyxResult_t found = ulyxSuccess;
  const ulyxResult_t result = ulyxRuntimeGetAsyncError(runtimeOf(rt), error != NULL ? &found : NULL);
  if (result != ulyxSuccess) return tellRuntime(rt, "runtimeGetAsyncError", result);
  /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): NULL has been refused */
  *error = tellRuntime(rt, "runtimeGetAsyncError", found);
  return ulyxPluginSuccess;
}

static int32_t runtimeAbort(ulyxPluginRuntime_t rt) {
  return tellRuntime(rt, "runtimeAbort", ulyxRuntimeAbort(runtimeOf(rt)));
}

static int32_t runtimeClose(ulyxPluginRuntime_t rt) {
  return tellRuntime(rt, "runtimeClose", ulyxRuntimeClose(runtimeOf(rt)));
}

static int32_t runtimeDestroy(ulyxPluginRuntime_t rt) {
  if (rt == NULL) return ulyxPluginSuccess;
  const int32_t result = tellRuntime(rt, "runtimeDestroy", ulyxRuntimeDestroy(&rt->rt));
  if (rt->rt == NULL) free(rt);
  return result;
}

static int32_t memAlloc(ulyxPluginRuntime_t rt, int64_t bytes, void** ptr) {
  return tellRuntime(rt, "memAlloc", ulyxMemAlloc(runtimeOf(rt), bytes, ptr));
}

static int32_t memFree(ulyxPluginRuntime_t rt, void* ptr) {
  return tellRuntime(rt, "memFree", ulyxMemFree(runtimeOf(rt), ptr));
}

/* ---- Plans ------------------------------------------------------------------------------------------ */

static ulyxResult_t readShape(const ulyxPluginShape_v1_t* shape, ulyxShape_t* read) {
  ULYX_TRY(CHECK_SIZE(shape));
  *read = shapeOf(shape);
  if (shape->cuSeqlens == NULL && shape->cuSeqlensCount == 0) return ulyxSuccess;
  return ulyxSequencesCreate(shape->cuSeqlens, shape->cuSeqlensCount, ulyxInt64, &read->sequences);
}

static ulyxResult_t giveShapeBytes(const ulyxPluginShape_v1_t* shape, int nRanks, int rank,
                                   ulyxPluginShapeBytes_v1_t* bytes) {
  ulyxShapeBytes_t known = ULYX_SHAPE_BYTES_INITIALIZER;
  ulyxShape_t asked;
  ULYX_TRY(CHECK_SIZE(bytes));
  ULYX_TRY(readShape(shape, &asked));
  const ulyxResult_t result = ulyxShapeGetBytes(&asked, nRanks, rank, &known);
  (void)ulyxSequencesDestroy(asked.sequences);
  if (result != ulyxSuccess) return result;
  bytes->qIn = known.qIn;
  bytes->kIn = known.kIn;
  bytes->vIn = known.vIn;
  bytes->qOut = known.qOut;
  bytes->kOut = known.kOut;
  bytes->vOut = known.vOut;
  bytes->oIn = known.oIn;
  bytes->oOut = known.oOut;
  bytes->arena = known.arena;
  return ulyxSuccess;
}

static int32_t shapeGetBytes(ulyxPluginContext_t context, const ulyxPluginShape_v1_t* shape, int32_t nRanks,
                             int32_t rank, ulyxPluginShapeBytes_v1_t* bytes) {
  return tellContext(context, "shapeGetBytes", giveShapeBytes(shape, nRanks, rank, bytes));
}

static ulyxResult_t createPlan(ulyxRuntime_t rt, const ulyxPluginShape_v1_t* shape, ulyxPlan_t* plan) {
  ulyxShape_t read;
  const ulyxResult_t refused = readShape(shape, &read);
  if (refused != ulyxSuccess) {
    /* The peers are in ulyxPlanCreate and learn there that this rank refuses. */
    ulyxUndoBegin();
    (void)ulyxPlanCreate(rt, NULL, plan);
    ulyxUndoEnd();
    return refused;
  }
  const ulyxResult_t result = ulyxPlanCreate(rt, &read, plan);
  (void)ulyxSequencesDestroy(read.sequences);
  return result;
}

static int32_t planCreate(ulyxPluginRuntime_t rt, const ulyxPluginShape_v1_t* shape, ulyxPluginPlan_t* plan) {
  ulyxPlan_t made = NULL;
  const ulyxResult_t result = createPlan(runtimeOf(rt), shape, plan != NULL ? &made : NULL);
  /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): NULL has been refused */
  if (result == ulyxSuccess) *plan = (ulyxPluginPlan_t)made;
  return tellRuntime(rt, "planCreate", result);
}

static ulyxResult_t givePlanInfo(ulyxPlan_t plan, ulyxPluginPlanInfo_v1_t* info) {
  ulyxPlanInfo_t known = ULYX_PLAN_INFO_INITIALIZER;
  ULYX_TRY(CHECK_SIZE(info));
  ULYX_TRY(ulyxPlanGetInfo(plan, &known));
  info->tokenRange = giveRange(known.tokenRange);
  info->headRange = giveRange(known.headRange);
  info->kvHeadRange = giveRange(known.kvHeadRange);
  info->seqReplicated = giveRange(known.seqReplicated);
  info->headsReplicated = giveRange(known.headsReplicated);
  info->tokenCounts = known.tokenCounts;
  info->headCounts = known.headCounts;
  info->kvHeadOfHead = known.kvHeadOfHead;
  info->sequenceCount = known.sequenceCount;
  info->longestSequence = known.longestSequence;
  info->arenaBytes = known.arenaBytes;
  info->signature = known.signature;
  info->seqToHeadsReason = known.seqToHeads.reason;
  info->headsToSeqReason = known.headsToSeq.reason;
  info->seqToHeadsUs = known.seqToHeads.predictedUs;
  info->headsToSeqUs = known.headsToSeq.predictedUs;
  info->seqToHeadsTransport = known.seqToHeads.transport;
  info->headsToSeqTransport = known.headsToSeq.transport;
  return ulyxSuccess;
}

static int32_t planGetInfo(ulyxPluginRuntime_t rt, ulyxPluginPlan_t plan, ulyxPluginPlanInfo_v1_t* info) {
  ulyxResult_t result = checkPlan(rt, plan);
  if (result == ulyxSuccess) result = givePlanInfo(planOf(plan), info);
  return tellRuntime(rt, "planGetInfo", result);
}

static ulyxResult_t giveTensors(ulyxPlan_t plan, ulyxPluginTensors_v1_t* tensors) {
  ulyxQkv_t in, out;
  ulyxTensor_t oIn, oOut;
  ULYX_TRY(CHECK_SIZE(tensors));
  ULYX_TRY(ulyxPlanGetQkv(plan, &in, &out));
  ULYX_TRY(ulyxPlanGetOutput(plan, &oIn, &oOut));
  giveTensor(&in.q, &tensors->qIn);
  giveTensor(&in.k, &tensors->kIn);
  giveTensor(&in.v, &tensors->vIn);
  giveTensor(&out.q, &tensors->qOut);
  giveTensor(&out.k, &tensors->kOut);
  giveTensor(&out.v, &tensors->vOut);
  giveTensor(&oIn, &tensors->oIn);
  giveTensor(&oOut, &tensors->oOut);
  return ulyxSuccess;
}

static int32_t planGetTensors(ulyxPluginRuntime_t rt, ulyxPluginPlan_t plan, ulyxPluginTensors_v1_t* tensors) {
  ulyxResult_t result = checkPlan(rt, plan);
  if (result == ulyxSuccess) result = giveTensors(planOf(plan), tensors);
  return tellRuntime(rt, "planGetTensors", result);
}

static int32_t planStoreCuSeqlens(ulyxPluginRuntime_t rt, ulyxPluginPlan_t plan, int32_t* cuSeqlens, void* stream) {
  ulyxResult_t result = checkPlan(rt, plan);
  if (result == ulyxSuccess) result = ulyxPlanStoreCuSeqlens(planOf(plan), cuSeqlens, stream);
  return tellRuntime(rt, "planStoreCuSeqlens", result);
}

static int32_t planDestroy(ulyxPluginRuntime_t rt, ulyxPluginPlan_t plan) {
  ulyxResult_t result = plan != NULL ? checkPlan(rt, plan) : ulyxSuccess;
  if (result == ulyxSuccess) result = ulyxPlanDestroy(planOf(plan));
  return tellRuntime(rt, "planDestroy", result);
}

/* ---- Exchanges -------------------------------------------------------------------------------------- */

static ulyxResult_t runSeqToHeads(ulyxPlan_t plan, const ulyxPluginTensors_v1_t* tensors, ulyxStream_t stream) {
  ULYX_TRY(CHECK_SIZE(tensors));
  const ulyxQkv_t in = {tensorOf(&tensors->qIn), tensorOf(&tensors->kIn), tensorOf(&tensors->vIn)};
  const ulyxQkv_t out = {tensorOf(&tensors->qOut), tensorOf(&tensors->kOut), tensorOf(&tensors->vOut)};
  return ulyxSeqToHeads(plan, &in, &out, stream);
}

static int32_t seqToHeads(ulyxPluginRuntime_t rt, ulyxPluginPlan_t plan, const ulyxPluginTensors_v1_t* tensors,
                          void* stream) {
  ulyxResult_t result = checkPlan(rt, plan);
  if (result == ulyxSuccess) result = runSeqToHeads(planOf(plan), tensors, stream);
  return tellRuntime(rt, "seqToHeads", result);
}

static ulyxResult_t runHeadsToSeq(ulyxPlan_t plan, const ulyxPluginTensors_v1_t* tensors, ulyxStream_t stream) {
  ULYX_TRY(CHECK_SIZE(tensors));
  const ulyxTensor_t in = tensorOf(&tensors->oIn), out = tensorOf(&tensors->oOut);
  return ulyxHeadsToSeq(plan, &in, &out, stream);
}

static int32_t headsToSeq(ulyxPluginRuntime_t rt, ulyxPluginPlan_t plan, const ulyxPluginTensors_v1_t* tensors,
                          void* stream) {
  ulyxResult_t result = checkPlan(rt, plan);
  if (result == ulyxSuccess) result = runHeadsToSeq(planOf(plan), tensors, stream);
  return tellRuntime(rt, "headsToSeq", result);
}

extern ULYX_API const ulyxPlugin_v1_t ulyxPlugin_v1;
const ulyxPlugin_v1_t ulyxPlugin_v1 = {
    .size = sizeof(ulyxPlugin_v1_t),
    .name = "ulyx",
    .libraryVersion = ULYX_VERSION_CODE,
    .init = init,
    .finalize = finalize,
    .errorString = errorString,
    .lastError = lastError,
    .getUniqueId = getUniqueId,
    .runtimeCreate = runtimeCreate,
    .runtimeCreateFromComm = runtimeCreateFromComm,
    .runtimeCreateLocal = runtimeCreateLocal,
    .runtimeGetInfo = runtimeGetInfo,
    .runtimeReserve = runtimeReserve,
    .runtimeGetAsyncError = runtimeGetAsyncError,
    .runtimeAbort = runtimeAbort,
    .runtimeClose = runtimeClose,
    .runtimeDestroy = runtimeDestroy,
    .memAlloc = memAlloc,
    .memFree = memFree,
    .shapeGetBytes = shapeGetBytes,
    .planCreate = planCreate,
    .planGetInfo = planGetInfo,
    .planGetTensors = planGetTensors,
    .planStoreCuSeqlens = planStoreCuSeqlens,
    .planDestroy = planDestroy,
    .seqToHeads = seqToHeads,
    .headsToSeq = headsToSeq,
};
