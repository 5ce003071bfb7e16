// SPDX-License-Identifier: MIT
#ifndef ULYX_TESTS_HPP_WITHOUT_EXCEPTIONS_H_
#define ULYX_TESTS_HPP_WITHOUT_EXCEPTIONS_H_

namespace ulyx_test {

// What went wrong, or NULL.
const char* ExchangeWithoutExceptions();

}  // namespace ulyx_test

#endif  // ULYX_TESTS_HPP_WITHOUT_EXCEPTIONS_H_
