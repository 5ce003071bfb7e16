// SPDX-License-Identifier: MIT
//
// What a program over the fakes holds at a moment: of devices, of NCCL and, by the library, of the host.
#ifndef ULYX_TESTS_SUPPORT_HELD_H_
#define ULYX_TESTS_SUPPORT_HELD_H_

#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "fake.h"

namespace ulyx_test {

struct Held {
  fakeCounters device = fakeGet();
  fakeHostUse host = fakeHostGet();

  // "" where both hold the same, else every difference.
  std::string Beyond(const Held& before) const {
    std::string text;
    const auto compare = [&text](const char* what, int64_t now, int64_t then) {
      if (now != then)
        text += std::string(what) + ": " + std::to_string(now) + ", before " + std::to_string(then) + "\n";
    };
    compare("device allocations", device.allocations, before.device.allocations);
    compare("pinned allocations", device.hostAllocations, before.device.hostAllocations);
    compare("streams", device.streams, before.device.streams);
    compare("events", device.events, before.device.events);
    compare("communicators", device.comms, before.device.comms);
    compare("ncclMemAlloc", device.ncclAllocations, before.device.ncclAllocations);
    compare("windows", device.windows, before.device.windows);
    compare("registrations", device.registrations, before.device.registrations);
    compare("open groups", device.openGroups, before.device.openGroups);
    compare("violations", device.violations, before.device.violations);
    compare("host blocks", host.blocks, before.host.blocks);
    compare("host bytes", host.bytes, before.host.bytes);
    compare("threads", host.threads, before.host.threads);
    compare("locks", host.locks, before.host.locks);
    return text;
  }
};

}  // namespace ulyx_test

#endif  // ULYX_TESTS_SUPPORT_HELD_H_
