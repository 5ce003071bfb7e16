// SPDX-License-Identifier: MIT
//
// The choice of a transport, and the facts that it is made from: every rank knows the same, and they are true.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "support/internal.h"
#include "support/rng.h"
#include "support/shapes.h"
#include "support/status.h"

namespace ulyx_test {

namespace {

ulyxPhaseFacts Bytes(int64_t remote, int64_t row = 4096) {
  ulyxPhaseFacts facts = {};
  facts.remoteBytes = remote;
  facts.rowBytes = row;
  facts.copiesPerPeer = 1;
  facts.dstSpan[0] = remote;
  return facts;
}

int Choose(ulyxTransport_t fixed, bool reachable, const ulyxPhaseFacts& facts, bool undisturbed = false) {
  const ulyxWorldFacts world = {2, fixed, reachable, undisturbed};
  const ulyxChoice_t choice = ulyxChoose(&world, &facts);
  EXPECT_STRNE(choice.reason, "");
  return choice.transport;
}

int64_t RemoteBytes(const ulyxPhase& phase, const int64_t* start) {
  int64_t bytes = 0;
  for (int peer = 0; peer < phase.nRanks; peer++) {
    if (peer != phase.rank) bytes += ulyxCopiesBytes(phase.copies + start[peer], start[peer + 1] - start[peer]);
  }
  return bytes;
}

}  // namespace

TEST(Choice, IsDirectForFewBytesAndCopyEngineForMany) {
  EXPECT_EQ(Choose(ulyxTransportAuto, true, Bytes(0)), ulyxTransportDirect);
  EXPECT_EQ(Choose(ulyxTransportAuto, true, Bytes(1 << 20)), ulyxTransportDirect);
  EXPECT_EQ(Choose(ulyxTransportAuto, true, Bytes(580 << 20)), ulyxTransportCopyEngine);
}

TEST(Choice, IsDirectForManyBytesInShortRows) {
  EXPECT_EQ(Choose(ulyxTransportAuto, true, Bytes(580 << 20, 16)), ulyxTransportDirect);
}

TEST(Choice, IsNcclWherePeersCannotBeReached) {
  for (const ulyxTransport_t fixed : {ulyxTransportAuto, ulyxTransportNccl}) {
    EXPECT_EQ(Choose(fixed, false, Bytes(1 << 20)), ulyxTransportNccl);
  }
}

TEST(Choice, IsWhatTheConfigurationAsksFor) {
  EXPECT_EQ(Choose(ulyxTransportNccl, true, Bytes(1 << 20)), ulyxTransportNccl);
  EXPECT_EQ(Choose(ulyxTransportDirect, true, Bytes(580 << 20)), ulyxTransportDirect);
  EXPECT_EQ(Choose(ulyxTransportCopyEngine, true, Bytes(1)), ulyxTransportCopyEngine);
  EXPECT_EQ(Choose(ulyxTransportAuto, true, Bytes(1), true), ulyxTransportCopyEngine);
}

TEST(Choice, IsDirectWhereOutputsAreUnknownOrMissing) {
  ulyxPhaseFacts unknown = Bytes(-1);
  unknown.dstSpan[0] = -1;
  EXPECT_EQ(Choose(ulyxTransportAuto, true, unknown), ulyxTransportDirect);
  EXPECT_EQ(Choose(ulyxTransportCopyEngine, true, unknown), ulyxTransportDirect);
  ulyxPhaseFacts missing = Bytes(580 << 20);
  missing.someDstEmpty = true;
  EXPECT_EQ(Choose(ulyxTransportAuto, true, missing), ulyxTransportDirect);
}

TEST(Choice, IsWhatTheTimesOfAShapeSay) {
  Shape shape(75600, 40, 128);
  for (const int64_t tokens : {512, 4096, 32760, 75600}) {
    shape.c.tokens = tokens;
    for (const ulyxOp_t op : {ulyxOpSeqToHeads, ulyxOpHeadsToSeq}) {
      ulyxShapeTimes_t times = ULYX_SHAPE_TIMES_INITIALIZER;
      MUST(ulyxShapeGetTimes(&shape.c, 2, op, &times));
      ulyxGeometry geometry = {};
      MUST(ulyxGeometryResolve(&shape.c, 2, &geometry));
      const ulyxPhaseFacts facts = ulyxExchangeFacts(&geometry, &ulyxOperations[op]);
      const ulyxWorldFacts world = {2, ulyxTransportAuto, true, false};
      const ulyxChoice_t choice = ulyxChoose(&world, &facts);
      EXPECT_EQ(times.remoteBytes, facts.remoteBytes);
      EXPECT_EQ(choice.predictedUs, std::min(times.directUs, times.copyEngineUs));
      EXPECT_EQ(choice.transport, times.directUs <= times.copyEngineUs ? ulyxTransportDirect : ulyxTransportCopyEngine);
      EXPECT_GT(choice.predictedUs, times.limitUs);
      ulyxGeometryFree(&geometry);
    }
  }
}

TEST(Choice, PredictsMoreTimeForMoreBytes) {
  for (const ulyxTransport_t fixed : {ulyxTransportDirect, ulyxTransportCopyEngine}) {
    const ulyxWorldFacts world = {2, fixed, true, false};
    double last = 0;
    for (int64_t bytes = 1; bytes < INT64_C(1) << 32; bytes *= 16) {
      const ulyxPhaseFacts facts = Bytes(bytes);
      const double us = ulyxChoose(&world, &facts).predictedUs;
      EXPECT_GT(us, last);
      last = us;
    }
  }
}

TEST(Choice, PredictsMoreTimeOfEnginesForMoreCopiesAndMorePeers) {
  double last = 0;
  for (const int nRanks : {2, 3, 8, 64}) {
    ulyxPhaseFacts facts = Bytes(100 << 20);
    const double one = ulyxCostOf(&facts, nRanks).copyEngine;
    facts.copiesPerPeer = 3;
    EXPECT_GT(ulyxCostOf(&facts, nRanks).copyEngine, one);
    EXPECT_GT(one, last);
    last = one;
  }
}

// What engines are said to make a peer is what the plan of a full rank lists.
TEST(Facts, CountTheCopiesOfARankToAPeer) {
  for (const bool packed : {false, true}) {
    for (const int64_t replicated : {0, 5}) {
      Shape shape(100, 8, 16);
      shape.c.packedIn = shape.c.packedOut = packed;
      shape.c.replicatedTokens = replicated;
      ulyxGeometry geometry = {};
      MUST(ulyxGeometryResolve(&shape.c, 2, &geometry));
      for (int op = 0; op < ULYX_OP_COUNT; op++) {
        ulyxPhase phase = {};
        MUST(ulyxPhaseBuild(&geometry, ulyxOperations[op].list, 0, 2, &phase));
        EXPECT_EQ(ulyxExchangeFacts(&geometry, &ulyxOperations[op]).copiesPerPeer,
                  phase.sendStart[2] - phase.sendStart[1]);
        ulyxPhaseFree(&phase);
      }
      ulyxGeometryFree(&geometry);
    }
  }
}

TEST(Facts, OfExchangesAreTheBusiestRanksBytesAndTheLargestOutputs) {
  const uint64_t seed = TestSeed();
  for (int i = 0; i < TestShapes(200); i++) {
    const uint64_t own = seed + uint64_t(i);
    const int nRanks = int(Rng(own ^ 0xfac7).Between(1, 9));
    const Shape shape = RandomShape(nRanks, own);
    SCOPED_TRACE(Describe(shape.c, nRanks) + " seed " + std::to_string(own));
    ulyxGeometry geometry = {};
    MUST(ulyxGeometryResolve(&shape.c, nRanks, &geometry));
    for (int op = 0; op < ULYX_OP_COUNT; op++) {
      const ulyxPhaseFacts facts = ulyxExchangeFacts(&geometry, &ulyxOperations[op]);
      int64_t busiest = 0, shortest = INT64_MAX, spans[ULYX_MAX_BUFFERS] = {};
      for (int rank = 0; rank < nRanks; rank++) {
        ulyxPhase phase = {};
        MUST(ulyxPhaseBuild(&geometry, ulyxOperations[op].list, rank, nRanks, &phase));
        busiest = std::max({busiest, RemoteBytes(phase, phase.sendStart), RemoteBytes(phase, phase.recvStart)});
        for (int64_t c = phase.recvStart[0]; c < phase.recvStart[nRanks]; c++) {
          const ulyxCopy& copy = phase.copies[c];
          shortest = std::min(shortest, copy.rowBytes);
          const int64_t end = copy.dstOffset + (copy.rows - 1) * copy.dstPitch + copy.rowBytes;
          spans[copy.dstBuffer] = std::max(spans[copy.dstBuffer], end);
        }
        ulyxPhaseFree(&phase);
      }
      EXPECT_EQ(facts.remoteBytes, busiest);
      EXPECT_LE(facts.rowBytes, shortest);
      for (int buffer = 0; buffer < ULYX_MAX_BUFFERS; buffer++) EXPECT_GE(facts.dstSpan[buffer], spans[buffer]);
    }
    ulyxGeometryFree(&geometry);
  }
}

TEST(Facts, TellHowPeersWriteAnOutput) {
  const int64_t dense = 0, headBytes = 8 * 2;
  struct {
    const char* what;
    void (*change)(ulyxShape_t*);
    int64_t seqToHeads, headsToSeq;
  } const layouts[] = {
      {"plain", [](ulyxShape_t*) {}, dense, 5 * headBytes},
      {"batch first", [](ulyxShape_t* shape) { shape->batch = 3; }, dense, 5 * headBytes},
      {"sequence first", [](ulyxShape_t* shape) { shape->batch = 3, shape->seqOrder = shape->headsOrder = 1; }, dense,
       5 * headBytes},
      {"packed", [](ulyxShape_t* shape) { shape->packedOut = 1, shape->kvHeads = 1; }, 5 * headBytes, 5 * headBytes},
      {"gaps between tokens", [](ulyxShape_t* shape) { shape->qOut.token = 4 * 8; }, 4 * headBytes, 5 * headBytes},
      {"all heads on one rank",
       [](ulyxShape_t* shape) {
         static const int64_t counts[] = {5, 0};
         shape->headCounts = counts;
       },
       dense, dense},
  };
  for (const auto& layout : layouts) {
    SCOPED_TRACE(layout.what);
    Shape shape(9, 5, 8);
    layout.change(&shape.c);
    ulyxGeometry geometry = {};
    MUST(ulyxGeometryResolve(&shape.c, 2, &geometry));
    EXPECT_EQ(ulyxExchangeFacts(&geometry, &ulyxOperations[ulyxOpSeqToHeads]).writtenPitch, layout.seqToHeads);
    EXPECT_EQ(ulyxExchangeFacts(&geometry, &ulyxOperations[ulyxOpHeadsToSeq]).writtenPitch, layout.headsToSeq);
    ulyxGeometryFree(&geometry);
  }
}

TEST(Landing, HoldsEveryOutputApartAndScratchBehind) {
  const uint64_t seed = TestSeed();
  for (int i = 0; i < TestShapes(60); i++) {
    const uint64_t own = seed + uint64_t(i);
    const int nRanks = int(Rng(own ^ 0x1a4d).Between(2, 6));
    const Shape shape = RandomShape(nRanks, own);
    ulyxGeometry geometry = {};
    MUST(ulyxGeometryResolve(&shape.c, nRanks, &geometry));
    ulyxLanding first = {};
    for (int rank = 0; rank < nRanks; rank++) {
      ulyxPhase phase = {};
      MUST(ulyxPhaseBuild(&geometry, ulyxOperations[0].list, rank, nRanks, &phase));
      phase.facts = ulyxExchangeFacts(&geometry, &ulyxOperations[0]);
      phase.scratchBytes = 100;
      const ulyxLanding landing = ulyxLandingMake(&phase);
      if (rank == 0) first = landing;
      for (int buffer = 0; buffer < ULYX_ALL_BUFFERS; buffer++) {
        EXPECT_EQ(landing.offset[buffer], first.offset[buffer]) << "the same on every rank";
        const int64_t end = buffer < ULYX_SCRATCH ? landing.offset[buffer + 1] : landing.bytes;
        EXPECT_LE(landing.offset[buffer] + landing.span[buffer], end);
      }
      ulyxPhaseFree(&phase);
    }
    ulyxGeometryFree(&geometry);
  }
}

}  // namespace ulyx_test
