#!/bin/sh
# From a fresh Debian or Ubuntu machine to a checked measurement: installs what is missing, builds, and moves a
# real model's data there and back. On two GPUs or more it measures them; elsewhere 8 ranks share the CPU,
# which checks the data and says nothing about speed.
#
#   perf/run.sh [flags of the perf programs]
set -eu

for flag in "$@"; do
  case $flag in
    -h | --help) exec sed -n '2,/^set/{ /^#/s/^# \{0,1\}//p; }' "$0" ;;
    -J* | --output_file*) echo "error: the results go to build/perf/*_perf.json; run a program itself to name the file" >&2 && exit 2 ;;
  esac
done

top=$(cd "$(dirname "$0")/.." && pwd)
build=$top/build/perf

# shellcheck source=cmake/install_packages.sh
. "$top/cmake/install_packages.sh"
ulyx_install_packages build

# CMake looks for nvcc on the path alone.
if [ -x /usr/local/cuda/bin/nvcc ]; then PATH=$PATH:/usr/local/cuda/bin; fi

mkdir -p "$build"
if ! cmake -S "$top" -B "$build" -G Ninja -DULYX_TESTS=OFF >"$build/configure.log" 2>&1; then
  cat "$build/configure.log" >&2
  exit 1
fi
grep 'ulyx transports' "$build/configure.log"
cmake --build "$build"

gpus=0
if grep 'ulyx transports' "$build/configure.log" | grep -q nccl && command -v nvidia-smi >/dev/null 2>&1; then
  gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
fi

if [ "$gpus" -ge 2 ]; then
  job="-g $gpus --model wan2.1-14b-720p -n 20 -G 10 --baseline 1 --enqueue 1"
else
  job="--ranks 8 --model wan2.1-1.3b-480p -n 5 -w 1"
fi
for program in seq_to_heads_perf heads_to_seq_perf; do
  echo
  # shellcheck disable=SC2086 # one word a flag
  "$build/perf/$program" $job -J "$build/$program.json" "$@"
done
echo
echo "JSON: $build/seq_to_heads_perf.json $build/heads_to_seq_perf.json"
