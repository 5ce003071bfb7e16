/* SPDX-License-Identifier: MIT
 *
 * The layout of everything public, against the numbers that programs built before were compiled with. What differs
 * here needs a new version in the struct, or a new SONAME; what is added is added here too. */
#include <stdio.h>

#include "ulyx.h"

typedef struct {
  const char* name;
  size_t offset, bytes, heldOffset, heldBytes;
  int isStruct; /* the fields before it are its own */
} Layout;

typedef struct {
  const char* name;
  long long value, held;
} Number;

#define FIELD(type, field, offset, bytes) \
  { #type "." #field, offsetof(type, field), sizeof(((type*)NULL)->field), offset, bytes, 0 }
#define STRUCT(type, bytes) \
  { #type, 0, sizeof(type), 0, bytes, 1 }
#define NUMBER(expression, held) \
  { #expression, (long long)(expression), held }

/* clang-format off */
static const Layout kLayouts[] = {
    FIELD(ulyxRange_t, start, 0, 8),
    FIELD(ulyxRange_t, stop, 8, 8),
    STRUCT(ulyxRange_t, 16),
    FIELD(ulyxStrides_t, batch, 0, 8),
    FIELD(ulyxStrides_t, token, 8, 8),
    FIELD(ulyxStrides_t, head, 16, 8),
    STRUCT(ulyxStrides_t, 24),
    FIELD(ulyxShape_t, size, 0, 8),
    FIELD(ulyxShape_t, magic, 8, 4),
    FIELD(ulyxShape_t, version, 12, 4),
    FIELD(ulyxShape_t, tokens, 16, 8),
    FIELD(ulyxShape_t, heads, 24, 8),
    FIELD(ulyxShape_t, kvHeads, 32, 8),
    FIELD(ulyxShape_t, headDim, 40, 8),
    FIELD(ulyxShape_t, valueDim, 48, 8),
    FIELD(ulyxShape_t, batch, 56, 8),
    FIELD(ulyxShape_t, tokenCounts, 64, 8),
    FIELD(ulyxShape_t, headCounts, 72, 8),
    FIELD(ulyxShape_t, type, 80, 4),
    FIELD(ulyxShape_t, elementBytes, 84, 4),
    FIELD(ulyxShape_t, seqOrder, 88, 4),
    FIELD(ulyxShape_t, headsOrder, 92, 4),
    FIELD(ulyxShape_t, packedIn, 96, 4),
    FIELD(ulyxShape_t, packedOut, 100, 4),
    FIELD(ulyxShape_t, qIn, 104, 24),
    FIELD(ulyxShape_t, kIn, 128, 24),
    FIELD(ulyxShape_t, vIn, 152, 24),
    FIELD(ulyxShape_t, qOut, 176, 24),
    FIELD(ulyxShape_t, kOut, 200, 24),
    FIELD(ulyxShape_t, vOut, 224, 24),
    FIELD(ulyxShape_t, oIn, 248, 24),
    FIELD(ulyxShape_t, oOut, 272, 24),
    STRUCT(ulyxShape_t, 296),
    FIELD(ulyxShapeBytes_t, size, 0, 8),
    FIELD(ulyxShapeBytes_t, magic, 8, 4),
    FIELD(ulyxShapeBytes_t, version, 12, 4),
    FIELD(ulyxShapeBytes_t, qIn, 16, 8),
    FIELD(ulyxShapeBytes_t, kIn, 24, 8),
    FIELD(ulyxShapeBytes_t, vIn, 32, 8),
    FIELD(ulyxShapeBytes_t, qOut, 40, 8),
    FIELD(ulyxShapeBytes_t, kOut, 48, 8),
    FIELD(ulyxShapeBytes_t, vOut, 56, 8),
    FIELD(ulyxShapeBytes_t, oIn, 64, 8),
    FIELD(ulyxShapeBytes_t, oOut, 72, 8),
    FIELD(ulyxShapeBytes_t, arena, 80, 8),
    STRUCT(ulyxShapeBytes_t, 88),
    FIELD(ulyxConfig_t, size, 0, 8),
    FIELD(ulyxConfig_t, magic, 8, 4),
    FIELD(ulyxConfig_t, version, 12, 4),
    FIELD(ulyxConfig_t, transport, 16, 4),
    FIELD(ulyxConfig_t, agreePlans, 20, 4),
    FIELD(ulyxConfig_t, timeoutMs, 24, 4),
    FIELD(ulyxConfig_t, maxCtas, 28, 4),
    FIELD(ulyxConfig_t, arenaBytes, 32, 8),
    FIELD(ulyxConfig_t, streamPriority, 40, 4),
    FIELD(ulyxConfig_t, undisturbed, 44, 4),
    FIELD(ulyxConfig_t, copyStreams, 48, 4),
    FIELD(ulyxConfig_t, reserved, 52, 4),
    STRUCT(ulyxConfig_t, 56),
    FIELD(ulyxUniqueId_t, internal, 0, 128),
    STRUCT(ulyxUniqueId_t, 128),
    FIELD(ulyxRuntimeInfo_t, size, 0, 8),
    FIELD(ulyxRuntimeInfo_t, magic, 8, 4),
    FIELD(ulyxRuntimeInfo_t, version, 12, 4),
    FIELD(ulyxRuntimeInfo_t, rank, 16, 4),
    FIELD(ulyxRuntimeInfo_t, nRanks, 20, 4),
    FIELD(ulyxRuntimeInfo_t, transport, 24, 4),
    FIELD(ulyxRuntimeInfo_t, device, 28, 4),
    FIELD(ulyxRuntimeInfo_t, ncclVersion, 32, 4),
    FIELD(ulyxRuntimeInfo_t, closed, 36, 4),
    FIELD(ulyxRuntimeInfo_t, arenaBytes, 40, 8),
    FIELD(ulyxRuntimeInfo_t, transportReason, 48, 8),
    STRUCT(ulyxRuntimeInfo_t, 56),
    FIELD(ulyxChoice_t, transport, 0, 4),
    FIELD(ulyxChoice_t, reserved, 4, 4),
    FIELD(ulyxChoice_t, reason, 8, 8),
    FIELD(ulyxChoice_t, predictedUs, 16, 8),
    STRUCT(ulyxChoice_t, 24),
    FIELD(ulyxPlanInfo_t, size, 0, 8),
    FIELD(ulyxPlanInfo_t, magic, 8, 4),
    FIELD(ulyxPlanInfo_t, version, 12, 4),
    FIELD(ulyxPlanInfo_t, rank, 16, 4),
    FIELD(ulyxPlanInfo_t, nRanks, 20, 4),
    FIELD(ulyxPlanInfo_t, transport, 24, 4),
    FIELD(ulyxPlanInfo_t, type, 28, 4),
    FIELD(ulyxPlanInfo_t, elementBytes, 32, 8),
    FIELD(ulyxPlanInfo_t, tokens, 40, 8),
    FIELD(ulyxPlanInfo_t, heads, 48, 8),
    FIELD(ulyxPlanInfo_t, kvHeads, 56, 8),
    FIELD(ulyxPlanInfo_t, headDim, 64, 8),
    FIELD(ulyxPlanInfo_t, valueDim, 72, 8),
    FIELD(ulyxPlanInfo_t, batch, 80, 8),
    FIELD(ulyxPlanInfo_t, tokenRange, 88, 16),
    FIELD(ulyxPlanInfo_t, headRange, 104, 16),
    FIELD(ulyxPlanInfo_t, kvHeadRange, 120, 16),
    FIELD(ulyxPlanInfo_t, tokenCount, 136, 8),
    FIELD(ulyxPlanInfo_t, headCount, 144, 8),
    FIELD(ulyxPlanInfo_t, kvHeadCount, 152, 8),
    FIELD(ulyxPlanInfo_t, tokenRanges, 160, 8),
    FIELD(ulyxPlanInfo_t, headRanges, 168, 8),
    FIELD(ulyxPlanInfo_t, kvHeadRanges, 176, 8),
    FIELD(ulyxPlanInfo_t, tokenCounts, 184, 8),
    FIELD(ulyxPlanInfo_t, headCounts, 192, 8),
    FIELD(ulyxPlanInfo_t, kvHeadCounts, 200, 8),
    FIELD(ulyxPlanInfo_t, seqToHeadsSendBytes, 208, 8),
    FIELD(ulyxPlanInfo_t, seqToHeadsRecvBytes, 216, 8),
    FIELD(ulyxPlanInfo_t, headsToSeqSendBytes, 224, 8),
    FIELD(ulyxPlanInfo_t, headsToSeqRecvBytes, 232, 8),
    FIELD(ulyxPlanInfo_t, arenaBytes, 240, 8),
    FIELD(ulyxPlanInfo_t, signature, 248, 8),
    FIELD(ulyxPlanInfo_t, seqToHeads, 256, 24),
    FIELD(ulyxPlanInfo_t, headsToSeq, 280, 24),
    STRUCT(ulyxPlanInfo_t, 304),
    FIELD(ulyxTensor_t, size, 0, 8),
    FIELD(ulyxTensor_t, magic, 8, 4),
    FIELD(ulyxTensor_t, version, 12, 4),
    FIELD(ulyxTensor_t, data, 16, 8),
    FIELD(ulyxTensor_t, extents, 24, 32),
    FIELD(ulyxTensor_t, strides, 56, 32),
    FIELD(ulyxTensor_t, type, 88, 4),
    FIELD(ulyxTensor_t, elementBytes, 92, 4),
    STRUCT(ulyxTensor_t, 96),
    FIELD(ulyxQkv_t, q, 0, 96),
    FIELD(ulyxQkv_t, k, 96, 96),
    FIELD(ulyxQkv_t, v, 192, 96),
    STRUCT(ulyxQkv_t, 288),
    FIELD(ulyxSegment_t, start, 0, 8),
    FIELD(ulyxSegment_t, stop, 8, 8),
    FIELD(ulyxSegment_t, row, 16, 8),
    STRUCT(ulyxSegment_t, 24),
    FIELD(ulyxContextInfo_t, size, 0, 8),
    FIELD(ulyxContextInfo_t, magic, 8, 4),
    FIELD(ulyxContextInfo_t, version, 12, 4),
    FIELD(ulyxContextInfo_t, nRanks, 16, 4),
    FIELD(ulyxContextInfo_t, rank, 20, 4),
    FIELD(ulyxContextInfo_t, split, 24, 4),
    FIELD(ulyxContextInfo_t, convKernel, 28, 4),
    FIELD(ulyxContextInfo_t, isCpEnabled, 32, 4),
    FIELD(ulyxContextInfo_t, isFirstRank, 36, 4),
    FIELD(ulyxContextInfo_t, isLastRank, 40, 4),
    FIELD(ulyxContextInfo_t, preNumRanks, 44, 4),
    FIELD(ulyxContextInfo_t, postNumRanks, 48, 4),
    FIELD(ulyxContextInfo_t, cutsSequence, 52, 4),
    FIELD(ulyxContextInfo_t, preNumConvTokens, 56, 8),
    FIELD(ulyxContextInfo_t, haloTokens, 64, 8),
    FIELD(ulyxContextInfo_t, droppedTokens, 72, 8),
    FIELD(ulyxContextInfo_t, tokenRange, 80, 16),
    FIELD(ulyxContextInfo_t, numSequences, 96, 8),
    FIELD(ulyxContextInfo_t, localCuSeqlens, 104, 8),
    FIELD(ulyxContextInfo_t, sequenceIndices, 112, 8),
    STRUCT(ulyxContextInfo_t, 120),
    FIELD(ulyxRowsShape_t, size, 0, 8),
    FIELD(ulyxRowsShape_t, magic, 8, 4),
    FIELD(ulyxRowsShape_t, version, 12, 4),
    FIELD(ulyxRowsShape_t, op, 16, 4),
    FIELD(ulyxRowsShape_t, type, 20, 4),
    FIELD(ulyxRowsShape_t, elementBytes, 24, 4),
    FIELD(ulyxRowsShape_t, targeted, 28, 4),
    FIELD(ulyxRowsShape_t, rowElements, 32, 8),
    FIELD(ulyxRowsShape_t, total, 40, 8),
    FIELD(ulyxRowsShape_t, counts, 48, 8),
    FIELD(ulyxRowsShape_t, target, 56, 16),
    FIELD(ulyxRowsShape_t, sendCounts, 72, 8),
    FIELD(ulyxRowsShape_t, recvCounts, 80, 8),
    FIELD(ulyxRowsShape_t, inStride, 88, 8),
    FIELD(ulyxRowsShape_t, outStride, 96, 8),
    STRUCT(ulyxRowsShape_t, 104),
    FIELD(ulyxHaloShape_t, size, 0, 8),
    FIELD(ulyxHaloShape_t, magic, 8, 4),
    FIELD(ulyxHaloShape_t, version, 12, 4),
    FIELD(ulyxHaloShape_t, context, 16, 8),
    FIELD(ulyxHaloShape_t, rowElements, 24, 8),
    FIELD(ulyxHaloShape_t, localStride, 32, 8),
    FIELD(ulyxHaloShape_t, type, 40, 4),
    FIELD(ulyxHaloShape_t, elementBytes, 44, 4),
    STRUCT(ulyxHaloShape_t, 48),
    FIELD(ulyxStateShape_t, size, 0, 8),
    FIELD(ulyxStateShape_t, magic, 8, 4),
    FIELD(ulyxStateShape_t, version, 12, 4),
    FIELD(ulyxStateShape_t, context, 16, 8),
    FIELD(ulyxStateShape_t, heads, 24, 8),
    FIELD(ulyxStateShape_t, keyDim, 32, 8),
    FIELD(ulyxStateShape_t, valueDim, 40, 8),
    FIELD(ulyxStateShape_t, hasInitial, 48, 4),
    FIELD(ulyxStateShape_t, wantsFinal, 52, 4),
    STRUCT(ulyxStateShape_t, 56),
    FIELD(ulyxStates_t, state, 0, 96),
    FIELD(ulyxStates_t, transition, 96, 96),
    FIELD(ulyxStates_t, initial, 192, 96),
    FIELD(ulyxStates_t, received, 288, 96),
    FIELD(ulyxStates_t, final, 384, 96),
    STRUCT(ulyxStates_t, 480),
};

static const Number kNumbers[] = {
    NUMBER(ulyxSuccess, 0),
    NUMBER(ulyxUnhandledCudaError, 1),
    NUMBER(ulyxSystemError, 2),
    NUMBER(ulyxInternalError, 3),
    NUMBER(ulyxInvalidArgument, 4),
    NUMBER(ulyxInvalidUsage, 5),
    NUMBER(ulyxRemoteError, 6),
    NUMBER(ulyxInProgress, 7),
    NUMBER(ulyxMismatch, 100),
    NUMBER(ulyxTimeout, 101),
    NUMBER(ulyxArenaTooSmall, 102),
    NUMBER(ulyxClosed, 103),
    NUMBER(ulyxUnsupported, 104),
    NUMBER(sizeof(ulyxResult_t), 4),
    NUMBER(ulyxInt8, 0),
    NUMBER(ulyxUint8, 1),
    NUMBER(ulyxInt32, 2),
    NUMBER(ulyxUint32, 3),
    NUMBER(ulyxInt64, 4),
    NUMBER(ulyxUint64, 5),
    NUMBER(ulyxFloat16, 6),
    NUMBER(ulyxFloat32, 7),
    NUMBER(ulyxFloat64, 8),
    NUMBER(ulyxBfloat16, 9),
    NUMBER(ulyxFloat8e4m3, 10),
    NUMBER(ulyxFloat8e5m2, 11),
    NUMBER(ulyxBool, 100),
    NUMBER(ulyxInt16, 101),
    NUMBER(ulyxUint16, 102),
    NUMBER(ulyxOpaque, 103),
    NUMBER(sizeof(ulyxDataType_t), 4),
    NUMBER(ulyxTransportAuto, 0),
    NUMBER(ulyxTransportLoopback, 1),
    NUMBER(ulyxTransportNccl, 2),
    NUMBER(ulyxTransportDirect, 3),
    NUMBER(ulyxTransportCopyEngine, 4),
    NUMBER(sizeof(ulyxTransport_t), 4),
    NUMBER(ulyxBatchFirst, 0),
    NUMBER(ulyxSeqFirst, 1),
    NUMBER(sizeof(ulyxOrder_t), 4),
    NUMBER(ulyxOpSeqToHeads, 0),
    NUMBER(ulyxOpHeadsToSeq, 1),
    NUMBER(sizeof(ulyxOp_t), 4),
    NUMBER(ulyxSplitBalanced, 0),
    NUMBER(ulyxSplitEqual, 1),
    NUMBER(ulyxSplitTruncate, 2),
    NUMBER(sizeof(ulyxSplit_t), 4),
    NUMBER(ulyxRowsAllGather, 0),
    NUMBER(ulyxRowsReduceScatter, 1),
    NUMBER(ulyxRowsAllToAll, 2),
    NUMBER(sizeof(ulyxRowsOp_t), 4),
    NUMBER(ULYX_SHAPE_MAGIC, 0x756c7953u),
    NUMBER(ULYX_SHAPE_BYTES_MAGIC, 0x756c7942u),
    NUMBER(ULYX_CONFIG_MAGIC, 0x756c7943u),
    NUMBER(ULYX_RUNTIME_INFO_MAGIC, 0x756c7952u),
    NUMBER(ULYX_PLAN_INFO_MAGIC, 0x756c7950u),
    NUMBER(ULYX_TENSOR_MAGIC, 0x756c7954u),
    NUMBER(ULYX_CONTEXT_INFO_MAGIC, 0x756c7958u),
    NUMBER(ULYX_ROWS_SHAPE_MAGIC, 0x756c7957u),
    NUMBER(ULYX_HALO_SHAPE_MAGIC, 0x756c7948u),
    NUMBER(ULYX_STATE_SHAPE_MAGIC, 0x756c794du),
    NUMBER(ULYX_UNIQUE_ID_BYTES, 128),
};
/* clang-format on */

int main(void) {
  int passed = 0, failed = 0;
  size_t end = 0; /* of the fields so far */
  if (sizeof(void*) != 8 || sizeof(long) != 8) {
    printf("SKIPPED: the numbers are of machines with 64-bit long and pointers\n");
    return 77;
  }
  for (size_t i = 0; i < sizeof kLayouts / sizeof kLayouts[0]; ++i) {
    const Layout* const is = &kLayouts[i];
    /* No padding: a field that is missing above leaves a hole here. */
    const int whole = is->isStruct ? end == is->bytes : end == is->offset;
    if (whole && is->offset == is->heldOffset && is->bytes == is->heldBytes) {
      ++passed;
    } else {
      ++failed;
      printf("FAILED: %s is %zu bytes at %zu, was %zu at %zu; the fields before it end at %zu\n", is->name, is->bytes,
             is->offset, is->heldBytes, is->heldOffset, end);
    }
    end = is->isStruct ? 0 : is->offset + is->bytes;
  }
  for (size_t i = 0; i < sizeof kNumbers / sizeof kNumbers[0]; ++i) {
    if (kNumbers[i].value == kNumbers[i].held) {
      ++passed;
    } else {
      ++failed;
      printf("FAILED: %s is %lld, was %lld\n", kNumbers[i].name, kNumbers[i].value, kNumbers[i].held);
    }
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
