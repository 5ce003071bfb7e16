// SPDX-License-Identifier: MIT
#include "support/oracle.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "support/rng.h"

namespace ulyx_test {

namespace {

std::vector<Span> SpansOf(const int64_t* counts, int parts) {
  std::vector<Span> spans;
  int64_t first = 0;
  for (int i = 0; i < parts; i++) {
    spans.push_back({first, first + counts[i]});
    first += counts[i];
  }
  return spans;
}

uint64_t HeadHash(uint64_t seed, char tensor, int64_t batch, int64_t token, int64_t head) {
  uint64_t hash = Mix(seed + uint64_t(tensor));
  for (int64_t coordinate : {batch, token, head}) hash = Mix(hash * 31 + uint64_t(coordinate));
  return hash;
}

// What lies side by side in one row: heads of one logical tensor.
struct Piece {
  char tensor;
  Span heads;
  int64_t dim;
};

// Bytes 0, 1, ... of a head, eight to a word.
void WriteBytes(uint64_t headHash, uint8_t flip, uint8_t* bytes, int64_t count) {
  const uint64_t flips = flip * 0x0101010101010101u;
  for (int64_t i = 0; i < count; i += 8) {
    uint64_t word = (headHash ^ (uint64_t(i + 1) * 0x9e3779b97f4a7c15u)) * 0xd6e8feb86659fd93u;
    word ^= (word >> 32) ^ flips;
    std::memcpy(bytes + i, &word, size_t(std::min<int64_t>(8, count - i)));
  }
}

// Calls body(block, batch, token, head, byte offset of the head) for every head of a layout.
template <class Body>
void ForEachHead(const Layout& layout, const Body& body) {
  for (const Block& block : layout.blocks) {
    for (int64_t batch = 0; batch < block.batch; batch++) {
      int64_t row = 0;
      for (const Span& tokens : block.tokens) {
        for (int64_t token = tokens.first; token < tokens.end; token++, row++) {
          for (int64_t head = 0; head < block.heads.Count(); head++) {
            body(block, batch, token, block.heads.first + head,
                 block.offset + batch * block.batchPitch + row * block.tokenPitch + head * block.headPitch);
          }
        }
      }
    }
  }
}

}  // namespace

int64_t Block::Rows() const {
  int64_t rows = 0;
  for (const Span& span : tokens) rows += span.Count();
  return rows;
}

const char* SlotName(Slot slot) {
  static const char* const names[] = {"qIn", "kIn", "vIn", "qOut", "kOut", "vOut", "oIn", "oOut"};
  return names[slot];
}

int64_t TypeBytes(int type) {
  switch (type) {
    case ulyxInt8:
    case ulyxUint8:
    case ulyxFloat8e4m3:
    case ulyxFloat8e5m2:
    case ulyxBool:
      return 1;
    case ulyxFloat16:
    case ulyxBfloat16:
    case ulyxInt16:
    case ulyxUint16:
      return 2;
    case ulyxInt32:
    case ulyxUint32:
    case ulyxFloat32:
      return 4;
    case ulyxInt64:
    case ulyxUint64:
    case ulyxFloat64:
      return 8;
    default:
      throw std::invalid_argument("type " + std::to_string(type));
  }
}

std::vector<Span> BalancedSpans(int64_t total, int parts) {
  std::vector<int64_t> counts(parts, total / parts);
  for (int64_t i = 0; i < total % parts; i++) counts[i]++;
  return SpansOf(counts.data(), parts);
}

Span KvHeadsUsed(Span heads, int64_t group) {
  if (heads.Count() == 0) return {heads.first / group, heads.first / group};
  return {heads.first / group, (heads.end - 1) / group + 1};
}

Oracle::Oracle(const ulyxShape_t& shape, int nRanks, uint64_t seed) : shape_(shape), seed_(seed) {
  if (shape_.kvHeads == 0) shape_.kvHeads = shape_.heads;
  if (shape_.valueDim == 0) shape_.valueDim = shape_.headDim;
  if (shape_.batch == 0) shape_.batch = 1;
  elementBytes_ = shape_.type == ulyxOpaque ? shape_.elementBytes : TypeBytes(shape_.type);
  tokens_ = shape.tokenCounts != nullptr ? SpansOf(shape.tokenCounts, nRanks) : BalancedSpans(shape.tokens, nRanks);
  heads_ = shape.headCounts != nullptr ? SpansOf(shape.headCounts, nRanks) : BalancedSpans(shape.heads, nRanks);
  for (const Span& heads : heads_) kvHeads_.push_back(KvHeadsUsed(heads, shape_.heads / shape_.kvHeads));
  shape_.tokenCounts = nullptr;
  shape_.headCounts = nullptr;
}

int64_t Oracle::SeqToHeadsBytes(int src, int dst) const {
  const int64_t row = heads_[dst].Count() * shape_.headDim + kvHeads_[dst].Count() * (shape_.headDim + shape_.valueDim);
  const int64_t tokens = tokens_[src].Count() + (src == dst ? Replicated() : 0);
  return shape_.batch * tokens * row * elementBytes_;
}

int64_t Oracle::HeadsToSeqBytes(int src, int dst) const {
  return shape_.batch * (tokens_[dst].Count() + Replicated()) * heads_[src].Count() * shape_.valueDim * elementBytes_;
}

Layout Oracle::LayoutOf(int rank, Slot slot) const {
  const bool seqSide = slot <= kVIn || slot == kOOut;
  const bool packed = slot == kOIn || slot == kOOut ? false : (slot <= kVIn ? shape_.packedIn : shape_.packedOut) != 0;
  const int order = seqSide ? shape_.seqOrder : shape_.headsOrder;
  const Span split = seqSide ? tokens_[rank] : Span{0, TokenTotal()};
  const Span replicated = {TokenTotal(), TokenTotal() + Replicated()};
  const bool last = shape_.replicatedPlace == ulyxReplicatedLast;
  const std::vector<Span> tokens = last ? std::vector<Span>{split, replicated} : std::vector<Span>{replicated, split};
  const int64_t rows = split.Count() + replicated.Count();
  const Span heads = seqSide ? Span{0, shape_.heads} : heads_[rank];
  const Span kvHeads = seqSide ? Span{0, shape_.kvHeads} : kvHeads_[rank];
  const std::array<const ulyxStrides_t*, kSlots> allStrides = {&shape_.qIn,  &shape_.kIn,  &shape_.vIn, &shape_.qOut,
                                                               &shape_.kOut, &shape_.vOut, &shape_.oIn, &shape_.oOut};
  const ulyxStrides_t strides = *allStrides[slot];

  if (packed && slot != kQIn && slot != kQOut) return Layout();  // its part is under q
  const std::vector<Piece> pieces = [&]() -> std::vector<Piece> {
    const Piece q = {'q', heads, shape_.headDim}, k = {'k', kvHeads, shape_.headDim},
                v = {'v', kvHeads, shape_.valueDim};
    if (packed) return {q, k, v};
    if (slot == kQIn || slot == kQOut) return {q};
    if (slot == kKIn || slot == kKOut) return {k};
    if (slot == kVIn || slot == kVOut) return {v};
    return {{'o', heads, shape_.valueDim}};
  }();

  // In elements: a dense row is all heads of a token; 0 is the dense value of a stride.
  int64_t row = 0;
  for (const Piece& piece : pieces) {
    const bool ownHeadStride = !packed && strides.head != 0;
    row += piece.heads.Count() * (ownHeadStride ? strides.head : piece.dim);
  }
  int64_t tokenStride = strides.token;
  int64_t batchStride = strides.batch;
  if (order == ulyxBatchFirst) {
    if (tokenStride == 0) tokenStride = row;
    if (batchStride == 0) batchStride = rows * tokenStride;
  } else {
    if (batchStride == 0) batchStride = row;
    if (tokenStride == 0) tokenStride = shape_.batch * batchStride;
  }

  Layout layout;
  int64_t offset = 0;
  for (const Piece& piece : pieces) {
    const int64_t headStride = !packed && strides.head != 0 ? strides.head : piece.dim;
    const int64_t e = elementBytes_;
    if (piece.heads.Count() > 0 && rows > 0 && shape_.batch > 0) {
      const Block block = {piece.tensor, shape_.batch,    tokens,          piece.heads,   piece.dim * e,
                           offset * e,   batchStride * e, tokenStride * e, headStride * e};
      layout.bytes =
          std::max(layout.bytes, block.offset + (block.batch - 1) * block.batchPitch + (rows - 1) * block.tokenPitch +
                                     (piece.heads.Count() - 1) * block.headPitch + block.headBytes);
      layout.blocks.push_back(block);
    }
    offset += piece.heads.Count() * headStride;
  }
  return layout;
}

std::vector<uint8_t> Oracle::Image(int rank, Slot slot, int64_t misalign, uint8_t flip) const {
  const Layout layout = LayoutOf(rank, slot);
  std::vector<uint8_t> image(kCanary + kMaxMisalign + layout.bytes + kCanary);
  WriteBytes(HeadHash(seed_, '~', rank, slot, 0), 0, image.data(), int64_t(image.size()));
  ForEachHead(layout, [&](const Block& block, int64_t batch, int64_t token, int64_t head, int64_t offset) {
    WriteBytes(HeadHash(seed_, block.tensor, batch, token, head), flip, image.data() + kCanary + misalign + offset,
               block.headBytes);
  });
  return image;
}

std::vector<uint8_t> Oracle::Written(int rank, Slot slot, int64_t misalign) const {
  return Image(rank, slot, misalign, 0);
}

std::vector<uint8_t> Oracle::Unwritten(int rank, Slot slot, int64_t misalign) const {
  return Image(rank, slot, misalign, 0xff);
}

std::string Oracle::Difference(int rank, Slot slot, int64_t misalign, const std::vector<uint8_t>& expected,
                               const std::vector<uint8_t>& found) const {
  if (expected == found) return "";
  if (expected.size() != found.size()) throw std::logic_error("images of different sizes");
  int64_t first = 0;
  while (expected[first] == found[first]) first++;
  const int64_t byte = first - kCanary - misalign;
  std::ostringstream text;
  text << "rank " << rank << " " << SlotName(slot) << " byte " << byte << " is " << int(found[first]) << ", expected "
       << int(expected[first]);
  std::string where = ", outside the tensor's elements";
  ForEachHead(LayoutOf(rank, slot), [&](const Block& block, int64_t batch, int64_t token, int64_t head,
                                        int64_t offset) {
    if (byte < offset || byte >= offset + block.headBytes) return;
    where = std::string(" (") + block.tensor + ", batch item " + std::to_string(batch) + ", token " +
            std::to_string(token) + ", head " + std::to_string(head) + ", byte " + std::to_string(byte - offset) + ")";
  });
  text << where << " [seed " << seed_ << "]";
  return text.str();
}

}  // namespace ulyx_test
