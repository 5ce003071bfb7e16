// SPDX-License-Identifier: MIT
//
// The flight record: what a logger hears of the exchanges before an error, and on request.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/exchange_check.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/traveller.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

class FlightRecord : public ::testing::TestWithParam<const World*> {
 protected:
  const World& On() const { return *GetParam(); }
};
ULYX_ON_EVERY_WORLD(FlightRecord);

struct Heard {
  std::vector<std::string> errors, record;

  static void Hear(void* user, ulyxLogLevel_t level, const char* line) {
    Heard* const heard = static_cast<Heard*>(user);
    (level == ulyxLogError ? heard->errors : heard->record).push_back(line);
  }
};

bool Holds(const std::string& line, const std::vector<std::string>& words) {
  return std::all_of(words.begin(), words.end(),
                     [&](const std::string& word) { return line.find(word) != std::string::npos; });
}

std::string Bytes(const int64_t* bytes, int nRanks) {
  std::string text;
  for (int rank = 0; rank < nRanks; rank++) text += " " + std::to_string(bytes[rank]);
  return text;
}

}  // namespace

TEST_P(FlightRecord, HoldsTheLastExchangesWithWhatTheyMoveToWhom) {
  ULYX_SKIP_BELOW(On(), 2);
  const Session session(On(), 2);
  const Shape shape(9, 6, 8);
  const Oracle oracle(shape.c, 2, TestSeed());
  session.Run([&](int rank) {
    const ulyxRuntime_t runtime = session.Runtime(rank);
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    Heard heard;
    MUST(ulyxRuntimeSetLogger(runtime, Heard::Hear, &heard));
    MUST(ulyxRuntimeLogRecord(runtime));
    ASSERT_EQ(heard.record.size(), 1u);
    EXPECT_TRUE(Holds(heard.record[0], {"rank " + std::to_string(rank) + " of 2", "its last 0 exchanges of 0"}));
    const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
    for (int i = 0; i < 40; i++) MUST(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)));
    Exchange(session, plan, tensors, rank);  // both ways
    session.Synchronize(rank);
    heard.record.clear();
    MUST(ulyxRuntimeLogRecord(runtime));
    ASSERT_EQ(heard.record.size(), 33u);
    EXPECT_TRUE(Holds(heard.record[0], {"its last 32 exchanges of 42", "have ended"})) << heard.record[0];
    ulyxPlanInfo_t info = ULYX_PLAN_INFO_INITIALIZER;
    MUST(ulyxPlanGetInfo(plan, &info));
    const std::vector<std::string> forth = {"seq_to_heads", "enqueued", "plan " + SignatureOf(plan),
                                            "to each rank" + Bytes(info.seqToHeadsSendBytes, 2),
                                            "from each" + Bytes(info.seqToHeadsRecvBytes, 2)};
    EXPECT_TRUE(Holds(heard.record[1], forth)) << heard.record[1];
    EXPECT_TRUE(Holds(heard.record[1], {"exchange 11:"})) << heard.record[1];
    EXPECT_TRUE(Holds(heard.record[31], forth)) << heard.record[31];
    EXPECT_TRUE(Holds(heard.record[32], {"exchange 42:", "heads_to_seq", "plan " + SignatureOf(plan),
                                         "to each rank" + Bytes(info.headsToSeqSendBytes, 2)}))
        << heard.record[32];
    EXPECT_TRUE(heard.errors.empty());
    MUST(ulyxRuntimeSetLogger(runtime, nullptr, nullptr));
  });
}

TEST_P(FlightRecord, IsNotLoggedForACallThatIsRefusedNorWithoutALogger) {
  ULYX_SKIP_BELOW(On(), 1);
  const Session session(On(), 1);
  const ulyxRuntime_t runtime = session.Runtime(0);
  EXPECT_TRUE(Refused(ulyxRuntimeLogRecord(runtime), ulyxInvalidUsage, {"no logger"}));
  Heard heard;
  MUST(ulyxRuntimeSetLogger(runtime, Heard::Hear, &heard));
  EXPECT_EQ(ulyxRuntimeReserve(runtime, -1), ulyxInvalidArgument);
  ASSERT_EQ(heard.errors.size(), 1u);
  EXPECT_EQ(heard.errors[0], ulyxGetLastError(runtime));
  EXPECT_TRUE(heard.record.empty());
  MUST(ulyxRuntimeClose(runtime));
  MUST(ulyxRuntimeLogRecord(runtime));
  EXPECT_FALSE(heard.record.empty());
  MUST(ulyxRuntimeSetLogger(runtime, nullptr, nullptr));
}

TEST_P(FlightRecord, LeavesTheMessageOfARefusalThatItsLoggerFollowsWithAnother) {
  ULYX_SKIP_BELOW(On(), 1);
  const Session session(On(), 1);
  const ulyxLogger_t fail = [](void*, ulyxLogLevel_t, const char*) {
    ulyxRange_t range;
    EXPECT_EQ(ulyxBalancedRanges(10, -2, &range), ulyxInvalidArgument);
  };
  MUST(ulyxRuntimeSetLogger(session.Runtime(0), fail, nullptr));
  EXPECT_TRUE(Refused(ulyxRuntimeReserve(session.Runtime(0), -1), ulyxInvalidArgument, {"arenaBytes is -1"}));
}

TEST_P(FlightRecord, ComesOnceWithAnErrorThatLosesTheWorld) {
  ULYX_SKIP_BELOW(On(), 2);
  ulyxConfig_t config = ULYX_CONFIG_INITIALIZER;
  config.timeoutMs = 1000;
  const Session session(On(), 2, &config);
  const Shape shape(9, 6, 8);
  const Oracle oracle(shape.c, 2, TestSeed());
  Heard heard;
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, shape.c, rank);
    const RankTensors tensors(session, oracle, rank, Ordinary);
    if (rank != 0) {
      Exchange(session, plan, tensors, rank);
      session.Synchronize(rank);
      return;
    }
    const ulyxRuntime_t runtime = session.Runtime(0);
    MUST(ulyxRuntimeSetLogger(runtime, Heard::Hear, &heard));
    Exchange(session, plan, tensors, 0);
    session.Synchronize(0);
    EXPECT_TRUE(heard.errors.empty());
    ulyxPlan_t other = nullptr;  // the other rank has left
    EXPECT_EQ(ulyxPlanCreate(runtime, &shape.c, &other), ulyxTimeout);
    ASSERT_EQ(heard.errors.size(), 1u);
    ASSERT_EQ(heard.record.size(), 3u);
    EXPECT_TRUE(Holds(heard.record[0], {"rank 0 of 2", "its last 2 exchanges of 2"})) << heard.record[0];
    EXPECT_EQ(ulyxPlanCreate(runtime, &shape.c, &other), ulyxTimeout);
    EXPECT_EQ(heard.errors.size(), 2u);
    EXPECT_EQ(heard.record.size(), 3u) << "the same again";
    heard.record.clear();
    const ulyxQkv_t in = tensors.In(plan), out = tensors.Out(plan);
    for (int i = 0; i < 40; i++) EXPECT_EQ(ulyxSeqToHeads(plan, &in, &out, session.Stream(0)), ulyxTimeout);
    EXPECT_TRUE(heard.record.empty()) << "what does nothing is no exchange";
    MUST(ulyxRuntimeLogRecord(runtime));
    EXPECT_TRUE(Holds(heard.record[0], {"its last 2 exchanges of 2"})) << heard.record[0];
    MUST(ulyxRuntimeSetLogger(runtime, nullptr, nullptr));
  });
}

}  // namespace ulyx_test
