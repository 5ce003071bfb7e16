// SPDX-License-Identifier: MIT
//
// Memory of a real device and of the process, after many exchanges and many worlds. What the library itself holds is
// counted to the byte over the fakes (steady_state_test.cc); here CUDA and NCCL are theirs. What else uses the device
// counts too, so this runs where ULYX_TEST_ALONE=1 says that nothing does.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include "support/exchange_check.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

class Endurance : public ::testing::TestWithParam<const World*> {
 protected:
  void SetUp() override {
    if (!GetParam()->HasRealGpus()) GTEST_SKIP() << "no device";
    const char* const alone = std::getenv("ULYX_TEST_ALONE");
    if (alone == nullptr || std::strcmp(alone, "1") != 0) GTEST_SKIP() << "ULYX_TEST_ALONE=1 does not say so";
    ULYX_SKIP_BELOW(*GetParam(), GetParam()->Transport() == ulyxTransportNccl ? 1 : 2);  // alone all are the same
  }
  int Ranks() const { return std::min(GetParam()->MaxRanks(), 2); }
};
ULYX_ON_EVERY_WORLD(Endurance);

int64_t ResidentBytes() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

struct Memory {
  explicit Memory(const World& world, int nRanks) {
    for (int rank = 0; rank < nRanks; rank++) free.push_back(world.FreeBytes(rank));
  }
  std::vector<int64_t> free;
  int64_t resident = ResidentBytes();
};

// Allocators keep a little of what they had: what is seen is 20 KiB of a device a world, and 80 KiB of the process.
void ExpectAsBefore(const Memory& before, const Memory& after) {
  constexpr int64_t kDevice = 4 << 20, kHost = 16 << 20;
  for (size_t rank = 0; rank < before.free.size(); rank++) {
    std::printf("device of rank %zu: %lld bytes less free\n", rank,
                static_cast<long long>(before.free[rank] - after.free[rank]));
    EXPECT_LE(before.free[rank] - after.free[rank], kDevice);
  }
  std::printf("process: %lld bytes more resident\n", static_cast<long long>(after.resident - before.resident));
  EXPECT_LE(after.resident - before.resident, kHost);
}

// There and back, so often each; waits now and then.
void ExchangeOften(const Session& session, ulyxPlan_t plan, const RankTensors& tensors, int rank, int times) {
  for (int i = 0; i < times; i++) {
    Exchange(session, plan, tensors, rank);
    if (i % 256 == 255) session.Synchronize(rank);
  }
  session.Synchronize(rank);
}

}  // namespace

TEST_P(Endurance, AHundredThousandExchangesLeaveMemoryWhereItWas) {
  constexpr int kExchanges = 100000, kBefore = 1000;
  const Session session(*GetParam(), Ranks());
  const Shape shape(1021, 6, 64);
  const Oracle oracle(shape.c, Ranks(), TestSeed());
  std::vector<ulyxPlan_t> plans(static_cast<size_t>(Ranks()));
  std::vector<std::unique_ptr<RankTensors>> tensors(plans.size());
  session.Run([&](int rank) {
    plans[rank] = MakePlan(session, shape.c, rank);
    tensors[rank] = std::make_unique<RankTensors>(session, oracle, rank, Symmetric);
    tensors[rank]->Fill();
    ExchangeOften(session, plans[rank], *tensors[rank], rank, kBefore / 2);
  });
  const Memory before(*GetParam(), Ranks());
  session.Run([&](int rank) { ExchangeOften(session, plans[rank], *tensors[rank], rank, kExchanges / 2); });
  ExpectAsBefore(before, Memory(*GetParam(), Ranks()));
  session.Run([&](int rank) {
    tensors[rank]->ExpectWritten();
    tensors[rank].reset();
  });
}

// A world of the real NCCL takes half a second, and its windows differ from its messages in little of that.
TEST_P(Endurance, TwoHundredWorldsLeaveMemoryWhereItWas) {
  const bool windows = GetParam()->Transport() != ulyxTransportNccl && !GetParam()->KeepsOneSession();
  const int kWorlds = windows ? 50 : 200, kBefore = 10;
  const Shape shape(1021, 6, 64);
  const auto live = [&](int worlds) {
    for (int i = 0; i < worlds; i++) {
      const Session session(*GetParam(), Ranks());
      CheckExchanges(session, shape.c, TestSeed() + uint64_t(i), Symmetric);
    }
  };
  live(kBefore);
  const Memory before(*GetParam(), Ranks());
  live(kWorlds);
  ExpectAsBefore(before, Memory(*GetParam(), Ranks()));
}

}  // namespace ulyx_test
