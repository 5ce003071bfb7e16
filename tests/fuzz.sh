#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Feeds anything to what takes numbers from outside: shapes, and cu_seqlens. Builds the preset fuzz (clang's libFuzzer,
# with address and undefined-behaviour sanitizers) and runs both targets at once, from the corpus of tests/fuzz/corpus/.
#
#   tests/fuzz.sh [SECONDS [CORPUS...]]    each target that long; default 60 seconds
#   tests/fuzz.sh merge [CORPUS...]        adds to tests/fuzz/corpus/ the fewest inputs that reach what it does not
#
# CORPUS is a directory with shape/ and sequences/ in it, build/fuzz/corpus by default; a run keeps what it finds in the
# first. An input that fails is kept in build/fuzz/failures/, and passed to build/fuzz/tests/fuzz/<target>_fuzz again.
#
# Ends with one line, '<n> passed, <m> failed', and exits non-zero where one failed; 77 without clang and its libFuzzer.
set -eu

cd "$(dirname "$0")/.."
seconds=${1:-60}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- build/fuzz/corpus
targets='shape sequences'

if ! echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' |
  clang -fsanitize=fuzzer,address,undefined -x c -o /dev/null - 2>/dev/null; then
  echo "SKIPPED: no clang with libFuzzer and sanitizers"
  echo "0 passed, 0 failed, 1 skipped"
  exit 77
fi
mkdir -p build/fuzz/failures
if ! { cmake --preset fuzz && cmake --build build/fuzz --target shape_fuzz sequences_fuzz; } >build/fuzz.log 2>&1; then
  tail -n 50 build/fuzz.log
  echo "0 passed, 1 failed"
  exit 1
fi
for target in $targets; do
  for corpus in "$@" tests/fuzz/corpus; do mkdir -p "$corpus/$target"; done
done

# The sanitizers of older compilers do not start where addresses are very random.
steady() {
  if setarch -R true 2>/dev/null; then setarch -R "$@"; else "$@"; fi
}

# fuzz TARGET FLAG... CORPUS...: one target, on its part of each corpus.
fuzz() {
  target=$1
  shift
  for argument in "$@"; do
    shift
    case $argument in
      -*) set -- "$@" "$argument" ;;
      *) set -- "$@" "$argument/$target" ;;
    esac
  done
  steady "build/fuzz/tests/fuzz/${target}_fuzz" -max_len=512 -timeout=100 -artifact_prefix="build/fuzz/failures/$target-" \
    -print_final_stats=1 "$@" >"build/fuzz/$target.log" 2>&1
}

passed=0
failed=0
# result TARGET STATUS: one result, and how many inputs were run.
result() {
  executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/$1.log")
  if [ "$2" -eq 0 ]; then
    passed=$((passed + 1))
    echo "$1: ${executed:-no} inputs run, $(find "tests/fuzz/corpus/$1" -type f | wc -l) in the corpus"
  else
    failed=$((failed + 1))
    echo "FAILED: $1, after ${executed:-some} inputs"
    grep -v 'WARNING: AddressSanitizer failed to allocate' "build/fuzz/$1.log" | tail -n 60 # refusals, as they should be
  fi
}

if [ "$seconds" = merge ]; then
  for target in $targets; do
    status=0
    fuzz "$target" -set_cover_merge=1 tests/fuzz/corpus "$@" || status=$?
    result "$target" "$status"
  done
else
  fuzz shape -max_total_time="$seconds" "$@" tests/fuzz/corpus &
  shape=$!
  status=0
  fuzz sequences -max_total_time="$seconds" "$@" tests/fuzz/corpus || status=$?
  result sequences "$status"
  status=0
  wait "$shape" || status=$?
  result shape "$status"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
