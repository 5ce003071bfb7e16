/* SPDX-License-Identifier: MIT
 *
 * ulyx: ragged attention data between ranks, at the speed of the wire.
 *
 * A sequence of tokens is split over the ranks of a world; attention wants whole sequences, split by
 * heads. ulyx moves Q, K and V from the first ownership to the second (ulyxSeqToHeads) and attention's
 * output back (ulyxHeadsToSeq). Neither tokens nor heads need divide by the number of ranks; nothing is
 * padded.
 *
 *   runtime   one rank's persistent object: communicator, streams, staging arena. Made once.
 *   shape     integers that decide every byte moved: tokens, heads, dims, batch, type, layouts.
 *   plan      a shape resolved on a runtime. Made when the shape changes, used for every layer.
 *   exchange  enqueues a plan's copies on the caller's stream and returns.
 *
 * Rules that hold for every function unless its text says otherwise:
 *
 * - It returns ulyxSuccess or the reason for refusing. A refused call has written nothing, neither
 *   outputs nor tensors. ulyxGetLastError says what was wrong, with the expected and the given number.
 * - Collective means: every rank of the runtime's world makes the call, in the same order.
 * - One host thread drives one rank at a time. Calls on different runtimes may come from different threads
 *   in any order; a second thread inside the same runtime gets ulyxInvalidUsage.
 * - Integers are ranks, tokens, heads or elements as named; sizes in bytes say so. Counts are 64-bit.
 * - Structs that a caller fills start from their ULYX_..._INITIALIZER, which holds size and version.
 *   Arrays named by a struct must live until the call returns, no longer.
 */
#ifndef ULYX_H_
#define ULYX_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ULYX_MAJOR 0
#define ULYX_MINOR 1
#define ULYX_PATCH 0
#define ULYX_VERSION_CODE (ULYX_MAJOR * 10000 + ULYX_MINOR * 100 + ULYX_PATCH)

#if defined(__GNUC__)
#define ULYX_API __attribute__((visibility("default")))
#else
#define ULYX_API
#endif

/* ---- Basic types ------------------------------------------------------------------------------------ */

/* 0 to 7 are NCCL's codes, so that translating one is the identity; ours start at 100. */
typedef enum {
  ulyxSuccess = 0,
  ulyxUnhandledCudaError = 1, /* a CUDA call failed; the last error quotes it */
  ulyxSystemError = 2,        /* host memory, threads, files */
  ulyxInternalError = 3,      /* a defect in ulyx or NCCL */
  ulyxInvalidArgument = 4,    /* this argument can never be right */
  ulyxInvalidUsage = 5,       /* right elsewhere, wrong now: order, state, thread */
  ulyxRemoteError = 6,        /* a peer failed */
  ulyxInProgress = 7,
  ulyxMismatch = 100,      /* the ranks disagree, or a tensor disagrees with its plan */
  ulyxTimeout = 101,       /* a peer did not arrive within timeoutMs */
  ulyxArenaTooSmall = 102, /* ulyxRuntimeReserve the bytes that the last error names */
  ulyxClosed = 103,        /* the runtime was closed */
  ulyxUnsupported = 104    /* this build or transport cannot do it */
} ulyxResult_t;

typedef struct ulyxRuntime* ulyxRuntime_t;
typedef struct ulyxPlan* ulyxPlan_t;

/* cudaStream_t, without needing CUDA's header. NULL is the legacy default stream. */
typedef struct CUstream_st* ulyxStream_t;

/* ncclComm_t, without needing NCCL's header. */
struct ncclComm;

/* Items [start, stop) of an ordered whole. */
typedef struct ulyxRange {
  int64_t start;
  int64_t stop;
} ulyxRange_t;

/* An exchange moves bits and never reads them as numbers: NaN payloads survive. 0 to 11 are NCCL's. */
typedef enum {
  ulyxInt8 = 0,
  ulyxUint8 = 1,
  ulyxInt32 = 2,
  ulyxUint32 = 3,
  ulyxInt64 = 4,
  ulyxUint64 = 5,
  ulyxFloat16 = 6,
  ulyxFloat32 = 7,
  ulyxFloat64 = 8,
  ulyxBfloat16 = 9,
  ulyxFloat8e4m3 = 10,
  ulyxFloat8e5m2 = 11,
  ulyxBool = 100,
  ulyxInt16 = 101,
  ulyxUint16 = 102,
  ulyxOpaque = 103 /* any element: its size is elementBytes */
} ulyxDataType_t;

typedef enum {
  ulyxTransportAuto = 0,     /* nccl where the ranks have GPUs, loopback where they do not */
  ulyxTransportLoopback = 1, /* ranks are threads of this process, copies are memcpy */
  ulyxTransportNccl = 2      /* pack kernel, NCCL grouped send and receive, unpack kernel */
} ulyxTransport_t;

#define ULYX_UNDEF_INT INT_MIN
#define ULYX_UNDEF_INT64 INT64_MIN

/* ---- Library ---------------------------------------------------------------------------------------- */

/* ULYX_VERSION_CODE of the library that is loaded. Thread-safe. */
ULYX_API ulyxResult_t ulyxGetVersion(int* version);

/* A constant name for a result code; never NULL. Thread-safe. */
ULYX_API const char* ulyxGetErrorString(ulyxResult_t result);

/* What the last refused call on this runtime said; with NULL, what the calling thread's last refused call
 * said on any object or none. "" if there was none. Valid until the next call on that runtime (with NULL:
 * by that thread). */
ULYX_API const char* ulyxGetLastError(ulyxRuntime_t rt);

/* ---- Partition: pure functions, no runtime, thread-safe ---------------------------------------------- */

/* Splits `total` ordered items into `parts` contiguous ranges, the first `total mod parts` of them one item
 * longer. ranges[parts] is written. parts < 1 and total < parts (a range would be empty) are errors. */
ULYX_API ulyxResult_t ulyxBalancedRanges(int64_t total, int parts, ulyxRange_t* ranges);

/* Contiguous ranges of the given lengths, zeros allowed. ranges[parts] is written. */
ULYX_API ulyxResult_t ulyxRangesFromCounts(const int64_t* counts, int parts, ulyxRange_t* ranges);

/* lengths[i] = ranges[i].stop - ranges[i].start. lengths[parts] is written. */
ULYX_API ulyxResult_t ulyxRangeLengths(const ulyxRange_t* ranges, int parts, int64_t* lengths);

/* The key/value heads that query heads [headRange) use, when `heads` query heads share `kvHeads`: query head
 * h uses key/value head h / (heads / kvHeads). Empty for an empty range. heads must be a multiple of
 * kvHeads. */
ULYX_API ulyxResult_t ulyxKvHeadRange(int64_t heads, int64_t kvHeads, ulyxRange_t headRange, ulyxRange_t* kvHeadRange);

/* ---- Shape ------------------------------------------------------------------------------------------ */

/* Distance in elements from one batch item, token or head to the next. A field that is 0 takes its dense
 * value: head = dim, then batch and token in the tensor's order. The same on every rank. Views into a larger
 * buffer are allowed, elements of one tensor that share memory are not. In a packed tensor `head` is unused. */
typedef struct ulyxStrides {
  int64_t batch;
  int64_t token;
  int64_t head;
} ulyxStrides_t;

typedef enum {
  ulyxBatchFirst = 0, /* [batch, tokens, heads, dim] */
  ulyxSeqFirst = 1    /* [tokens, batch, heads, dim] */
} ulyxOrder_t;

/* Everything that decides the copies. Equal on every rank.
 *
 * Sequence side of rank r: q [batch, own tokens, heads, headDim], k [batch, own tokens, kvHeads, headDim],
 * v [batch, own tokens, kvHeads, valueDim], o [batch, own tokens, heads, valueDim].
 * Heads side of rank r: q [batch, tokens, own heads, headDim], k and v over the key/value heads that its own
 * query heads use, o [batch, tokens, own heads, valueDim].
 *
 * ulyxSeqToHeads takes q, k, v from the sequence side to the heads side; ulyxHeadsToSeq takes o back.
 *
 * A packed side holds q, k and v in one tensor whose rows are
 * [q heads x headDim | k heads x headDim | v heads x valueDim]; qIn (qOut) gives its strides. */
typedef struct ulyxShape {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int64_t tokens;                 /* of the whole sequence; 0 with tokenCounts: their sum */
  int64_t heads;                  /* query heads of the whole model */
  int64_t kvHeads;                /* 0: as many as heads */
  int64_t headDim;                /* elements of one query or key head */
  int64_t valueDim;               /* elements of one value head; 0: headDim */
  int64_t batch;                  /* 0: 1 */
  const int64_t* tokenCounts;     /* one a rank, zeros allowed; NULL: balanced */
  const int64_t* headCounts;      /* query heads, one a rank, zeros allowed; NULL: balanced */
  int type;                       /* ulyxDataType_t */
  int elementBytes;               /* 0: the type's; needed with ulyxOpaque */
  int seqOrder;                   /* ulyxOrder_t of the tensors on the sequence side */
  int headsOrder;                 /* ulyxOrder_t of the tensors on the heads side */
  int packedIn;                   /* 1: ulyxSeqToHeads reads one packed tensor */
  int packedOut;                  /* 1: ulyxSeqToHeads writes one packed tensor */
  ulyxStrides_t qIn, kIn, vIn;    /* sequence side, read by ulyxSeqToHeads */
  ulyxStrides_t qOut, kOut, vOut; /* heads side, written by ulyxSeqToHeads */
  ulyxStrides_t oIn;              /* heads side, read by ulyxHeadsToSeq */
  ulyxStrides_t oOut;             /* sequence side, written by ulyxHeadsToSeq */
} ulyxShape_t;

#define ULYX_SHAPE_MAGIC 0x756c7953u
#define ULYX_SHAPE_INITIALIZER                                                                                      \
  {                                                                                                                 \
    sizeof(ulyxShape_t), ULYX_SHAPE_MAGIC, 1, 0, 0, 0, 0, 0, 0, NULL, NULL, ulyxBfloat16, 0, 0, 0, 0, 0, {0, 0, 0}, \
        {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {                                         \
      0, 0, 0                                                                                                       \
    }                                                                                                               \
  }

typedef enum { ulyxOpSeqToHeads = 0, ulyxOpHeadsToSeq = 1 } ulyxOp_t;

/* The ranges of a shape over nRanks ranks; each array holds nRanks entries and may be NULL. Pure. */
ULYX_API ulyxResult_t ulyxShapeGetRanges(const ulyxShape_t* shape, int nRanks, ulyxRange_t* tokenRanges,
                                         ulyxRange_t* headRanges, ulyxRange_t* kvHeadRanges);

/* bytes[src * nRanks + dst] = bytes that `op` moves from rank src to rank dst, the diagonal included (own
 * bytes, which never cross a wire). bytes[nRanks * nRanks] is written. Pure. */
ULYX_API ulyxResult_t ulyxShapeGetTraffic(const ulyxShape_t* shape, int nRanks, ulyxOp_t op, int64_t* bytes);

/* What one rank needs: bytes from a tensor's data pointer to the end of its last element, and the staging
 * arena of the nccl transport. Packed: the whole tensor under q, 0 for k and v. */
typedef struct ulyxShapeBytes {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int64_t qIn, kIn, vIn;
  int64_t qOut, kOut, vOut;
  int64_t oIn, oOut;
  int64_t arena;
} ulyxShapeBytes_t;

#define ULYX_SHAPE_BYTES_MAGIC 0x756c7942u
#define ULYX_SHAPE_BYTES_INITIALIZER \
  { sizeof(ulyxShapeBytes_t), ULYX_SHAPE_BYTES_MAGIC, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Needs no runtime. Pure. */
ULYX_API ulyxResult_t ulyxShapeGetBytes(const ulyxShape_t* shape, int nRanks, int rank, ulyxShapeBytes_t* bytes);

/* ---- Runtime ---------------------------------------------------------------------------------------- */

/* A field left undefined takes its value from the environment variable named beside it, read when the
 * runtime is created, else the default. */
typedef struct ulyxConfig {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int transport;      /* ulyxTransport_t. ULYX_TRANSPORT=auto|loopback|nccl; auto */
  int agreePlans;     /* 1: ulyxPlanCreate compares the ranks' shapes and is collective. ULYX_AGREE_PLANS; 1 */
  int timeoutMs;      /* loopback: how long a rank waits for the others; 0: for ever. ULYX_TIMEOUT_MS; 60000 */
  int maxCtas;        /* most thread blocks one ulyx kernel uses; 0: as many as pay. ULYX_MAX_CTAS; 0 */
  int64_t arenaBytes; /* staging reserved at creation, nccl. ULYX_ARENA_BYTES; 0 */
} ulyxConfig_t;

#define ULYX_CONFIG_MAGIC 0x756c7943u
#define ULYX_CONFIG_INITIALIZER                                                                                 \
  {                                                                                                             \
    sizeof(ulyxConfig_t), ULYX_CONFIG_MAGIC, 1, ULYX_UNDEF_INT, ULYX_UNDEF_INT, ULYX_UNDEF_INT, ULYX_UNDEF_INT, \
        ULYX_UNDEF_INT64                                                                                        \
  }

#define ULYX_UNIQUE_ID_BYTES 128
typedef struct ulyxUniqueId {
  char internal[ULYX_UNIQUE_ID_BYTES];
} ulyxUniqueId_t;

/* Names a world to be. One rank calls it and hands the bytes to the others by any means (it is NCCL's unique
 * id, and NCCL_COMM_ID does the same). ulyxUnsupported in a build without NCCL. Thread-safe. */
ULYX_API ulyxResult_t ulyxGetUniqueId(ulyxUniqueId_t* id);

/* Joins a world of nRanks as `rank`, on the calling thread's current CUDA device. config may be NULL.
 * Collective over the world and blocking. *rt is written on success only. */
ULYX_API ulyxResult_t ulyxRuntimeCreate(const ulyxConfig_t* config, int nRanks, ulyxUniqueId_t id, int rank,
                                        ulyxRuntime_t* rt);

/* The same over the ranks of a caller's communicator, which is used for one ncclCommSplit and no more: the
 * runtime works on the child, and the caller may go on using or destroy its own. */
ULYX_API ulyxResult_t ulyxRuntimeCreateFromComm(const ulyxConfig_t* config, struct ncclComm* comm, ulyxRuntime_t* rt);

/* All ranks in this process: rts[nRanks] is written on success only. devices NULL: on the CPU through the
 * loopback transport, 1 to 64 ranks. Otherwise rank r is on CUDA device devices[r], all different. One host
 * thread a rank then drives the runtimes. Blocking; not collective, one thread makes all ranks. */
ULYX_API ulyxResult_t ulyxRuntimeCreateLocal(const ulyxConfig_t* config, int nRanks, const int* devices,
                                             ulyxRuntime_t* rts);

/* Grows this rank's staging arena to at least arenaBytes. Collective and blocking on nccl; nothing may be in
 * flight, and graphs captured before are void once the arena has grown. Every rank gets the largest that
 * any asked for. loopback needs no arena: a no-op there. */
ULYX_API ulyxResult_t ulyxRuntimeReserve(ulyxRuntime_t rt, int64_t arenaBytes);

typedef struct ulyxRuntimeInfo {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int rank;
  int nRanks;
  int transport;   /* ulyxTransport_t in use, never auto */
  int device;      /* CUDA device; -1 on the CPU */
  int ncclVersion; /* of the library loaded; 0 on loopback */
  int closed;
  int64_t arenaBytes;
  const char* transportReason; /* why this transport; lives as long as the runtime */
} ulyxRuntimeInfo_t;

#define ULYX_RUNTIME_INFO_MAGIC 0x756c7952u
#define ULYX_RUNTIME_INFO_INITIALIZER \
  { sizeof(ulyxRuntimeInfo_t), ULYX_RUNTIME_INFO_MAGIC, 1, 0, 0, 0, 0, 0, 0, 0, NULL }

/* Also on a closed runtime. */
ULYX_API ulyxResult_t ulyxRuntimeGetInfo(ulyxRuntime_t rt, ulyxRuntimeInfo_t* info);

/* Ends use: later calls on the runtime and its plans return ulyxClosed, save GetInfo, GetLastError, Close,
 * MemFree, PlanDestroy and Destroy. Exchanges already enqueued finish. Not collective. */
ULYX_API ulyxResult_t ulyxRuntimeClose(ulyxRuntime_t rt);

/* Waits for this rank's enqueued exchanges, frees everything the runtime owns (plans and memory from
 * ulyxMemAlloc with it) and sets *rt to NULL. Collective on nccl: every rank must come, from its own thread,
 * or one after another if one thread made them all. Graphs that captured exchanges of this runtime must be
 * destroyed first. A NULL *rt is a no-op. Safe at process exit after CUDA has gone: only host memory is
 * freed then. */
ULYX_API ulyxResult_t ulyxRuntimeDestroy(ulyxRuntime_t* rt);

/* Memory that peers' data is received straight into: outputs (and inputs of ulyxHeadsToSeq) that lie in it
 * save a copy. Device memory on nccl, 256-byte aligned; host memory on loopback. Each rank names its own
 * bytes, 0 allowed, and every rank gets the largest. Collective and blocking. *ptr is written on success
 * only. */
ULYX_API ulyxResult_t ulyxMemAlloc(ulyxRuntime_t rt, int64_t bytes, void** ptr);

/* ptr from ulyxMemAlloc of the same runtime, or NULL (a no-op). Collective and blocking on nccl: waits for
 * this rank's exchanges. */
ULYX_API ulyxResult_t ulyxMemFree(ulyxRuntime_t rt, void* ptr);

/* ---- Plan ------------------------------------------------------------------------------------------- */

/* Resolves a shape for both exchanges. With agreePlans it is collective and blocking: if the ranks' shapes
 * differ, or one refuses its shape or its arena is too small, every rank gets an error that says which rank
 * and both numbers, and the next call works. Legal while streams capture in relaxed mode only. The shape is
 * not kept. *plan is written on success only. */
ULYX_API ulyxResult_t ulyxPlanCreate(ulyxRuntime_t rt, const ulyxShape_t* shape, ulyxPlan_t* plan);

/* Host memory only: exchanges in flight and captured graphs keep working. NULL is a no-op. */
ULYX_API ulyxResult_t ulyxPlanDestroy(ulyxPlan_t plan);

/* Everything about a plan. Pointers live as long as the plan. */
typedef struct ulyxPlanInfo {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int rank;
  int nRanks;
  int transport;
  int type;
  int64_t elementBytes;
  int64_t tokens; /* sequence length */
  int64_t heads;
  int64_t kvHeads;
  int64_t headDim;
  int64_t valueDim;
  int64_t batch;
  ulyxRange_t tokenRange; /* this rank's */
  ulyxRange_t headRange;
  ulyxRange_t kvHeadRange;
  int64_t tokenCount; /* this rank's */
  int64_t headCount;
  int64_t kvHeadCount;
  const ulyxRange_t* tokenRanges; /* [nRanks] */
  const ulyxRange_t* headRanges;
  const ulyxRange_t* kvHeadRanges;
  const int64_t* tokenCounts; /* [nRanks] */
  const int64_t* headCounts;
  const int64_t* kvHeadCounts;
  const int64_t* seqToHeadsSendBytes; /* [nRanks], by peer; own rank included */
  const int64_t* seqToHeadsRecvBytes;
  const int64_t* headsToSeqSendBytes;
  const int64_t* headsToSeqRecvBytes;
  int64_t arenaBytes; /* staging this plan needs */
  uint64_t signature; /* equal plans have equal signatures, on every rank */
} ulyxPlanInfo_t;

#define ULYX_PLAN_INFO_MAGIC 0x756c7950u
#define ULYX_PLAN_INFO_INITIALIZER                                                                                     \
  {                                                                                                                    \
    sizeof(ulyxPlanInfo_t), ULYX_PLAN_INFO_MAGIC, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0, 0}, {0, 0}, {0, 0}, 0, 0, 0, \
        NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0                                               \
  }

ULYX_API ulyxResult_t ulyxPlanGetInfo(ulyxPlan_t plan, ulyxPlanInfo_t* info);

/* ---- Exchanges -------------------------------------------------------------------------------------- */

/* What the caller believes a tensor to be; the exchange checks it against the plan. Extents are [batch,
 * tokens, heads, dim] whatever the order in memory; of a packed tensor [batch, tokens, q + k + v heads, dim],
 * or [batch, tokens, 1, row] where headDim and valueDim differ. Strides are in elements, in the same order, the
 * last one 1; all 0 means: the plan's. data may be NULL where the tensor has no elements.
 * ulyxPlanGetQkv and ulyxPlanGetOutput fill all of it but data. */
typedef struct ulyxTensor {
  size_t size;
  unsigned int magic;
  unsigned int version;
  void* data;
  int64_t extents[4];
  int64_t strides[4];
  int type; /* ulyxDataType_t */
  int elementBytes;
} ulyxTensor_t;

#define ULYX_TENSOR_MAGIC 0x756c7954u
#define ULYX_TENSOR_INITIALIZER \
  { sizeof(ulyxTensor_t), ULYX_TENSOR_MAGIC, 1, NULL, {0, 0, 0, 0}, {0, 0, 0, 0}, ulyxBfloat16, 0 }

/* Q, K and V; on a packed side only q is looked at. */
typedef struct ulyxQkv {
  ulyxTensor_t q, k, v;
} ulyxQkv_t;

#define ULYX_QKV_INITIALIZER \
  { ULYX_TENSOR_INITIALIZER, ULYX_TENSOR_INITIALIZER, ULYX_TENSOR_INITIALIZER }

/* The tensors that this rank's ulyxSeqToHeads expects, complete but for data. Each pointer may be NULL. */
ULYX_API ulyxResult_t ulyxPlanGetQkv(ulyxPlan_t plan, ulyxQkv_t* in, ulyxQkv_t* out);

/* The tensors that this rank's ulyxHeadsToSeq expects, complete but for data. Each pointer may be NULL. */
ULYX_API ulyxResult_t ulyxPlanGetOutput(ulyxPlan_t plan, ulyxTensor_t* in, ulyxTensor_t* out);

/* Own tokens over all heads -> all tokens over own heads.
 *
 * Collective: every rank calls it, ranks with nothing to move included. On nccl it enqueues on `stream` and
 * returns: earlier work on the stream precedes it, later work follows it, no stream is kept; legal while the
 * stream is being captured, and replays move what the same pointers then hold. Captured exchanges and eager
 * ones of one runtime must be ordered by the caller, exchanges of one runtime are in one order on every
 * rank. On loopback it blocks until every rank has come, at most timeoutMs, and ignores `stream`.
 *
 * Data of in and out must not overlap; at world size 1 they may be the very same tensors, and then nothing is
 * enqueued. Tensor structs are read during the call only, their data until the exchange has run. */
ULYX_API ulyxResult_t ulyxSeqToHeads(ulyxPlan_t plan, const ulyxQkv_t* in, const ulyxQkv_t* out, ulyxStream_t stream);

/* All tokens over own heads -> own tokens over all heads; otherwise as ulyxSeqToHeads. */
ULYX_API ulyxResult_t ulyxHeadsToSeq(ulyxPlan_t plan, const ulyxTensor_t* in, const ulyxTensor_t* out,
                                     ulyxStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* ULYX_H_ */
