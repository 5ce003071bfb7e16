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
 *   One exception: an exchange that tells of a mismatch of an earlier one has been enqueued all the same
 *   (ulyxRuntimeGetAsyncError).
 * - Collective means: every rank of the runtime's world makes the call, in the same order.
 * - One host thread drives one rank at a time. Calls on different runtimes may come from different threads
 *   in any order; a second thread inside the same runtime gets ulyxInvalidUsage.
 * - No call is made between a caller's ncclGroupStart and ncclGroupEnd: NCCL would put off what the call needs now.
 * - A destroyed handle must not be used again; many such uses are caught, none is promised to be.
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
  ulyxTimeout = 101,       /* a peer did not arrive within timeoutMs; the world is lost, destroy it */
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
  ulyxTransportAuto = 0,      /* loopback on the CPU; on GPUs each plan takes direct or copy_engine where NVLink
                                 reaches every peer, nccl elsewhere */
  ulyxTransportLoopback = 1,  /* ranks are threads of this process, copies are memcpy */
  ulyxTransportNccl = 2,      /* pack kernel, NCCL grouped send and receive, unpack kernel */
  ulyxTransportDirect = 3,    /* one kernel that stores into the peers' memory over NVLink */
  ulyxTransportCopyEngine = 4 /* copy engines write the peers' memory. An output lies at the same offset of the same
                                 ulyxMemAlloc on every rank, or outside of any on every rank */
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
 * by that thread). The refusal of a second thread inside a runtime is that thread's alone. */
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

/* Where replicated tokens stand on both sides. */
typedef enum {
  ulyxReplicatedFirst = 0, /* before the tokens that are split over the ranks */
  ulyxReplicatedLast = 1   /* after them */
} ulyxReplicatedPlace_t;

/* Sequences that stand one after another in one run of tokens; see below. */
typedef struct ulyxSequences* ulyxSequences_t;

/* Everything that decides the copies. Equal on every rank.
 *
 * Sequence side of rank r: q [batch, own tokens, heads, headDim], k [batch, own tokens, kvHeads, headDim],
 * v [batch, own tokens, kvHeads, valueDim], o [batch, own tokens, heads, valueDim].
 * Heads side of rank r: q [batch, tokens, own heads, headDim], k and v over the key/value heads that its own
 * query heads use, o [batch, tokens, own heads, valueDim].
 *
 * ulyxSeqToHeads takes q, k, v from the sequence side to the heads side; ulyxHeadsToSeq takes o back.
 *
 * Replicated tokens, such as the text of joint attention, are held by every rank: each tensor has them besides its own
 * tokens (sequence side) or all tokens (heads side), once. ulyxSeqToHeads takes a rank's own copy of them, and sends
 * none; ulyxHeadsToSeq brings every rank all heads of them.
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
  int64_t replicatedTokens;       /* held by every rank; not among `tokens` */
  const int64_t* tokenCounts;     /* one a rank, zeros allowed; NULL: balanced */
  const int64_t* headCounts;      /* query heads, one a rank, zeros allowed; NULL: balanced */
  int type;                       /* ulyxDataType_t */
  int elementBytes;               /* 0: the type's; needed with ulyxOpaque */
  int seqOrder;                   /* ulyxOrder_t of the tensors on the sequence side */
  int headsOrder;                 /* ulyxOrder_t of the tensors on the heads side */
  int packedIn;                   /* 1: ulyxSeqToHeads reads one packed tensor */
  int packedOut;                  /* 1: ulyxSeqToHeads writes one packed tensor */
  int replicatedPlace;            /* ulyxReplicatedPlace_t */
  int reserved;                   /* 0 */
  ulyxSequences_t sequences;      /* what the tokens of the heads side are, replicated ones included; NULL: not told.
                                     Moves nothing: ulyxPlanStoreCuSeqlens gives it to attention. batch is 1 then */
  ulyxStrides_t qIn, kIn, vIn;    /* sequence side, read by ulyxSeqToHeads */
  ulyxStrides_t qOut, kOut, vOut; /* heads side, written by ulyxSeqToHeads */
  ulyxStrides_t oIn;              /* heads side, read by ulyxHeadsToSeq */
  ulyxStrides_t oOut;             /* sequence side, written by ulyxHeadsToSeq */
} ulyxShape_t;

#define ULYX_SHAPE_MAGIC 0x756c7953u
#define ULYX_SHAPE_INITIALIZER                                                                                    \
  {                                                                                                               \
    sizeof(ulyxShape_t), ULYX_SHAPE_MAGIC, 1, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, ulyxBfloat16, 0, 0, 0, 0, 0, 0, 0, \
        NULL, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {                      \
      0, 0, 0                                                                                                     \
    }                                                                                                             \
  }

typedef enum { ulyxOpSeqToHeads = 0, ulyxOpHeadsToSeq = 1 } ulyxOp_t;

/* The ranges of a shape over nRanks ranks; each array holds nRanks entries and may be NULL. Pure. */
ULYX_API ulyxResult_t ulyxShapeGetRanges(const ulyxShape_t* shape, int nRanks, ulyxRange_t* tokenRanges,
                                         ulyxRange_t* headRanges, ulyxRange_t* kvHeadRanges);

/* bytes[src * nRanks + dst] = bytes that `op` moves from rank src to rank dst, the diagonal included (own
 * bytes, which never cross a wire). bytes[nRanks * nRanks] is written. Pure. */
ULYX_API ulyxResult_t ulyxShapeGetTraffic(const ulyxShape_t* shape, int nRanks, ulyxOp_t op, int64_t* bytes);

/* What one rank needs: bytes from a tensor's data pointer to the end of its last element, and the staging
 * arena that is enough on GPUs, whatever the transport. Packed: the whole tensor under q, 0 for k and v. */
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

/* How long one exchange should take where NVLink 4 joins the GPUs of all ranks, by the table that automatic choice
 * uses: fitted to two H200s, for more ranks a prediction. Microseconds, outputs in place. */
typedef struct ulyxShapeTimes {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int64_t remoteBytes; /* of the busiest rank's busier direction */
  double limitUs;      /* one contiguous copy of these to a peer */
  double directUs;
  double copyEngineUs;
} ulyxShapeTimes_t;

#define ULYX_SHAPE_TIMES_MAGIC 0x756c7955u
#define ULYX_SHAPE_TIMES_INITIALIZER \
  { sizeof(ulyxShapeTimes_t), ULYX_SHAPE_TIMES_MAGIC, 1, 0, 0, 0, 0 }

/* Needs no runtime. Pure. */
ULYX_API ulyxResult_t ulyxShapeGetTimes(const ulyxShape_t* shape, int nRanks, ulyxOp_t op, ulyxShapeTimes_t* times);

/* ---- Runtime ---------------------------------------------------------------------------------------- */

/* A field left undefined takes its value from the environment variable named beside it, read when the
 * runtime is created, else the default. ULYX_NVTX=0, which has no field, keeps the ranges for profilers away. */
typedef struct ulyxConfig {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int transport;      /* ulyxTransport_t, like agreePlans and undisturbed the same on every rank.
                         ULYX_TRANSPORT=auto|loopback|nccl|direct|copy_engine; auto */
  int agreePlans;     /* 1: ulyxPlanCreate compares the ranks' shapes and is collective, and exchanges by nccl
                         compare which they are. 0: a disagreement is undefined by nccl. ULYX_AGREE_PLANS; 1 */
  int timeoutMs;      /* how long a rank waits for the others, on the host and on a device; 0: for ever (direct and
                         copy_engine: ten minutes). An exchange by nccl counts from the end of the one before, and a
                         captured one is not watched. NCCL's own failures end it within 250 ms. ULYX_TIMEOUT_MS; 60000 */
  int maxCtas;        /* most thread blocks one ulyx kernel uses; 0: as many as pay. ULYX_MAX_CTAS; 0 */
  int64_t arenaBytes; /* staging reserved at creation, GPUs. ULYX_ARENA_BYTES; 0 */
  int streamPriority; /* of the runtime's own streams, in CUDA's numbers: lower runs first. ULYX_STREAM_PRIORITY; 0 */
  int undisturbed;    /* 1: leave the multiprocessors to attention: auto takes copy_engine wherever it can, and that
                         moves own-rank copies by copy engine too, also where it is slower. ULYX_UNDISTURBED; 0 */
  int copyStreams;    /* of copy_engine, which peers are dealt over; 0: one a peer. ULYX_COPY_STREAMS; 1 */
  int reserved;       /* 0 */
} ulyxConfig_t;

#define ULYX_CONFIG_MAGIC 0x756c7943u
#define ULYX_CONFIG_INITIALIZER                                                                                 \
  {                                                                                                             \
    sizeof(ulyxConfig_t), ULYX_CONFIG_MAGIC, 1, ULYX_UNDEF_INT, ULYX_UNDEF_INT, ULYX_UNDEF_INT, ULYX_UNDEF_INT, \
        ULYX_UNDEF_INT64, ULYX_UNDEF_INT, ULYX_UNDEF_INT, ULYX_UNDEF_INT, 0                                     \
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
 * runtime works on the child, and the caller may go on using or destroy its own. Where that one does not block, the
 * wait for the other ranks ends by config.timeoutMs, after which it can only be aborted; where it does, when the caller
 * aborts it. */
ULYX_API ulyxResult_t ulyxRuntimeCreateFromComm(const ulyxConfig_t* config, struct ncclComm* comm, ulyxRuntime_t* rt);

#define ULYX_LOCAL_MAX_RANKS 64

/* All ranks in this process, 1 to ULYX_LOCAL_MAX_RANKS: rts[nRanks] is written on success only. devices NULL: on the
 * CPU through the loopback transport. Otherwise rank r is on CUDA device devices[r], all different. One host thread a
 * rank then drives the runtimes. Blocking; not collective, one thread makes all ranks. */
ULYX_API ulyxResult_t ulyxRuntimeCreateLocal(const ulyxConfig_t* config, int nRanks, const int* devices,
                                             ulyxRuntime_t* rts);

/* Grows this rank's staging arena to at least arenaBytes. Collective and blocking on GPUs; nothing may be in
 * flight. Every rank gets the largest that any asked for. Where the arena would grow while a captured graph holds
 * an exchange of any rank, every rank gets ulyxInvalidUsage: reserve before capturing. loopback needs no arena: a
 * no-op there. */
ULYX_API ulyxResult_t ulyxRuntimeReserve(ulyxRuntime_t rt, int64_t arenaBytes);

typedef struct ulyxRuntimeInfo {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int rank;
  int nRanks;
  int transport;   /* ulyxTransport_t; auto where each plan has its own. What a plan takes: ulyxPlanGetChoice */
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

/* What a device found while an exchange ran, ulyxSuccess if nothing; ulyxGetLastError has the
 * words. Does not wait for anything. Also on a closed runtime.
 *
 * ulyxMismatch: the ranks meant different exchanges, and every rank finds out. direct has moved nothing, save in an
 * all-to-all in which two ranks disagree about each other alone: the others have stored their rows, and every output is
 * void. copy_engine cannot recall what was queued: the outputs are void, and where the ranks' outputs lay differently
 * so is other memory from ulyxMemAlloc. By nccl (with agreePlans) the ranks that were sent what is another exchange's
 * find out, after it has come; where numbers of bytes differ the exchange does not end, and a later ulyxTimeout or
 * ulyxRemoteError names the plans. Told once, by this call or by the next exchange, which is enqueued all the same
 * so that the ranks stay in step.
 * ulyxTimeout, ulyxRemoteError: a rank did not come, gave up, or made two exchanges at once. Told for ever, by
 * exchanges too, which then do nothing; destroy the runtime. Outputs of copy_engine are void, on the rank that did not
 * come as well, and so is the output of the exchange before, also where that had succeeded: engines of a rank that has
 * given up still make what was queued on them. */
ULYX_API ulyxResult_t ulyxRuntimeGetAsyncError(ulyxRuntime_t rt, ulyxResult_t* error);

/* Loses the world of this runtime from any thread, at any time before ulyxRuntimeDestroy: whoever waits in one of its
 * calls, or on its device for an exchange, stops waiting, on this rank at once and on the others as soon as they look.
 * This rank's calls then return ulyxRemoteError, or why the world was lost before; the others' that or ulyxTimeout;
 * outputs of exchanges that had not ended are void. Does not wait for them, nor for graphs that hold exchanges. The
 * only call that another thread may make while one is inside the runtime. */
ULYX_API ulyxResult_t ulyxRuntimeAbort(ulyxRuntime_t rt);

typedef enum {
  ulyxLogError = 1, /* what a failed call says */
  ulyxLogRecord = 2 /* a line of the flight record */
} ulyxLogLevel_t;

/* One line, without a newline, valid during the call; in the thread that calls the runtime. It must not call the
 * runtime. */
typedef void (*ulyxLogger_t)(void* user, ulyxLogLevel_t level, const char* line);

/* From now on the logger hears every error that a call on this runtime or its plans returns, and what
 * ulyxRuntimeGetAsyncError finds, but for the refusal of a second thread and what ulyxRuntimeAbort returns. An error
 * other than a refusal (ulyxInvalidArgument, ulyxInvalidUsage, ulyxArenaTooSmall, ulyxClosed, ulyxUnsupported) also
 * brings the flight record, if there were exchanges, and again only after further ones or for another error. `user` is
 * handed on. NULL: nobody is told, as at first. Also on a closed runtime. */
ULYX_API ulyxResult_t ulyxRuntimeSetLogger(ulyxRuntime_t rt, ulyxLogger_t logger, void* user);

/* Hands the flight record to the logger: the last 32 exchanges, oldest first, with their number since creation,
 * operation, transport, the signature of their plan, the bytes to and from each rank, and whether they were enqueued.
 * Refused without a logger. Also on a closed runtime. */
ULYX_API ulyxResult_t ulyxRuntimeLogRecord(ulyxRuntime_t rt);

/* Ends use: later calls on the runtime and its plans return ulyxClosed, save GetInfo, GetLastError, GetAsyncError,
 * SetLogger, LogRecord, Close, MemFree, PlanDestroy, GetContext and Destroy. Exchanges already enqueued finish. Not
 * collective. */
ULYX_API ulyxResult_t ulyxRuntimeClose(ulyxRuntime_t rt);

/* Waits for this rank's enqueued exchanges, frees everything the runtime owns (plans and memory from
 * ulyxMemAlloc with it) and sets *rt to NULL. Collective on GPUs: every rank must come, from its own thread,
 * or one after another if one thread made them all. While a graph that captured exchanges of this runtime is there it
 * refuses with ulyxInvalidUsage and leaves all as it was. Waits at most timeoutMs for what is enqueued and for the
 * other ranks, then takes the world for lost. A NULL *rt is a no-op. Safe at process exit after CUDA has gone: only
 * host memory is freed then. */
ULYX_API ulyxResult_t ulyxRuntimeDestroy(ulyxRuntime_t* rt);

/* Memory that the wire reads and writes by itself: outputs that lie in it, and on nccl dense inputs (of ulyxHeadsToSeq,
 * rows), save a copy. Give each output an allocation of its own: then it lies where copy_engine needs it. Device memory
 * on GPUs, 256-byte aligned; host memory on loopback. Each rank names its own bytes, 0 allowed, and every rank gets the
 * largest. Collective and blocking. *ptr is written on success only. */
ULYX_API ulyxResult_t ulyxMemAlloc(ulyxRuntime_t rt, int64_t bytes, void** ptr);

/* ptr from ulyxMemAlloc of the same runtime, or NULL (a no-op). Collective and blocking on GPUs: waits for
 * this rank's exchanges. */
ULYX_API ulyxResult_t ulyxMemFree(ulyxRuntime_t rt, void* ptr);

/* ---- Plan ------------------------------------------------------------------------------------------- */

/* Resolves a shape for both exchanges. With agreePlans it is collective and blocking: if the ranks' shapes
 * differ, or an arena is too small, every rank gets an error that says which rank and both numbers; if one
 * refuses its own shape, the others learn which. The next call works. Legal while streams capture in relaxed mode only.
 * The shape is not kept. *plan is written on success only. */
ULYX_API ulyxResult_t ulyxPlanCreate(ulyxRuntime_t rt, const ulyxShape_t* shape, ulyxPlan_t* plan);

/* Host memory only: exchanges in flight and captured graphs keep working. The runtime keeps the memory for its next
 * plans: once they have been as large as they get, making one allocates nothing. NULL is a no-op. */
ULYX_API ulyxResult_t ulyxPlanDestroy(ulyxPlan_t plan);

/* How an operation of a plan will be moved: the same on every rank. */
typedef struct ulyxChoice {
  int transport;      /* ulyxTransport_t, never auto */
  int reserved;       /* 0 */
  const char* reason; /* why; lives as long as the plan */
  double predictedUs; /* of one exchange; negative: no prediction (loopback, nccl, all-to-all) */
} ulyxChoice_t;

/* Everything about a plan. Pointers live as long as the plan. */
typedef struct ulyxPlanInfo {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int rank;
  int nRanks;
  int transport; /* of seqToHeads */
  int type;
  int64_t elementBytes;
  int64_t tokens; /* that are split over the ranks */
  int64_t heads;
  int64_t kvHeads;
  int64_t headDim;
  int64_t valueDim;
  int64_t batch;
  int64_t replicatedTokens;
  ulyxRange_t seqReplicated;   /* the rows of the sequence side's tensors that replicated tokens take on this rank */
  ulyxRange_t headsReplicated; /* and of the heads side's */
  ulyxRange_t tokenRange;      /* this rank's */
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
  const int64_t* kvHeadOfHead;        /* [headCount]: the local key/value head of each local query head */
  int64_t sequenceCount;              /* of shape.sequences; 0 without */
  int64_t longestSequence;            /* tokens */
  const int64_t* seqToHeadsSendBytes; /* [nRanks], by peer; own rank included */
  const int64_t* seqToHeadsRecvBytes;
  const int64_t* headsToSeqSendBytes;
  const int64_t* headsToSeqRecvBytes;
  int64_t arenaBytes; /* staging this plan needs */
  uint64_t signature; /* equal plans have equal signatures, on every rank */
  ulyxChoice_t seqToHeads;
  ulyxChoice_t headsToSeq;
} ulyxPlanInfo_t;

#define ULYX_PLAN_INFO_MAGIC 0x756c7950u
#define ULYX_PLAN_INFO_INITIALIZER                                                                               \
  {                                                                                                              \
    sizeof(ulyxPlanInfo_t), ULYX_PLAN_INFO_MAGIC, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0, 0}, {0, 0}, {0, 0}, \
        {0, 0}, {0, 0}, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, 0, 0,   \
        {0, 0, NULL, 0}, {                                                                                       \
      0, 0, NULL, 0                                                                                              \
    }                                                                                                            \
  }

/* Of a plan from ulyxPlanCreate. */
ULYX_API ulyxResult_t ulyxPlanGetInfo(ulyxPlan_t plan, ulyxPlanInfo_t* info);

/* Writes the bounds of shape.sequences, as attention over the heads side wants them (sequence i is tokens
 * [cuSeqlens[i], cuSeqlens[i + 1])), to cuSeqlens [sequenceCount + 1]: memory of the runtime's device (loopback: of the
 * host), in stream order. Not collective; legal under capture, and a graph owns what it stores. ulyxInvalidUsage
 * without sequences. */
ULYX_API ulyxResult_t ulyxPlanStoreCuSeqlens(ulyxPlan_t plan, int32_t* cuSeqlens, ulyxStream_t stream);

/* Of any plan. backward 1: ulyxHeadsToSeq, ulyxConvHaloBackward, ulyxStateChainBackward; 0: the other operation. */
ULYX_API ulyxResult_t ulyxPlanGetChoice(ulyxPlan_t plan, int backward, ulyxChoice_t* choice);

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
 * Collective: every rank calls it, ranks with nothing to move included. On GPUs it enqueues on `stream` and
 * returns: earlier work on the stream precedes it, later work follows it, no stream is kept; legal while the
 * stream is being captured, and replays move what the same pointers then hold. Captured exchanges and eager
 * ones of one runtime must be ordered by the caller, exchanges of one runtime are in one order on every
 * rank. On loopback it blocks until every rank has come, at most timeoutMs, and ignores `stream`.
 *
 * Data of in and out must not overlap, from the first byte of each tensor to its last, gaps included (outputs with
 * gaps may interleave with one another); at world size 1 they may be the very same tensors, and then nothing is
 * enqueued. Tensor structs are read during the call only, their data until the exchange has run. */
ULYX_API ulyxResult_t ulyxSeqToHeads(ulyxPlan_t plan, const ulyxQkv_t* in, const ulyxQkv_t* out, ulyxStream_t stream);

/* All tokens over own heads -> own tokens over all heads; otherwise as ulyxSeqToHeads. */
ULYX_API ulyxResult_t ulyxHeadsToSeq(ulyxPlan_t plan, const ulyxTensor_t* in, const ulyxTensor_t* out,
                                     ulyxStream_t stream);

/* ---- Segments and targets: pure functions, no runtime, thread-safe ----------------------------------- */

/* Tokens [start, stop) of the whole sequence that share one row of a table of the caller's. */
typedef struct ulyxSegment {
  int64_t start;
  int64_t stop;
  int64_t row; /* carried along, never looked at */
} ulyxSegment_t;

/* Clips segments of the whole sequence to the tokens of one shard. What remains of a segment keeps its row and
 * its place in the order and counts from the shard's first token; segments without a token in the shard are
 * dropped, those with start >= stop among them. At most `count` segments are written to local, which may be
 * `segments` itself, and their number to *localCount. With count 0 both arrays may be NULL. Negative numbers
 * and a shard with stop < start are errors. */
ULYX_API ulyxResult_t ulyxLocalizeSegments(const ulyxSegment_t* segments, int64_t count, ulyxRange_t shard,
                                           ulyxSegment_t* local, int64_t* localCount);

/* The tokens of `target` that lie in `shard`, counted from the shard's first token; {0, 0} if there are none.
 * Negative numbers and stop < start are errors in either. *local is written. */
ULYX_API ulyxResult_t ulyxTargetIntersection(ulyxRange_t target, ulyxRange_t shard, ulyxRange_t* local);

/* counts[r] = how many tokens of `target` lie in tokenRanges[r]. Negative numbers and stop < start are errors
 * in every range. counts[nRanks] is written. */
ULYX_API ulyxResult_t ulyxTargetCounts(ulyxRange_t target, const ulyxRange_t* tokenRanges, int nRanks, int64_t* counts);

/* ---- Context parallelism ----------------------------------------------------------------------------- */

/* Sequences stand one after another in one run of tokens: sequence i is tokens [cuSeqlens[i], cuSeqlens[i + 1]).
 * The run is split over the ranks wherever it happens to be cut, so a sequence may begin on one rank and end
 * on another. A context is what one rank has to know about that: its own cu_seqlens, and how many ranks and
 * tokens of its first and last sequence lie on the ranks before and after it.
 *
 * No runtime and no communication: every rank computes alike. Sequences and contexts never change once made, so
 * any thread may use one at any time, until it is destroyed. */
typedef struct ulyxContext* ulyxContext_t;
typedef struct ulyxContextCache* ulyxContextCache_t;

/* Checks cuSeqlens[count], of type ulyxInt32 or ulyxInt64 in host memory, and copies it. It must start at 0 and
 * never fall; equal neighbours are sequences without tokens, and {0} alone is no sequences at all. *sequences is
 * written on success only. */
ULYX_API ulyxResult_t ulyxSequencesCreate(const void* cuSeqlens, int64_t count, int type, ulyxSequences_t* sequences);

/* Contexts made from it live on. NULL is a no-op. */
ULYX_API ulyxResult_t ulyxSequencesDestroy(ulyxSequences_t sequences);

/* Who owns which tokens. */
typedef enum {
  ulyxSplitBalanced = 0, /* the first `total mod nRanks` ranks one token more; with fewer tokens than ranks the
                            last ranks are empty. No token is lost */
  ulyxSplitEqual = 1,    /* total / nRanks each; a total that is no positive multiple of nRanks is an error */
  ulyxSplitTruncate = 2  /* total / nRanks each, and the tail belongs to no rank; fewer tokens than ranks are an
                            error */
} ulyxSplit_t;

/* One rank's context of a split (ulyxSplit_t) over nRanks ranks. convKernel is the width of a causal convolution
 * over the tokens, 0 without one. Costs a binary search and the rank's own sequences. Local cu_seqlens are
 * int32: a shard that passes it is an error. *context is written on success only. */
ULYX_API ulyxResult_t ulyxContextCreate(ulyxSequences_t sequences, int nRanks, int rank, int split, int convKernel,
                                        ulyxContext_t* context);

/* An independent context with the same contents and arrays of its own, to be kept for the backward pass. *copy is
 * written on success only. */
ULYX_API ulyxResult_t ulyxContextCopy(ulyxContext_t context, ulyxContext_t* copy);

/* Gives one context back: one call for each that ulyxContextCreate, ulyxContextCopy or ulyxContextCacheGet gave.
 * NULL is a no-op. */
ULYX_API ulyxResult_t ulyxContextDestroy(ulyxContext_t context);

/* Everything about a context. Pointers live as long as the context.
 *
 * A rank's own sequences are those with a token on it; sequences without any token appear nowhere. A rank without
 * tokens has no sequences and exchanges nothing: numSequences 0, localCuSeqlens {0}, isFirstRank and isLastRank 1,
 * no ranks before or after it.
 *
 * With ulyxSplitTruncate a sequence may run on into the tail that belongs to no rank. postNumRanks then counts
 * the ranks that the tail would take, and rank + postNumRanks may lie outside the world. cutsSequence says so on
 * every rank alike; such a context must drive neither a halo nor a chain of states. */
typedef struct ulyxContextInfo {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int nRanks;
  int rank;
  int split; /* ulyxSplit_t */
  int convKernel;
  int isCpEnabled;                /* 1: nRanks > 1 */
  int isFirstRank;                /* 1: the first sequence starts on this rank; preNumRanks is 0 */
  int isLastRank;                 /* 1: the last sequence ends on this rank; postNumRanks is 0 */
  int preNumRanks;                /* ranks before this one that hold tokens of its first sequence */
  int postNumRanks;               /* ranks after this one that hold tokens of its last sequence */
  int cutsSequence;               /* 1: the dropped tail begins inside a sequence */
  int64_t preNumConvTokens;       /* tokens of the first sequence on ranks before this one */
  int64_t haloTokens;             /* the smaller of convKernel - 1 and preNumConvTokens; 0 without a convolution */
  int64_t droppedTokens;          /* tail that belongs to no rank; 0 unless ulyxSplitTruncate */
  ulyxRange_t tokenRange;         /* this rank's */
  int64_t numSequences;           /* this rank's */
  const int32_t* localCuSeqlens;  /* [numSequences + 1], from 0 to this rank's tokens, rising */
  const int64_t* sequenceIndices; /* [numSequences]; where each stands among all sequences */
} ulyxContextInfo_t;

#define ULYX_CONTEXT_INFO_MAGIC 0x756c7958u
#define ULYX_CONTEXT_INFO_INITIALIZER                                                                              \
  {                                                                                                                \
    sizeof(ulyxContextInfo_t), ULYX_CONTEXT_INFO_MAGIC, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0, 0}, 0, NULL, \
        NULL                                                                                                       \
  }

/* Any thread may ask at any time. */
ULYX_API ulyxResult_t ulyxContextGetInfo(ulyxContext_t context, ulyxContextInfo_t* info);

/* Keeps the `capacity` contexts used last (0: 64), found again by their contents. *cache is written on success
 * only. */
ULYX_API ulyxResult_t ulyxContextCacheCreate(int capacity, ulyxContextCache_t* cache);

/* The context that ulyxSequencesCreate and ulyxContextCreate would make of the same arguments, kept or made. The
 * values of cuSeqlens count, not its address or type: an array edited in place gives its new answer. Equal
 * arguments may give the same context twice, and each is given back by its own ulyxContextDestroy, before or after
 * the cache is destroyed. Any number of threads may call it at once. *context is written on success only, and
 * what is refused is not kept. */
ULYX_API ulyxResult_t ulyxContextCacheGet(ulyxContextCache_t cache, const void* cuSeqlens, int64_t count, int type,
                                          int nRanks, int rank, int split, int convKernel, ulyxContext_t* context);

/* No thread may be inside ulyxContextCacheGet. Contexts that it gave live on. NULL is a no-op. */
ULYX_API ulyxResult_t ulyxContextCacheDestroy(ulyxContextCache_t cache);

/* ---- Row collectives -------------------------------------------------------------------------------- */

typedef enum {
  ulyxRowsAllGather = 0,     /* own rows -> all rows, or those of a target span */
  ulyxRowsReduceScatter = 1, /* partial sums of all rows -> own rows, summed over ranks */
  ulyxRowsAllToAll = 2       /* rows by a count matrix */
} ulyxRowsOp_t;

/* A tensor of rows, split over the ranks. Equal on every rank but for sendCounts and recvCounts. */
typedef struct ulyxRowsShape {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int op;                    /* ulyxRowsOp_t */
  int type;                  /* ulyxDataType_t; ulyxRowsReduceScatter takes float16, bfloat16 and float32 */
  int elementBytes;          /* 0: the type's; needed with ulyxOpaque */
  int targeted;              /* ulyxRowsAllGather. 1: gather only the rows in `target` */
  int64_t rowElements;       /* elements of one row, whatever its own shape */
  int64_t total;             /* rows of the whole; 0 with counts: their sum. Not ulyxRowsAllToAll */
  const int64_t* counts;     /* rows a rank owns, zeros allowed; NULL: balanced. Not ulyxRowsAllToAll */
  ulyxRange_t target;        /* within [0, total); empty is a valid no-op */
  const int64_t* sendCounts; /* ulyxRowsAllToAll: rows to each rank */
  const int64_t* recvCounts; /* ulyxRowsAllToAll: rows from each rank */
  int64_t inStride;          /* elements from row to row of the input; 0: dense */
  int64_t outStride;         /* and of the output */
} ulyxRowsShape_t;

#define ULYX_ROWS_SHAPE_MAGIC 0x756c7957u
#define ULYX_ROWS_SHAPE_INITIALIZER \
  { sizeof(ulyxRowsShape_t), ULYX_ROWS_SHAPE_MAGIC, 1, 0, ulyxBfloat16, 0, 0, 0, 0, NULL, {0, 0}, NULL, NULL, 0, 0 }

/* A plan for one row collective; otherwise as ulyxPlanCreate. */
ULYX_API ulyxResult_t ulyxRowsPlanCreate(ulyxRuntime_t rt, const ulyxRowsShape_t* shape, ulyxPlan_t* plan);

/* The staging arena that the plan takes on one rank. Pure. */
ULYX_API ulyxResult_t ulyxRowsShapeGetArenaBytes(const ulyxRowsShape_t* shape, int nRanks, int rank, int64_t* bytes);

/* The tensors that this rank's collective expects, complete but for data: extents [1, rows, 1, rowElements].
 * Input and output rows are:
 *   all-gather      own rows (of the target: those of it that this rank owns) -> all rows (of the target)
 *   reduce-scatter  all rows -> own rows
 *   all-to-all      rows to rank 0, to rank 1, ... -> rows from rank 0, from rank 1, ...
 * Each pointer may be NULL. */
ULYX_API ulyxResult_t ulyxPlanGetRows(ulyxPlan_t plan, ulyxTensor_t* in, ulyxTensor_t* out);

/* Every rank ends with all rows (of the target) in order. Collective, stream-ordered, capturable: as
 * ulyxSeqToHeads, also where it says how in and out may be the same at world size 1. */
ULYX_API ulyxResult_t ulyxAllGatherRows(ulyxPlan_t plan, const ulyxTensor_t* in, const ulyxTensor_t* out,
                                        ulyxStream_t stream);

/* Every rank ends with its own rows, each the sum of every rank's: added in fp32 in rank order and rounded once,
 * so the bits are the same on every transport and in every run. A NaN comes out as the type's quiet NaN with no
 * payload (at world size 1 in place nothing is done, NaNs included). At most 512 ranks. Otherwise as ulyxAllGatherRows.
 */
ULYX_API ulyxResult_t ulyxReduceScatterRows(ulyxPlan_t plan, const ulyxTensor_t* in, const ulyxTensor_t* out,
                                            ulyxStream_t stream);

/* Rows by the count matrix of the plan. Otherwise as ulyxAllGatherRows. */
ULYX_API ulyxResult_t ulyxAllToAllRows(ulyxPlan_t plan, const ulyxTensor_t* in, const ulyxTensor_t* out,
                                       ulyxStream_t stream);

/* ulyxContextCacheGet for this rank, from a cache of 64 that belongs to the runtime. Any thread may call it at any
 * time before ulyxRuntimeDestroy, also on a closed runtime; its refusals are the calling thread's alone
 * (ulyxGetLastError(NULL)). */
ULYX_API ulyxResult_t ulyxRuntimeGetContext(ulyxRuntime_t rt, const void* cuSeqlens, int64_t count, int type, int split,
                                            int convKernel, ulyxContext_t* context);

/* Writes the context's localCuSeqlens [numSequences + 1] to memory of the runtime's device (loopback: of the host),
 * in stream order. The context is this rank's, of this world. They are read during the call only; legal under
 * capture, and a graph owns what it stores. */
ULYX_API ulyxResult_t ulyxContextStoreCuSeqlens(ulyxRuntime_t rt, ulyxContext_t context, int32_t* data,
                                                ulyxStream_t stream);

/* ---- Halos and states along a context --------------------------------------------------------------- */

/* Rows that a causal convolution needs from the ranks before. Equal on every rank but for the context, which is
 * this rank's, of the runtime's world. */
typedef struct ulyxHaloShape {
  size_t size;
  unsigned int magic;
  unsigned int version;
  ulyxContext_t context; /* read during the call only */
  int64_t rowElements;
  int64_t localStride; /* elements from row to row of the local tensor; 0: dense. The halo is dense */
  int type;            /* ulyxDataType_t; ulyxConvHaloBackward takes float16, bfloat16 and float32 */
  int elementBytes;    /* 0: the type's */
} ulyxHaloShape_t;

#define ULYX_HALO_SHAPE_MAGIC 0x756c7948u
#define ULYX_HALO_SHAPE_INITIALIZER \
  { sizeof(ulyxHaloShape_t), ULYX_HALO_SHAPE_MAGIC, 1, NULL, 0, 0, ulyxBfloat16, 0 }

/* A plan for ulyxConvHalo and ulyxConvHaloBackward; otherwise as ulyxPlanCreate. A context whose dropped tail
 * begins inside a sequence is refused. */
ULYX_API ulyxResult_t ulyxHaloPlanCreate(ulyxRuntime_t rt, const ulyxHaloShape_t* shape, ulyxPlan_t* plan);

/* The staging arena that the plan takes on the context's rank. Pure. */
ULYX_API ulyxResult_t ulyxHaloShapeGetArenaBytes(const ulyxHaloShape_t* shape, int64_t* bytes);

/* The tensors that this rank's halo exchange expects, complete but for data: local [1, own tokens, 1, rowElements]
 * and halo [1, haloTokens, 1, rowElements]. Each pointer may be NULL. */
ULYX_API ulyxResult_t ulyxPlanGetHalo(ulyxPlan_t plan, ulyxTensor_t* local, ulyxTensor_t* halo);

/* halo = the rows of this rank's first sequence that precede its shard, convKernel - 1 of them or as many as the
 * sequence has, from as many ranks as hold them. Only ranks that need rows or hold them talk, but all must call.
 * Otherwise as ulyxAllGatherRows. */
ULYX_API ulyxResult_t ulyxConvHalo(ulyxPlan_t plan, const ulyxTensor_t* local, const ulyxTensor_t* halo,
                                   ulyxStream_t stream);

/* The reverse, for gradients: adds each rank's halo rows to the rows of their owners, in place: local + halo
 * gradients in rank order, in fp32, rounded once. Rows that are in nobody's halo are untouched; a row may
 * be in the halos of at most 511 ranks. Otherwise as
 * ulyxConvHalo. */
ULYX_API ulyxResult_t ulyxConvHaloBackward(ulyxPlan_t plan, const ulyxTensor_t* halo, const ulyxTensor_t* local,
                                           ulyxStream_t stream);

/* The recurrent state of a linear attention along a sequence that spans ranks. For each of `heads` value heads, over
 * the tokens that a rank holds of a sequence, the state goes from S to M S + S_ext: M is keyDim x keyDim, states
 * are keyDim x valueDim, row-major fp32. */
typedef struct ulyxStateShape {
  size_t size;
  unsigned int magic;
  unsigned int version;
  ulyxContext_t context; /* this rank's, of the runtime's world; read during the call only */
  int64_t heads;
  int64_t keyDim; /* at most 384 */
  int64_t valueDim;
  int hasInitial; /* 1: `initial` is read; equal on every rank, as all of this but the context */
  int wantsFinal; /* 1: `final` is written */
} ulyxStateShape_t;

#define ULYX_STATE_SHAPE_MAGIC 0x756c794du
#define ULYX_STATE_SHAPE_INITIALIZER \
  { sizeof(ulyxStateShape_t), ULYX_STATE_SHAPE_MAGIC, 1, NULL, 0, 0, 0, 0, 0 }

/* A plan for ulyxStateChain and ulyxStateChainBackward; otherwise as ulyxHaloPlanCreate. */
ULYX_API ulyxResult_t ulyxStatePlanCreate(ulyxRuntime_t rt, const ulyxStateShape_t* shape, ulyxPlan_t* plan);

/* The staging arena that the plan takes on the context's rank. Pure. */
ULYX_API ulyxResult_t ulyxStateShapeGetArenaBytes(const ulyxStateShape_t* shape, int64_t* bytes);

/* The tensors of a chain, float32: states [1, heads, keyDim, valueDim], transition [1, heads, keyDim, keyDim]. */
typedef struct ulyxStates {
  ulyxTensor_t state;      /* in: S_ext of this rank's last sequence (backward: of its first) */
  ulyxTensor_t transition; /* in: M of the same tokens */
  ulyxTensor_t initial;    /* in, with hasInitial: the state that the same sequence starts from, where it starts
                              (backward: ends) on this rank; not looked at elsewhere */
  ulyxTensor_t received;   /* out: the state that this rank's first sequence (backward: last) starts from */
  ulyxTensor_t final;      /* out, with wantsFinal: the state after this rank's part of the sequence of `state` */
} ulyxStates_t;

/* Complete but for data. */
ULYX_API ulyxResult_t ulyxPlanGetStates(ulyxPlan_t plan, ulyxStates_t* states);

/* Hands the state on: received = the initial state (zero without), then S <- M S + S_ext over the preNumRanks ranks
 * before this one, in order; zero where the first sequence starts here, unless it is also the last and has an
 * initial state. final = M S + S_ext of this rank itself. Every element starts from S_ext and adds its products by
 * fused multiply-adds over keyDim ascending, so the bits are the same on every transport and in every run. A computed
 * NaN is stored as 0x7fffffff. Outputs never share memory with inputs. A rank without tokens names state and transition
 * all the same, and its final is made of what they hold. Otherwise as ulyxConvHalo. */
ULYX_API ulyxResult_t ulyxStateChain(ulyxPlan_t plan, const ulyxStates_t* states, ulyxStream_t stream);

/* The mirror image, for gradients: first and last sequence change places, the order is from the last rank down, and
 * M is transposed. */
ULYX_API ulyxResult_t ulyxStateChainBackward(ulyxPlan_t plan, const ulyxStates_t* states, ulyxStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* ULYX_H_ */
