// SPDX-License-Identifier: MIT
//
// The exchange kernel. Block 0 writes this rank's entry records; every block loads its first tile, waits until every
// peer's entry record is there, and only then stores; the last block to finish writes the exit records and waits for
// the peers'. Grids may differ between ranks: no two blocks of a rank wait for each other.
//
// Memory order: a block's stores precede its count in `arrived` (barrier, system fence, atomic); the thread that
// counts last fences again before it stores the exit records, so whoever sees those sees every store. A peer that
// stores into this rank's outputs has seen this rank's entry, which this kernel writes after all earlier work of its
// stream. Records are reused every epoch without a race: a rank writes its next entry only after every peer's exit,
// and a peer writes its exit only after all its blocks have read the entries.
//
// Every wait ends: by its slot, by the timeout, by the abort word or by a peer that gave up. One block's threads look
// at the abort word, which is in host memory, every 20 us that they wait; the others look at `lost`.

#include "kernels.h"
#include "tiles.cuh"

namespace {

template <int kCapacity>
struct Batch {
  ULYX_EXCHANGE_BATCH_FIELDS(kCapacity);
};

static_assert(sizeof(Batch<ULYX_EXCHANGE_BATCH_LARGE>) == sizeof(ulyxExchangeBatch), "one layout");

constexpr int kPollsPerLook = 64;
constexpr uint64_t kLookAtHostNs = 20000;
constexpr uint32_t kNobody = UINT32_MAX;

__device__ uint64_t nowNs() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

__device__ void storeSlot(ulyxSlot* to, uint64_t value, uint64_t epoch) {
  asm volatile("{\n\t.reg .b128 s;\n\tmov.b128 s, {%1, %2};\n\tst.relaxed.sys.global.b128 [%0], s;\n\t}" ::"l"(to),
               "l"(value), "l"(epoch)
               : "memory");
}

__device__ ulyxSlot loadSlot(const ulyxSlot* from) {
  ulyxSlot slot;
  asm volatile("{\n\t.reg .b128 s;\n\tld.acquire.sys.global.b128 s, [%2];\n\tmov.b128 {%0, %1}, s;\n\t}"
               : "=l"(slot.value), "=l"(slot.epoch)
               : "l"(from)
               : "memory");
  return slot;
}

template <typename T>
__device__ T loadState(const T& field) {
  return *const_cast<const volatile T*>(&field);
}

__device__ ulyxRecords* recordsOf(const ulyxMeeting& meeting, int rank) {
  return reinterpret_cast<ulyxRecords*>(meeting.windows[rank]);
}

__device__ int peerAt(const ulyxMeeting& meeting, int distance) {
  return (meeting.rank + distance) % meeting.nRanks;
}

__device__ void write(volatile ulyxReport* report, uint64_t epoch, ulyxFound found, uint32_t peer, uint64_t mine,
                      uint64_t theirs) {
  report->epoch = epoch;
  report->peer = peer;
  report->mine = mine;
  report->theirs = theirs;
  __threadfence_system();
  report->kind = found;
}

// The world is lost: says so on the host, to this rank's other blocks and to the peers.
__device__ void lose(const ulyxMeeting& meeting, uint64_t epoch, ulyxFound found, uint32_t peer) {
  if (atomicExch(&meeting.state->lost, 1u) != 0) return;
  meeting.state->voided = 1;
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
__device__ bool await(const ulyxMeeting& meeting, const ulyxSlot* slot, uint64_t epoch, uint32_t peer, bool looksAtHost,
                      uint64_t* value) {
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
    if (loadState(meeting.state->lost)) return false;
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

__device__ void enter(const ulyxMeeting& meeting, const uint64_t* starts, const uint64_t* pairs, uint64_t epoch) {
  const int slots = (meeting.nRanks - 1) * ULYX_ENTRY_SLOTS;
  if (threadIdx.x == 0) {
    meeting.state->entered = epoch;
    meeting.state->voided = 0;
  }
  for (int i = static_cast<int>(threadIdx.x); i < slots; i += ULYX_COPY_THREADS) {
    const int peer = peerAt(meeting, 1 + i / ULYX_ENTRY_SLOTS), slot = i % ULYX_ENTRY_SLOTS;
    uint64_t value = slot == 0 ? meeting.signature ^ pairs[peer] : meeting.places[slot - 1];
    if (slot == 1 && value != ULYX_PLACE_NONE) value += starts[peer];
    storeSlot(&recordsOf(meeting, peer)->entry[meeting.rank].slot[slot], value, epoch);
  }
}

// What a block learns from the entry records.
struct Met {
  uint64_t base[ULYX_EXCHANGE_MAX_RANKS * ULYX_EXCHANGE_PLACES];  // addresses of the peers' places
  uint32_t mismatch;                                              // lowest peer that means something else
  uint32_t misplaced;                                             // lowest peer * places + place
  uint32_t lost;
};

__device__ void readSlot(const ulyxMeeting& meeting, const uint64_t* pairs, int peer, int slot, uint64_t value,
                         Met* met) {
  if (slot == 0) {
    if (value != (meeting.signature ^ pairs[peer])) atomicMin(&met->mismatch, static_cast<uint32_t>(peer));
    return;
  }
  const uint32_t at = static_cast<uint32_t>(peer * ULYX_EXCHANGE_PLACES + slot - 1);
  if (meeting.samePlaces && value != meeting.places[slot - 1]) atomicMin(&met->misplaced, at);
  if (value == ULYX_PLACE_NONE) return;
  const uint64_t window = (value >> ULYX_PLACE_OFFSET_BITS) - 1;
  const uint64_t offset = value & ((UINT64_C(1) << ULYX_PLACE_OFFSET_BITS) - 1);
  met->base[at] =
      meeting.windows[window * static_cast<uint64_t>(meeting.nRanks) + static_cast<uint64_t>(peer)] + offset;
}

// The first block to find it says so.
__device__ void refuse(const ulyxMeeting& meeting, uint64_t epoch, const Met& met) {
  if (atomicExch(&meeting.state->refused, 1u) != 0) return;
  meeting.state->voided = 1;
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

// The whole block waits for every peer's entry record. True: the copies may be made.
__device__ bool meet(const ulyxMeeting& meeting, const uint64_t* pairs, uint64_t epoch, Met* met) {
  const int slots = (meeting.nRanks - 1) * ULYX_ENTRY_SLOTS;
  const ulyxRecords* const mine = recordsOf(meeting, meeting.rank);
  for (int i = static_cast<int>(threadIdx.x); i < slots; i += ULYX_COPY_THREADS) {
    const int peer = peerAt(meeting, 1 + i / ULYX_ENTRY_SLOTS), slot = i % ULYX_ENTRY_SLOTS;
    uint64_t value = 0;
    if (await(meeting, &mine->entry[peer].slot[slot], epoch, static_cast<uint32_t>(peer), blockIdx.x == 0, &value)) {
      readSlot(meeting, pairs, peer, slot, value, met);
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

// The units that a thread holds of a tile; narrow ones lie at the start of each.
struct Held {
  uint4 unit[ULYX_COPY_UNITS_PER_THREAD];
};

template <typename Unit>
__device__ void loadUnits(const ulyxCopyDesc& desc, uint32_t first, Held* held) {
#pragma unroll
  for (int i = 0; i < ULYX_COPY_UNITS_PER_THREAD; ++i) {
    const uint32_t unit = first + i * ULYX_COPY_THREADS;
    if (unit >= desc.units) continue;
    const ulyxUnitPlace place = ulyxPlaceOf<Unit>(desc, unit);
    *reinterpret_cast<Unit*>(&held->unit[i]) =
        *reinterpret_cast<const Unit*>(desc.src + place.row * desc.srcPitch + place.column);
  }
}

// For a receiver's start that is less aligned than the sender could know.
template <typename Unit, typename Piece>
__device__ void storePieces(const ulyxCopyDesc& desc, uint32_t first, unsigned char* dst, const Held& held) {
#pragma unroll
  for (int i = 0; i < ULYX_COPY_UNITS_PER_THREAD; ++i) {
    const uint32_t unit = first + i * ULYX_COPY_THREADS;
    if (unit >= desc.units) continue;
    const ulyxUnitPlace place = ulyxPlaceOf<Unit>(desc, unit);
    Piece* const to = reinterpret_cast<Piece*>(dst + place.row * desc.dstPitch + place.column);
#pragma unroll
    for (int piece = 0; piece < static_cast<int>(sizeof(Unit) / sizeof(Piece)); ++piece) {
      to[piece] = reinterpret_cast<const Piece*>(&held.unit[i])[piece];
    }
  }
}

template <typename Unit>
__device__ void storeUnits(const ulyxCopyDesc& desc, uint32_t first, unsigned char* dst, const Held& held) {
  if (sizeof(Unit) > 1 && reinterpret_cast<uint64_t>(dst) % sizeof(Unit) != 0) {
    if (sizeof(Unit) > 4 && reinterpret_cast<uint64_t>(dst) % 4 == 0) {
      return storePieces<Unit, uint32_t>(desc, first, dst, held);
    }
    return storePieces<Unit, uint8_t>(desc, first, dst, held);
  }
#pragma unroll
  for (int i = 0; i < ULYX_COPY_UNITS_PER_THREAD; ++i) {
    const uint32_t unit = first + i * ULYX_COPY_THREADS;
    if (unit >= desc.units) continue;
    const ulyxUnitPlace place = ulyxPlaceOf<Unit>(desc, unit);
    *reinterpret_cast<Unit*>(dst + place.row * desc.dstPitch + place.column) =
        *reinterpret_cast<const Unit*>(&held.unit[i]);
  }
}

// How many tiles to peers are taken before a turn.
template <int kCapacity>
__device__ uint32_t remoteBefore(const Batch<kCapacity>& batch, uint64_t turn) {
  const uint64_t own = batch.tiles - batch.remoteTiles;
  const uint64_t wanted = min(turn * batch.mix >> 32, static_cast<uint64_t>(batch.remoteTiles));
  return static_cast<uint32_t>(max(wanted, turn > own ? turn - own : 0));
}

// A tile in the order in which tiles are taken.
template <int kCapacity>
__device__ uint32_t tileAt(const Batch<kCapacity>& batch, uint32_t turn) {
  const uint32_t before = remoteBefore(batch, turn), after = remoteBefore(batch, turn + UINT64_C(1));
  return after > before ? before : batch.remoteTiles + turn - before;
}

template <int kCapacity>
__device__ void loadTile(const Batch<kCapacity>& batch, uint32_t turn, Held* held) {
  const uint32_t tile = tileAt(batch, turn);
  const ulyxCopyDesc& desc = batch.desc[ulyxFindCopy(batch.desc, batch.count, tile)];
  const uint32_t first = (tile - desc.firstTile) * ULYX_COPY_TILE_UNITS + threadIdx.x;
  switch (desc.unitBytesLog2) {
    case 4:
      return loadUnits<uint4>(desc, first, held);
    case 3:
      return loadUnits<uint2>(desc, first, held);
    case 2:
      return loadUnits<uint32_t>(desc, first, held);
    case 1:
      return loadUnits<uint16_t>(desc, first, held);
    default:
      return loadUnits<uint8_t>(desc, first, held);
  }
}

template <int kCapacity>
__device__ void storeTile(const Batch<kCapacity>& batch, uint32_t turn, const Met& met, const Held& held) {
  const uint32_t tile = tileAt(batch, turn);
  const ulyxCopyDesc& desc = batch.desc[ulyxFindCopy(batch.desc, batch.count, tile)];
  const uint32_t first = (tile - desc.firstTile) * ULYX_COPY_TILE_UNITS + threadIdx.x;
  unsigned char* dst = desc.dst;
  if (desc.target != 0)
    dst = reinterpret_cast<unsigned char*>(met.base[desc.target - 1] + reinterpret_cast<uint64_t>(dst));
  switch (desc.unitBytesLog2) {
    case 4:
      return storeUnits<uint4>(desc, first, dst, held);
    case 3:
      return storeUnits<uint2>(desc, first, dst, held);
    case 2:
      return storeUnits<uint32_t>(desc, first, dst, held);
    case 1:
      return storeUnits<uint16_t>(desc, first, dst, held);
    default:
      return storeUnits<uint8_t>(desc, first, dst, held);
  }
}

// Thread 0 of the last block to come writes the exit records. True in the whole of that block.
__device__ bool finishLast(const ulyxMeeting& meeting, uint64_t epoch) {
  __shared__ bool isLast;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence_system();
    isLast = atomicAdd(&meeting.state->arrived, 1u) == gridDim.x - 1;
    if (isLast) {
      __threadfence_system();
      for (int distance = 1; distance < meeting.nRanks; ++distance) {
        ulyxRecords* const theirs = recordsOf(meeting, peerAt(meeting, distance));
        storeSlot(&theirs->exit[meeting.rank], 0, epoch);
        if (!meeting.engines) storeSlot(&theirs->engineExit[meeting.rank], 0, epoch);
      }
    }
  }
  __syncthreads();
  return isLast;
}

__device__ void leave(const ulyxMeeting& meeting, uint64_t epoch, Met* met) {
  if (!finishLast(meeting, epoch)) return;
  const ulyxRecords* const mine = recordsOf(meeting, meeting.rank);
  const int peers = meeting.nRanks - 1;
  for (int i = static_cast<int>(threadIdx.x); i < 2 * peers; i += ULYX_COPY_THREADS) {
    const int peer = peerAt(meeting, 1 + i % peers);
    const ulyxSlot* const slot = i < peers ? &mine->exit[peer] : &mine->engineExit[peer];
    uint64_t value = 0;
    if (!await(meeting, slot, epoch, static_cast<uint32_t>(peer), true, &value)) met->lost = 1;
  }
  __syncthreads();
  if (threadIdx.x != 0 || met->lost) return;
  meeting.state->arrived = 0;
  meeting.state->refused = 0;
  meeting.state->epoch = epoch;
}

template <int kCapacity>
__global__ void __launch_bounds__(ULYX_COPY_THREADS) exchangeKernel(const __grid_constant__ Batch<kCapacity> batch) {
  __shared__ Met met;
  const ulyxMeeting& meeting = batch.meeting;
  if (loadState(meeting.state->lost)) return;
  const uint64_t epoch = loadState(meeting.state->epoch) + 1;
  if (meeting.enters && blockIdx.x == 0) enter(meeting, batch.starts, batch.pairs, epoch);
  if (threadIdx.x == 0) {
    met.mismatch = met.misplaced = kNobody;
    met.lost = 0;
  }
  Held held;
  uint32_t turn = blockIdx.x;
  if (turn < batch.tiles) loadTile(batch, turn, &held);
  __syncthreads();
  const bool agreed = meet(meeting, batch.pairs, epoch, &met);
  if (met.lost) return;
  if (agreed && turn < batch.tiles) {
    for (;;) {
      storeTile(batch, turn, met, held);
      turn += gridDim.x;
      if (turn >= batch.tiles) break;
      loadTile(batch, turn, &held);
    }
  }
  if (meeting.leaves) leave(meeting, epoch, &met);
}

template <int kCapacity>
cudaError_t launch(const ulyxExchangeBatch* batch, int ctas, cudaStream_t stream) {
  const void* const kernel = reinterpret_cast<const void*>(exchangeKernel<kCapacity>);
  void* arguments[] = {const_cast<ulyxExchangeBatch*>(batch)};  // a smaller batch is a prefix
  return cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(ctas)), dim3(ULYX_COPY_THREADS), arguments, 0, stream);
}

template <int kCapacity>
cudaError_t load() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, exchangeKernel<kCapacity>);
}

}  // namespace

extern "C" cudaError_t ulyxLaunchExchange(const ulyxExchangeBatch* batch, int ctas, cudaStream_t stream) {
  if (batch->count <= ULYX_EXCHANGE_BATCH_NONE) return launch<ULYX_EXCHANGE_BATCH_NONE>(batch, ctas, stream);
  if (batch->count <= ULYX_EXCHANGE_BATCH_SMALL) return launch<ULYX_EXCHANGE_BATCH_SMALL>(batch, ctas, stream);
  return launch<ULYX_EXCHANGE_BATCH_LARGE>(batch, ctas, stream);
}

extern "C" cudaError_t ulyxLoadExchange(void) {
  cudaError_t error = load<ULYX_EXCHANGE_BATCH_NONE>();
  if (error == cudaSuccess) error = load<ULYX_EXCHANGE_BATCH_SMALL>();
  return error != cudaSuccess ? error : load<ULYX_EXCHANGE_BATCH_LARGE>();
}
