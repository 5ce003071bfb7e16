// SPDX-License-Identifier: MIT
//
// Ranks as threads of this process, in host memory.
#include <cstdlib>
#include <cstring>
#include <new>

#include "support/world.h"

namespace ulyx_test {

namespace {

class Loopback : public World {
 public:
  const char* Name() const override { return "loopback"; }
  int Transport() const override { return ulyxTransportLoopback; }
  void Complete(ulyxConfig_t* config) const override {
    if (config->transport == ULYX_UNDEF_INT) config->transport = ulyxTransportLoopback;
  }
  int MaxRanks() const override { return 64; }
  std::string Missing() const override { return "64 at most"; }
  std::vector<int> Devices(int) const override { return {}; }

  void Use(int) const override {}
  int Current() const override { return -1; }
  void* Alloc(int, size_t bytes) const override {
    void* memory = nullptr;
    if (posix_memalign(&memory, 256, bytes) != 0) throw std::bad_alloc();
    return memory;
  }
  void Free(int, void* memory) const override { std::free(memory); }
  void Upload(int, void* memory, const void* host, size_t bytes) const override { std::memcpy(memory, host, bytes); }
  void Download(int, void* host, const void* memory, size_t bytes) const override { std::memcpy(host, memory, bytes); }

  ulyxStream_t NewStream(int) const override { return nullptr; }
  void Synchronize(int, ulyxStream_t) const override {}
  void FreeStream(int, ulyxStream_t) const override {}
};

}  // namespace

const World* LoopbackWorld();

const World* LoopbackWorld() {
  static const Loopback world;
  return &world;
}

}  // namespace ulyx_test
