// SPDX-License-Identifier: MIT
//
// Messages: both ends of a pair agree on how many there are, in which group, how long and where each copy lies;
// no pair without bytes has one; and carried out on plain memory, staged or straight from and into tensors, they
// leave what the oracle says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "support/internal.h"
#include "support/oracle.h"
#include "support/rng.h"
#include "support/shapes.h"
#include "support/status.h"

namespace ulyx_test {

namespace {

// One operation's phase and messages on one rank.
struct RankWire {
  RankWire(const ulyxGeometry& geometry, ulyxOp_t op, int rank) {
    MUST(ulyxPhaseBuild(&geometry, ulyxOperations[op].list, rank, geometry.nRanks, &phase));
    MUST(ulyxWireBuild(&phase, &wire));
  }
  ~RankWire() {
    ulyxWireFree(&wire);
    ulyxPhaseFree(&phase);
  }
  RankWire(const RankWire&) = delete;
  RankWire& operator=(const RankWire&) = delete;
  ulyxPhase phase = {};
  ulyxWire wire = {};
};

// All ranks' of one operation.
class WorldWire {
 public:
  WorldWire(const ulyxShape_t& shape, int nRanks, ulyxOp_t op) : nRanks_(nRanks) {
    MUST(ulyxGeometryResolve(&shape, nRanks, &geometry_));
    for (int rank = 0; rank < nRanks; rank++) ranks_.push_back(std::make_unique<RankWire>(geometry_, op, rank));
  }
  ~WorldWire() { ulyxGeometryFree(&geometry_); }
  WorldWire(const WorldWire&) = delete;
  WorldWire& operator=(const WorldWire&) = delete;

  int NRanks() const { return nRanks_; }
  const RankWire& At(int rank) const { return *ranks_[rank]; }
  // In the order in which NCCL would match them.
  std::vector<const ulyxMessage*> Sends(int src, int dst) const { return Messages(At(src).wire, true, dst); }
  std::vector<const ulyxMessage*> Recvs(int src, int dst) const { return Messages(At(dst).wire, false, src); }

 private:
  static std::vector<const ulyxMessage*> Messages(const ulyxWire& wire, bool sends, int peer) {
    std::vector<const ulyxMessage*> found;
    const ulyxMessage* const all = sends ? wire.sends : wire.recvs;
    for (int64_t i = 0; i < (sends ? wire.sendCount : wire.recvCount); i++) {
      if (all[i].peer == peer) found.push_back(&all[i]);
    }
    return found;
  }

  const int nRanks_;
  ulyxGeometry geometry_ = {};
  std::vector<std::unique_ptr<RankWire>> ranks_;
};

void ExpectBothEndsAgree(const WorldWire& world) {
  for (int src = 0; src < world.NRanks(); src++) {
    for (int dst = 0; dst < world.NRanks(); dst++) {
      const std::vector<const ulyxMessage*> sends = world.Sends(src, dst), recvs = world.Recvs(src, dst);
      ASSERT_EQ(sends.size(), recvs.size()) << src << " to " << dst;
      const RankWire &from = world.At(src), &to = world.At(dst);
      const bool nothing = src == dst || from.phase.sendStart[dst] == from.phase.sendStart[dst + 1];
      EXPECT_EQ(sends.empty(), nothing);
      for (size_t i = 0; i < sends.size(); i++) {
        EXPECT_GT(sends[i]->bytes, 0);
        EXPECT_EQ(sends[i]->bytes, recvs[i]->bytes);
        EXPECT_EQ(sends[i]->group, recvs[i]->group);
        ASSERT_EQ(sends[i]->copyCount, recvs[i]->copyCount);
        for (int64_t c = 0; c < sends[i]->copyCount; c++) {
          const ulyxWirePlace there = from.wire.places[sends[i]->firstCopy + c];
          const ulyxWirePlace here = to.wire.places[recvs[i]->firstCopy + c];
          EXPECT_EQ(there.offset, here.offset);
          EXPECT_EQ(there.pitch, here.pitch);
        }
      }
    }
  }
}

// Messages of one rank keep out of one another's part of the arena.
void ExpectArenaHoldsAll(const ulyxWire& wire) {
  std::vector<std::pair<int64_t, int64_t>> parts;
  for (int64_t i = 0; i < wire.sendCount; i++) parts.push_back({wire.sends[i].arenaOffset, wire.sends[i].bytes});
  for (int64_t i = 0; i < wire.recvCount; i++) parts.push_back({wire.recvs[i].arenaOffset, wire.recvs[i].bytes});
  std::sort(parts.begin(), parts.end());
  int64_t end = 0;
  for (const auto& [offset, bytes] : parts) {
    EXPECT_GE(offset, end);
    EXPECT_EQ(offset % ULYX_WIRE_ALIGNMENT, 0);
    end = offset + bytes;
  }
  EXPECT_LE(end, wire.arenaBytes);
}

Slot SlotOf(ulyxOp_t op, bool source, int buffer) {
  if (op == ulyxOpHeadsToSeq) return source ? kOIn : kOOut;
  return Slot((source ? kQIn : kQOut) + buffer);
}

void CopyRows(uint8_t* dst, int64_t dstPitch, const uint8_t* src, int64_t srcPitch, const ulyxCopy& copy) {
  for (int64_t row = 0; row < copy.rows; row++) std::memcpy(dst + row * dstPitch, src + row * srcPitch, copy.rowBytes);
}

// Images of every tensor of the operation, by rank and slot.
using Images = std::vector<std::vector<std::vector<uint8_t>>>;

// Carries out all messages; straight says whether tensors that hold a message's image are used as they are.
void CarryOut(const WorldWire& world, ulyxOp_t op, bool straightSend, bool straightRecv, Images* images) {
  const auto tensor = [&](int rank, bool source, int buffer) {
    return (*images)[rank][SlotOf(op, source, buffer)].data() + kCanary;
  };
  for (int src = 0; src < world.NRanks(); src++) {
    const ulyxPhase& phase = world.At(src).phase;
    for (int64_t c = phase.sendStart[src]; c < phase.sendStart[src + 1]; c++) {
      const ulyxCopy& copy = phase.copies[c];
      CopyRows(tensor(src, false, copy.dstBuffer) + copy.dstOffset, copy.dstPitch,
               tensor(src, true, copy.srcBuffer) + copy.srcOffset, copy.srcPitch, copy);
    }
  }
  // After the own copies: a message that writes more than its copies would undo some of them.
  for (int src = 0; src < world.NRanks(); src++) {
    for (int dst = 0; dst < world.NRanks(); dst++) {
      const std::vector<const ulyxMessage*> sends = world.Sends(src, dst), recvs = world.Recvs(src, dst);
      for (size_t i = 0; i < sends.size(); i++) {
        const ulyxMessage &send = *sends[i], &recv = *recvs[i];
        const RankWire &from = world.At(src), &to = world.At(dst);
        std::vector<uint8_t> staged(send.bytes, 0x5a);
        if (straightSend && send.buffer >= 0) {
          std::memcpy(staged.data(), tensor(src, true, send.buffer) + send.bufferOffset, send.bytes);
        } else {
          for (int64_t c = send.firstCopy; c < send.firstCopy + send.copyCount; c++) {
            const ulyxCopy& copy = from.phase.copies[c];
            const ulyxWirePlace& place = from.wire.places[c];
            ASSERT_LE(place.offset + (copy.rows - 1) * place.pitch + copy.rowBytes, send.bytes);
            CopyRows(staged.data() + place.offset, place.pitch, tensor(src, true, copy.srcBuffer) + copy.srcOffset,
                     copy.srcPitch, copy);
          }
        }
        if (straightRecv && recv.buffer >= 0) {
          std::memcpy(tensor(dst, false, recv.buffer) + recv.bufferOffset, staged.data(), recv.bytes);
          continue;
        }
        for (int64_t c = recv.firstCopy; c < recv.firstCopy + recv.copyCount; c++) {
          const ulyxCopy& copy = to.phase.copies[c];
          const ulyxWirePlace& place = to.wire.places[c];
          CopyRows(tensor(dst, false, copy.dstBuffer) + copy.dstOffset, copy.dstPitch, staged.data() + place.offset,
                   place.pitch, copy);
        }
      }
    }
  }
}

void ExpectExact(const ulyxShape_t& shape, int nRanks, ulyxOp_t op) {
  const WorldWire world(shape, nRanks, op);
  ExpectBothEndsAgree(world);
  for (int rank = 0; rank < nRanks; rank++) ExpectArenaHoldsAll(world.At(rank).wire);
  const Oracle oracle(shape, nRanks, 2);
  for (int way = 0; way < 4; way++) {
    SCOPED_TRACE(std::string(way & 1 ? "sent straight" : "packed") + (way & 2 ? ", received straight" : ", unpacked"));
    Images images(nRanks, std::vector<std::vector<uint8_t>>(kSlots));
    for (int rank = 0; rank < nRanks; rank++) {
      for (int slot = 0; slot < kSlots; slot++) {
        images[rank][slot] =
            IsOutput(Slot(slot)) ? oracle.Unwritten(rank, Slot(slot), 0) : oracle.Written(rank, Slot(slot), 0);
      }
    }
    CarryOut(world, op, way & 1, way & 2, &images);
    const std::vector<Slot> outputs =
        op == ulyxOpSeqToHeads ? std::vector<Slot>{kQOut, kKOut, kVOut} : std::vector<Slot>{kOOut};
    for (int rank = 0; rank < nRanks; rank++) {
      for (Slot slot : outputs) {
        EXPECT_EQ(oracle.Difference(rank, slot, 0, oracle.Written(rank, slot, 0), images[rank][slot]), "");
      }
    }
  }
}

}  // namespace

TEST(Wire, MessagesOfRandomShapesAgreeAtBothEndsAndCarryEveryByte) {
  const uint64_t seed = TestSeed() + 77;
  for (int i = 0; i < TestShapes(250); i++) {
    const uint64_t own = seed + uint64_t(i);
    const int nRanks = int(Rng(own).Between(1, 9));
    const Shape shape = RandomShape(nRanks, own);
    SCOPED_TRACE(Describe(shape.c, nRanks));
    for (ulyxOp_t op : {ulyxOpSeqToHeads, ulyxOpHeadsToSeq}) ExpectExact(shape.c, nRanks, op);
    if (::testing::Test::HasFailure()) FAIL() << "replay with ULYX_TEST_SHAPES=1 ULYX_TEST_SEED=" << own - 77;
  }
}

TEST(Wire, MessagesOfBatchItemsThatTheirTokensDoNotFillTouchNothingBetween) {
  // One narrow head a rank: a rank's tokens of the two items lie 32 bytes apart and are 24 bytes long, which is
  // how they would lie in a message whose pieces are aligned.
  Shape shape(4, 2, 4);
  shape.TokenCounts({3, 1});
  shape.c.batch = 2;
  for (int order : {ulyxBatchFirst, ulyxSeqFirst}) {
    shape.c.seqOrder = shape.c.headsOrder = order;
    for (ulyxOp_t op : {ulyxOpSeqToHeads, ulyxOpHeadsToSeq}) ExpectExact(shape.c, 2, op);
  }
}

TEST(Wire, MessagesWithPaddingBetweenTheirPiecesAreNotReceivedStraight) {
  // Batch items lie 32 bytes apart in the output and hold 24: again as pieces would, but what is between is
  // nobody's to write.
  Shape shape(0, 2, 4);
  shape.TokenCounts({3, 1});
  shape.c.batch = 2;
  shape.c.oIn.token = 5;
  shape.c.oOut = {16, 4, 32};
  ExpectExact(shape.c, 2, ulyxOpHeadsToSeq);
}

TEST(Wire, MessagesOfPackedRowsStayInsideTheTensor) {
  // One token of q, k and v that end 8 bytes past a multiple of 16, all for the other rank.
  Shape shape(0, 1, 8);
  shape.TokenCounts({1, 0}).HeadCounts({0, 1});
  shape.c.valueDim = 4;
  for (int packedIn : {0, 1}) {
    for (int packedOut : {0, 1}) {
      shape.c.packedIn = packedIn;
      shape.c.packedOut = packedOut;
      ExpectExact(shape.c, 2, ulyxOpSeqToHeads);
    }
  }
}

TEST(Wire, LargePiecesAreSplitAlikeAtBothEnds) {
  // Past ULYX_WIRE_SPLIT_BYTES a pair: agreement only, the bytes are too many to carry out here.
  for (int seqOrder : {ulyxBatchFirst, ulyxSeqFirst}) {
    for (int packed = 0; packed < 4; packed++) {
      Shape shape = Shape(1 << 16, 32, 128).KvHeads(8);
      shape.c.batch = 2;
      shape.c.seqOrder = shape.c.headsOrder = seqOrder;
      shape.c.packedIn = packed & 1;
      shape.c.packedOut = packed >> 1;
      for (int nRanks : {2, 3, 8, 9, 17}) {
        for (ulyxOp_t op : {ulyxOpSeqToHeads, ulyxOpHeadsToSeq}) {
          const WorldWire world(shape.c, nRanks, op);
          ExpectBothEndsAgree(world);
          for (int rank = 0; rank < nRanks; rank++) ExpectArenaHoldsAll(world.At(rank).wire);
          EXPECT_LE(int(world.Sends(0, 1).size()), ulyxWireMessagesPerPair(nRanks));
        }
      }
    }
  }
}

TEST(Wire, LargePiecesGoApartWhereThatSavesStagingAndTogetherWhereNot) {
  const Shape sliced = Shape(1 << 14, 32, 128);
  EXPECT_EQ(WorldWire(sliced.c, 2, ulyxOpSeqToHeads).Sends(0, 1).size(), 3u);  // dense where they arrive
  Shape padded = sliced;
  for (ulyxStrides_t* strides : {&padded.c.qOut, &padded.c.kOut, &padded.c.vOut}) strides->token = 16 * 128 + 8;
  EXPECT_EQ(WorldWire(padded.c, 2, ulyxOpSeqToHeads).Sends(0, 1).size(), 1u);
}

TEST(Wire, TensorsStartAtMultiplesOfSixteenInAMessage) {
  const Shape shape = Shape(5, 4, 7).KvHeads(2).Type(ulyxInt8);
  const WorldWire world(shape.c, 2, ulyxOpSeqToHeads);
  const std::vector<const ulyxMessage*> sends = world.Sends(0, 1);
  ASSERT_EQ(sends.size(), 1u);
  ASSERT_EQ(sends[0]->copyCount, 3);
  for (int i = 0; i < 3; i++) EXPECT_EQ(world.At(0).wire.places[sends[0]->firstCopy + i].offset % 16, 0);
}

TEST(Wire, ANarrowShapeIsOneMessageAPair) {
  const Shape shape(64, 8, 16);
  const WorldWire world(shape.c, 4, ulyxOpSeqToHeads);
  for (int src = 0; src < 4; src++) {
    for (int dst = 0; dst < 4; dst++) EXPECT_EQ(world.Sends(src, dst).size(), src == dst ? 0u : 1u);
  }
}

TEST(Wire, OneRankSendsNothing) {
  const Shape shape(64, 8, 16);
  const WorldWire world(shape.c, 1, ulyxOpSeqToHeads);
  EXPECT_EQ(world.At(0).wire.sendCount, 0);
  EXPECT_EQ(world.At(0).wire.recvCount, 0);
  EXPECT_EQ(world.At(0).wire.arenaBytes, 0);
}

}  // namespace ulyx_test
