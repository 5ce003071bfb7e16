// SPDX-License-Identifier: MIT
//
// The models of perf/models.tsv, every row in every layout that the model has, with its own heads, key/value heads and
// joint text: tokens and dims are scaled down, and their number is a prime, which no world divides.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/exchange_check.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

// How a model holds its tensors. Language models and fused video models project to one tensor [q | k | v]; image and
// video models run with and without guidance as two batch items.
struct Uses {
  bool packed;
  bool batch;
  int textPlace;  // of joint text
};

const std::map<std::string, Uses>& AllUses() {
  static const std::map<std::string, Uses> uses = {
      {"wan2.1-1.3b-480p", {false, true, ulyxReplicatedFirst}},
      {"wan2.1-14b-480p", {false, true, ulyxReplicatedFirst}},
      {"wan2.1-14b-720p", {false, true, ulyxReplicatedFirst}},
      {"hunyuanvideo-720p", {true, true, ulyxReplicatedLast}},
      {"flux1-dev-1024", {true, true, ulyxReplicatedFirst}},
      {"cogvideox-5b", {false, true, ulyxReplicatedFirst}},
      {"mochi-1", {true, true, ulyxReplicatedLast}},
      {"llama3.1-8b-32k", {true, false, ulyxReplicatedFirst}},
      {"llama3.1-70b-128k", {true, false, ulyxReplicatedFirst}},
      {"qwen2.5-7b-32k", {true, false, ulyxReplicatedFirst}},
      {"ragged-smoke", {true, true, ulyxReplicatedLast}},
  };
  return uses;
}

struct Model {
  std::string name;
  int64_t heads, kvHeads, headDim, tokens, text;
  Uses uses;
};

int64_t NextPrime(int64_t n) {
  const auto isPrime = [](int64_t candidate) {
    for (int64_t i = 2; i * i <= candidate; i++) {
      if (candidate % i == 0) return false;
    }
    return true;
  };
  while (!isPrime(n)) n++;
  return n;
}

// As the table has them.
std::vector<Model> Table() {
  const std::string here = __FILE__;
  std::ifstream file(here.substr(0, here.rfind('/') + 1) + "../perf/models.tsv");
  std::vector<Model> models;
  std::string line;
  std::getline(file, line);  // titles
  while (std::getline(file, line)) {
    std::istringstream row(line);
    Model model;
    int64_t layers = 0;
    row >> model.name >> layers >> model.heads >> model.kvHeads >> model.headDim >> model.tokens >> model.text;
    if (!row) throw std::runtime_error("perf/models.tsv: " + line);
    models.push_back(model);
  }
  return models;
}

// The models scaled down.
const std::vector<Model>& AllModels() {
  static const std::vector<Model> models = [] {
    std::vector<Model> scaled;
    for (Model model : Table()) {
      if (AllUses().count(model.name) == 0) continue;
      model.uses = AllUses().at(model.name);
      model.headDim /= 16;
      model.tokens = NextPrime(std::max<int64_t>(model.tokens / 1024, 17));
      model.text = model.text > 0 ? NextPrime(model.text / 32) : 0;
      scaled.push_back(model);
    }
    return scaled;
  }();
  return models;
}

int64_t RowOf(const Model& model) {
  return (model.heads + 2 * model.kvHeads) * model.headDim;
}

// Heads for the first `owners` ranks only.
std::vector<int64_t> HeadsOnTheFirst(int owners, const Model& model, int nRanks) {
  std::vector<int64_t> counts(nRanks, 0);
  for (int rank = 0; rank < owners; rank++) counts[rank] = model.heads / owners + (rank < model.heads % owners ? 1 : 0);
  return counts;
}

Shape ShapeOf(const Model& model, int nRanks) {
  Shape shape(model.tokens, model.heads, model.headDim);
  shape.KvHeads(model.kvHeads).Replicated(model.text, model.uses.textPlace);
  if (model.heads < nRanks) shape.HeadCounts(HeadsOnTheFirst(int(model.heads), model, nRanks));
  return shape;
}

class Models : public ::testing::TestWithParam<const World*> {
 protected:
  // Calls body(session, model) for every model on every size of world, or on some where worlds cost more than
  // exchanges.
  void ForEach(const std::function<void(const Session&, const Model&)>& body, bool everySize = false) {
    const bool loopback = GetParam()->Transport() == ulyxTransportLoopback;
    std::vector<int> sizes = loopback ? std::vector<int>{1, 2, 3, 5, 8, 16} : std::vector<int>{2, 3, 4, 5, 6, 7, 8};
    if (IsSanitized() || (GetParam()->KeepsOneSession() && !everySize)) sizes = {3, 8};
    if (IsThrifty(*GetParam())) sizes = {3};
    for (int nRanks : sizes) {
      if (nRanks > GetParam()->MaxRanks()) continue;
      for (const Model& model : AllModels()) {
        SCOPED_TRACE(model.name + " on " + std::to_string(nRanks) + " ranks");
        body(sessions_.On(*GetParam(), nRanks), model);
      }
    }
  }

  static void Check(const Session& session, const Shape& shape) {
    try {
      CheckExchanges(session, shape.c, TestSeed());
    } catch (const std::exception& error) {
      FAIL() << error.what() << Describe(shape.c, session.NRanks());
    }
  }

  Sessions sessions_;
};

ULYX_ON_EVERY_WORLD(Models);

// Both exchanges of `views`, whose q, k and v of a side are views of one buffer: that of `packed`.
void CheckViews(const Session& session, const ulyxShape_t& views, const ulyxShape_t& packed, const Model& model) {
  const Oracle oracle(packed, session.NRanks(), TestSeed());
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakePlan(session, views, rank);
    {
      const RankTensors tensors(session, oracle, rank, Ordinary);
      ulyxQkv_t in = ULYX_QKV_INITIALIZER, out = ULYX_QKV_INITIALIZER;
      MUST(ulyxPlanGetQkv(plan, &in, &out));
      const auto lay = [&](ulyxQkv_t* qkv, Slot slot, int64_t heads, int64_t kvHeads) {
        auto* const memory = static_cast<uint8_t*>(tensors.Data(slot));
        if (memory == nullptr) return;
        const int64_t headBytes = model.headDim * oracle.ElementBytes();
        qkv->q.data = memory;
        qkv->k.data = memory + heads * headBytes;
        qkv->v.data = memory + (heads + kvHeads) * headBytes;
      };
      lay(&in, kQIn, model.heads, model.kvHeads);
      lay(&out, kQOut, oracle.Heads(rank).Count(), oracle.KvHeads(rank).Count());
      MUST(ulyxSeqToHeads(plan, &in, &out, session.Stream(rank)));
      const ulyxTensor_t outputIn = tensors.OutputIn(plan), outputOut = tensors.OutputOut(plan);
      MUST(ulyxHeadsToSeq(plan, &outputIn, &outputOut, session.Stream(rank)));
      session.Synchronize(rank);
      tensors.ExpectWritten();
    }
    MUST(ulyxPlanDestroy(plan));
  });
}

}  // namespace

TEST(ModelsTable, HasARowForEveryLayoutHereAndNoOther) {
  std::vector<std::string> rows, known;
  for (const Model& model : Table()) rows.push_back(model.name);
  for (const auto& [name, uses] : AllUses()) known.push_back(name);
  std::sort(rows.begin(), rows.end());
  EXPECT_EQ(rows, known);
  for (const Model& model : AllModels()) {
    SCOPED_TRACE(model.name);
    EXPECT_GE(model.headDim, 4);
    for (int nRanks = 2; nRanks <= 16; nRanks++) EXPECT_NE(model.tokens % nRanks, 0);
  }
}

TEST_P(Models, MoveSeparateTensors) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  ForEach([&](const Session& session, const Model& model) { Check(session, ShapeOf(model, session.NRanks())); }, true);
}

TEST_P(Models, MoveOneProjectionOfQueriesKeysAndValues) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  ForEach([&](const Session& session, const Model& model) {
    if (!model.uses.packed) return;
    Shape shape = ShapeOf(model, session.NRanks());
    shape.c.packedIn = 1;
    Check(session, shape);
    shape.c.packedOut = 1;
    Check(session, shape);
  });
}

TEST_P(Models, MoveTwoBatchItemsInBothOrders) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  ForEach([&](const Session& session, const Model& model) {
    if (!model.uses.batch) return;
    Shape shape = ShapeOf(model, session.NRanks());
    shape.c.batch = 2;
    shape.c.packedIn = model.uses.packed ? 1 : 0;
    for (int order : {ulyxBatchFirst, ulyxSeqFirst}) {
      shape.c.seqOrder = shape.c.headsOrder = order;
      Check(session, shape);
    }
    shape.c.seqOrder = ulyxBatchFirst;
    Check(session, shape);
  });
}

TEST_P(Models, MoveJointTextBeforeTheImageAndAfterIt) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  ForEach([&](const Session& session, const Model& model) {
    if (model.text == 0) return;
    Shape shape = ShapeOf(model, session.NRanks());
    for (int place : {ulyxReplicatedFirst, ulyxReplicatedLast}) {
      shape.c.replicatedPlace = place;
      shape.c.packedIn = shape.c.packedOut = place == model.uses.textPlace ? 1 : 0;
      Check(session, shape);
    }
  });
}

TEST_P(Models, MoveViewsOfOneFusedBuffer) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  ForEach([&](const Session& session, const Model& model) {
    const int nRanks = session.NRanks();
    Shape views = ShapeOf(model, nRanks), packed = ShapeOf(model, nRanks);
    packed.c.packedIn = packed.c.packedOut = 1;
    // The heads side's rows are as wide as the widest rank's: strides are the same on every rank.
    const Oracle oracle(packed.c, nRanks, 0);
    int64_t widest = 0;
    for (int rank = 0; rank < nRanks; rank++) {
      widest = std::max(widest, (oracle.Heads(rank).Count() + 2 * oracle.KvHeads(rank).Count()) * model.headDim);
    }
    packed.c.qIn.token = RowOf(model);
    packed.c.qOut.token = widest;
    views.c.qIn = views.c.kIn = views.c.vIn = {0, RowOf(model), model.headDim};
    views.c.qOut = views.c.kOut = views.c.vOut = {0, widest, model.headDim};
    CheckViews(session, views.c, packed.c, model);
  });
}

TEST_P(Models, MoveToSomeRanksWithoutHeads) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  ForEach([&](const Session& session, const Model& model) {
    const int nRanks = session.NRanks();
    Shape shape = ShapeOf(model, nRanks);
    std::vector<int64_t> counts = HeadsOnTheFirst((nRanks + 1) / 2, model, nRanks);
    std::rotate(counts.begin(), counts.begin() + nRanks / 2, counts.end());
    Check(session, shape.HeadCounts(counts));
  });
}

TEST_P(Models, OfFewerHeadsThanRanksAreRefusedBalancedAndMoveWithCounts) {
  ULYX_SKIP_BELOW(*GetParam(), 16);
  int seen = 0;
  const Session& session = sessions_.On(*GetParam(), 16);
  for (const Model& model : AllModels()) {
    if (model.heads >= 16) continue;
    SCOPED_TRACE(model.name);
    seen++;
    Shape balanced(model.tokens, model.heads, model.headDim);
    balanced.KvHeads(model.kvHeads).Replicated(model.text, model.uses.textPlace);
    session.Run([&](int rank) {
      ulyxPlan_t plan = nullptr;
      EXPECT_TRUE(Refused(ulyxPlanCreate(session.Runtime(rank), &balanced.c, &plan), ulyxInvalidArgument,
                          {"heads", std::to_string(model.heads), "16"}));
      EXPECT_EQ(plan, nullptr);
    });
    Check(session, ShapeOf(model, 16));
  }
  EXPECT_EQ(seen, 1);
}

}  // namespace ulyx_test
