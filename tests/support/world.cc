// SPDX-License-Identifier: MIT
#include "support/world.h"

#include "support/ranks.h"
#include "support/shapes.h"
#include "support/status.h"

namespace ulyx_test {

const World* LoopbackWorld();           // loopback_world.cc
const World* CudaWorld(int transport);  // cuda_world.cc

const std::vector<const World*>& Worlds() {
#if defined(ULYX_TEST_WORLD_SIM) && defined(ULYX_TEST_WORLD_LOOPBACK)
  static const std::vector<const World*> worlds = {LoopbackWorld(), CudaWorld(ulyxTransportNccl),
                                                   CudaWorld(ulyxTransportDirect), CudaWorld(ulyxTransportCopyEngine)};
#elif defined(ULYX_TEST_WORLD_SIM) || defined(ULYX_TEST_WORLD_ONEGPU)
  static const std::vector<const World*> worlds = {CudaWorld(ulyxTransportNccl), CudaWorld(ulyxTransportDirect),
                                                   CudaWorld(ulyxTransportCopyEngine)};
#elif defined(ULYX_HAVE_CUDA)
  static const std::vector<const World*> worlds = {LoopbackWorld(), CudaWorld(ulyxTransportNccl),
                                                   CudaWorld(ulyxTransportDirect), CudaWorld(ulyxTransportCopyEngine)};
#else
  static const std::vector<const World*> worlds = {LoopbackWorld()};
#endif
  return worlds;
}

std::string WorldName(const ::testing::TestParamInfo<const World*>& param) {
  return param.param->Name();
}

Session::Session(const World& world, int nRanks, const ulyxConfig_t* config) : world_(world), runtimes_(nRanks) {
  const std::vector<int> devices = world.Devices(nRanks);
  ulyxConfig_t complete = ULYX_CONFIG_INITIALIZER;
  if (config != nullptr) complete = *config;
  world.Complete(&complete);
  MUST(ulyxRuntimeCreateLocal(&complete, nRanks, devices.empty() ? nullptr : devices.data(), runtimes_.data()));
  for (int rank = 0; rank < nRanks; rank++) streams_.push_back(world.NewStream(rank));
}

Session::~Session() {
  for (ulyxRuntime_t& runtime : runtimes_) {
    EXPECT_EQ(ulyxRuntimeDestroy(&runtime), ulyxSuccess) << ulyxGetLastError(nullptr);
  }
  for (int rank = 0; rank < NRanks(); rank++) world_.FreeStream(rank, streams_[rank]);
}

bool IsSanitized() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

bool WatchesThreads() {
#if defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

bool IsThrifty(const World& world) {
  return IsSanitized() && &world != Worlds().front();
}

int CasesOn(const World& world, int fallback) {
  const int cases = TestShapes(fallback);
  const int share = WatchesThreads() ? 8 : IsThrifty(world) ? 4 : 1;  // each costs as much more
  return (cases + share - 1) / share;
}

const Session& Sessions::On(const World& world, int nRanks) {
  std::unique_ptr<Session>& session = sessions_[nRanks];
  if (session != nullptr) return *session;
  if (world.KeepsOneSession()) {
    for (auto& other : sessions_) other.second.reset();
  }
  session = std::make_unique<Session>(world, nRanks);
  return *session;
}

void Session::Run(const std::function<void(int rank)>& body) const {
  RunRanks(NRanks(), body);
}

void Session::Destroy() {
  for (ulyxRuntime_t& runtime : runtimes_) MUST(ulyxRuntimeDestroy(&runtime));
}

}  // namespace ulyx_test
