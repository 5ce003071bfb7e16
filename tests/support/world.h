// SPDX-License-Identifier: MIT
//
// Where ranks live. Exchange tests run on every world of their binary:
//
//   loopback                   threads of this process and host memory
//   nccl, direct, copy_engine  one real GPU a rank
//   sim, sim_direct, ...       the same transports over a fake NCCL and a fake CUDA, on the CPU (ULYX_TEST_WORLD_SIM)
//                              with loopback beside them where the library's own memory is counted
//                              (ULYX_TEST_WORLD_LOOPBACK)
//   onegpu, onegpu_direct, ... over a fake NCCL and real CUDA, all ranks on device 0 (ULYX_TEST_WORLD_ONEGPU)
//
// A Session is a world with its runtimes made.
#ifndef ULYX_TESTS_SUPPORT_WORLD_H_
#define ULYX_TESTS_SUPPORT_WORLD_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "ulyx.h"

namespace ulyx_test {

class World {
 public:
  virtual ~World() = default;
  virtual const char* Name() const = 0;
  virtual int Transport() const = 0;  // ulyxTransport_t
  // Sets what the caller left open so that a runtime is of this world.
  virtual void Complete(ulyxConfig_t* config) const = 0;
  // Ranks share one device's queues, which do not last for several sessions: streams of one would wait for another's.
  virtual bool KeepsOneSession() const { return false; }
  virtual bool HasRealGpus() const { return false; }
  // What the rank's device has left; as much as one likes where nothing is as large.
  virtual int64_t FreeBytes(int) const { return INT64_MAX; }
  // Outputs must lie alike on all ranks: copy engines are told addresses by the sender.
  bool OutputsLieAlike() const { return Transport() == ulyxTransportCopyEngine; }
  // Most ranks that fit on this machine; 0 without the hardware, and then Missing says what is missing.
  virtual int MaxRanks() const = 0;
  virtual std::string Missing() const = 0;
  // For ulyxRuntimeCreateLocal; empty: NULL.
  virtual std::vector<int> Devices(int nRanks) const = 0;

  // Makes the rank's device the calling thread's. The calls below do so too.
  virtual void Use(int rank) const = 0;
  virtual int Current() const = 0;

  // Ordinary memory of a rank, 256-byte aligned, and copies between it and the host.
  virtual void* Alloc(int rank, size_t bytes) const = 0;
  virtual void Free(int rank, void* memory) const = 0;
  virtual void Upload(int rank, void* memory, const void* host, size_t bytes) const = 0;
  virtual void Download(int rank, void* host, const void* memory, size_t bytes) const = 0;

  virtual ulyxStream_t NewStream(int rank) const = 0;
  virtual void Synchronize(int rank, ulyxStream_t stream) const = 0;
  virtual void FreeStream(int rank, ulyxStream_t stream) const = 0;
};

// The worlds of this binary.
const std::vector<const World*>& Worlds();

// For GoogleTest's parameter names.
inline void PrintTo(const World* world, std::ostream* out) {
  *out << world->Name();
}

class Session {
 public:
  Session(const World& world, int nRanks, const ulyxConfig_t* config = nullptr);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const World& GetWorld() const { return world_; }
  int NRanks() const { return int(runtimes_.size()); }
  ulyxRuntime_t Runtime(int rank) const { return runtimes_[rank]; }
  ulyxRuntime_t* RuntimePtr(int rank) { return &runtimes_[rank]; }
  ulyxStream_t Stream(int rank) const { return streams_[rank]; }
  void Synchronize(int rank) const { world_.Synchronize(rank, streams_[rank]); }
  // Calls body(rank) on a thread of each rank.
  void Run(const std::function<void(int rank)>& body) const;
  // Destroys the runtimes one after another, and throws if one refuses.
  void Destroy();

 private:
  const World& world_;
  std::vector<ulyxRuntime_t> runtimes_;
  std::vector<ulyxStream_t> streams_;
};

// Sessions of one world by their number of ranks, made when first asked for.
class Sessions {
 public:
  const Session& On(const World& world, int nRanks);

 private:
  std::map<int, std::unique_ptr<Session>> sessions_;
};

// Leaves a test as skipped, with the reason, where the world has fewer ranks.
#define ULYX_SKIP_BELOW(world, nRanks)                                                                     \
  do {                                                                                                     \
    if ((world).MaxRanks() < (nRanks)) {                                                                   \
      GTEST_SKIP() << (world).Name() << " needs room for " << (nRanks) << " ranks: " << (world).Missing(); \
    }                                                                                                      \
  } while (0)

std::string WorldName(const ::testing::TestParamInfo<const World*>& param);

// Whether this program runs under a sanitizer, where the same exchange costs many times as much.
bool IsSanitized();
// Under the thread sanitizer: what is about data or memory alone has nothing to show there, and is slowest.
bool WatchesThreads();

// How many random cases a suite draws on a world: `fallback`, or as ULYX_TEST_SHAPES says; a quarter of it on the
// further worlds of a sanitized program, where each costs many times as much and the first world has drawn them all,
// and an eighth on every world under the thread sanitizer, since threads meet alike in every case.
int CasesOn(const World& world, int fallback);
bool IsThrifty(const World& world);

// One test suite for all worlds: TEST_P(suite, ...) with GetParam() a const World*.
#define ULYX_ON_EVERY_WORLD(suite) \
  INSTANTIATE_TEST_SUITE_P(On, suite, ::testing::ValuesIn(::ulyx_test::Worlds()), ::ulyx_test::WorldName)

}  // namespace ulyx_test

#endif  // ULYX_TESTS_SUPPORT_WORLD_H_
