#!/bin/sh
# SPDX-License-Identifier: MIT
#
# From a fresh Debian or Ubuntu machine to a tested library: installs what is missing, builds, and runs the suite
# with address and undefined-behaviour sanitizers, with the thread sanitizer, and without any (with CUDA where
# nvcc and NCCL are found). Tests of GPUs that are not there are counted as skipped.
#
#   tests/run.sh [PRESET...]     fewer presets of CMakePresets.json than all
#
# Ends with one line, '<n> passed, <m> failed, <k> skipped', summed over presets, and exits non-zero where one
# failed.
set -eu

cd "$(dirname "$0")/.."
# shellcheck source=cmake/install_packages.sh
. cmake/install_packages.sh
ulyx_install_packages build tests
for optional in reference drawings launchers checks numpy; do ulyx_install_packages $optional || echo "going on without it"; done
if ! command -v nvcc >/dev/null 2>&1 && [ -x /usr/local/cuda/bin/nvcc ]; then
  PATH=$PATH:/usr/local/cuda/bin
fi

passed=0
failed=0
skipped=0
mkdir -p build

# A build directory may have been configured without tests before.
configure() { cmake --preset "$1" -DULYX_TESTS=ON >"build/$1.log" 2>&1; }

# Where CUDA and NCCL are missing, the preset that needs them cannot be configured.
plain_preset() {
  if configure cuda; then echo cuda; else echo cpu; fi
}

# The thread sanitizer of older compilers does not start where addresses are very random.
steady() {
  if setarch -R true 2>/dev/null; then setarch -R "$@"; else "$@"; fi
}

# Adds up a report of ctest: a program that prints its own count counts as that, any other as one.
count_report() {
  awk '
    /<testcase / { status = $0; sub(/.*status="/, "", status); sub(/".*/, "", status); counted = p = f = s = 0 }
    { sub(/.*<system-out>/, "") }
    /^[0-9]+ passed, [0-9]+ failed/ { counted = 1; p = $1; f = $3; s = NF > 4 ? $5 : 0 }
    /<\/testcase>/ {
      if (!counted) { p = status == "run"; s = status == "notrun"; f = !p && !s }
      if (status == "fail" && counted && f == 0) f = 1
      passed += p; failed += f; skipped += s
    }
    END { print passed + 0, failed + 0, skipped + 0 }' "$1"
}

run_preset() {
  report=$PWD/build/$1/report.xml
  rm -f "$report"
  echo "== $1"
  if ! configure "$1"; then
    cat "build/$1.log"
  elif grep 'ulyx transports' "build/$1.log" && cmake --build "build/$1" >"build/$1.log" 2>&1; then
    steady ctest --test-dir "build/$1" -j 2 --output-on-failure --output-junit "$report" --no-tests=error \
      --test-output-size-passed 10000000 --test-output-size-failed 10000000 || true
  else
    tail -n 100 "build/$1.log"
  fi
  if [ ! -s "$report" ]; then
    failed=$((failed + 1))
    return
  fi
  # shellcheck disable=SC2046 # three numbers
  set -- $(count_report "$report")
  echo "   $1 passed, $2 failed, $3 skipped"
  passed=$((passed + $1))
  failed=$((failed + $2))
  skipped=$((skipped + $3))
}

[ $# -gt 0 ] || set -- cpu-asan-ubsan cpu-tsan "$(plain_preset)"
for preset in "$@"; do run_preset "$preset"; done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
