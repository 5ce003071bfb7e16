// SPDX-License-Identifier: MIT
//
// A model runner in C++17: the attention of a small transformer, layer after layer, each rank with its own tokens and,
// during attention, its own heads. The 6 query heads share 2 key/value heads, and neither they nor the 37 tokens divide
// by the ranks. What 4 ranks compute is compared with what one computes.
//
//   x, own tokens -> projection to q, k and v -> seqToHeads -> attention over all tokens -> headsToSeq
//     -> output projection, added to x
//
// Ranks are threads on the CPU here. On GPUs a rank is a process with ulyx::Runtime::create, the loops are kernels on a
// stream that both exchanges are given as well, and all else is the same.
//
//   cmake --preset cpu && cmake --build build/cpu && build/cpu/tests/block_example
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "ulyx.hpp"

namespace {

constexpr int64_t kTokens = 37, kHidden = 24, kHeads = 6, kKvHeads = 2, kHeadDim = 4, kLayers = 2;
constexpr int64_t kQkvHeads = kHeads + 2 * kKvHeads;  // of a token's row that one projection makes

using Floats = std::vector<float>;

struct Layer {
  Floats qkv;     // [kHidden, kQkvHeads * kHeadDim]
  Floats output;  // [kHeads * kHeadDim, kHidden]
};

struct Model {
  Floats embedded;  // [kTokens, kHidden]
  std::vector<Layer> layers;
};

Model RandomModel() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0F, 0.3F);
  const auto make = [&](int64_t rows, int64_t columns) {
    Floats values(static_cast<size_t>(rows * columns));
    for (float& value : values) value = normal(random);
    return values;
  };
  Model model;
  model.embedded = make(kTokens, kHidden);
  for (int64_t i = 0; i < kLayers; i++) {
    model.layers.push_back({make(kHidden, kQkvHeads * kHeadDim), make(kHeads * kHeadDim, kHidden)});
  }
  return model;
}

// out [rows, columns] = (or +=, where `add`) x [rows, inner] * weights [inner, columns].
void Project(const float* x, const Floats& weights, int64_t rows, int64_t inner, int64_t columns, bool add,
             float* out) {
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t column = 0; column < columns; column++) {
      float sum = add ? out[row * columns + column] : 0.0F;
      for (int64_t i = 0; i < inner; i++) {
        sum += x[row * inner + i] * weights[static_cast<size_t>(i * columns + column)];
      }
      out[row * columns + column] = sum;
    }
  }
}

// Softmax attention of one query head over all tokens.
void Attend(const ulyx::Tensor<float>& q, const ulyx::Tensor<float>& k, const ulyx::Tensor<float>& v, int64_t head,
            int64_t kvHead, const ulyx::Tensor<float>& o) {
  float scores[kTokens];
  for (int64_t token = 0; token < kTokens; token++) {
    float largest = -INFINITY, total = 0.0F;
    for (int64_t other = 0; other < kTokens; other++) {
      scores[other] = 0.0F;
      for (int64_t i = 0; i < kHeadDim; i++) scores[other] += q(0, token, head, i) * k(0, other, kvHead, i);
      scores[other] /= std::sqrt(static_cast<float>(kHeadDim));
      largest = std::max(largest, scores[other]);
    }
    for (float& score : scores) total += score = std::exp(score - largest);
    for (int64_t i = 0; i < kHeadDim; i++) {
      float sum = 0.0F;
      for (int64_t other = 0; other < kTokens; other++) sum += scores[other] * v(0, other, kvHead, i);
      o(0, token, head, i) = sum / total;
    }
  }
}

// One rank. Buffers are made once and used by every layer; outputs of exchanges lie in memory from alloc(), each in its
// own, where every transport can write them.
class Runner {
 public:
  explicit Runner(ulyx::Runtime rt)
      : rt_(std::move(rt)),
        plan_(rt_.plan(MakeShape())),
        info_(plan_.info()),
        qkv_(static_cast<size_t>(info_.tokenCount * kQkvHeads * kHeadDim)),
        attended_(static_cast<size_t>(kTokens * info_.headCount * kHeadDim)),
        q_(rt_.alloc<float>(kTokens * info_.headCount * kHeadDim)),
        k_(rt_.alloc<float>(kTokens * info_.kvHeadCount * kHeadDim)),
        v_(rt_.alloc<float>(kTokens * info_.kvHeadCount * kHeadDim)),
        o_(rt_.alloc<float>(info_.tokenCount * kHeads * kHeadDim)) {}

  // Own rows of the last layer's output, written to their place in the whole one.
  void Run(const Model& model, Floats* whole) {
    auto [in, out] = plan_.qkv();
    in.q.data = qkv_.data();
    const ulyx::Tensor<float> q(out.q, q_.data()), k(out.k, k_.data()), v(out.v, v_.data());
    const ulyx::Tensor<float> attended(plan_.output().in, attended_.data()), o(plan_.output().out, o_.data());
    float* const x = whole->data() + info_.tokenRange.start * kHidden;
    std::copy_n(model.embedded.data() + info_.tokenRange.start * kHidden, info_.tokenCount * kHidden, x);
    for (const Layer& layer : model.layers) {
      Project(x, layer.qkv, info_.tokenCount, kHidden, kQkvHeads * kHeadDim, false, qkv_.data());
      plan_.seqToHeads(in, ulyx::Qkv(q, k, v));
      for (int64_t head = 0; head < info_.headCount; head++) {
        Attend(q, k, v, head, info_.kvHeadOfHead[head], attended);
      }
      plan_.headsToSeq(attended, o);
      Project(o_.data(), layer.output, info_.tokenCount, kHeads * kHeadDim, kHidden, true, x);
    }
    std::printf("rank %d of %d: tokens [%d, %d), heads [%d, %d) on key/value heads [%d, %d)\n", info_.rank,
                info_.nRanks, int(info_.tokenRange.start), int(info_.tokenRange.stop), int(info_.headRange.start),
                int(info_.headRange.stop), int(info_.kvHeadRange.start), int(info_.kvHeadRange.stop));
  }

 private:
  static ulyx::Shape MakeShape() {
    ulyx::Shape shape;
    shape.tokens = kTokens;
    shape.heads = kHeads;
    shape.kvHeads = kKvHeads;
    shape.headDim = kHeadDim;
    shape.type = ulyx::dataType<float>;
    shape.packedIn = 1;
    return shape;
  }

  // In the order in which they are made: plan and memory go before their runtime.
  ulyx::Runtime rt_;
  ulyx::Plan plan_;
  ulyxPlanInfo_t info_;
  Floats qkv_, attended_;
  ulyx::Memory<float> q_, k_, v_, o_;
};

Floats RunWorld(const Model& model, int ranks) {
  Floats whole(static_cast<size_t>(kTokens * kHidden));
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> failures(static_cast<size_t>(ranks));
  for (ulyx::Runtime& rt : ulyx::Runtime::local(ranks)) {
    threads.emplace_back([&model, &whole, &failure = failures[threads.size()], rt = std::move(rt)]() mutable {
      try {
        Runner(std::move(rt)).Run(model, &whole);
      } catch (...) {
        failure = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure != nullptr) std::rethrow_exception(failure);
  }
  return whole;
}

}  // namespace

int main() {
  try {
    const Model model = RandomModel();
    const Floats expected = RunWorld(model, 1), got = RunWorld(model, 4);
    float largest = 0.0F;
    bool close = true;
    for (size_t i = 0; i < got.size(); i++) {
      const float difference = std::abs(got[i] - expected[i]);
      close = close && difference <= 1e-5F;  // which a NaN is not
      largest = std::max(largest, difference);
    }
    std::printf("largest difference from one rank: %.1e\n", static_cast<double>(largest));
    return close ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
