// SPDX-License-Identifier: MIT
//
// Tokens so far apart that 31 bits do not count the elements between them, nor 32 the bytes: on GPUs, whose kernels and
// copies see every offset. Elsewhere the same test with tokens close together.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "support/exchange_check.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

constexpr int kRanks = 2;
constexpr int64_t kTokens = 6, kHeads = 4, kDim = 8;
constexpr int64_t kOwnTokens = kTokens / kRanks, kOwnHeads = kHeads / kRanks;
constexpr int64_t kMost = kHeads * kDim;  // bytes of a token
constexpr uint8_t kPoison = 0xee;

class FarOffsets : public ::testing::TestWithParam<const World*> {};
ULYX_ON_EVERY_WORLD(FarOffsets);

using Row = std::vector<uint8_t>;

// A rank's heads of a token, from global coordinates alone.
Row RowOf(char tensor, int64_t token, int64_t firstHead, int64_t heads) {
  Row row;
  for (int64_t i = firstHead * kDim; i < (firstHead + heads) * kDim; i++) {
    row.push_back(uint8_t((tensor * 31 + token * 37 + i) % 227));
  }
  return row;
}

// A tensor of `tokens` rows, `apart` bytes from one to the next, of which only the rows are looked at, with what
// follows each up to kMost bytes, and the places where offsets of too few bits would put them.
class Rows {
 public:
  Rows(const World& world, int rank, void* memory, int64_t tokens, int64_t apart)
      : world_(world), rank_(rank), memory_(static_cast<uint8_t*>(memory)), tokens_(tokens), apart_(apart) {}
  void* Data() const { return memory_; }

  void Fill(char tensor, int64_t firstToken, int64_t firstHead, int64_t heads) const {
    for (int64_t t = 0; t < tokens_; t++) {
      const Row row = RowOf(tensor, firstToken + t, firstHead, heads);
      world_.Upload(rank_, memory_ + t * apart_, row.data(), row.size());
    }
  }
  void Poison() const {
    const Row poison(kMost, kPoison);
    for (const int64_t place : Wrong()) world_.Upload(rank_, memory_ + place, poison.data(), poison.size());
    for (int64_t t = 0; t < tokens_; t++) world_.Upload(rank_, memory_ + t * apart_, poison.data(), poison.size());
  }
  void Expect(char tensor, int64_t firstToken, int64_t firstHead, int64_t heads) const {
    for (int64_t t = 0; t < tokens_; t++) {
      Row row = RowOf(tensor, firstToken + t, firstHead, heads);
      if (apart_ >= kMost) row.resize(kMost, kPoison);
      EXPECT_EQ(At(t * apart_, int64_t(row.size())), row) << tensor << ' ' << t;
    }
    for (const int64_t place : Wrong()) EXPECT_EQ(At(place, kMost), Row(kMost, kPoison)) << tensor << " at " << place;
  }

 private:
  Row At(int64_t place, int64_t bytes) const {
    Row row(static_cast<size_t>(bytes));
    world_.Download(rank_, row.data(), memory_ + place, row.size());
    return row;
  }
  std::set<int64_t> Wrong() const {
    std::set<int64_t> places;
    for (int64_t t = 0; t < tokens_; t++) {
      for (const int bits : {31, 32}) places.insert(t * apart_ % (INT64_C(1) << bits));
    }
    for (int64_t t = 0; t < tokens_; t++) places.erase(t * apart_);
    return places;
  }

  const World& world_;
  const int rank_;
  uint8_t* const memory_;
  const int64_t tokens_, apart_;
};

void ReachFarOffsets(const World& world, const ulyxConfig_t& config) {
  const int64_t apart = world.HasRealGpus() ? (INT64_C(1) << 31) + 64 : 64;
  const int64_t few = (kOwnTokens - 1) * apart + kMost, many = (kTokens - 1) * apart + kMost, dense = kTokens * kMost;
  const int64_t needed = (few + 2 * many) * (world.KeepsOneSession() ? kRanks : 1);  // twice: staged with their gaps
  if (world.FreeBytes(0) < needed) GTEST_SKIP() << "needs " << needed << " bytes free";
  Shape shape(kTokens, kHeads, kDim);
  shape.Type(ulyxUint8);
  for (ulyxStrides_t* strides : {&shape.c.qIn, &shape.c.kOut, &shape.c.oIn, &shape.c.oOut}) strides->token = apart;
  const Session session(world, kRanks, &config);
  session.Run([&](int rank) {
    const ulyxRuntime_t runtime = session.Runtime(rank);
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    const int64_t firstToken = rank * kOwnTokens, firstHead = rank * kOwnHeads;
    void* symmetric = nullptr;
    MUST(ulyxMemAlloc(runtime, many, &symmetric));
    void* const ordinary = world.Alloc(rank, size_t(few));
    void* const small = world.Alloc(rank, size_t(4 * dense));
    const auto smallRows = [&](int i, int64_t tokens, int64_t heads) {
      return Rows(world, rank, static_cast<uint8_t*>(small) + i * dense, tokens, heads * kDim);
    };
    // The output projection's tensors lie where the others did.
    const Rows q(world, rank, ordinary, kOwnTokens, apart), kTo(world, rank, symmetric, kTokens, apart);
    const Rows oTo(world, rank, ordinary, kOwnTokens, apart), o(world, rank, symmetric, kTokens, apart);
    const Rows k = smallRows(0, kOwnTokens, kHeads), v = smallRows(1, kOwnTokens, kHeads);
    const Rows qTo = smallRows(2, kTokens, kOwnHeads), vTo = smallRows(3, kTokens, kOwnHeads);

    q.Fill('q', firstToken, 0, kHeads);
    k.Fill('k', firstToken, 0, kHeads);
    v.Fill('v', firstToken, 0, kHeads);
    for (const Rows& rows : {qTo, kTo, vTo}) rows.Poison();
    ulyxQkv_t in = ULYX_QKV_INITIALIZER, out = ULYX_QKV_INITIALIZER;
    MUST(ulyxPlanGetQkv(plan, &in, &out));
    in.q.data = q.Data(), in.k.data = k.Data(), in.v.data = v.Data();
    out.q.data = qTo.Data(), out.k.data = kTo.Data(), out.v.data = vTo.Data();
    MUST(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)));
    session.Synchronize(rank);
    qTo.Expect('q', 0, firstHead, kOwnHeads);
    kTo.Expect('k', 0, firstHead, kOwnHeads);
    vTo.Expect('v', 0, firstHead, kOwnHeads);

    o.Fill('o', 0, firstHead, kOwnHeads);
    oTo.Poison();
    ulyxTensor_t from = ULYX_TENSOR_INITIALIZER, to = ULYX_TENSOR_INITIALIZER;
    MUST(ulyxPlanGetOutput(plan, &from, &to));
    from.data = o.Data();
    to.data = oTo.Data();
    MUST(ulyxHeadsToSeq(plan, &from, &to, session.Stream(rank)));
    session.Synchronize(rank);
    oTo.Expect('o', firstToken, 0, kHeads);

    MUST(ulyxPlanDestroy(plan));
    MUST(ulyxMemFree(runtime, symmetric));
    world.Free(rank, ordinary);
    world.Free(rank, small);
  });
}

}  // namespace

TEST_P(FarOffsets, AreReachedInEveryTensorAndNowhereElse) {
  ULYX_SKIP_BELOW(*GetParam(), kRanks);
  ReachFarOffsets(*GetParam(), ULYX_CONFIG_INITIALIZER);
}

// Otherwise a kernel stores what is as little as this.
TEST_P(FarOffsets, AreReachedByCopyEnginesAlone) {
  if (GetParam()->Transport() != ulyxTransportCopyEngine) GTEST_SKIP() << GetParam()->Name() << " uses none";
  ULYX_SKIP_BELOW(*GetParam(), kRanks);
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.undisturbed = 1;
  ReachFarOffsets(*GetParam(), config);
}

}  // namespace ulyx_test
