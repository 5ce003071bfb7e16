// SPDX-License-Identifier: MIT
//
// How ranks meet on the device, for the kernels that do: entry records, exit records, and what ends a wait.
//
// Memory order: a block's stores precede its count in `arrived` (barrier, system fence, atomic); the thread that
// counts last fences again before it stores the exit records, so whoever sees those sees every store. A peer that
// stores into this rank's outputs has seen this rank's entry, which is written after all earlier work of its stream.
// Records are reused every epoch without a race: a rank writes its next entry only after every peer's exit, and a peer
// writes its exit only after all its blocks have read the entries.
//
// Exchanges of a rank follow each other. One that begins while another is inside has read that one's epoch and would
// take the peers' records for its own. Block 0 finds that by `entered`: an exchange takes it from the epoch of the last
// that ended to its own, and whoever finds it anywhere else was overtaken, or overtakes. The world is lost then. It is
// a caller's error that is found, not a lock: the second's other blocks may have stored before block 0 knows, and a
// peer may have taken the first for good by then, and learns by its next exchange that it was not.
//
// Every wait ends: by its slot, by the timeout, by the abort word or by a peer that gave up. One block's threads look
// at the abort word, which is in host memory, every 20 us that they wait; the others look at `lost`.
#ifndef ULYX_MEETING_CUH_
#define ULYX_MEETING_CUH_

#include "exchange_layout.h"

namespace ulyx {

constexpr int kPollsPerLook = 64;
constexpr uint64_t kLookAtHostNs = 20000;
constexpr uint32_t kNobody = UINT32_MAX;

__device__ inline uint64_t nowNs() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

__device__ inline void storeSlot(ulyxSlot* to, uint64_t value, uint64_t epoch) {
  asm volatile("{\n\t.reg .b128 s;\n\tmov.b128 s, {%1, %2};\n\tst.relaxed.sys.global.b128 [%0], s;\n\t}" ::"l"(to),
               "l"(value), "l"(epoch)
               : "memory");
}

__device__ inline ulyxSlot loadSlot(const ulyxSlot* from) {
  ulyxSlot slot;
  asm volatile("{\n\t.reg .b128 s;\n\tld.acquire.sys.global.b128 s, [%2];\n\tmov.b128 {%0, %1}, s;\n\t}"
               : "=l"(slot.value), "=l"(slot.epoch)
               : "l"(from)
               : "memory");
  return slot;
}

template <typename T>
__device__ inline T loadState(const T& field) {
  return *const_cast<const volatile T*>(&field);
}

__device__ inline ulyxRecords* recordsOf(const ulyxMeeting& meeting, int rank) {
  return reinterpret_cast<ulyxRecords*>(meeting.windows[rank]);
}

__device__ inline int peerAt(const ulyxMeeting& meeting, int distance) {
  return (meeting.rank + distance) % meeting.nRanks;
}

__device__ inline void write(volatile ulyxReport* report, uint64_t epoch, ulyxFound found, uint32_t peer, uint64_t mine,
                             uint64_t theirs) {
  report->epoch = epoch;
  report->peer = peer;
  report->mine = mine;
  report->theirs = theirs;
  __threadfence_system();
  report->kind = found;
}

// The world is lost: says so on the host, to this rank's other blocks and to the peers.
__device__ inline void lose(const ulyxMeeting& meeting, uint64_t epoch, ulyxFound found, uint32_t peer) {
  if (atomicExch(&meeting.state->verdict.lost, 1u) != 0) return;
  meeting.state->verdict.voided = 1;
  write(meeting.final, epoch, found, peer, 0, 0);
  for (int distance = 1; distance < meeting.nRanks; ++distance) {
    ulyxRecords* const theirs = recordsOf(meeting, peerAt(meeting, distance));
    for (int slot = 0; slot < ULYX_ENTRY_SLOTS; ++slot) {
      storeSlot(&theirs->entry[meeting.rank].slot[slot], 0, ULYX_EPOCH_ABORTED);
    }
    storeSlot(&theirs->exit[meeting.rank], 0, ULYX_EPOCH_ABORTED);
    storeSlot(&theirs->engineExit[meeting.rank], 0, ULYX_EPOCH_ABORTED);
  }
}

// Waits until the peer's slot carries the epoch. False: the world is lost.
__device__ inline bool await(const ulyxMeeting& meeting, const ulyxSlot* slot, uint64_t epoch, uint32_t peer,
                             bool looksAtHost, uint64_t* value) {
  const uint64_t startNs = nowNs();
  uint64_t lookedNs = startNs;
  for (;;) {
    for (int poll = 0; poll < kPollsPerLook; ++poll) {
      const ulyxSlot seen = loadSlot(slot);
      if (seen.epoch == epoch) {
        *value = seen.value;
        return true;
      }
      if (seen.epoch > epoch) {
        lose(meeting, epoch, seen.epoch == ULYX_EPOCH_ABORTED ? ulyxFoundAborted : ulyxFoundOrder, peer);
        return false;
      }
    }
    if (loadState(meeting.state->verdict.lost)) return false;
    const uint64_t atNs = nowNs();
    if (atNs - startNs > meeting.timeoutNs) {
      lose(meeting, epoch, ulyxFoundTimeout, peer);
      return false;
    }
    if (looksAtHost && atNs - lookedNs > kLookAtHostNs) {
      lookedNs = atNs;
      if (*meeting.abort != 0) {
        lose(meeting, epoch, ulyxFoundAborted, static_cast<uint32_t>(meeting.rank));
        return false;
      }
    }
  }
}

__device__ inline void enter(const ulyxMeeting& meeting, const uint64_t* starts, const uint64_t* pairs,
                             uint64_t epoch) {
  const int slots = (meeting.nRanks - 1) * ULYX_ENTRY_SLOTS;
  for (int i = static_cast<int>(threadIdx.x); i < slots; i += static_cast<int>(blockDim.x)) {
    const int peer = peerAt(meeting, 1 + i / ULYX_ENTRY_SLOTS), slot = i % ULYX_ENTRY_SLOTS;
    uint64_t value = slot == 0 ? meeting.signature ^ pairs[peer] : meeting.places[slot - 1];
    if (slot == 1 && value != ULYX_PLACE_NONE) value += starts[peer];
    storeSlot(&recordsOf(meeting, peer)->entry[meeting.rank].slot[slot], value, epoch);
  }
}

// Of a block that has entered, instead of a barrier: whether another exchange of this rank is inside. The world is lost
// then, behind the barrier, since no entry may follow the words that say so. The records do not wait for it.
__device__ inline bool overlaps(const ulyxMeeting& meeting, uint64_t epoch) {
  const unsigned long long last = epoch - 1;
  const bool another =
      threadIdx.x == 0 && atomicExch(reinterpret_cast<unsigned long long*>(&meeting.state->entered), last + 1) != last;
  if (!__syncthreads_or(another)) return false;
  if (another) lose(meeting, epoch, ulyxFoundOverlap, static_cast<uint32_t>(meeting.rank));
  return true;
}

// What a block learns from the entry records, in shared memory.
struct Met {
  uint32_t mismatch;   // lowest peer that means something else
  uint32_t misplaced;  // lowest peer * places + place
  uint32_t lost;
};

// Addresses of the peers' places, [peer * ULYX_EXCHANGE_PLACES + place]: shared memory of a block that copies.
constexpr int kBases = ULYX_EXCHANGE_MAX_RANKS * ULYX_EXCHANGE_PLACES;

__device__ inline void readSlot(const ulyxMeeting& meeting, const uint64_t* pairs, int peer, int slot, uint64_t value,
                                Met* met, uint64_t* base) {
  if (slot == 0) {
    if (value != (meeting.signature ^ pairs[peer])) atomicMin(&met->mismatch, static_cast<uint32_t>(peer));
    return;
  }
  const uint32_t at = static_cast<uint32_t>(peer * ULYX_EXCHANGE_PLACES + slot - 1);
  if (meeting.samePlaces && value != meeting.places[slot - 1]) atomicMin(&met->misplaced, at);
  if (value == ULYX_PLACE_NONE || base == nullptr) return;
  const uint64_t window = (value >> ULYX_PLACE_OFFSET_BITS) - 1;
  const uint64_t offset = value & ((UINT64_C(1) << ULYX_PLACE_OFFSET_BITS) - 1);
  base[at] = meeting.windows[window * static_cast<uint64_t>(meeting.nRanks) + static_cast<uint64_t>(peer)] + offset;
}

// The first block to find it says so.
__device__ inline void refuse(const ulyxMeeting& meeting, uint64_t epoch, const Met& met) {
  if (atomicExch(&meeting.state->verdict.refused, 1u) != 0) return;
  meeting.state->verdict.voided = 1;
  const ulyxRecords* const mine = recordsOf(meeting, meeting.rank);
  if (met.mismatch != kNobody) {
    write(meeting.passing, epoch, ulyxFoundMismatch, met.mismatch, meeting.signature,
          loadSlot(&mine->entry[met.mismatch].slot[0]).value);
    return;
  }
  const uint32_t peer = met.misplaced / ULYX_EXCHANGE_PLACES, place = met.misplaced % ULYX_EXCHANGE_PLACES;
  write(meeting.passing, epoch, ulyxFoundMisplaced, peer, meeting.places[place],
        loadSlot(&mine->entry[peer].slot[1 + place]).value);
}

__device__ inline void clear(Met* met) {
  met->mismatch = met->misplaced = kNobody;
  met->lost = 0;
}

// The whole block waits for every peer's entry record. True: the copies may be made. base is nullptr where none are.
__device__ inline bool meet(const ulyxMeeting& meeting, const uint64_t* pairs, uint64_t epoch, Met* met,
                            uint64_t* base) {
  const int slots = (meeting.nRanks - 1) * ULYX_ENTRY_SLOTS;
  const ulyxRecords* const mine = recordsOf(meeting, meeting.rank);
  for (int i = static_cast<int>(threadIdx.x); i < slots; i += static_cast<int>(blockDim.x)) {
    const int peer = peerAt(meeting, 1 + i / ULYX_ENTRY_SLOTS), slot = i % ULYX_ENTRY_SLOTS;
    uint64_t value = 0;
    if (await(meeting, &mine->entry[peer].slot[slot], epoch, static_cast<uint32_t>(peer), blockIdx.x == 0, &value)) {
      readSlot(meeting, pairs, peer, slot, value, met, base);
    } else {
      met->lost = 1;
    }
  }
  __syncthreads();
  if (met->lost) return false;
  if (met->mismatch == kNobody && met->misplaced == kNobody) return true;
  if (threadIdx.x == 0) refuse(meeting, epoch, *met);
  return false;
}

// Thread 0 of the last block to come writes the exit records, which say whether this rank has refused: what it would
// have sent to ranks that agree with it is missing there. True in the whole of that block. A lost world's stay as they
// are: they say so.
__device__ inline bool finishLast(const ulyxMeeting& meeting, uint64_t epoch) {
  __shared__ bool isLast;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence_system();
    isLast = atomicAdd(&meeting.state->arrived, 1u) == gridDim.x - 1;
    if (isLast) {
      __threadfence_system();
      const uint64_t refused = loadState(meeting.state->verdict.refused);
      isLast = loadState(meeting.state->verdict.lost) == 0;
      for (int distance = 1; isLast && distance < meeting.nRanks; ++distance) {
        ulyxRecords* const theirs = recordsOf(meeting, peerAt(meeting, distance));
        storeSlot(&theirs->exit[meeting.rank], refused, epoch);
        if (!meeting.engines) storeSlot(&theirs->engineExit[meeting.rank], 0, epoch);
      }
    }
  }
  __syncthreads();
  return isLast;
}

// What follows the exchange on the stream finds in `verdict` how it ended.
__device__ inline void leave(const ulyxMeeting& meeting, uint64_t epoch, Met* met) {
  if (!finishLast(meeting, epoch)) return;
  const ulyxRecords* const mine = recordsOf(meeting, meeting.rank);
  const int peers = meeting.nRanks - 1;
  if (threadIdx.x == 0) met->mismatch = kNobody;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < 2 * peers; i += static_cast<int>(blockDim.x)) {
    const int peer = peerAt(meeting, 1 + i % peers);
    const ulyxSlot* const slot = i < peers ? &mine->exit[peer] : &mine->engineExit[peer];
    uint64_t value = 0;
    if (!await(meeting, slot, epoch, static_cast<uint32_t>(peer), true, &value)) {
      met->lost = 1;
    } else if (i < peers && value != 0) {
      atomicMin(&met->mismatch, static_cast<uint32_t>(peer));
    }
  }
  __syncthreads();
  if (threadIdx.x != 0 || met->lost) return;
  const bool refused = loadState(meeting.state->verdict.refused) != 0, refusedThere = met->mismatch != kNobody;
  if (loadState(meeting.state->verdict.lost)) return;
  if (refusedThere && !refused) write(meeting.passing, epoch, ulyxFoundRefusal, met->mismatch, 0, 0);
  meeting.state->verdict.voided = refused || refusedThere ? 1 : 0;
  meeting.state->arrived = 0;
  meeting.state->verdict.refused = 0;
  meeting.state->epoch = epoch;
}

}  // namespace ulyx

#endif  // ULYX_MEETING_CUH_
