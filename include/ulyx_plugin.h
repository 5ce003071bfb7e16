/* SPDX-License-Identifier: MIT
 *
 * ulyx as a plugin: one table of functions that a server finds by name in libulyx.so when it runs. It compiles with
 * this header alone, without ulyx, CUDA or NCCL, and goes on without ulyx where the library is not there.
 *
 *   void* library = dlopen("libulyx.so.0", RTLD_NOW | RTLD_LOCAL);
 *   const ulyxPlugin_v1_t* ulyx = library != NULL ? dlsym(library, ULYX_PLUGIN_SYMBOL) : NULL;
 *
 * NULL: no library, or none with version 1. Version 1 is frozen: names, types, values and layouts below never change,
 * and no function or field is added. What grows is a version 2, under a symbol of its own beside this one. So every
 * `size` is the size of this very struct: the caller sets it in each struct that it hands in, also in those that
 * are filled for it, and another one is refused.
 *
 * What the functions do, which of them are collective, who may call them when, and how long things live is said in
 * ulyx.h of the functions of the same names, with these differences:
 *
 * - A refused call also tells its context's logger, on the calling thread, before it returns. Where ulyx.h has the
 *   flight record logged, its lines come first, as ulyxPluginLogInfo.
 * - Plans are named together with their runtime, and do not outlive it.
 * - Every field is 0 where nothing else is said; 0 has the meaning of ulyx.h.
 */
#ifndef ULYX_PLUGIN_H_
#define ULYX_PLUGIN_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ULYX_PLUGIN_SYMBOL "ulyxPlugin_v1"

/* ---- Numbers ---------------------------------------------------------------------------------------- */

/* What functions return. A later library may return others: they are failures. */
enum {
  ulyxPluginSuccess = 0,
  ulyxPluginUnhandledCudaError = 1,
  ulyxPluginSystemError = 2,
  ulyxPluginInternalError = 3,
  ulyxPluginInvalidArgument = 4,
  ulyxPluginInvalidUsage = 5,
  ulyxPluginRemoteError = 6,
  ulyxPluginInProgress = 7,
  ulyxPluginMismatch = 100,
  ulyxPluginTimeout = 101,
  ulyxPluginArenaTooSmall = 102,
  ulyxPluginClosed = 103,
  ulyxPluginUnsupported = 104
};

/* Types of elements. */
enum {
  ulyxPluginInt8 = 0,
  ulyxPluginUint8 = 1,
  ulyxPluginInt32 = 2,
  ulyxPluginUint32 = 3,
  ulyxPluginInt64 = 4,
  ulyxPluginUint64 = 5,
  ulyxPluginFloat16 = 6,
  ulyxPluginFloat32 = 7,
  ulyxPluginFloat64 = 8,
  ulyxPluginBfloat16 = 9,
  ulyxPluginFloat8e4m3 = 10,
  ulyxPluginFloat8e5m2 = 11,
  ulyxPluginBool = 100,
  ulyxPluginInt16 = 101,
  ulyxPluginUint16 = 102,
  ulyxPluginOpaque = 103
};

enum {
  ulyxPluginTransportAuto = 0,
  ulyxPluginTransportLoopback = 1,
  ulyxPluginTransportNccl = 2,
  ulyxPluginTransportDirect = 3,
  ulyxPluginTransportCopyEngine = 4
};

enum { ulyxPluginBatchFirst = 0, ulyxPluginSeqFirst = 1 };
enum { ulyxPluginReplicatedFirst = 0, ulyxPluginReplicatedLast = 1 };

/* How much a message matters. A later library may use others. */
enum { ulyxPluginLogError = 1, ulyxPluginLogWarning = 2, ulyxPluginLogInfo = 3 };

/* A config's field that is left to the environment, else to the default. */
#define ULYX_PLUGIN_UNDEF_INT INT32_MIN
#define ULYX_PLUGIN_UNDEF_INT64 INT64_MIN

/* ---- Types ------------------------------------------------------------------------------------------ */

typedef struct ulyxPluginContext* ulyxPluginContext_t;
typedef struct ulyxPluginRuntime* ulyxPluginRuntime_t;
typedef struct ulyxPluginPlan* ulyxPluginPlan_t;

/* Takes one message, without a newline, that lives during the call only. Several threads may be inside it at once. It
 * must not call ulyx. */
typedef void (*ulyxPluginLog_v1_t)(void* user, int32_t level, const char* message);

typedef struct ulyxPluginInit_v1 {
  uint64_t size;
  ulyxPluginLog_v1_t log; /* NULL: nobody is told */
  void* user;             /* handed to log */
} ulyxPluginInit_v1_t;

typedef struct ulyxPluginUniqueId_v1 {
  char internal[128];
} ulyxPluginUniqueId_v1_t;

/* Of ulyxConfig_t. */
typedef struct ulyxPluginConfig_v1 {
  uint64_t size;
  int64_t arenaBytes;
  int32_t transport;
  int32_t agreePlans;
  int32_t timeoutMs;
  int32_t maxCtas;
  int32_t streamPriority;
  int32_t undisturbed;
  int32_t copyStreams;
  int32_t reserved; /* 0 */
} ulyxPluginConfig_v1_t;

/* Everything left to the environment. */
#define ULYX_PLUGIN_CONFIG_V1_INITIALIZER                                                                 \
  {                                                                                                       \
    sizeof(ulyxPluginConfig_v1_t), ULYX_PLUGIN_UNDEF_INT64, ULYX_PLUGIN_UNDEF_INT, ULYX_PLUGIN_UNDEF_INT, \
        ULYX_PLUGIN_UNDEF_INT, ULYX_PLUGIN_UNDEF_INT, ULYX_PLUGIN_UNDEF_INT, ULYX_PLUGIN_UNDEF_INT,       \
        ULYX_PLUGIN_UNDEF_INT, 0                                                                          \
  }

/* Of ulyxRuntimeInfo_t. */
typedef struct ulyxPluginRuntimeInfo_v1 {
  uint64_t size;
  int64_t arenaBytes;
  const char* transportReason; /* lives as long as the runtime */
  int32_t rank;
  int32_t nRanks;
  int32_t transport;
  int32_t device;
  int32_t ncclVersion;
  int32_t closed;
} ulyxPluginRuntimeInfo_v1_t;

typedef struct ulyxPluginRange_v1 {
  int64_t start;
  int64_t stop;
} ulyxPluginRange_v1_t;

typedef struct ulyxPluginStrides_v1 {
  int64_t batch;
  int64_t token;
  int64_t head;
} ulyxPluginStrides_v1_t;

/* Of ulyxShape_t. */
typedef struct ulyxPluginShape_v1 {
  uint64_t size;
  int64_t tokens;
  int64_t heads;
  int64_t kvHeads;
  int64_t headDim;
  int64_t valueDim;
  int64_t batch;
  int64_t replicatedTokens;
  const int64_t* tokenCounts; /* [nRanks] or NULL */
  const int64_t* headCounts;  /* [nRanks] or NULL */
  const int64_t*
      cuSeqlens; /* [cuSeqlensCount] or NULL: where the sequences of the heads side's tokens begin, and end */
  int64_t cuSeqlensCount;
  int32_t type;
  int32_t elementBytes;
  int32_t seqOrder;
  int32_t headsOrder;
  int32_t packedIn;
  int32_t packedOut;
  int32_t replicatedPlace;
  int32_t reserved; /* 0 */
  ulyxPluginStrides_v1_t qIn, kIn, vIn, qOut, kOut, vOut, oIn, oOut;
} ulyxPluginShape_v1_t;

/* Of ulyxShapeBytes_t. */
typedef struct ulyxPluginShapeBytes_v1 {
  uint64_t size;
  int64_t qIn, kIn, vIn, qOut, kOut, vOut, oIn, oOut;
  int64_t arena;
} ulyxPluginShapeBytes_v1_t;

/* Of ulyxPlanInfo_t. Pointers live as long as the plan. */
typedef struct ulyxPluginPlanInfo_v1 {
  uint64_t size;
  ulyxPluginRange_v1_t tokenRange;
  ulyxPluginRange_v1_t headRange;
  ulyxPluginRange_v1_t kvHeadRange;
  ulyxPluginRange_v1_t seqReplicated;
  ulyxPluginRange_v1_t headsReplicated;
  const int64_t* tokenCounts;  /* [nRanks] */
  const int64_t* headCounts;   /* [nRanks] */
  const int64_t* kvHeadOfHead; /* [own heads] */
  int64_t sequenceCount;
  int64_t longestSequence;
  int64_t arenaBytes;
  uint64_t signature;
  const char* seqToHeadsReason;
  const char* headsToSeqReason;
  double seqToHeadsUs;
  double headsToSeqUs;
  int32_t seqToHeadsTransport;
  int32_t headsToSeqTransport;
} ulyxPluginPlanInfo_v1_t;

/* [batch, tokens, heads, dim], strides in elements. */
typedef struct ulyxPluginTensor_v1 {
  void* data;
  int64_t extents[4];
  int64_t strides[4];
  int32_t type;
  int32_t elementBytes;
} ulyxPluginTensor_v1_t;

/* Every tensor of both exchanges. planGetTensors fills all of it but data; where a side is packed it is under q, and k
 * and v are not looked at. */
typedef struct ulyxPluginTensors_v1 {
  uint64_t size;
  ulyxPluginTensor_v1_t qIn, kIn, vIn;    /* read by seqToHeads */
  ulyxPluginTensor_v1_t qOut, kOut, vOut; /* written by it */
  ulyxPluginTensor_v1_t oIn;              /* read by headsToSeq */
  ulyxPluginTensor_v1_t oOut;             /* written by it */
} ulyxPluginTensors_v1_t;

/* ---- The table -------------------------------------------------------------------------------------- */

/* All functions are set. Streams are cudaStream_t, NULL the legacy default stream; device numbers are CUDA's. */
typedef struct ulyxPlugin_v1 {
  uint64_t size;
  const char* name;       /* "ulyx" */
  int32_t libraryVersion; /* of the library that is loaded: 10000 major + 100 minor + patch */
  int32_t reserved;

  /* A context is what runtimes are made in: who is told. Any thread may make any number of them. */
  int32_t (*init)(const ulyxPluginInit_v1_t* init, ulyxPluginContext_t* context);
  /* Runtimes made in it live on, and its logger with them. NULL is a no-op. */
  int32_t (*finalize)(ulyxPluginContext_t context);

  /* A constant name for what a function returned; never NULL. */
  const char* (*errorString)(int32_t result);
  /* What the calling thread's last refused call said, or what its last runtimeGetAsyncError found; "" if there was
   * none. Valid until the thread's next call. */
  const char* (*lastError)(void);

  int32_t (*getUniqueId)(ulyxPluginContext_t context, ulyxPluginUniqueId_v1_t* id);
  /* config may be NULL in all three. */
  int32_t (*runtimeCreate)(ulyxPluginContext_t context, const ulyxPluginConfig_v1_t* config, int32_t nRanks,
                           const ulyxPluginUniqueId_v1_t* id, int32_t rank, ulyxPluginRuntime_t* rt);
  /* comm is an ncclComm_t. */
  int32_t (*runtimeCreateFromComm)(ulyxPluginContext_t context, const ulyxPluginConfig_v1_t* config, void* comm,
                                   ulyxPluginRuntime_t* rt);
  /* rts[nRanks] is written; devices[nRanks], or NULL for threads on the CPU. */
  int32_t (*runtimeCreateLocal)(ulyxPluginContext_t context, const ulyxPluginConfig_v1_t* config, int32_t nRanks,
                                const int32_t* devices, ulyxPluginRuntime_t* rts);
  int32_t (*runtimeGetInfo)(ulyxPluginRuntime_t rt, ulyxPluginRuntimeInfo_v1_t* info);
  int32_t (*runtimeReserve)(ulyxPluginRuntime_t rt, int64_t arenaBytes);
  /* *error is what a device found; the logger is told of it as well. */
  int32_t (*runtimeGetAsyncError)(ulyxPluginRuntime_t rt, int32_t* error);
  int32_t (*runtimeAbort)(ulyxPluginRuntime_t rt);
  int32_t (*runtimeClose)(ulyxPluginRuntime_t rt);
  /* NULL is a no-op. Where a second thread is inside the runtime, or captured graphs hold its exchanges, it lives on
   * (ulyxPluginInvalidUsage); whatever else is returned, it is gone. */
  int32_t (*runtimeDestroy)(ulyxPluginRuntime_t rt);

  int32_t (*memAlloc)(ulyxPluginRuntime_t rt, int64_t bytes, void** ptr);
  int32_t (*memFree)(ulyxPluginRuntime_t rt, void* ptr);

  int32_t (*shapeGetBytes)(ulyxPluginContext_t context, const ulyxPluginShape_v1_t* shape, int32_t nRanks, int32_t rank,
                           ulyxPluginShapeBytes_v1_t* bytes);
  int32_t (*planCreate)(ulyxPluginRuntime_t rt, const ulyxPluginShape_v1_t* shape, ulyxPluginPlan_t* plan);
  int32_t (*planGetInfo)(ulyxPluginRuntime_t rt, ulyxPluginPlan_t plan, ulyxPluginPlanInfo_v1_t* info);
  int32_t (*planGetTensors)(ulyxPluginRuntime_t rt, ulyxPluginPlan_t plan, ulyxPluginTensors_v1_t* tensors);
  int32_t (*planStoreCuSeqlens)(ulyxPluginRuntime_t rt, ulyxPluginPlan_t plan, int32_t* cuSeqlens, void* stream);
  int32_t (*planDestroy)(ulyxPluginRuntime_t rt, ulyxPluginPlan_t plan);

  int32_t (*seqToHeads)(ulyxPluginRuntime_t rt, ulyxPluginPlan_t plan, const ulyxPluginTensors_v1_t* tensors,
                        void* stream);
  int32_t (*headsToSeq)(ulyxPluginRuntime_t rt, ulyxPluginPlan_t plan, const ulyxPluginTensors_v1_t* tensors,
                        void* stream);
} ulyxPlugin_v1_t;

#ifdef __cplusplus
}
#endif

#endif /* ULYX_PLUGIN_H_ */
