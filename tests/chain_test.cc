// SPDX-License-Identifier: MIT
//
// Chains of states on every world. The truth is one process that runs the recurrence over whole sequences in
// double; ranks start from what their own tokens alone make of it, in fp32. The bits are those of the fused
// multiply-adds in the order that ulyx.h promises, redone here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "support/contexts.h"
#include "support/rng.h"
#include "support/row_tensor.h"
#include "support/shapes.h"
#include "support/status.h"
#include "support/world.h"
#include "ulyx.h"

namespace ulyx_test {

namespace {

template <class T>
using Matrix = std::vector<T>;  // row-major, its width known to who uses it

struct ChainCase {
  std::vector<int64_t> cuSeqlens;
  int nRanks = 1;
  int split = ulyxSplitBalanced;
  int64_t heads = 1, keyDim = 2, valueDim = 3;
  bool hasInitial = false, wantsFinal = false;
  bool dense = false;  // transitions A_t that mix keys; else gates, diagonal
  uint64_t seed = 0;

  int64_t StateSize() const { return keyDim * valueDim; }
  int64_t MatrixSize() const { return keyDim * keyDim; }
};

std::string Describe(const ChainCase& c) {
  std::ostringstream text;
  text << c.nRanks << " ranks, split " << c.split << ", " << c.heads << " heads of " << c.keyDim << " x " << c.valueDim
       << (c.hasInitial ? ", initial" : "") << (c.wantsFinal ? ", final" : "") << (c.dense ? ", dense" : ", gates")
       << ", cu_seqlens";
  for (int64_t bound : c.cuSeqlens) text << " " << bound;
  return text.str();
}

double Unit(Rng* rng) {
  return double(rng->Next() >> 11) / double(int64_t{1} << 53) * 2 - 1;
}

// What a token does to the state of one head: S <- A S + k v^T.
struct Token {
  Matrix<double> a;
  std::vector<double> k, v;
};

Token TokenOf(const ChainCase& c, int64_t token, int64_t head) {
  Rng rng(Mix(c.seed + uint64_t(token) * 131 + uint64_t(head)));
  Token made;
  made.a.assign(size_t(c.MatrixSize()), 0);
  for (int64_t i = 0; i < c.keyDim; i++) {
    for (int64_t j = 0; c.dense && j < c.keyDim; j++) made.a[i * c.keyDim + j] = 0.5 * Unit(&rng) / double(c.keyDim);
    made.a[i * c.keyDim + i] += 0.7 + 0.3 * std::fabs(Unit(&rng));
  }
  for (int64_t i = 0; i < c.keyDim; i++) made.k.push_back(Unit(&rng));
  for (int64_t i = 0; i < c.valueDim; i++) made.v.push_back(Unit(&rng));
  return made;
}

// What a sequence starts from (backward: what comes in at its end).
Matrix<float> InitialOf(const ChainCase& c, int64_t sequence, int64_t head) {
  Rng rng(Mix(c.seed ^ 0x1217) + uint64_t(sequence) * 977 + uint64_t(head));
  Matrix<float> state;
  for (int64_t i = 0; i < c.StateSize(); i++) state.push_back(float(2 * Unit(&rng)));
  return state;
}

template <class T>
void Step(const ChainCase& c, const Token& token, bool backward, Matrix<T>* state) {
  Matrix<T> next(state->size());
  for (int64_t i = 0; i < c.keyDim; i++) {
    for (int64_t column = 0; column < c.valueDim; column++) {
      T sum = T(token.k[i]) * T(token.v[column]);
      for (int64_t j = 0; j < c.keyDim; j++) {
        const double a = backward ? token.a[j * c.keyDim + i] : token.a[i * c.keyDim + j];
        sum += T(a) * (*state)[j * c.valueDim + column];
      }
      next[i * c.valueDim + column] = sum;
    }
  }
  *state = next;
}

// Every token's owner and sequence, looked at one by one.
struct Layout {
  explicit Layout(const ChainCase& c) : sequence(size_t(c.cuSeqlens.back())), owner(sequence.size(), c.nRanks) {
    const TokenWorld tokens(c.cuSeqlens, c.nRanks, c.split);
    for (size_t i = 0; i + 1 < c.cuSeqlens.size(); i++) {
      for (int64_t token = c.cuSeqlens[i]; token < c.cuSeqlens[i + 1]; token++) sequence[token] = int64_t(i);
    }
    for (int rank = 0; rank < c.nRanks; rank++) {
      const ulyxRange_t range = tokens.Expect(rank, 0).tokenRange;
      for (int64_t token = range.start; token < range.stop; token++) owner[token] = rank;
    }
  }
  std::vector<int64_t> sequence;
  std::vector<int> owner;
};

// One rank's part of one direction. The tokens of `order` are visited first to last: ascending forward, descending
// backward; what is said of starts below is of that order.
struct Part {
  std::vector<int64_t> own;     // tokens of the sequence contributed to, on this rank, in order
  std::vector<int64_t> before;  // tokens of the sequence received for, on the ranks before, in order
  int64_t ownSequence = -1;     // -1: a rank without tokens
  int64_t receivedSequence = -1;
  bool ownStartsHere = false;  // the sequence contributed to has no token before, elsewhere
};

Part PartOf(const Layout& layout, int rank, bool backward) {
  Part part;
  std::vector<int64_t> order;
  for (int64_t token = 0; token < int64_t(layout.owner.size()); token++) order.push_back(token);
  if (backward) std::reverse(order.begin(), order.end());
  for (int64_t token : order) {
    if (layout.owner[token] != rank) continue;
    if (part.receivedSequence < 0) part.receivedSequence = layout.sequence[token];
    part.ownSequence = layout.sequence[token];
  }
  part.ownStartsHere = true;
  bool reached = false;
  for (int64_t token : order) {
    reached |= layout.owner[token] == rank;
    if (layout.owner[token] == rank && layout.sequence[token] == part.ownSequence) part.own.push_back(token);
    if (reached || part.ownSequence < 0) continue;
    if (layout.sequence[token] == part.receivedSequence) part.before.push_back(token);
    if (layout.sequence[token] == part.ownSequence) part.ownStartsHere = false;
  }
  return part;
}

Bytes BytesOf(const Matrix<float>& values) {
  Bytes bytes(values.size() * sizeof(float));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <class T>
void Append(const Matrix<T>& more, Matrix<T>* all) {
  all->insert(all->end(), more.begin(), more.end());
}

// What one rank hands in.
struct Inputs {
  Matrix<float> state, transition, initial;  // all heads
  bool hasInitial = false;                   // this rank is the one that is asked
};

// The state after the rank's tokens from nothing, and the product of their transitions, all in fp32.
Inputs InputsOf(const ChainCase& c, const Part& part, bool backward) {
  Inputs inputs;
  inputs.hasInitial = c.hasInitial && part.ownStartsHere && part.ownSequence >= 0;
  for (int64_t head = 0; head < c.heads; head++) {
    Matrix<float> state(size_t(c.StateSize()), 0.0f), product(size_t(c.MatrixSize()), 0.0f);
    for (int64_t i = 0; i < c.keyDim; i++) product[i * c.keyDim + i] = 1;
    for (int64_t token : part.own) Step(c, TokenOf(c, token, head), backward, &state);
    std::vector<int64_t> ascending = part.own;  // M is of the tokens as they run, whichever way the gradients go
    std::sort(ascending.begin(), ascending.end());
    for (int64_t token : ascending) {
      const Token made = TokenOf(c, token, head);
      Matrix<float> next(product.size());
      for (int64_t i = 0; i < c.keyDim; i++) {
        for (int64_t column = 0; column < c.keyDim; column++) {
          float sum = 0;
          for (int64_t j = 0; j < c.keyDim; j++) {
            sum += float(made.a[i * c.keyDim + j]) * product[j * c.keyDim + column];
          }
          next[i * c.keyDim + column] = sum;
        }
      }
      product = next;
    }
    Append(state, &inputs.state);
    Append(product, &inputs.transition);
    if (inputs.hasInitial) Append(InitialOf(c, part.ownSequence, head), &inputs.initial);
  }
  return inputs;
}

// The recurrence over some tokens of a sequence from its very start, in double. Without any the initial state is
// there only if `withInitial`.
Matrix<double> Truth(const ChainCase& c, const std::vector<int64_t>& tokens, int64_t sequence, int64_t head,
                     bool withInitial, bool backward) {
  Matrix<double> state(size_t(c.StateSize()), 0.0);
  if (withInitial) {
    const Matrix<float> initial = InitialOf(c, sequence, head);
    state.assign(initial.begin(), initial.end());
  }
  for (int64_t token : tokens) Step(c, TokenOf(c, token, head), backward, &state);
  return state;
}

// S <- M S + S_ext, as ulyx.h words it.
void Merge(const ChainCase& c, const Inputs& hop, int64_t head, bool backward, Matrix<float>* state) {
  Matrix<float> next(state->size());
  const float* const ext = hop.state.data() + head * c.StateSize();
  const float* const m = hop.transition.data() + head * c.MatrixSize();
  for (int64_t k = 0; k < c.keyDim; k++) {
    for (int64_t column = 0; column < c.valueDim; column++) {
      float sum = ext[k * c.valueDim + column];
      for (int64_t j = 0; j < c.keyDim; j++) {
        sum = std::fmaf(backward ? m[j * c.keyDim + k] : m[k * c.keyDim + j], (*state)[j * c.valueDim + column], sum);
      }
      next[k * c.valueDim + column] = sum;
    }
  }
  *state = next;
}

void ExpectClose(const Matrix<double>& truth, const float* found, const char* what, int rank) {
  double largest = 1;
  for (double value : truth) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < truth.size(); i++) {
    if (std::fabs(truth[i] - double(found[i])) <= 1e-4 * largest) continue;
    std::ostringstream text;
    text << what << " of rank " << rank << ": element " << i << " is " << found[i] << ", expected " << truth[i];
    throw std::runtime_error(text.str());
  }
}

struct Outputs {
  Matrix<float> received, final;
};

// The same bits everywhere, and close to the truth.
Outputs OutputsOf(const ChainCase& c, const Layout& layout, int rank, bool backward) {
  std::vector<Part> parts;
  std::vector<Inputs> inputs;
  for (int other = 0; other < c.nRanks; other++) {
    parts.push_back(PartOf(layout, other, backward));
    inputs.push_back(InputsOf(c, parts.back(), backward));
  }
  const Part& own = parts[rank];
  const bool same = own.ownSequence >= 0 && own.ownSequence == own.receivedSequence;
  // Ranks before that hold tokens of the sequence received for, in the order of the tokens.
  std::vector<int> hops;
  for (int64_t token : own.before) {
    if (hops.empty() || hops.back() != layout.owner[token]) hops.push_back(layout.owner[token]);
  }
  Outputs outputs;
  for (int64_t head = 0; head < c.heads; head++) {
    const bool fromInitial = c.hasInitial && own.ownSequence >= 0 && (!hops.empty() || same);
    Matrix<float> state(size_t(c.StateSize()), 0.0f);
    if (fromInitial) state = InitialOf(c, own.receivedSequence, head);
    for (int hop : hops) Merge(c, inputs[hop], head, backward, &state);
    ExpectClose(Truth(c, own.before, own.receivedSequence, head, fromInitial, backward), state.data(),
                "the test's own received state", rank);
    Append(state, &outputs.received);
    if (!same) {
      state.assign(size_t(c.StateSize()), 0.0f);
      if (inputs[rank].hasInitial) state = InitialOf(c, own.ownSequence, head);
    }
    Merge(c, inputs[rank], head, backward, &state);
    std::vector<int64_t> all = same ? own.before : std::vector<int64_t>();
    all.insert(all.end(), own.own.begin(), own.own.end());
    ExpectClose(Truth(c, all, own.ownSequence, head, c.hasInitial && own.ownSequence >= 0, backward), state.data(),
                "the test's own final state", rank);
    Append(state, &outputs.final);
  }
  return outputs;
}

ulyxPlan_t MakeChainPlan(const Session& session, const ChainCase& c, int rank) {
  const ulyxContext_t context = MakeContext(c.cuSeqlens, c.nRanks, rank, c.split, 0);
  ulyxStateShape_t shape = ULYX_STATE_SHAPE_INITIALIZER;
  shape.context = context;
  shape.heads = c.heads;
  shape.keyDim = c.keyDim;
  shape.valueDim = c.valueDim;
  shape.hasInitial = c.hasInitial ? 1 : 0;
  shape.wantsFinal = c.wantsFinal ? 1 : 0;
  const ulyxPlan_t plan = PlanWith(session, rank, [&shape](ulyxRuntime_t runtime, ulyxPlan_t* made) {
    return ulyxStatePlanCreate(runtime, &shape, made);
  });
  MUST(ulyxContextDestroy(context));
  return plan;
}

ulyxResult_t Chain(bool backward, ulyxPlan_t plan, const ulyxStates_t* states, ulyxStream_t stream) {
  return backward ? ulyxStateChainBackward(plan, states, stream) : ulyxStateChain(plan, states, stream);
}

// One rank's five tensors.
struct StateTensors {
  StateTensors(const Session& session, const ChainCase& c, int rank, bool scattered)
      : state(session, rank, "state", {1, c.heads, c.keyDim, c.valueDim}, ulyxFloat32, 4, c.heads * c.keyDim,
              4 * c.valueDim, 4 * c.valueDim, Lies(c, rank, 0, scattered), c.seed),
        transition(session, rank, "transition", {1, c.heads, c.keyDim, c.keyDim}, ulyxFloat32, 4, c.heads * c.keyDim,
                   4 * c.keyDim, 4 * c.keyDim, Lies(c, rank, 1, scattered), c.seed + 1),
        initial(session, rank, "initial", {1, c.heads, c.keyDim, c.valueDim}, ulyxFloat32, 4, c.heads * c.keyDim,
                4 * c.valueDim, 4 * c.valueDim, Lies(c, rank, 2, scattered), c.seed + 2),
        received(session, rank, "received", {1, c.heads, c.keyDim, c.valueDim}, ulyxFloat32, 4, c.heads * c.keyDim,
                 4 * c.valueDim, 4 * c.valueDim, Lies(c, rank, 3, scattered), c.seed + 3),
        final(session, rank, "final", {1, c.heads, c.keyDim, c.valueDim}, ulyxFloat32, 4, c.heads * c.keyDim,
              4 * c.valueDim, 4 * c.valueDim, Lies(c, rank, 4, scattered), c.seed + 4) {}

  static Spot Lies(const ChainCase& c, int rank, int which, bool scattered) {
    return scattered ? AnySpot(c.seed + uint64_t(which), rank, 4) : Spot{};
  }

  // What nobody looks at is not there.
  ulyxStates_t States(const ChainCase& c, const Inputs& inputs) const {
    ulyxStates_t states = {state.Tensor(), transition.Tensor(), initial.Tensor(), received.Tensor(), final.Tensor()};
    if (!inputs.hasInitial) std::memset(&states.initial, 0x5a, sizeof states.initial);
    if (!c.wantsFinal) std::memset(&states.final, 0x5a, sizeof states.final);
    return states;
  }

  RowTensor state, transition, initial, received, final;
};

// Forward and backward; every byte of all five tensors is as it must be.
void Check(const Session& session, const ChainCase& c, bool scattered, int times = 1) {
  const Layout layout(c);
  session.Run([&](int rank) {
    const ulyxPlan_t plan = MakeChainPlan(session, c, rank);
    {
      StateTensors tensors(session, c, rank, scattered);
      for (int i = 0; i < 2 * times; i++) {
        const bool backward = i % 2 == 1;
        const Part part = PartOf(layout, rank, backward);
        const Inputs inputs = InputsOf(c, part, backward);
        const Outputs outputs = OutputsOf(c, layout, rank, backward);
        tensors.state.Put(BytesOf(inputs.state));
        tensors.transition.Put(BytesOf(inputs.transition));
        tensors.initial.Poison();
        if (inputs.hasInitial) tensors.initial.Put(BytesOf(inputs.initial));
        tensors.received.Poison();
        tensors.final.Poison();
        const ulyxStates_t states = tensors.States(c, inputs);
        MUST(Chain(backward, plan, &states, session.Stream(rank)));
        session.Synchronize(rank);
        tensors.state.ExpectUntouched();
        tensors.transition.ExpectUntouched();
        tensors.initial.ExpectUntouched();
        const Bytes received = tensors.received.Rows();
        for (int64_t head = 0; head < c.heads; head++) {
          ExpectClose(Truth(c, part.before, part.receivedSequence, head,
                            c.hasInitial && part.ownSequence >= 0 &&
                                (!part.before.empty() || part.ownSequence == part.receivedSequence),
                            backward),
                      reinterpret_cast<const float*>(received.data()) + head * c.StateSize(), "received", rank);
        }
        tensors.received.Expect(BytesOf(outputs.received));
        if (c.wantsFinal) {
          tensors.final.Expect(BytesOf(outputs.final));
        } else {
          tensors.final.ExpectUntouched();
        }
      }
    }
    MUST(ulyxPlanDestroy(plan));
  });
}

ChainCase Case(std::vector<int64_t> cuSeqlens, int nRanks, bool hasInitial) {
  ChainCase c;
  c.cuSeqlens = std::move(cuSeqlens);
  c.nRanks = nRanks;
  c.heads = 2;
  c.keyDim = 5;
  c.valueDim = 7;
  c.hasInitial = hasInitial;
  c.wantsFinal = true;
  c.dense = true;
  c.seed = TestSeed();
  return c;
}

ChainCase RandomCase(int nRanks, uint64_t seed) {
  Rng rng(seed);
  ChainCase c;
  c.nRanks = nRanks;
  c.seed = rng.Next();
  c.heads = rng.Between(1, 3);
  c.keyDim = rng.OneIn(6) ? rng.Between(15, 34) : rng.Between(1, 6);
  c.valueDim = rng.OneIn(6) ? rng.Between(15, 34) : rng.Between(1, 6);
  c.hasInitial = rng.OneIn(2);
  c.wantsFinal = rng.OneIn(2);
  c.dense = rng.OneIn(2);
  do {
    c.split = int(rng.Between(0, 2));
    c.cuSeqlens = rng.OneIn(3) ? std::vector<int64_t>{0, rng.Between(0, 3 * nRanks)}
                               : RandomCuSeqlens(rng, 5, std::max<int64_t>(2 * nRanks, 2));
  } while (TokenWorld::Refuses(c.cuSeqlens.back(), nRanks, c.split) ||
           TokenWorld(c.cuSeqlens, nRanks, c.split).Expect(0, 0).cutsSequence);
  return c;
}

class Chains : public ::testing::TestWithParam<const World*> {
 protected:
  const Session& On(int nRanks) { return sessions_.On(*GetParam(), nRanks); }
  int Ranks(int wanted) const { return std::min(GetParam()->MaxRanks(), wanted); }

 private:
  Sessions sessions_;
};

ULYX_ON_EVERY_WORLD(Chains);

}  // namespace

TEST_P(Chains, OfRandomSequencesHandOnTheTrueStateBothWays) {
  ULYX_SKIP_BELOW(*GetParam(), 1);
  const uint64_t seed = TestSeed();
  const int cases = CasesOn(*GetParam(), 120);
  std::printf("%d cases from ULYX_TEST_SEED=%llu\n", cases, static_cast<unsigned long long>(seed));
  for (int i = 0; i < cases; i++) {
    const uint64_t own = seed + uint64_t(i);
    const ChainCase c = RandomCase(int(Rng(own ^ 0xfeed).Between(1, Ranks(8))), own);
    try {
      Check(On(c.nRanks), c, true);
    } catch (const std::exception& error) {
      FAIL() << error.what() << Describe(c) << "\nreplay with ULYX_TEST_SHAPES=1 ULYX_TEST_SEED=" << own;
    }
  }
}

TEST_P(Chains, OfOneSequenceOverAllRanks) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const int nRanks = Ranks(8);
  for (bool hasInitial : {false, true}) {
    Check(On(nRanks), Case({0, 2 * nRanks + 1}, nRanks, hasInitial), false);
    Check(On(nRanks), Case({0, nRanks - 1}, nRanks, hasInitial), false);  // the last rank has no token
    Check(On(nRanks), Case({0}, nRanks, hasInitial), false);              // and none has
  }
}

TEST_P(Chains, StartFromZeroWhereTheFirstSequenceDoes) {
  ULYX_SKIP_BELOW(*GetParam(), 3);
  for (bool hasInitial : {false, true}) {
    // Tokens 0 1 2 | 3 4 5 | 6 7 8.
    Check(On(3), Case({0, 3, 6, 9}, 3, hasInitial), false);        // one sequence a rank: each starts and ends there
    Check(On(3), Case({0, 1, 3, 4, 6, 9}, 3, hasInitial), false);  // several a rank, all whole
    Check(On(3), Case({0, 2, 7, 9}, 3, hasInitial), false);        // one from the middle of rank 0 into rank 2
    Check(On(3), Case({0, 0, 2, 2, 7, 7, 9, 9}, 3, hasInitial), false);
  }
}

TEST_P(Chains, ThatComeDenselyHaveTheSameBitsInEveryRun) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  if (WatchesThreads()) GTEST_SKIP() << "is about bits";
  if (IsThrifty(*GetParam())) GTEST_SKIP() << "merging does not depend on the world, and is slow under sanitizers";
  ChainCase c = Case({0, 20}, Ranks(4), true);
  c.keyDim = 33;
  c.valueDim = 17;
  Check(On(c.nRanks), c, false, 5);
}

TEST_P(Chains, TakeTheLargestKeyDimAndRefuseTheNext) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  ChainCase c = Case({0, 2}, 2, true);
  c.heads = 1;
  c.keyDim = 384;
  c.valueDim = 1;
  c.dense = false;
  if (!IsSanitized()) Check(On(2), c, false);  // much arithmetic, on memory that smaller ones use alike
  On(2).Run([&](int rank) {
    const auto refuse = [&](int64_t heads, int64_t keyDim, int64_t valueDim, std::initializer_list<std::string> words) {
      const ulyxContext_t context = MakeContext({0, 8}, 2, rank, ulyxSplitBalanced, 0);
      ulyxStateShape_t shape = ULYX_STATE_SHAPE_INITIALIZER;
      shape.context = context;
      shape.heads = heads;
      shape.keyDim = keyDim;
      shape.valueDim = valueDim;
      ulyxPlan_t plan = nullptr;
      EXPECT_TRUE(Refused(ulyxStatePlanCreate(On(2).Runtime(rank), &shape, &plan), ulyxInvalidArgument, words));
      EXPECT_EQ(plan, nullptr);
      MUST(ulyxContextDestroy(context));
    };
    refuse(1, 385, 1, {"states.keyDim is 385", "384"});
    refuse(0, 4, 4, {"states.heads is 0", "1 or more"});
    refuse(1, 0, 4, {"states.keyDim is 0", "1 or more"});
    refuse(1, 4, -1, {"states.valueDim is -1", "1 or more"});
    refuse(INT64_MAX / 2, 4, 4, {"2^60"});
  });
}

TEST_P(Chains, OfASequenceCutByTruncationAreRefusedOnEveryRank) {
  ULYX_SKIP_BELOW(*GetParam(), 3);
  On(3).Run([&](int rank) {
    const ulyxContext_t context = MakeContext({0, 4, 10}, 3, rank, ulyxSplitTruncate, 0);
    ulyxStateShape_t shape = ULYX_STATE_SHAPE_INITIALIZER;
    shape.context = context;
    shape.heads = shape.keyDim = shape.valueDim = 1;
    ulyxPlan_t plan = nullptr;
    EXPECT_TRUE(Refused(ulyxStatePlanCreate(On(3).Runtime(rank), &shape, &plan), ulyxInvalidUsage,
                        {"sequence 1", "[4, 10)", "3 ranks", "token 9"}));
    EXPECT_EQ(plan, nullptr);
    MUST(ulyxContextDestroy(context));
  });
  ChainCase whole = Case({0, 4, 9, 10}, 3, true);
  whole.split = ulyxSplitTruncate;
  Check(On(3), whole, false);
}

TEST_P(Chains, ThatTheRanksSeeDifferentlyAreAMismatchOnEveryRank) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  struct View {
    std::initializer_list<std::string> words;
    std::vector<int64_t> cuSeqlens;  // of rank 1
    int64_t keyDim;
    int hasInitial, wantsFinal;
  };
  const View views[] = {{{"rank 0 gives rank 1 1 ranks before it, rank 1 gives it 0"}, {0, 4, 8}, 3, 0, 0},
                        {{"states.keyDim", "3 on rank 0", "2 on rank 1"}, {0, 8}, 2, 0, 0},
                        {{"states.hasInitial", "0 on rank 0", "1 on rank 1"}, {0, 8}, 3, 1, 0},
                        {{"states.wantsFinal", "0 on rank 0", "1 on rank 1"}, {0, 8}, 3, 0, 1}};
  for (const View& view : views) {
    On(2).Run([&](int rank) {
      MUST(ulyxRuntimeReserve(On(2).Runtime(rank), 1 << 16));
      const std::vector<int64_t> cuSeqlens = rank == 0 ? std::vector<int64_t>{0, 8} : view.cuSeqlens;
      const ulyxContext_t context = MakeContext(cuSeqlens, 2, rank, ulyxSplitBalanced, 0);
      ulyxStateShape_t shape = ULYX_STATE_SHAPE_INITIALIZER;
      shape.context = context;
      shape.heads = shape.valueDim = 2;
      shape.keyDim = rank == 0 ? 3 : view.keyDim;
      shape.hasInitial = rank == 0 ? 0 : view.hasInitial;
      shape.wantsFinal = rank == 0 ? 0 : view.wantsFinal;
      ulyxPlan_t plan = nullptr;
      EXPECT_TRUE(Refused(ulyxStatePlanCreate(On(2).Runtime(rank), &shape, &plan), ulyxMismatch, view.words));
      EXPECT_EQ(plan, nullptr);
      MUST(ulyxContextDestroy(context));
    });
  }
  Check(On(2), Case({0, 8}, 2, false), false);
}

TEST_P(Chains, OfTensorsThatDoNotFitAreRefusedAndTheNextCallWorks) {
  ULYX_SKIP_BELOW(*GetParam(), 2);
  const ChainCase c = Case({0, 8}, 2, true);
  const Layout layout(c);
  On(2).Run([&](int rank) {
    const ulyxPlan_t plan = MakeChainPlan(On(2), c, rank);
    ulyxStates_t described = {};
    MUST(ulyxPlanGetStates(plan, &described));
    EXPECT_EQ(described.transition.extents[3], 5);
    EXPECT_EQ(described.final.extents[3], 7);
    EXPECT_EQ(described.state.type, ulyxFloat32);
    EXPECT_EQ(described.received.data, nullptr);
    EXPECT_TRUE(Refused(ulyxPlanGetStates(plan, nullptr), ulyxInvalidArgument, {"states"}));
    EXPECT_TRUE(Refused(ulyxStateChain(plan, nullptr, nullptr), ulyxInvalidArgument, {"states"}));
    {
      const StateTensors tensors(On(2), c, rank, false);
      Inputs inputs;
      inputs.hasInitial = true;
      const ulyxStates_t good = tensors.States(c, inputs);
      const auto refuse = [&](const ulyxStates_t& states, ulyxResult_t result,
                              std::initializer_list<std::string> words) {
        EXPECT_TRUE(Refused(ulyxStateChain(plan, &states, On(2).Stream(rank)), result, words));
      };
      ulyxStates_t bad = good;
      bad.transition.extents[3] = 7;
      refuse(bad, ulyxMismatch, {"transition: extents are [1, 2, 5, 7]", "[1, 2, 5, 5]"});
      bad = good;
      bad.received.type = ulyxBfloat16;
      refuse(bad, ulyxMismatch, {"received", "type is 9", "7"});
      bad = good;
      bad.state.data = nullptr;
      refuse(bad, ulyxInvalidArgument, {"state", "NULL"});
      bad = good;
      bad.final.data = bad.received.data;
      refuse(bad, ulyxInvalidArgument, {"received", "final", "overlap"});
      bad = good;
      bad.received.data = bad.state.data;
      refuse(bad, ulyxInvalidArgument, {"state", "received", "overlap"});
      bad = good;
      bad.transition.data = static_cast<char*>(bad.transition.data) + 2;
      refuse(bad, ulyxInvalidArgument, {"transition", "4"});
      if (rank == 0) {
        bad = good;
        bad.initial.data = nullptr;
        refuse(bad, ulyxInvalidArgument, {"initial", "NULL"});
      }
      ulyxTensor_t any = good.state;
      EXPECT_TRUE(Refused(ulyxConvHalo(plan, &any, &any, nullptr), ulyxInvalidUsage, {"chain", "halo"}));
      tensors.received.ExpectUntouched();
      tensors.final.ExpectUntouched();
    }
    MUST(ulyxPlanDestroy(plan));
  });
  Check(On(2), c, false);
}

}  // namespace ulyx_test
