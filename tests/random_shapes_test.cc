// SPDX-License-Identifier: MIT
//
// Tens of thousands of random shapes, any layout and any world, without threads or transports: the copies of every
// rank's phase are made by memcpy between plain buffers, and every byte is compared with the oracle's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/internal.h"
#include "support/oracle.h"
#include "support/ranks.h"
#include "support/rng.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

constexpr int kShapes = 24000;
constexpr int kShapesSanitized = 800;
constexpr int kMostRanks = 16;
constexpr int kThreads = 2;

void Require(bool holds, const std::string& otherwise) {
  if (!holds) throw std::runtime_error(otherwise);
}

class Phases {
 public:
  Phases(const ulyxShape_t& shape, int nRanks, ulyxOp_t op) : phases_(nRanks) {
    ulyxGeometry geometry = {};
    MUST(ulyxGeometryResolve(&shape, nRanks, &geometry));
    ulyxResult_t result = ulyxSuccess;
    for (int rank = 0; rank < nRanks && result == ulyxSuccess; rank++) {
      result = ulyxPhaseBuild(&geometry, ulyxOperations[op].list, rank, nRanks, &phases_[rank]);
    }
    ulyxGeometryFree(&geometry);
    MUST(result);
  }
  ~Phases() {
    for (ulyxPhase& phase : phases_) ulyxPhaseFree(&phase);
  }
  Phases(const Phases&) = delete;
  Phases& operator=(const Phases&) = delete;

  struct Run {
    const ulyxCopy* first;
    int64_t count;
  };
  Run Sends(int rank, int peer) const { return RunOf(rank, phases_[rank].sendStart + peer); }
  // What the rank itself takes from a peer; own copies stand among the sends.
  Run Receives(int rank, int peer) const {
    return peer == rank ? Sends(rank, rank) : RunOf(rank, phases_[rank].recvStart + peer);
  }

 private:
  Run RunOf(int rank, const int64_t* start) const { return {phases_[rank].copies + start[0], start[1] - start[0]}; }

  std::vector<ulyxPhase> phases_;
};

struct Buffers {
  std::vector<uint8_t> slots[kSlots];
};

Slot SlotOf(ulyxOp_t op, bool source, int buffer) {
  if (op == ulyxOpHeadsToSeq) return source ? kOIn : kOOut;
  return Slot((source ? kQIn : kQOut) + buffer);
}

// Both ends list the same copies; made once each, they fill the destination.
int64_t MakeCopies(const Phases::Run& run, ulyxOp_t op, const Buffers& from, Buffers* to) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < run.count; i++) {
    const ulyxCopy& copy = run.first[i];
    const std::vector<uint8_t>& source = from.slots[SlotOf(op, true, copy.srcBuffer)];
    std::vector<uint8_t>& target = to->slots[SlotOf(op, false, copy.dstBuffer)];
    const int64_t last = copy.rows - 1, kept = 2 * kCanary + kMaxMisalign;
    Require(copy.rows > 0 && copy.rowBytes > 0, "an empty copy");
    Require(copy.srcOffset >= 0 && copy.srcPitch >= 0 && copy.dstOffset >= 0 && copy.dstPitch >= 0, "a copy backwards");
    Require(copy.srcOffset + last * copy.srcPitch + copy.rowBytes <= int64_t(source.size()) - kept,
            "a copy from past the end of its source");
    Require(copy.dstOffset + last * copy.dstPitch + copy.rowBytes <= int64_t(target.size()) - kept,
            "a copy past the end of its destination");
    const uint8_t* src = source.data() + kCanary + copy.srcOffset;
    uint8_t* dst = target.data() + kCanary + copy.dstOffset;
    for (int64_t row = 0; row < copy.rows; row++, src += copy.srcPitch, dst += copy.dstPitch) {
      std::memcpy(dst, src, size_t(copy.rowBytes));
    }
    bytes += copy.rows * copy.rowBytes;
  }
  return bytes;
}

int64_t ElementsBytes(const Oracle& oracle, int rank, Slot slot) {
  int64_t bytes = 0;
  for (const Block& block : oracle.LayoutOf(rank, slot).blocks) {
    bytes += block.batch * block.Rows() * block.heads.Count() * block.headBytes;
  }
  return bytes;
}

// Throws unless every byte of every destination is written once, from the right place, and no other.
void CheckOperation(const ulyxShape_t& shape, int nRanks, const Oracle& oracle, ulyxOp_t op) {
  const Slot firstIn = SlotOf(op, true, 0), firstOut = SlotOf(op, false, 0);
  const int buffers = op == ulyxOpHeadsToSeq ? 1 : 3;
  const Phases phases(shape, nRanks, op);
  std::vector<Buffers> sources(nRanks);
  for (int rank = 0; rank < nRanks; rank++) {
    for (int i = 0; i < buffers; i++) {
      sources[rank].slots[firstIn + i] = oracle.Written(rank, Slot(firstIn + i), 0);
    }
  }
  for (int dst = 0; dst < nRanks; dst++) {
    Buffers found;
    int64_t expectedBytes = 0, bytes = 0;
    for (int i = 0; i < buffers; i++) {
      found.slots[firstOut + i] = oracle.Unwritten(dst, Slot(firstOut + i), 0);
      expectedBytes += ElementsBytes(oracle, dst, Slot(firstOut + i));
    }
    for (int src = 0; src < nRanks; src++) {
      const Phases::Run sent = phases.Sends(src, dst), received = phases.Receives(dst, src);
      Require(
          sent.count == received.count &&
              (sent.count == 0 || std::memcmp(sent.first, received.first, size_t(sent.count) * sizeof(ulyxCopy)) == 0),
          "rank " + std::to_string(src) + " sends what rank " + std::to_string(dst) + " does not expect");
      const int64_t moved = MakeCopies(received, op, sources[src], &found);
      Require(moved == (op == ulyxOpHeadsToSeq ? oracle.HeadsToSeqBytes(src, dst) : oracle.SeqToHeadsBytes(src, dst)),
              "rank " + std::to_string(src) + " sends rank " + std::to_string(dst) + " " + std::to_string(moved) +
                  " bytes");
      bytes += moved;
    }
    // With every byte written and no more bytes than there are, each is written once.
    Require(bytes == expectedBytes, "rank " + std::to_string(dst) + " is written " + std::to_string(bytes) +
                                        " bytes, expected " + std::to_string(expectedBytes));
    for (int i = 0; i < buffers; i++) {
      const Slot slot = Slot(firstOut + i);
      const std::string difference = oracle.Difference(dst, slot, 0, oracle.Written(dst, slot, 0), found.slots[slot]);
      Require(difference.empty(), difference);
    }
  }
}

bool HasZero(const int64_t* counts, int nRanks) {
  return counts != nullptr && std::find(counts, counts + nRanks, 0) != counts + nRanks;
}

// What was drawn, for the test's output: a kind that never was is not tested.
class Census {
 public:
  void Add(const ulyxShape_t& shape, int nRanks) {
    const ulyxStrides_t all[] = {shape.qIn,  shape.kIn,  shape.vIn, shape.qOut,
                                 shape.kOut, shape.vOut, shape.oIn, shape.oOut};
    bool strided = false;
    for (const ulyxStrides_t& s : all) strided |= s.batch != 0 || s.token != 0 || s.head != 0;
    const std::pair<const char*, bool> kinds[] = {
        {"grouped heads", shape.kvHeads != 0 && shape.kvHeads < shape.heads},
        {"replicated tokens first", shape.replicatedTokens > 0 && shape.replicatedPlace == ulyxReplicatedFirst},
        {"replicated tokens last", shape.replicatedTokens > 0 && shape.replicatedPlace == ulyxReplicatedLast},
        {"batch", shape.batch > 1},
        {"tokens before batch items", shape.seqOrder == ulyxSeqFirst || shape.headsOrder == ulyxSeqFirst},
        {"strides", strided},
        {"packed in", shape.packedIn != 0},
        {"packed out", shape.packedOut != 0},
        {"another value dim", shape.valueDim != 0 && shape.valueDim != shape.headDim},
        {"ranks without tokens", HasZero(shape.tokenCounts, nRanks)},
        {"ranks without heads", HasZero(shape.headCounts, nRanks)},
        {"fewer key/value heads than ranks", (shape.kvHeads != 0 ? shape.kvHeads : shape.heads) < nRanks}};
    for (const auto& [kind, is] : kinds) drawn_[kind] += is ? 1 : 0;
    ranks_[nRanks - 1]++;
  }
  void Add(const Census& other) {
    for (const auto& [kind, count] : other.drawn_) drawn_[kind] += count;
    for (int i = 0; i < kMostRanks; i++) ranks_[i] += other.ranks_[i];
  }
  void Print() const {
    for (const auto& [kind, count] : drawn_) std::printf("  %6d with %s\n", count, kind.c_str());
    std::printf("  of 1 to %d ranks:", kMostRanks);
    for (int count : ranks_) std::printf(" %d", count);
    std::printf("\n");
  }
  void ExpectAll() const {
    for (const auto& [kind, count] : drawn_) EXPECT_GT(count, 0) << kind;
    for (int i = 0; i < kMostRanks; i++) EXPECT_GT(ranks_[i], 0) << i + 1 << " ranks";
  }

 private:
  std::map<std::string, int> drawn_;
  int ranks_[kMostRanks] = {};
};

// Copies see bytes only, so most elements may be small.
Shape Draw(uint64_t seed, int* nRanks) {
  Rng rng(seed);
  *nRanks = int(rng.OneIn(4) ? rng.Between(1, kMostRanks) : rng.Between(1, 6));
  Shape shape = RandomShape(*nRanks, seed);
  if (!rng.OneIn(8)) {
    shape.c.type = ulyxInt8;
    shape.c.elementBytes = 0;
  }
  return shape;
}

}  // namespace

TEST(RandomShapes, HaveCopiesThatMoveEveryByteOfEveryRankOnce) {
  const uint64_t seed = TestSeed();
  const int shapes = TestShapes(IsSanitized() ? kShapesSanitized : kShapes);
  std::vector<Census> censuses(kThreads);
  RunRanks(kThreads, [&](int thread) {
    for (int i = thread; i < shapes; i += kThreads) {
      const uint64_t own = seed + uint64_t(i);
      int nRanks = 0;
      const Shape shape = Draw(own, &nRanks);
      censuses[thread].Add(shape.c, nRanks);
      try {
        const Oracle oracle(shape.c, nRanks, own);
        for (ulyxOp_t op : {ulyxOpSeqToHeads, ulyxOpHeadsToSeq}) CheckOperation(shape.c, nRanks, oracle, op);
      } catch (const std::exception& error) {
        throw std::runtime_error(error.what() + std::string("\n") + Describe(shape.c, nRanks) +
                                 "\nreplay with ULYX_TEST_SHAPES=1 ULYX_TEST_SEED=" + std::to_string(own));
      }
    }
  });
  Census all;
  for (const Census& census : censuses) all.Add(census);
  std::printf("%d shapes from ULYX_TEST_SEED=%llu, among them\n", shapes, static_cast<unsigned long long>(seed));
  all.Print();
  if (shapes >= kShapesSanitized) all.ExpectAll();
}

}  // namespace ulyx_test
