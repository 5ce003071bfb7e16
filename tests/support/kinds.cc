// SPDX-License-Identifier: MIT
#include "support/kinds.h"

#include "support/contexts.h"
#include "support/shapes.h"
#include "support/status.h"

namespace ulyx_test {

namespace {

constexpr int kPieces = 8;

}  // namespace

const char* NameOf(Kind kind) {
  static const char* const names[] = {"exchange", "gather", "reduce_scatter", "all_to_all", "halo", "chain"};
  return names[int(kind)];
}

Kinds::Kinds(const World& world, int nRanks, int rank)
    : world_(world),
      nRanks_(nRanks),
      rank_(rank),
      memory_(world.Alloc(rank, kPieces * kPieceBytes)),
      context_(MakeContext({0, nRanks, 6 * nRanks}, nRanks, rank, ulyxSplitBalanced, 5)) {
  const std::vector<uint8_t> zeros(kPieces * kPieceBytes);
  world.Upload(rank, memory_, zeros.data(), zeros.size());
}

Kinds::~Kinds() {
  (void)ulyxContextDestroy(context_);
  world_.Free(rank_, memory_);
}

ulyxResult_t Kinds::Make(ulyxRuntime_t runtime, Kind kind, ulyxPlan_t* plan) const {
  if (kind == Kind::kExchange) {
    const Shape shape(3 * nRanks_ + 1, 2 * nRanks_, 8);
    return ulyxPlanCreate(runtime, &shape.c, plan);
  }
  if (kind == Kind::kHalo) {
    ulyxHaloShape_t shape = ULYX_HALO_SHAPE_INITIALIZER;
    shape.context = context_;
    shape.type = ulyxFloat32;
    shape.rowElements = 12;
    return ulyxHaloPlanCreate(runtime, &shape, plan);
  }
  if (kind == Kind::kChain) {
    ulyxStateShape_t shape = ULYX_STATE_SHAPE_INITIALIZER;
    shape.context = context_;
    shape.heads = 2;
    shape.keyDim = shape.valueDim = 4;
    shape.wantsFinal = 1;
    return ulyxStatePlanCreate(runtime, &shape, plan);
  }
  ulyxRowsShape_t shape = ULYX_ROWS_SHAPE_INITIALIZER;
  const std::vector<int64_t> counts(size_t(nRanks_), 2);
  shape.op = kind == Kind::kGather          ? ulyxRowsAllGather
             : kind == Kind::kReduceScatter ? ulyxRowsReduceScatter
                                            : ulyxRowsAllToAll;
  shape.type = ulyxFloat32;
  shape.rowElements = 10;
  shape.total = kind == Kind::kAllToAll ? 0 : 2 * nRanks_ + 1;
  shape.sendCounts = shape.recvCounts = kind == Kind::kAllToAll ? counts.data() : nullptr;
  return ulyxRowsPlanCreate(runtime, &shape, plan);
}

bool Kinds::HasBackward(Kind kind) {
  return kind == Kind::kExchange || kind == Kind::kHalo || kind == Kind::kChain;
}

ulyxResult_t Kinds::Call(Kind kind, ulyxPlan_t plan, bool backward, ulyxStream_t stream) const {
  ulyxTensor_t in = ULYX_TENSOR_INITIALIZER, out = ULYX_TENSOR_INITIALIZER;
  ulyxQkv_t qkvIn = ULYX_QKV_INITIALIZER, qkvOut = ULYX_QKV_INITIALIZER;
  ulyxStates_t states = {};
  const ulyxResult_t asked = kind == Kind::kHalo       ? ulyxPlanGetHalo(plan, &in, &out)
                             : kind == Kind::kChain    ? ulyxPlanGetStates(plan, &states)
                             : kind != Kind::kExchange ? ulyxPlanGetRows(plan, &in, &out)
                             : backward                ? ulyxPlanGetOutput(plan, &in, &out)
                                                       : ulyxPlanGetQkv(plan, &qkvIn, &qkvOut);
  if (asked != ulyxSuccess) return asked;
  in.data = states.state.data = qkvIn.q.data = Piece(0);
  out.data = states.transition.data = qkvIn.k.data = Piece(1);
  states.received.data = qkvIn.v.data = Piece(2);
  states.final.data = qkvOut.q.data = Piece(3);
  qkvOut.k.data = Piece(4);
  qkvOut.v.data = Piece(5);
  switch (kind) {
    case Kind::kExchange:
      return backward ? ulyxHeadsToSeq(plan, &in, &out, stream) : ulyxSeqToHeads(plan, &qkvIn, &qkvOut, stream);
    case Kind::kGather:
      return ulyxAllGatherRows(plan, &in, &out, stream);
    case Kind::kReduceScatter:
      return ulyxReduceScatterRows(plan, &in, &out, stream);
    case Kind::kAllToAll:
      return ulyxAllToAllRows(plan, &in, &out, stream);
    case Kind::kHalo:
      return backward ? ulyxConvHaloBackward(plan, &out, &in, stream) : ulyxConvHalo(plan, &in, &out, stream);
    default:
      return backward ? ulyxStateChainBackward(plan, &states, stream) : ulyxStateChain(plan, &states, stream);
  }
}

}  // namespace ulyx_test
