// SPDX-License-Identifier: MIT
//
// Any bytes as a shape and a world. What is refused has written nothing and says why, by every function alike. Of what
// is accepted, ranges, bytes and spans are what the header says; what a rank sends to another is what that one expects;
// copies stay inside their tensors; and small shapes are carried out, straight and as messages, byte by byte.
#include <algorithm>
#include <cmath>
#include <vector>

#include "shape_input.h"
#include "shape_oracle.h"

extern "C" {
#include "exchange.h"
#include "geometry.h"
#include "landing.h"
#include "wire.h"
}

namespace ulyx_fuzz {

namespace {

constexpr int64_t kMostWork = 4000;   // copies to list, about
constexpr int kTwoGroups = 49;        // the fewest ranks whose messages are more than one group: listed all the same
constexpr int64_t kMostBytes = 3000;  // of all tensors of an operation, to be carried out one by one
constexpr ulyxOp_t kOps[] = {ulyxOpSeqToHeads, ulyxOpHeadsToSeq};
constexpr ulyxRange_t kUntouchedRange = {-77, -78};
constexpr int64_t kUntouched = -79;

bool operator==(ulyxRange_t a, ulyxRange_t b) {
  return a.start == b.start && a.stop == b.stop;
}

bool AllAre(const std::vector<ulyxRange_t>& ranges, ulyxRange_t value) {
  return std::all_of(ranges.begin(), ranges.end(), [&](ulyxRange_t range) { return range == value; });
}

// Whether the shape is accepted; if not, that every function refuses it in the same way and writes nothing.
bool Accepted(const ulyxShape_t* shape, int nRanks) {
  const size_t count = size_t(std::max(nRanks, 1));
  std::vector<ulyxRange_t> tokens(count, kUntouchedRange), heads(count, kUntouchedRange), kv(count, kUntouchedRange);
  const ulyxResult_t result = ulyxShapeGetRanges(shape, nRanks, tokens.data(), heads.data(), kv.data());
  if (result == ulyxSuccess) return true;
  FUZZ_CHECK(result == ulyxInvalidArgument);
  FUZZ_CHECK(ulyxGetLastError(nullptr)[0] != '\0');
  FUZZ_CHECK(AllAre(tokens, kUntouchedRange) && AllAre(heads, kUntouchedRange) && AllAre(kv, kUntouchedRange));

  std::vector<int64_t> traffic(count * std::min<size_t>(count, 100), kUntouched);
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  ulyxShapeTimes_t times = ULYX_SHAPE_TIMES_INITIALIZER;
  bytes.arena = times.remoteBytes = kUntouched;
  FUZZ_CHECK(ulyxShapeGetTraffic(shape, nRanks, ulyxOpSeqToHeads, traffic.data()) == result);
  FUZZ_CHECK(std::count(traffic.begin(), traffic.end(), kUntouched) == int64_t(traffic.size()));
  FUZZ_CHECK(ulyxShapeGetBytes(shape, nRanks, 0, &bytes) == result);
  FUZZ_CHECK(bytes.qIn == 0 && bytes.arena == kUntouched);
  FUZZ_CHECK(ulyxShapeGetTimes(shape, nRanks, ulyxOpHeadsToSeq, &times) == result);
  FUZZ_CHECK(times.limitUs == 0 && times.remoteBytes == kUntouched);
  return false;
}

void CheckRanges(const ulyxShape_t* shape, int nRanks, const ShapeOracle& oracle) {
  std::vector<ulyxRange_t> tokens(nRanks), heads(nRanks), kv(nRanks);
  FUZZ_CHECK(ulyxShapeGetRanges(shape, nRanks, tokens.data(), heads.data(), kv.data()) == ulyxSuccess);
  FUZZ_CHECK(std::equal(tokens.begin(), tokens.end(), oracle.TokenRanges().begin(), operator==));
  FUZZ_CHECK(std::equal(heads.begin(), heads.end(), oracle.HeadRanges(kQ).begin(), operator==));
  FUZZ_CHECK(std::equal(kv.begin(), kv.end(), oracle.HeadRanges(kK).begin(), operator==));
  FUZZ_CHECK(oracle.HeadRanges(kQ).back().stop == shape->heads);
  FUZZ_CHECK(shape->tokens == 0 || oracle.Tokens() == shape->tokens);
}

void CheckTimes(const ulyxShape_t* shape, int nRanks, const ShapeOracle& oracle, bool listed) {
  for (const ulyxOp_t op : kOps) {
    ulyxShapeTimes_t times = ULYX_SHAPE_TIMES_INITIALIZER;
    FUZZ_CHECK(ulyxShapeGetTimes(shape, nRanks, op, &times) == ulyxSuccess);
    FUZZ_CHECK(std::isfinite(times.limitUs) && std::isfinite(times.directUs) && std::isfinite(times.copyEngineUs));
    FUZZ_CHECK(times.limitUs >= 0 && times.directUs >= 0 && times.copyEngineUs >= 0);
    if (!listed) continue;
    Wide busiest = 0;
    for (int rank = 0; rank < nRanks; rank++) {
      Wide sent = 0, received = 0;
      for (int peer = 0; peer < nRanks; peer++) {
        if (peer == rank) continue;
        sent += oracle.PairBytes(op, rank, peer);
        received += oracle.PairBytes(op, peer, rank);
      }
      busiest = std::max(busiest, std::max(sent, received));
    }
    FUZZ_CHECK(times.remoteBytes == busiest);
  }
}

void CheckTraffic(const ulyxShape_t* shape, int nRanks, const ShapeOracle& oracle) {
  std::vector<int64_t> traffic(size_t(nRanks) * nRanks, kUntouched);
  for (const ulyxOp_t op : kOps) {
    FUZZ_CHECK(ulyxShapeGetTraffic(shape, nRanks, op, traffic.data()) == ulyxSuccess);
    for (int src = 0; src < nRanks; src++) {
      for (int dst = 0; dst < nRanks; dst++) {
        FUZZ_CHECK(traffic[size_t(src) * nRanks + dst] == oracle.PairBytes(op, src, dst));
      }
    }
  }
}

// One operation of all ranks.
class World {
 public:
  World(const ulyxGeometry& geometry, ulyxOp_t op) : op_(op), phases_(geometry.nRanks), wires_(geometry.nRanks) {
    for (int rank = 0; rank < NRanks(); rank++) {
      FUZZ_CHECK(ulyxPhaseBuild(&geometry, ulyxOperations[op].list, rank, NRanks(), &phases_[rank]) == ulyxSuccess);
      phases_[rank].facts = ulyxExchangeFacts(&geometry, &ulyxOperations[op]);
      FUZZ_CHECK(ulyxWireBuild(&phases_[rank], &wires_[rank]) == ulyxSuccess);
    }
  }
  ~World() {
    for (ulyxWire& wire : wires_) ulyxWireFree(&wire);
    for (ulyxPhase& phase : phases_) ulyxPhaseFree(&phase);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  ulyxOp_t Op() const { return op_; }
  int NRanks() const { return int(phases_.size()); }
  const ulyxPhase& Phase(int rank) const { return phases_[rank]; }
  const ulyxWire& Wire(int rank) const { return wires_[rank]; }
  Side From() const { return op_ == ulyxOpSeqToHeads ? kSeq : kHeads; }
  Side To() const { return op_ == ulyxOpSeqToHeads ? kHeads : kSeq; }
  std::vector<Role> Roles() const {
    return op_ == ulyxOpSeqToHeads ? std::vector<Role>{kQ, kK, kV} : std::vector<Role>{kO};
  }
  std::vector<ulyxMessage> Sends(int src, int dst) const { return Of(wires_[src].sends, wires_[src].sendCount, dst); }
  std::vector<ulyxMessage> Recvs(int src, int dst) const { return Of(wires_[dst].recvs, wires_[dst].recvCount, src); }

 private:
  static std::vector<ulyxMessage> Of(const ulyxMessage* messages, int64_t count, int peer) {
    std::vector<ulyxMessage> found;
    std::copy_if(messages, messages + count, std::back_inserter(found),
                 [peer](const ulyxMessage& message) { return message.peer == peer; });
    return found;
  }

  const ulyxOp_t op_;
  std::vector<ulyxPhase> phases_;
  std::vector<ulyxWire> wires_;
};

bool Equal(const ulyxCopy& a, const ulyxCopy& b) {
  return a.srcBuffer == b.srcBuffer && a.dstBuffer == b.dstBuffer && a.rows == b.rows && a.rowBytes == b.rowBytes &&
         a.srcOffset == b.srcOffset && a.srcPitch == b.srcPitch && a.dstOffset == b.dstOffset &&
         a.dstPitch == b.dstPitch;
}

// Bytes of one buffer of an operation on one rank.
Wide BufferSpan(const ShapeOracle& oracle, const World& world, Side side, int buffer, int rank) {
  FUZZ_CHECK(buffer >= 0 && buffer < ULYX_MAX_BUFFERS);
  const Role role = world.Op() == ulyxOpHeadsToSeq ? kO : Role(buffer);
  FUZZ_CHECK(role != kO || buffer == 0);
  return oracle.SpanBytes(side, role, rank);
}

void CheckInside(Wide offset, Wide pitch, const ulyxCopy& copy, Wide span) {
  FUZZ_CHECK(offset >= 0 && (pitch >= copy.rowBytes || copy.rows == 1));
  FUZZ_CHECK(offset + (copy.rows - 1) * (copy.rows > 1 ? pitch : 0) + copy.rowBytes <= span);
}

void CheckCopies(const ShapeOracle& oracle, const World& world) {
  for (int src = 0; src < world.NRanks(); src++) {
    for (int dst = 0; dst < world.NRanks(); dst++) {
      const ulyxPhase &from = world.Phase(src), &to = world.Phase(dst);
      const int64_t first = from.sendStart[dst], count = from.sendStart[dst + 1] - first;
      Wide bytes = 0;
      for (int64_t i = 0; i < count; i++) {
        const ulyxCopy& copy = from.copies[first + i];
        FUZZ_CHECK(copy.rows > 0 && copy.rowBytes > 0);
        CheckInside(copy.srcOffset, copy.srcPitch, copy, BufferSpan(oracle, world, world.From(), copy.srcBuffer, src));
        CheckInside(copy.dstOffset, copy.dstPitch, copy, BufferSpan(oracle, world, world.To(), copy.dstBuffer, dst));
        bytes += Wide(copy.rows) * copy.rowBytes;
      }
      FUZZ_CHECK(bytes == oracle.PairBytes(world.Op(), src, dst));
      const int64_t expected = to.recvStart[src], expectedCount = to.recvStart[src + 1] - expected;
      FUZZ_CHECK(expectedCount == (src == dst ? 0 : count));
      for (int64_t i = 0; i < expectedCount; i++) {
        FUZZ_CHECK(Equal(from.copies[first + i], to.copies[expected + i]));
      }
    }
  }
}

void CheckBothEnds(const World& world, int src, int dst) {
  const std::vector<ulyxMessage> sends = world.Sends(src, dst), recvs = world.Recvs(src, dst);
  FUZZ_CHECK(sends.size() == recvs.size());
  FUZZ_CHECK(int(sends.size()) <= ulyxWireMessagesPerPair(world.NRanks()));
  int64_t next = world.Phase(src).sendStart[dst];
  for (size_t i = 0; i < sends.size(); i++) {
    const ulyxMessage &send = sends[i], &recv = recvs[i];
    FUZZ_CHECK(send.bytes > 0 && send.bytes == recv.bytes && send.group == recv.group);
    FUZZ_CHECK(send.copyCount > 0 && send.copyCount == recv.copyCount && send.firstCopy == next);
    FUZZ_CHECK(send.group >= 0 && send.group < world.Wire(src).groups);
    next += send.copyCount;
    for (int64_t c = 0; c < send.copyCount; c++) {
      const ulyxCopy& copy = world.Phase(src).copies[send.firstCopy + c];
      const ulyxWirePlace there = world.Wire(src).places[send.firstCopy + c];
      const ulyxWirePlace here = world.Wire(dst).places[recv.firstCopy + c];
      FUZZ_CHECK(there.offset == here.offset && there.pitch == here.pitch);
      CheckInside(there.offset, there.pitch, copy, send.bytes);
    }
  }
  FUZZ_CHECK(src == dst ? sends.empty() : next == world.Phase(src).sendStart[dst + 1]);
}

// Messages of one rank keep out of one another's part of the arena.
void CheckArena(const ulyxWire& wire) {
  std::vector<ulyxMessage> all(wire.sends, wire.sends + wire.sendCount);
  all.insert(all.end(), wire.recvs, wire.recvs + wire.recvCount);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.arenaOffset < b.arenaOffset; });
  int64_t end = 0;
  for (const ulyxMessage& message : all) {
    FUZZ_CHECK(message.arenaOffset >= end && message.arenaOffset % ULYX_WIRE_ALIGNMENT == 0);
    end = message.arenaOffset + message.bytes;
  }
  FUZZ_CHECK(end <= wire.arenaBytes);
}

void CheckBytes(const ulyxShape_t* shape, const ShapeOracle& oracle, const World& world, int rank) {
  ulyxShapeBytes_t bytes = ULYX_SHAPE_BYTES_INITIALIZER;
  FUZZ_CHECK(ulyxShapeGetBytes(shape, world.NRanks(), rank, &bytes) == ulyxSuccess);
  FUZZ_CHECK(bytes.qIn == oracle.SpanBytes(kSeq, kQ, rank) && bytes.qOut == oracle.SpanBytes(kHeads, kQ, rank));
  FUZZ_CHECK(bytes.kIn == oracle.SpanBytes(kSeq, kK, rank) && bytes.kOut == oracle.SpanBytes(kHeads, kK, rank));
  FUZZ_CHECK(bytes.vIn == oracle.SpanBytes(kSeq, kV, rank) && bytes.vOut == oracle.SpanBytes(kHeads, kV, rank));
  FUZZ_CHECK(bytes.oOut == oracle.SpanBytes(kSeq, kO, rank) && bytes.oIn == oracle.SpanBytes(kHeads, kO, rank));
  FUZZ_CHECK(bytes.arena >= world.Wire(rank).arenaBytes);
  FUZZ_CHECK(bytes.arena >= ulyxLandingMake(&world.Phase(rank)).bytes);
}

// Every byte of the world's tensors has a name of its own; 0 is nobody's.
using Names = std::vector<uint64_t>;

class Carrier {
 public:
  Carrier(const ShapeOracle& oracle, const World& world) : oracle_(oracle), world_(world) {
    for (int rank = 0; rank < world.NRanks(); rank++) {
      src_.push_back(Buffers(world.From(), rank));
      expected_.push_back(Buffers(world.To(), rank));
      Paint(world.From(), rank, &src_.back());
      Paint(world.To(), rank, &expected_.back());
    }
  }

  // In place where tensors hold what a message holds, through staging where not, or through staging always.
  void Run(bool straight) {
    dst_.clear();
    for (int rank = 0; rank < world_.NRanks(); rank++) dst_.push_back(Buffers(world_.To(), rank));
    for (int rank = 0; rank < world_.NRanks(); rank++) OwnCopies(rank);
    for (int src = 0; src < world_.NRanks(); src++) {
      for (int dst = 0; dst < world_.NRanks(); dst++) {
        const std::vector<ulyxMessage> sends = world_.Sends(src, dst), recvs = world_.Recvs(src, dst);
        for (size_t i = 0; i < sends.size(); i++) Unpack(dst, recvs[i], Pack(src, sends[i], straight), straight);
      }
    }
    FUZZ_CHECK(dst_ == expected_);
  }

 private:
  std::vector<Names> Buffers(Side side, int rank) const {
    std::vector<Names> buffers;
    for (int buffer = 0; buffer < ULYX_MAX_BUFFERS; buffer++) {
      const bool used = world_.Op() == ulyxOpSeqToHeads || buffer == 0;
      buffers.emplace_back(used ? size_t(BufferSpan(oracle_, world_, side, buffer, rank)) : 0);
    }
    return buffers;
  }

  // A token's number, the same on both sides. Replicated tokens of the sequence side are each rank's own.
  uint64_t TokenOf(Side side, int rank, int64_t row) const {
    const int64_t replicated = oracle_.ReplicatedTokens();
    const int64_t inReplicated = row - oracle_.ReplicatedRow(side, rank);
    if (inReplicated >= 0 && inReplicated < replicated) {
      const int64_t owner = world_.Op() == ulyxOpSeqToHeads ? rank : 0;
      return uint64_t(oracle_.Tokens() + owner * replicated + inReplicated);
    }
    return uint64_t(row - oracle_.SplitRow() + (side == kSeq ? oracle_.TokenRanges()[rank].start : 0));
  }

  void Paint(Side side, int rank, std::vector<Names>* buffers) const {
    for (const Role role : world_.Roles()) {
      const Tensor tensor = oracle_.TensorOf(side, role, rank);
      if (tensor.span == 0) continue; /* however large its batch is */
      const int64_t firstHead = side == kHeads ? oracle_.HeadRanges(role)[rank].start : 0;
      for (int64_t b = 0; b < tensor.batch; b++) {
        for (int64_t row = 0; row < tensor.rows; row++) {
          for (int64_t head = 0; head < tensor.heads; head++) {
            const uint64_t token = TokenOf(side, rank, row);
            const uint64_t name =
                ((uint64_t(role) << 16 | uint64_t(b)) << 16 | token) << 16 | uint64_t(firstHead + head);
            for (int64_t byte = 0; byte < tensor.headBytes; byte++) {
              uint64_t& place = (*buffers)[tensor.buffer].at(size_t(tensor.At(b, row, head)) + byte);
              FUZZ_CHECK(place == 0); /* elements that share memory are refused */
              place = (name * 65536 + uint64_t(byte)) * 2 + 1;
            }
          }
        }
      }
    }
  }

  // Writes a byte that nobody has written.
  static void Put(Names* names, Wide at, uint64_t name) {
    uint64_t& place = names->at(size_t(at));
    FUZZ_CHECK(place == 0 && name != 0);
    place = name;
  }

  void OwnCopies(int rank) {
    const ulyxPhase& phase = world_.Phase(rank);
    for (int64_t c = phase.sendStart[rank]; c < phase.sendStart[rank + 1]; c++) {
      const ulyxCopy& copy = phase.copies[c];
      for (int64_t row = 0; row < copy.rows; row++) {
        for (int64_t byte = 0; byte < copy.rowBytes; byte++) {
          Put(&dst_[rank][copy.dstBuffer], copy.dstOffset + row * copy.dstPitch + byte,
              src_[rank][copy.srcBuffer].at(copy.srcOffset + row * copy.srcPitch + byte));
        }
      }
    }
  }

  Names Pack(int src, const ulyxMessage& send, bool straight) const {
    if (straight && send.buffer >= 0) {
      const Names& tensor = src_[src][send.buffer];
      FUZZ_CHECK(send.bufferOffset >= 0 && size_t(send.bufferOffset + send.bytes) <= tensor.size());
      return Names(tensor.begin() + send.bufferOffset, tensor.begin() + send.bufferOffset + send.bytes);
    }
    Names staged(size_t(send.bytes));
    for (int64_t c = send.firstCopy; c < send.firstCopy + send.copyCount; c++) {
      const ulyxCopy& copy = world_.Phase(src).copies[c];
      const ulyxWirePlace& place = world_.Wire(src).places[c];
      for (int64_t row = 0; row < copy.rows; row++) {
        for (int64_t byte = 0; byte < copy.rowBytes; byte++) {
          Put(&staged, place.offset + row * place.pitch + byte,
              src_[src][copy.srcBuffer].at(copy.srcOffset + row * copy.srcPitch + byte));
        }
      }
    }
    return staged;
  }

  void Unpack(int dst, const ulyxMessage& recv, const Names& staged, bool straight) {
    if (straight && recv.buffer >= 0) {
      for (int64_t i = 0; i < recv.bytes; i++) Put(&dst_[dst][recv.buffer], recv.bufferOffset + i, staged[i]);
      return;
    }
    for (int64_t c = recv.firstCopy; c < recv.firstCopy + recv.copyCount; c++) {
      const ulyxCopy& copy = world_.Phase(dst).copies[c];
      const ulyxWirePlace& place = world_.Wire(dst).places[c];
      for (int64_t row = 0; row < copy.rows; row++) {
        for (int64_t byte = 0; byte < copy.rowBytes; byte++) {
          Put(&dst_[dst][copy.dstBuffer], copy.dstOffset + row * copy.dstPitch + byte,
              staged.at(place.offset + row * place.pitch + byte));
        }
      }
    }
  }

  const ShapeOracle& oracle_;
  const World& world_;
  std::vector<std::vector<Names>> src_, dst_, expected_; /* by rank and buffer */
};

Wide AllBytes(const ShapeOracle& oracle, const World& world) {
  Wide bytes = 0;
  for (int rank = 0; rank < world.NRanks(); rank++) {
    for (const Role role : world.Roles()) {
      bytes += oracle.SpanBytes(kSeq, role, rank) + oracle.SpanBytes(kHeads, role, rank);
    }
  }
  return bytes;
}

void CheckOperation(const ulyxShape_t* shape, const ulyxGeometry& geometry, const ShapeOracle& oracle, ulyxOp_t op) {
  const World world(geometry, op);
  CheckCopies(oracle, world);
  for (int src = 0; src < world.NRanks(); src++) {
    CheckArena(world.Wire(src));
    CheckBytes(shape, oracle, world, src);
    for (int dst = 0; dst < world.NRanks(); dst++) CheckBothEnds(world, src, dst);
  }
  if (AllBytes(oracle, world) > kMostBytes) return;
  Carrier carrier(oracle, world);
  carrier.Run(false);
  carrier.Run(true);
}

}  // namespace

int Run(const uint8_t* data, size_t size) {
  Input input(data, size);
  const ShapeInput given(&input);
  const ulyxShape_t* const shape = given.Shape();
  const int nRanks = given.NRanks();
  if (!Accepted(shape, nRanks)) return 0;

  ulyxGeometry geometry = {};
  FUZZ_CHECK(ulyxGeometryResolve(shape, nRanks, &geometry) == ulyxSuccess);
  const ShapeOracle oracle(*shape, nRanks, geometry.elementBytes);
  CheckRanges(shape, nRanks, oracle);
  const int64_t most = nRanks == kTwoGroups ? 10 * kMostWork : kMostWork;
  const bool listed = nRanks <= kTwoGroups && oracle.Work(ulyxOpSeqToHeads) + oracle.Work(ulyxOpHeadsToSeq) <= most;
  CheckTimes(shape, nRanks, oracle, listed);
  if (listed) {
    CheckTraffic(shape, nRanks, oracle);
    for (const ulyxOp_t op : kOps) CheckOperation(shape, geometry, oracle, op);
  }
  ulyxGeometryFree(&geometry);
  return 0;
}

}  // namespace ulyx_fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return ulyx_fuzz::Run(data, size);
}
