/* SPDX-License-Identifier: MIT
 *
 * ulyx's exchange kernel on the CPU: the same protocol over the same records, one thread in place of all blocks, and
 * the same order of tiles, after checking what the real kernel takes on trust. It blocks the thread that launches it
 * until the peers have come, as a stream's later work would be. */
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "fake_cuda.h"
#include "kernels.h"

static int64_t nowNs(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Whole 16-byte slots: what is read with an epoch was written with it. */
static void storeSlot(ulyxSlot* to, uint64_t value, uint64_t epoch) {
  __atomic_store_n(&to->value, value, __ATOMIC_RELAXED);
  __atomic_store_n(&to->epoch, epoch, __ATOMIC_RELEASE);
}

static ulyxSlot loadSlot(const ulyxSlot* from) {
  ulyxSlot slot;
  slot.epoch = __atomic_load_n(&from->epoch, __ATOMIC_ACQUIRE);
  slot.value = __atomic_load_n(&from->value, __ATOMIC_RELAXED);
  return slot;
}

static ulyxRecords* recordsOf(const ulyxMeeting* meeting, int rank) {
  return (ulyxRecords*)(uintptr_t)meeting->windows[rank];
}

static void writeReport(volatile ulyxReport* report, uint64_t epoch, ulyxFound found, int peer, uint64_t mine,
                        uint64_t theirs) {
  report->epoch = epoch;
  report->peer = (uint32_t)peer;
  report->mine = mine;
  report->theirs = theirs;
  __atomic_store_n(&report->kind, (uint32_t)found, __ATOMIC_RELEASE);
}

/* Of the state's words that an abort writes from another thread. */
static void setWord(uint32_t* word, uint32_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static bool isSet(const uint32_t* word) {
  return __atomic_load_n(word, __ATOMIC_RELAXED) != 0;
}

static void lose(const ulyxMeeting* meeting, uint64_t epoch, ulyxFound found, int peer) {
  setWord(&meeting->state->verdict.lost, 1);
  setWord(&meeting->state->verdict.voided, 1);
  writeReport(meeting->final, epoch, found, peer, 0, 0);
  for (int other = 0; other < meeting->nRanks; other++) {
    if (other == meeting->rank) continue;
    ulyxRecords* theirs = recordsOf(meeting, other);
    for (int slot = 0; slot < ULYX_ENTRY_SLOTS; slot++) {
      storeSlot(&theirs->entry[meeting->rank].slot[slot], 0, ULYX_EPOCH_ABORTED);
    }
    storeSlot(&theirs->exit[meeting->rank], 0, ULYX_EPOCH_ABORTED);
    storeSlot(&theirs->engineExit[meeting->rank], 0, ULYX_EPOCH_ABORTED);
  }
}

static bool await(const ulyxMeeting* meeting, const ulyxSlot* slot, uint64_t epoch, int peer, uint64_t* value) {
  const int64_t start = nowNs();
  for (;;) {
    const ulyxSlot seen = loadSlot(slot);
    if (seen.epoch == epoch) {
      *value = seen.value;
      return true;
    }
    if (seen.epoch > epoch) {
      lose(meeting, epoch, seen.epoch == ULYX_EPOCH_ABORTED ? ulyxFoundAborted : ulyxFoundOrder, peer);
      return false;
    }
    if (__atomic_load_n(meeting->abort, __ATOMIC_ACQUIRE) != 0) {
      lose(meeting, epoch, ulyxFoundAborted, meeting->rank);
      return false;
    }
    if ((uint64_t)(nowNs() - start) > meeting->timeoutNs) {
      lose(meeting, epoch, ulyxFoundTimeout, peer);
      return false;
    }
    const struct timespec pause = {0, 20000};
    nanosleep(&pause, NULL);
  }
}

/* True: another exchange of this rank is inside. */
static bool enter(const ulyxMeeting* meeting, const uint64_t* starts, const uint64_t* pairs, uint64_t epoch) {
  const bool another = __atomic_exchange_n(&meeting->state->entered, epoch, __ATOMIC_ACQ_REL) != epoch - 1;
  for (int other = 0; other < meeting->nRanks; other++) {
    if (other == meeting->rank) continue;
    ulyxEntryRecord* record = &recordsOf(meeting, other)->entry[meeting->rank];
    for (int place = 0; place < ULYX_EXCHANGE_PLACES; place++) {
      const uint64_t at = meeting->places[place];
      storeSlot(&record->slot[1 + place], place == 0 && at != ULYX_PLACE_NONE ? at + starts[other] : at, epoch);
    }
    storeSlot(&record->slot[0], meeting->signature ^ pairs[other], epoch);
  }
  return another;
}

typedef struct Met {
  uint64_t base[ULYX_EXCHANGE_MAX_RANKS * ULYX_EXCHANGE_PLACES];
  int mismatch, misplaced; /* -1: none */
  bool lost;
} Met;

static void readPlace(const ulyxMeeting* meeting, int peer, int place, uint64_t value, Met* met) {
  const int at = peer * ULYX_EXCHANGE_PLACES + place;
  if (meeting->samePlaces && value != meeting->places[place] && met->misplaced < 0) met->misplaced = at;
  if (value == ULYX_PLACE_NONE) return;
  const uint64_t window = (value >> ULYX_PLACE_OFFSET_BITS) - 1;
  met->base[at] = meeting->windows[window * (uint64_t)meeting->nRanks + (uint64_t)peer] +
                  (value & ((UINT64_C(1) << ULYX_PLACE_OFFSET_BITS) - 1));
}

static void meet(const ulyxMeeting* meeting, const uint64_t* pairs, uint64_t epoch, Met* met) {
  const ulyxRecords* mine = recordsOf(meeting, meeting->rank);
  for (int turn = 1; turn < meeting->nRanks && !met->lost; turn++) {
    const int peer = (meeting->rank + turn) % meeting->nRanks; /* as the kernel does */
    uint64_t value = 0;
    for (int slot = 0; slot < ULYX_ENTRY_SLOTS && !met->lost; slot++) {
      met->lost = !await(meeting, &mine->entry[peer].slot[slot], epoch, peer, &value);
      if (met->lost) continue;
      if (slot > 0) {
        readPlace(meeting, peer, slot - 1, value, met);
      } else if (value != (meeting->signature ^ pairs[peer]) && met->mismatch < 0) {
        met->mismatch = peer;
      }
    }
  }
}

static void refuse(const ulyxMeeting* meeting, uint64_t epoch, const Met* met) {
  if (isSet(&meeting->state->verdict.refused)) return;
  const ulyxRecords* mine = recordsOf(meeting, meeting->rank);
  setWord(&meeting->state->verdict.refused, 1);
  setWord(&meeting->state->verdict.voided, 1);
  if (met->mismatch >= 0) {
    writeReport(meeting->passing, epoch, ulyxFoundMismatch, met->mismatch, meeting->signature,
                loadSlot(&mine->entry[met->mismatch].slot[0]).value);
    return;
  }
  const int peer = met->misplaced / ULYX_EXCHANGE_PLACES, place = met->misplaced % ULYX_EXCHANGE_PLACES;
  writeReport(meeting->passing, epoch, ulyxFoundMisplaced, peer, meeting->places[place],
              loadSlot(&mine->entry[peer].slot[1 + place]).value);
}

static void* destinationOf(const ulyxCopyDesc* desc, const Met* met) {
  if (desc->target == 0) return desc->dst;
  return (void*)(uintptr_t)(met->base[desc->target - 1] + (uint64_t)(uintptr_t)desc->dst);
}

/* A receiver's start may be less aligned than the unit: the kernel then stores in pieces. */
static const char* faultOf(const ulyxCopyDesc* desc, uint32_t tiles, int device, void* dst) {
  if (desc->target == 0) return fakeDescFault(desc, tiles, device, dst, device);
  const int64_t rows = desc->units / desc->unitsPerRow, rowBytes = (int64_t)desc->unitsPerRow << desc->unitBytesLog2;
  if (!fakeDeviceReaches(FAKE_ANY_DEVICE, dst, (rows - 1) * desc->dstPitch + rowBytes)) {
    return "the peer's memory ends before the copy does";
  }
  void* const aligned = (void*)((uintptr_t)dst >> desc->unitBytesLog2 << desc->unitBytesLog2);
  return fakeDescFault(desc, tiles, device, aligned, FAKE_ANY_DEVICE);
}

static bool isSound(const ulyxExchangeBatch* batch, const Met* met, int device) {
  uint32_t tiles = 0, remoteTiles = 0;
  for (uint32_t i = 0; i < batch->count; i++) {
    const ulyxCopyDesc* desc = &batch->desc[i];
    const char* fault = faultOf(desc, tiles, device, destinationOf(desc, met));
    if (desc->target != 0 && remoteTiles != tiles) fault = "a copy to a peer follows an own one";
    if (fault != NULL) {
      fakeViolation("ulyxLaunchExchange: copy %u on device %d: %s", i, device, fault);
      return false;
    }
    tiles += fakeDescTiles(desc);
    if (desc->target != 0) remoteTiles = tiles;
  }
  return tiles == batch->tiles && remoteTiles == batch->remoteTiles;
}

static uint32_t remoteBefore(const ulyxExchangeBatch* batch, uint64_t turn) {
  const uint64_t own = batch->tiles - batch->remoteTiles, share = turn * batch->mix >> 32;
  const uint64_t wanted = share < batch->remoteTiles ? share : batch->remoteTiles;
  const uint64_t least = turn > own ? turn - own : 0;
  return (uint32_t)(wanted > least ? wanted : least);
}

/* Each tile once, in the kernel's order. */
static bool makeCopies(const ulyxExchangeBatch* batch, const Met* met) {
  uint32_t remote = 0;
  for (uint32_t turn = 0; turn < batch->tiles; turn++) {
    const uint32_t before = remoteBefore(batch, turn), after = remoteBefore(batch, turn + UINT64_C(1));
    const uint32_t tile = after > before ? before : batch->remoteTiles + turn - before;
    if (before != remote || after > before + 1) return false;
    remote = after;
    ulyxCopyDesc desc = *fakeDescOfTile(batch->desc, batch->count, tile);
    desc.dst = destinationOf(&desc, met);
    if (!fakeMakeTile(desc, tile - desc.firstTile)) return false;
  }
  return remote == batch->remoteTiles;
}

static void leave(const ulyxMeeting* meeting, uint64_t epoch) {
  const ulyxRecords* mine = recordsOf(meeting, meeting->rank);
  const bool refused = isSet(&meeting->state->verdict.refused);
  uint64_t value = 0, refusal = 0;
  int refusing = -1;
  for (int other = 0; other < meeting->nRanks; other++) {
    if (other == meeting->rank) continue;
    storeSlot(&recordsOf(meeting, other)->exit[meeting->rank], refused ? 1 : 0, epoch);
    if (!meeting->engines) storeSlot(&recordsOf(meeting, other)->engineExit[meeting->rank], 0, epoch);
  }
  for (int peer = 0; peer < meeting->nRanks; peer++) {
    if (peer == meeting->rank) continue;
    if (!await(meeting, &mine->exit[peer], epoch, peer, &refusal)) return;
    if (refusal != 0 && refusing < 0) refusing = peer;
    if (!await(meeting, &mine->engineExit[peer], epoch, peer, &value)) return;
  }
  if (refusing >= 0 && !refused) writeReport(meeting->passing, epoch, ulyxFoundRefusal, refusing, 0, 0);
  setWord(&meeting->state->verdict.voided, refused || refusing >= 0 ? 1 : 0);
  setWord(&meeting->state->verdict.refused, 0);
  meeting->state->epoch = epoch;
}

static cudaError_t runKernel(const ulyxExchangeBatch* batch, int device) {
  const ulyxMeeting* meeting = &batch->meeting;
  Met met = {.mismatch = -1, .misplaced = -1};
  if (isSet(&meeting->state->verdict.lost)) return cudaSuccess;
  const uint64_t epoch = meeting->state->epoch + 1;
  if (meeting->enters && enter(meeting, batch->starts, batch->pairs, epoch)) {
    lose(meeting, epoch, ulyxFoundOverlap, meeting->rank);
    return cudaSuccess;
  }
  meet(meeting, batch->pairs, epoch, &met);
  if (met.lost) return cudaSuccess;
  if (met.mismatch >= 0 || met.misplaced >= 0) {
    refuse(meeting, epoch, &met);
  } else if (!isSound(batch, &met, device) || !makeCopies(batch, &met)) {
    fakeViolation("ulyxLaunchExchange: the batch's tiles do not add up");
    return fakeCudaResult(cudaErrorInvalidValue);
  }
  if (meeting->leaves) leave(meeting, epoch);
  return cudaSuccess;
}

cudaError_t ulyxLaunchExchange(const ulyxExchangeBatch* batch, int ctas, cudaStream_t stream) {
  FAKE_CUDA(cudaErrorLaunchOutOfResources);
  int device;
  const cudaError_t error = fakeStreamDevice(stream, &device);
  if (error != cudaSuccess) return error;
  if (device != fakeCurrentDevice() || ctas < 1 || batch->count > ULYX_EXCHANGE_BATCH_LARGE) {
    fakeViolation("ulyxLaunchExchange: %u copies by %d blocks on device %d, current %d", batch->count, ctas, device,
                  fakeCurrentDevice());
    return fakeCudaResult(cudaErrorInvalidValue);
  }
  fakeCount(FAKE_COUNTER(exchanges), 1);
  fakeCountMax(FAKE_COUNTER(mostCtas), ctas);
  return runKernel(batch, device);
}

cudaError_t ulyxLoadExchange(void) {
  FAKE_CUDA(cudaErrorInitializationError);
  return cudaSuccess;
}
