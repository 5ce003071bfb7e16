// SPDX-License-Identifier: MIT
//
// Ranks are threads. RunRanks starts one a rank, waits for all of them, and throws on the calling thread what
// any of them threw, with the rank's number in front.
#ifndef ULYX_TESTS_SUPPORT_RANKS_H_
#define ULYX_TESTS_SUPPORT_RANKS_H_

#include <functional>

namespace ulyx_test {

void RunRanks(int nRanks, const std::function<void(int rank)>& body);

}  // namespace ulyx_test

#endif  // ULYX_TESTS_SUPPORT_RANKS_H_
