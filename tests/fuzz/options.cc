// SPDX-License-Identifier: MIT
//
// Sanitizers of every fuzz target: a count that nobody has the memory for is to be refused, not to end the run.
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1:max_allocation_size_mb=1024:detect_leaks=1";
}
