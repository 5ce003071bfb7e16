// SPDX-License-Identifier: MIT
//
// The exchange kernel. Block 0 writes this rank's entry records; every block loads its first tile, waits until every
// peer's entry record is there, and only then stores; the last block to finish writes the exit records and waits for
// the peers'. Grids may differ between ranks: no two blocks of a rank wait for each other.
//
// Where nothing is to be copied one warp meets the peers: it needs so few registers and so little shared memory that it
// runs beside blocks that were made to fill a multiprocessor, and so begins while they run.

#include "kernels.h"
#include "meeting.cuh"
#include "tiles.cuh"

namespace {

using namespace ulyx;

constexpr int kMeetingThreads = 32;

// Two fill NVLink; with four a thread has 64 registers, and nothing spills.
constexpr int kBlocksPerSm = 4;

template <int kCapacity>
struct Batch {
  ULYX_EXCHANGE_BATCH_FIELDS(kCapacity);
};

static_assert(sizeof(Batch<ULYX_EXCHANGE_BATCH_LARGE>) == sizeof(ulyxExchangeBatch), "one layout");

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
__device__ void storeTile(const Batch<kCapacity>& batch, uint32_t turn, const uint64_t* base, const Held& held) {
  const uint32_t tile = tileAt(batch, turn);
  const ulyxCopyDesc& desc = batch.desc[ulyxFindCopy(batch.desc, batch.count, tile)];
  const uint32_t first = (tile - desc.firstTile) * ULYX_COPY_TILE_UNITS + threadIdx.x;
  unsigned char* dst = desc.dst;
  if (desc.target != 0) dst = reinterpret_cast<unsigned char*>(base[desc.target - 1] + reinterpret_cast<uint64_t>(dst));
  __builtin_assume(__isGlobal(dst));
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

template <int kCapacity>
__global__ void __launch_bounds__(ULYX_COPY_THREADS, kBlocksPerSm)
    exchangeKernel(const __grid_constant__ Batch<kCapacity> batch) {
  __shared__ Met met;
  __shared__ uint64_t base[kBases];
  const ulyxMeeting& meeting = batch.meeting;
  if (loadState(meeting.state->verdict.lost)) return;
  const uint64_t epoch = loadState(meeting.state->epoch) + 1;
  const bool entersHere = meeting.enters && blockIdx.x == 0;
  if (entersHere) enter(meeting, batch.starts, batch.pairs, epoch);
  if (threadIdx.x == 0) clear(&met);
  Held held;
  uint32_t turn = blockIdx.x;
  if (turn < batch.tiles) loadTile(batch, turn, &held);
  if (entersHere) {
    if (overlaps(meeting, epoch)) return;
  } else {
    __syncthreads();
  }
  const bool agreed = meet(meeting, batch.pairs, epoch, &met, base);
  if (met.lost) return;
  if (agreed && turn < batch.tiles) {
    for (;;) {
      storeTile(batch, turn, base, held);
      turn += gridDim.x;
      if (turn >= batch.tiles) break;
      loadTile(batch, turn, &held);
    }
  }
  if (meeting.leaves) leave(meeting, epoch, &met);
}

__global__ void __maxnreg__(32) meetingKernel(const __grid_constant__ Batch<1> batch) {
  __shared__ Met met;
  const ulyxMeeting& meeting = batch.meeting;
  if (loadState(meeting.state->verdict.lost)) return;
  const uint64_t epoch = loadState(meeting.state->epoch) + 1;
  if (meeting.enters) enter(meeting, batch.starts, batch.pairs, epoch);
  if (threadIdx.x == 0) clear(&met);
  __syncthreads();
  if (meeting.enters && overlaps(meeting, epoch)) return;
  (void)meet(meeting, batch.pairs, epoch, &met, nullptr);
  if (!met.lost && meeting.leaves) leave(meeting, epoch, &met);
}

cudaError_t launch(const void* kernel, int ctas, int threads, const ulyxExchangeBatch* batch, cudaStream_t stream) {
  void* arguments[] = {const_cast<ulyxExchangeBatch*>(batch)};  // a smaller batch is a prefix
  return cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(ctas)), dim3(static_cast<unsigned>(threads)), arguments, 0,
                          stream);
}

template <int kCapacity>
cudaError_t launchCopying(const ulyxExchangeBatch* batch, int ctas, cudaStream_t stream) {
  return launch(reinterpret_cast<const void*>(exchangeKernel<kCapacity>), ctas, ULYX_COPY_THREADS, batch, stream);
}

template <int kCapacity>
cudaError_t load() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, exchangeKernel<kCapacity>);
}

// A multiprocessor divides its memory between cache and shared memory anew only when it is idle: the division that
// leaves most to its neighbours is the one that they are likely to have chosen.
cudaError_t loadMeeting() {
  return cudaFuncSetAttribute(meetingKernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                              cudaSharedmemCarveoutMaxShared);
}

}  // namespace

extern "C" cudaError_t ulyxLaunchExchange(const ulyxExchangeBatch* batch, int ctas, cudaStream_t stream) {
  if (batch->count == 0) {
    return launch(reinterpret_cast<const void*>(meetingKernel), 1, kMeetingThreads, batch, stream);
  }
  if (batch->count <= ULYX_EXCHANGE_BATCH_SMALL) return launchCopying<ULYX_EXCHANGE_BATCH_SMALL>(batch, ctas, stream);
  return launchCopying<ULYX_EXCHANGE_BATCH_LARGE>(batch, ctas, stream);
}

extern "C" cudaError_t ulyxLoadExchange(void) {
  cudaError_t error = loadMeeting();
  if (error == cudaSuccess) error = load<ULYX_EXCHANGE_BATCH_SMALL>();
  return error != cudaSuccess ? error : load<ULYX_EXCHANGE_BATCH_LARGE>();
}
