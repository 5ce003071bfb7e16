// SPDX-License-Identifier: MIT
//
// What a program that runs for weeks does again and again: exchanges and plans that ask for nothing once they have been
// made once, and worlds that leave nothing, on every transport of the fakes and on loopback. Counted is what the
// library itself asks of the host, and what it has of CUDA and NCCL.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "support/contexts.h"
#include "support/held.h"
#include "support/kinds.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

class SteadyState : public ::testing::TestWithParam<const World*> {
 protected:
  static ulyxConfig_t Config() {
    ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
    config.arenaBytes = kKindsArenaBytes;
    return config;
  }
};
ULYX_ON_EVERY_WORLD(SteadyState);

std::vector<std::unique_ptr<Kinds>> KindsOf(const World& world, int nRanks) {
  std::vector<std::unique_ptr<Kinds>> kinds;
  for (int rank = 0; rank < nRanks; rank++) kinds.push_back(std::make_unique<Kinds>(world, nRanks, rank));
  return kinds;
}

void CallBoth(const Kinds& kinds, Kind kind, ulyxPlan_t plan, ulyxStream_t stream) {
  MUST(kinds.Call(kind, plan, false, stream));
  if (Kinds::HasBackward(kind)) MUST(kinds.Call(kind, plan, true, stream));
}

// What `body` asks for on all ranks together: of the host, and of CUDA and NCCL.
template <class Body>
std::pair<int64_t, int64_t> AskedBy(const Session& session, const Body& body) {
  const int64_t host = fakeHostGet().asked, device = fakeGet().made;
  session.Run(body);
  return {fakeHostGet().asked - host, fakeGet().made - device};
}

constexpr std::pair<int64_t, int64_t> kNothing = {0, 0};

}  // namespace

TEST_P(SteadyState, ExchangesOfEveryKindAskForNothing) {
  constexpr int kRanks = 3;
  const ulyxConfig_t config = Config();
  const Session session(*GetParam(), kRanks, &config);
  const auto kinds = KindsOf(*GetParam(), kRanks);
  for (Kind kind : kKinds) {
    SCOPED_TRACE(NameOf(kind));
    ulyxPlan_t plans[kRanks] = {};
    const auto made =
        AskedBy(session, [&](int rank) { MUST(kinds[rank]->Make(session.Runtime(rank), kind, &plans[rank])); });
    EXPECT_GT(made.first, 0) << "then nothing is counted";
    // Not even the first time: whatever an exchange needs, its plan has.
    EXPECT_EQ(AskedBy(session,
                      [&](int rank) {
                        for (int i = 0; i < 5; i++) CallBoth(*kinds[rank], kind, plans[rank], session.Stream(rank));
                      }),
              kNothing);
  }
}

TEST_P(SteadyState, PlansOfEveryKindThatAreAgreedUponAskForNothingOnceTheyWereMade) {
  constexpr int kRanks = 3;
  const ulyxConfig_t config = Config();
  const Session session(*GetParam(), kRanks, &config);
  const auto kinds = KindsOf(*GetParam(), kRanks);
  const auto live = [&](int rank) {
    for (Kind kind : kKinds) {
      ulyxPlan_t plan = nullptr;
      MUST(kinds[rank]->Make(session.Runtime(rank), kind, &plan));
      CallBoth(*kinds[rank], kind, plan, session.Stream(rank));
      MUST(ulyxPlanDestroy(plan));
    }
  };
  EXPECT_GT(AskedBy(session, live).first, 0);
  EXPECT_EQ(AskedBy(session,
                    [&](int rank) {
                      for (int i = 0; i < 5; i++) live(rank);
                    }),
            kNothing);
}

TEST_P(SteadyState, ExchangesByTensOfThousandsLeaveMemoryWhereItWas) {
  constexpr int kRanks = 2;
  const bool meets = GetParam()->Transport() >= ulyxTransportDirect;  // fakes that meet sleep between two looks
  const int exchanges = IsSanitized() ? 5000 : meets ? 30000 : 100000;
  const ulyxConfig_t config = Config();
  const Session session(*GetParam(), kRanks, &config);
  const auto kinds = KindsOf(*GetParam(), kRanks);
  ulyxPlan_t plans[kRanks] = {};
  session.Run([&](int rank) { MUST(kinds[rank]->Make(session.Runtime(rank), Kind::kExchange, &plans[rank])); });
  const Held before;
  EXPECT_EQ(AskedBy(session,
                    [&](int rank) {
                      for (int i = 0; i < exchanges / 2; i++) {
                        CallBoth(*kinds[rank], Kind::kExchange, plans[rank], session.Stream(rank));
                      }
                    }),
            kNothing);
  EXPECT_EQ(Held().Beyond(before), "");
}

TEST_P(SteadyState, TwoHundredWorldsInARowLeaveMemoryWhereItWas) {
  constexpr int kRanks = 2;
  const int worlds = IsSanitized() ? 40 : 200;
  const ulyxConfig_t config = Config();
  const auto kinds = KindsOf(*GetParam(), kRanks);
  const Held before;
  for (int i = 0; i < worlds; i++) {
    const Session session(*GetParam(), kRanks, &config);
    session.Run([&](int rank) {
      ulyxPlan_t plan = nullptr;
      void* memory = nullptr;  // left for the runtime to free, as the plan is
      MUST(ulyxMemAlloc(session.Runtime(rank), 100, &memory));
      MUST(kinds[rank]->Make(session.Runtime(rank), kKinds[i % std::size(kKinds)], &plan));
      CallBoth(*kinds[rank], kKinds[i % std::size(kKinds)], plan, session.Stream(rank));
    });
  }
  EXPECT_EQ(Held().Beyond(before), "");
}

}  // namespace ulyx_test
