// SPDX-License-Identifier: MIT
//
// Numbers that 16, 31 or 32 bits do not hold: of exchanges, of copies, of elements and of bytes.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "fake.h"
#include "support/epochs.h"
#include "support/exchange_check.h"
#include "support/rng.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

class LargeNumbers : public ::testing::TestWithParam<const World*> {};
ULYX_ON_EVERY_WORLD(LargeNumbers);

bool OnCpu(const World& world) {
  return world.Transport() == ulyxTransportLoopback;
}

}  // namespace

TEST_P(LargeNumbers, OfExchangesPassThirtyOneAndThirtyTwoBits) {
  if (OnCpu(*GetParam())) GTEST_SKIP() << "loopback compares no numbers of exchanges";
  const Session session(*GetParam(), 3);
  const Shape shape(10, 6, 8);
  const Oracle oracle(shape.c, 3, TestSeed());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    for (const uint64_t edge : {UINT64_C(1) << 31, UINT64_C(1) << 32, UINT64_C(1) << 62}) {
      const RankTensors tensors(session, oracle, rank, Symmetric);
      MUST(ulyxRuntimeReserve(session.Runtime(rank), 0));  // every rank is between the same exchanges
      ulyxTestSetExchangesDone(session.Runtime(rank), edge - 3);
      MUST(ulyxRuntimeReserve(session.Runtime(rank), 0));
      for (int i = 0; i < 3; i++) {
        tensors.Fill();
        Exchange(session, plan, tensors, rank);
        session.Synchronize(rank);
        tensors.ExpectWritten();
      }
      EXPECT_EQ(ulyxTestExchangesDone(session.Runtime(rank)), edge + 3);
    }
    MUST(ulyxPlanDestroy(plan));
  });
}

// And one that is told of by its number.
TEST_P(LargeNumbers, OfAnExchangeThatARankDoesNotComeToAreToldWhole) {
  if (OnCpu(*GetParam())) GTEST_SKIP() << "loopback compares no numbers of exchanges";
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.timeoutMs = 1000;
  const Session session(*GetParam(), 2, &config);
  const bool meets = GetParam()->Transport() != ulyxTransportNccl;
  const Shape shape(10, 6, 8);
  const Oracle oracle(shape.c, 2, TestSeed());
  ulyxPlan_t plans[2] = {};
  session.Run([&](int rank) {
    plans[rank] = MakePlan(session, shape.c, rank);
    ulyxTestSetExchangesDone(session.Runtime(rank), (UINT64_C(1) << 32) + 6);
  });
  std::unique_ptr<RankTensors> tensors[2];
  for (int rank = 0; rank < 2; rank++) tensors[rank] = std::make_unique<RankTensors>(session, oracle, rank, Ordinary);
  if (!meets) fakeSetBusy(1);  // NCCL says itself that a rank does not come
  session.Run([&](int rank) {
    if (meets && rank == 1) return;
    const ulyxTensor_t in = tensors[rank]->OutputIn(plans[rank]), out = tensors[rank]->OutputOut(plans[rank]);
    ulyxResult_t found = ulyxHeadsToSeq(plans[rank], &in, &out, session.Stream(rank));
    while (found == ulyxSuccess) MUST(ulyxRuntimeGetAsyncError(session.Runtime(rank), &found));
    EXPECT_EQ(found, ulyxTimeout);
    const std::string words = ulyxGetLastError(session.Runtime(rank));
    const std::string number = std::to_string((INT64_C(1) << 32) + 7);
    EXPECT_NE(words.find("exchange " + number + " "), std::string::npos) << words;
  });
  fakeSetBusy(0);
}

// A cube of which no two dimensions continue each other: the longest becomes rows, the others copies.
TEST_P(LargeNumbers, OfCopiesInOnePlanPassSixteenBits) {
  constexpr int64_t kEdge = 105;
  static_assert(2 * 3 * kEdge * kEdge > 65535, "to two ranks, of three tensors");
  if (IsThrifty(*GetParam())) GTEST_SKIP() << "loopback alone under sanitizers";
  Shape shape(2 * kEdge, 2 * kEdge, 1);
  shape.Type(ulyxUint8);
  shape.c.batch = kEdge;
  for (ulyxStrides_t* strides : {&shape.c.qIn, &shape.c.kIn, &shape.c.vIn, &shape.c.oIn}) strides->head = 2;
  const Session session(*GetParam(), 2);
  CheckExchanges(session, shape.c, TestSeed());
}

// Sizes that nothing here has to allocate, against the oracle's own arithmetic.
TEST(LargeNumber, OfBytesAreWholeInEveryGetter) {
  Shape shape((INT64_C(1) << 21) + 3, 64, 128);
  shape.KvHeads(16);
  shape.c.replicatedTokens = 77;
  constexpr int kRanks = 3;
  const Oracle oracle(shape.c, kRanks, 0);
  std::vector<int64_t> there(kRanks * kRanks), back(kRanks * kRanks);
  MUST(ulyxShapeGetTraffic(&shape.c, kRanks, ulyxOpSeqToHeads, there.data()));
  MUST(ulyxShapeGetTraffic(&shape.c, kRanks, ulyxOpHeadsToSeq, back.data()));
  for (int src = 0; src < kRanks; src++) {
    ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
    MUST(ulyxShapeGetBytes(&shape.c, kRanks, src, &bytes));
    EXPECT_EQ(bytes.qIn, oracle.LayoutOf(src, kQIn).bytes);
    EXPECT_EQ(bytes.kOut, oracle.LayoutOf(src, kKOut).bytes);
    EXPECT_EQ(bytes.oIn, oracle.LayoutOf(src, kOIn).bytes);
    EXPECT_GT(bytes.qIn, INT64_C(1) << 32);
    EXPECT_GT(bytes.arena, INT64_C(1) << 32);
    for (int dst = 0; dst < kRanks; dst++) {
      EXPECT_EQ(there[src * kRanks + dst], oracle.SeqToHeadsBytes(src, dst));
      EXPECT_EQ(back[src * kRanks + dst], oracle.HeadsToSeqBytes(src, dst));
      EXPECT_GT(there[src * kRanks + dst], INT64_C(1) << 32);
    }
  }
}

// ---- Offsets ----------------------------------------------------------------------------------------------

namespace {

// Address space of which only what is touched has memory.
class Sparse {
 public:
  explicit Sparse(int64_t bytes)
      : bytes_(size_t(bytes)),
        start_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (start_ == MAP_FAILED) throw std::runtime_error("no address space for " + std::to_string(bytes) + " bytes");
  }
  ~Sparse() { munmap(start_, bytes_); }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  float* At(int64_t element) const { return static_cast<float*>(start_) + element; }

 private:
  const size_t bytes_;
  void* const start_;
};

// The one value of an element, from global coordinates alone.
float ValueOf(char tensor, int64_t token, int64_t head, int64_t i) {
  return float(tensor) * 65536 + float(token * 1024 + head * 32 + i);
}

constexpr int64_t kTokens = 8, kHeads = 4, kDim = 8;
constexpr int64_t kApart = (INT64_C(1) << 30) + 24;  // elements from token to token: 4 GiB and a little

}  // namespace

TEST(LargeNumber, OfElementsAndBytesBetweenTokensAreReachedOnLoopback) {
  const World& world = *Worlds().front();
  ASSERT_EQ(world.Transport(), ulyxTransportLoopback);
  constexpr int kRanks = 2;
  Shape shape(kTokens, kHeads, kDim);
  shape.Type(ulyxFloat32);
  for (ulyxStrides_t* strides : {&shape.c.qIn, &shape.c.kOut, &shape.c.oIn, &shape.c.oOut}) strides->token = kApart;
  const Session session(world, kRanks);
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
    MUST(ulyxShapeGetBytes(&shape.c, kRanks, rank, &bytes));
    EXPECT_GT(bytes.kOut, (kTokens - 1) * kApart * 4);
    const Sparse q(bytes.qIn), k(bytes.kIn), v(bytes.vIn), qTo(bytes.qOut), kTo(bytes.kOut), vTo(bytes.vOut);
    const Sparse o(bytes.oIn), oTo(bytes.oOut);
    const int64_t firstToken = rank * kTokens / kRanks, firstHead = rank * kHeads / kRanks;
    const int64_t dense = kHeads * kDim, denseOwn = dense / kRanks;
    const auto eachOf = [](int64_t tokens, int64_t heads, const auto& body) {
      for (int64_t t = 0; t < tokens; t++) {
        for (int64_t h = 0; h < heads; h++) {
          for (int64_t i = 0; i < kDim; i++) body(t, h, i);
        }
      }
    };
    eachOf(kTokens / kRanks, kHeads, [&](int64_t t, int64_t h, int64_t i) {
      *q.At(t * kApart + h * kDim + i) = ValueOf('q', firstToken + t, h, i);
      *k.At(t * dense + h * kDim + i) = ValueOf('k', firstToken + t, h, i);
      *v.At(t * dense + h * kDim + i) = ValueOf('v', firstToken + t, h, i);
    });
    eachOf(kTokens, kHeads / kRanks, [&](int64_t t, int64_t h, int64_t i) {
      *o.At(t * kApart + h * kDim + i) = ValueOf('o', t, firstHead + h, i);
    });
    ulyxQkv_t in = ULYX_QKV_INITIALIZER, out = ULYX_QKV_INITIALIZER;
    MUST(ulyxPlanGetQkv(plan, &in, &out));
    in.q.data = q.At(0), in.k.data = k.At(0), in.v.data = v.At(0);
    out.q.data = qTo.At(0), out.k.data = kTo.At(0), out.v.data = vTo.At(0);
    MUST(ulyxSeqToHeads(plan, &in, &out, nullptr));
    ulyxTensor_t from = ULYX_TENSOR_INITIALIZER, to = ULYX_TENSOR_INITIALIZER;
    MUST(ulyxPlanGetOutput(plan, &from, &to));
    from.data = o.At(0);
    to.data = oTo.At(0);
    MUST(ulyxHeadsToSeq(plan, &from, &to, nullptr));
    eachOf(kTokens, kHeads / kRanks, [&](int64_t t, int64_t h, int64_t i) {
      EXPECT_EQ(*qTo.At(t * denseOwn + h * kDim + i), ValueOf('q', t, firstHead + h, i));
      EXPECT_EQ(*kTo.At(t * kApart + h * kDim + i), ValueOf('k', t, firstHead + h, i));
      EXPECT_EQ(*vTo.At(t * denseOwn + h * kDim + i), ValueOf('v', t, firstHead + h, i));
    });
    eachOf(kTokens / kRanks, kHeads, [&](int64_t t, int64_t h, int64_t i) {
      EXPECT_EQ(*oTo.At(t * kApart + h * kDim + i), ValueOf('o', firstToken + t, h, i));
    });
    MUST(ulyxPlanDestroy(plan));
  });
}

}  // namespace ulyx_test
