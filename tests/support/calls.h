// SPDX-License-Identifier: MIT
//
// Every public function that takes a runtime, a plan or a context, as a table: how it is called, and what it does in
// every state that these can be in.
#ifndef ULYX_TESTS_SUPPORT_CALLS_H_
#define ULYX_TESTS_SUPPORT_CALLS_H_

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "support/kinds.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

constexpr int kActors = 2;  // ranks of their world

// One rank with what its calls need: handles, which a state takes away, and tensors, which it does not.
struct Actor {
  Actor(const Session& session, int rank);
  ~Actor();
  Actor(const Actor&) = delete;
  Actor& operator=(const Actor&) = delete;

  void MakeWithSequences();
  void TakeHandlesAway();
  void DestroyPlans() const;

  ulyxRuntime_t runtime;
  const ulyxStream_t stream;
  const Kinds kinds;
  ulyxPlan_t plans[std::size(kKinds)] = {};
  ulyxPlan_t withSequences = nullptr, spare = nullptr;
  ulyxContext_t context = nullptr, ownContext = nullptr;
  void* memory = nullptr;
  ulyxQkv_t qkvIn = ULYX_QKV_INITIALIZER, qkvOut = ULYX_QKV_INITIALIZER;
  ulyxTensor_t oIn, oOut, rowsIn[3], rowsOut[3], local, halo;
  ulyxStates_t states = {};
};

// What a call does in a state.
enum Verdict {
  kWorks,
  kLost,     // says why its world was lost
  kClosed,   // ulyxClosed
  kInvalid,  // ulyxInvalidArgument
  kTaken,    // ulyxInvalidUsage: another thread is inside
};

struct Row {
  const char* name;
  std::function<ulyxResult_t(Actor& actor)> call;
  Verdict lost, closed, null;
  Verdict destroyed;         // its plan
  Verdict entered = kTaken;  // its runtime, by another thread
};

// What leaves things as they were comes first, and runtimes' ends come last.
std::vector<Row> PlanRows();
std::vector<Row> AllRows(const World& world);

// The functions of no runtime, plan or context, and those that make one.
const std::set<std::string>& StatelessFunctions();

// Whether the calling thread's last call of `row` came out as it must.
void Expect(const Row& row, Verdict verdict, ulyxResult_t result, ulyxRuntime_t runtime);

}  // namespace ulyx_test

#endif  // ULYX_TESTS_SUPPORT_CALLS_H_
