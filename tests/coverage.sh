#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Which lines of runtime/ the tests run: builds with gcc's --coverage (the preset coverage), runs every test program
# that needs no GPU, and prints the share of lines by file and in all. A source that is compiled more than once, for the
# library and for its simulation, counts as one: a line has run if it has in any.
#
#   tests/coverage.sh          the shares
#   tests/coverage.sh -l       and the lines that did not run
#
# Exits non-zero where a program fails or cannot be built. It takes minutes, and is not part of tests/run.sh.
set -eu

cd "$(dirname "$0")/.."
if ! command -v nvcc >/dev/null 2>&1 && [ -x /usr/local/cuda/bin/nvcc ]; then
  PATH=$PATH:/usr/local/cuda/bin
fi
build=$PWD/build/coverage
mkdir -p build
cmake --preset coverage >build/coverage.log 2>&1 || {
  cat build/coverage.log
  exit 1
}
grep 'ulyx transports' build/coverage.log
programs='ulyx_tests api_c_test exit_test'
if cmake --build "$build" --target help | grep -q '^ulyx_sim_tests:'; then
  programs="$programs ulyx_sim_tests ulyx_fault_tests ulyx_fake_tests"
fi
# shellcheck disable=SC2086 # one word a program
cmake --build "$build" --target $programs >build/coverage.log 2>&1 || {
  tail -n 50 build/coverage.log
  exit 1
}
find "$build" -name '*.gcda' -exec rm {} +

failed=0
for program in $programs; do
  arguments=
  [ "$program" != exit_test ] || arguments=loopback
  # shellcheck disable=SC2086 # none or one
  "$(find "$build/tests" -name "$program" -type f)" $arguments >"$build/$program.log" 2>&1 || {
    failed=1
    echo "FAILED: $program"
    tail -n 30 "$build/$program.log"
  }
done

# Lines count:number:text by source, from every object; '-' is no code, '#####' and '=====' have not run.
find "$build" -name '*.gcda' | grep '/runtime/' | while read -r data; do
  gcov -t -r -s "$PWD" -o "$(dirname "$data")" "$data" 2>/dev/null
done | awk -F: '
  $2 ~ /^ *0$/ && $3 == "Source" { source = $4; next }
  source ~ /^runtime\// && $2 > 0 && $1 !~ /^ *-$/ {
    place = source FS $2 + 0
    if (!(place in ran)) ran[place] = 0
    if ($1 ~ /[0-9]/) ran[place] = 1
  }
  END { for (place in ran) print place FS ran[place] }' | sort -t: -k1,1 -k2,2n >"$build/lines"

[ "${1:-}" != -l ] || awk -F: '!$3 { print $1 ":" $2 }' "$build/lines"
awk -F: '
  function share(name, ran, lines) { printf "%-34s %5d of %5d lines  %5.1f%%\n", name, ran, lines, 100 * ran / lines }
  $1 != file { if (lines) share(file, ran, lines); file = $1; ran = lines = 0 }
  { ++lines; ++allLines; ran += $3; allRan += $3 }
  END { if (!allLines) exit 1; share(file, ran, lines); share("runtime/", allRan, allLines) }' "$build/lines" || failed=1
exit $failed
