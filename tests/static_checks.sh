#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What can be said of the sources without running them: clang-tidy on the library (.clang-tidy says which checks),
# cppcheck on all C, shellcheck on the scripts, and clang-format's layout of everything. The compiler's warnings are
# errors in every build, and need no check of their own.
#
#   tests/static_checks.sh [BUILD]      a configured build, for its compile commands; default build/cpu
#
# Ends with one line, '<n> passed, <m> failed, <k> skipped', counted in tools, and exits non-zero where one failed; a
# tool that is missing is skipped, and 77 says that one was.
set -u

cd "$(dirname "$0")/.." || exit
build=${1:-build/cpu}
cores=$(getconf _NPROCESSORS_ONLN)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0
failed=0
skipped=0

skip() {
  skipped=$((skipped + 1))
  echo "SKIPPED: $1"
}

# check TOOL COMMAND...: one result, from the command's exit status.
check() {
  tool=$1
  shift
  if ! command -v "$tool" >/dev/null 2>&1; then
    skip "no $tool"
  elif "$@" >"$tmp/log" 2>&1; then
    passed=$((passed + 1))
    echo "$tool finds nothing"
  else
    failed=$((failed + 1))
    echo "FAILED: $tool"
    grep -v ' warnings\{0,1\} generated\.$' "$tmp/log" # counts of what the headers of systems have
  fi
}

# The library's own commands: its sources are compiled for tests as well, and would be checked once for each.
library_commands() {
  awk 'BEGIN { RS = "}" } /"file"/ && /ulyx_(cuda_)?objects\.dir/ { sub(/^[^{]*/, ""); print sep $0 "}"; sep = "," }
    BEGIN { print "[" } END { print "]" }' "$build/compile_commands.json"
}
# One file a process: clang 14's analyzer takes va_list for uninitialised in every file but its first.
run_clang_tidy() {
  library_commands >"$tmp/compile_commands.json"
  sed -n 's/^ *"file": "\(.*\.c\)".*/\1/p' "$tmp/compile_commands.json" >"$tmp/files"
  [ -s "$tmp/files" ] || return 1
  xargs -P "$cores" -n 1 clang-tidy -p "$tmp" --quiet <"$tmp/files"
}

# Every macro as it is when the library is built, rather than all combinations. Bytes that hold floats are read as
# such, here as on devices. NCCL's header is not read, so that an ncclUniqueId is not seen to be filled.
run_cppcheck() {
  cppcheck -q -j "$cores" --std=c11 --enable=warning,performance,portability --error-exitcode=1 \
    --suppress=invalidPointerCast --suppress=uninitvar:runtime/worlds.c -D_POSIX_C_SOURCE=200809L -DULYX_HAVE_CUDA \
    -Iinclude -Iruntime -Icuda runtime perf tests/*.c docs/examples/*.c
}

run_shellcheck() { find . -name build -prune -o -name '*.sh' -exec shellcheck -S warning .ci/run {} +; }

run_clang_format() {
  find runtime include cuda perf tests docs/examples \( -name '*.c' -o -name '*.h' -o -name '*.hpp' -o -name '*.cc' \
    -o -name '*.cu' -o -name '*.cuh' \) -exec clang-format --dry-run --Werror {} +
}

check clang-tidy run_clang_tidy
check cppcheck run_cppcheck
check shellcheck run_shellcheck
# Other versions lay some lines out otherwise.
case $(clang-format --version 2>/dev/null) in
  *version\ 14.*) check clang-format run_clang_format ;;
  *) skip "no clang-format 14" ;;
esac
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] || exit 1
[ "$skipped" -eq 0 ] || exit 77
