// SPDX-License-Identifier: MIT
#include "support/ranks.h"

#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace ulyx_test {

void RunRanks(int nRanks, const std::function<void(int rank)>& body) {
  std::vector<std::string> errors(nRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < nRanks; rank++) {
    threads.emplace_back([&body, &errors, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        errors[rank] = "rank " + std::to_string(rank) + ": " + error.what() + "\n";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string all;
  for (const std::string& error : errors) all += error;
  if (!all.empty()) throw std::runtime_error(all);
}

}  // namespace ulyx_test
