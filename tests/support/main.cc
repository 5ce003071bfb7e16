// SPDX-License-Identifier: MIT
//
// GoogleTest's main with two additions: a watchdog that ends a stuck test by aborting with its name
// (ULYX_TEST_WATCHDOG_S, 120), and a last line that counts skipped tests apart from passed ones.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

namespace {

class Watchdog : public ::testing::EmptyTestEventListener {
 public:
  explicit Watchdog(int seconds) : seconds_(seconds), thread_([this] { Watch(); }) {}

  ~Watchdog() override {
    Set("", true);
    thread_.join();
  }

  void OnTestStart(const ::testing::TestInfo& info) override {
    Set(std::string(info.test_suite_name()) + "." + info.name(), false);
  }
  void OnTestEnd(const ::testing::TestInfo&) override { Set("", false); }

 private:
  void Set(const std::string& test, bool stop) {
    const std::lock_guard<std::mutex> lock(mutex_);
    test_ = test;
    stop_ = stop;
    generation_++;
    changed_.notify_all();
  }

  void Watch() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stop_) {
      const int generation = generation_;
      const auto moved = [this, generation] { return generation_ != generation; };
      if (test_.empty()) {
        changed_.wait(lock, moved);
      } else if (!changed_.wait_until(lock, std::chrono::system_clock::now() + std::chrono::seconds(seconds_), moved)) {
        std::fprintf(stderr, "watchdog: %s still ran after %d s\n", test_.c_str(), seconds_);
        std::abort();
      }
    }
  }

  const int seconds_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string test_;
  bool stop_ = false;
  int generation_ = 0;
  std::thread thread_;
};

}  // namespace

int main(int argc, char** argv) {
  // Ranks that share a GPU wait for each other: no stream of one may queue behind another's. Before CUDA starts.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  ::testing::InitGoogleTest(&argc, argv);
  for (const char* setting : {"TRANSPORT", "AGREE_PLANS", "TIMEOUT_MS", "MAX_CTAS", "ARENA_BYTES", "STREAM_PRIORITY",
                              "UNDISTURBED", "COPY_STREAMS"}) {
    unsetenv((std::string("ULYX_") + setting).c_str());  // tests set what they need
  }
  const char* seconds = std::getenv("ULYX_TEST_WATCHDOG_S");
  const ::testing::UnitTest& unit = *::testing::UnitTest::GetInstance();
  ::testing::UnitTest::GetInstance()->listeners().Append(new Watchdog(seconds != nullptr ? std::atoi(seconds) : 120));
  const int status = RUN_ALL_TESTS();
  std::printf("%d passed, %d failed, %d skipped\n", unit.successful_test_count(), unit.failed_test_count(),
              unit.skipped_test_count());
  return status;
}
