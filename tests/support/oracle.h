// SPDX-License-Identifier: MIT
//
// What an exchange must leave behind, computed from global coordinates alone.
//
// Every byte of Q, K, V and O has one value, a hash of (tensor, batch item, global token, global head, byte in
// the head) and a seed. A rank's tensor is a layout: which of those bytes it holds and where. The oracle does
// its own arithmetic on who owns what and where it lies, and never asks ulyx.
#ifndef ULYX_TESTS_SUPPORT_ORACLE_H_
#define ULYX_TESTS_SUPPORT_ORACLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ulyx.h"

namespace ulyx_test {

// Items [first, end) of a whole.
struct Span {
  int64_t first;
  int64_t end;
  int64_t Count() const { return end - first; }
};

// The eight tensors of a rank, in the order of ulyxShapeBytes_t. On a packed side the first of three holds all.
enum Slot { kQIn, kKIn, kVIn, kQOut, kKOut, kVOut, kOIn, kOOut, kSlots };
const char* SlotName(Slot slot);
inline bool IsOutput(Slot slot) {
  return slot == kQOut || slot == kKOut || slot == kVOut || slot == kOOut;
}

// The part of Q, K, V or O that a rank's tensor holds, and where: offset and pitches in bytes. Replicated tokens are
// numbered behind those that are split.
struct Block {
  char tensor;
  int64_t batch;
  std::vector<Span> tokens;  // in the order of their rows
  Span heads;
  int64_t headBytes;
  int64_t offset;
  int64_t batchPitch;
  int64_t tokenPitch;
  int64_t headPitch;
  int64_t Rows() const;
};

struct Layout {
  std::vector<Block> blocks;  // empty, or none of them without bytes
  int64_t bytes = 0;          // from the data pointer to the end of the last element
};

// Bytes kept free on both sides of every tensor, and the largest misalignment of its data pointer.
constexpr int64_t kCanary = 256;
constexpr int64_t kMaxMisalign = 64;

class Oracle {
 public:
  // The shape must be a valid one; tokenCounts and headCounts are copied.
  Oracle(const ulyxShape_t& shape, int nRanks, uint64_t seed);

  int NRanks() const { return int(tokens_.size()); }
  Span Tokens(int rank) const { return tokens_[rank]; }
  Span Heads(int rank) const { return heads_[rank]; }
  Span KvHeads(int rank) const { return kvHeads_[rank]; }
  int64_t TokenTotal() const { return tokens_.back().end; }
  int64_t Replicated() const { return shape_.replicatedTokens; }
  int64_t ElementBytes() const { return elementBytes_; }

  // Bytes that go from rank src to rank dst.
  int64_t SeqToHeadsBytes(int src, int dst) const;
  int64_t HeadsToSeqBytes(int src, int dst) const;

  Layout LayoutOf(int rank, Slot slot) const;

  // A whole allocation of kCanary + kMaxMisalign + bytes + kCanary, the data at kCanary + misalign: noise
  // everywhere, and at the tensor's bytes their values. `Unwritten` has the complement of each value instead,
  // so that every byte an exchange fails to write is seen.
  std::vector<uint8_t> Written(int rank, Slot slot, int64_t misalign) const;
  std::vector<uint8_t> Unwritten(int rank, Slot slot, int64_t misalign) const;
  // "" if both are the same, else the first difference and what lies there.
  std::string Difference(int rank, Slot slot, int64_t misalign, const std::vector<uint8_t>& expected,
                         const std::vector<uint8_t>& found) const;

 private:
  std::vector<uint8_t> Image(int rank, Slot slot, int64_t misalign, uint8_t flip) const;

  ulyxShape_t shape_;
  uint64_t seed_;
  int64_t elementBytes_;
  std::vector<Span> tokens_;
  std::vector<Span> heads_;
  std::vector<Span> kvHeads_;
};

// Bytes of one element of a ulyxDataType_t other than ulyxOpaque.
int64_t TypeBytes(int type);

// The balanced split: the first total mod parts ranges are one longer.
std::vector<Span> BalancedSpans(int64_t total, int parts);

// The key/value heads that query heads [heads) use, `group` query heads to one.
Span KvHeadsUsed(Span heads, int64_t group);

}  // namespace ulyx_test

#endif  // ULYX_TESTS_SUPPORT_ORACLE_H_
