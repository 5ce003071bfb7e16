#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The run that CI cannot make, on a machine with two GPUs: builds, runs the whole suite, then measures what
# docs/performance.md shows. Logs go to a directory; what docs/gpu-runs.md records is printed.
#
#   tests/gpu.sh [DIRECTORY]      default build/gpu-run
set -u

cd "$(dirname "$0")/.." || exit
logs=${1:-build/gpu-run}
mkdir -p "$logs"
export NCCL_NVLS_ENABLE=0

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
if ! { cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=native >"$logs/configure.log" 2>&1 &&
  cmake --build build/cuda >"$logs/build.log" 2>&1; }; then
  tail -n 30 "$logs"/configure.log "$logs"/build.log
  exit 1
fi
grep 'ulyx transports' "$logs/configure.log"

# One program of tests, which ends with its own count.
suite() {
  binary=$(find build/cuda/tests -name "$1" -type f)
  timeout 240 "$binary" >"$logs/$1.log" 2>&1
  status=$?
  echo "$1: $(tail -n 1 "$logs/$1.log")"
  grep '^\[  FAILED' "$logs/$1.log"
  return $status
}

# What needs no GPU runs beside what does.
failed=0
{ ctest --test-dir build/cuda -E '^ulyx_' --timeout 240 >"$logs/ctest.log" 2>&1; } &
ctest=$!
suite ulyx_sim_tests &
sim=$!
suite ulyx_fake_tests &
fake=$!
suite ulyx_tests || failed=1
suite ulyx_onegpu_tests || failed=1
for job in $ctest $sim $fake; do wait "$job" || failed=1; done
grep -E 'tests passed|Failed|Skipped' "$logs/ctest.log"

measure() {
  echo "== $*"
  program=$1
  shift
  timeout 60 "build/cuda/perf/$program" -g 2 "$@" 2>&1 | tee -a "$logs/perf.log" | grep -v '^#' | grep -v '^$'
}
for shape in '512 8 64' '4096 24 128' '32760 12 128' '75600 40 128'; do
  # shellcheck disable=SC2086 # three words
  set -- $shape
  measure seq_to_heads_perf -b "$1" --heads "$2" --head-dim "$3" -G 20 --baseline 1
  measure heads_to_seq_perf -b "$1" --heads "$2" --head-dim "$3" -G 20 --baseline 1
  measure seq_to_heads_perf -b "$1" --heads "$2" --head-dim "$3" -n 50 --enqueue 1
done
measure seq_to_heads_perf --model all -n 5 -w 2
measure heads_to_seq_perf --model all -n 5 -w 2
for program in all_gather_rows_perf reduce_scatter_rows_perf all_to_all_rows_perf; do
  measure $program -b 75600 --row-elements 1280 -G 20 --baseline 1
done
measure all_gather_rows_perf --counts 50001,25599 --row-elements 1280 -G 20 --baseline 1
measure conv_halo_perf -b 75600 --row-elements 4096 --conv-kernel 4 -G 20 --baseline 1
measure state_chain_perf -b 75600 --heads 16 --key-dim 128 --value-dim 128 -G 20
if python3 -c 'import torch' 2>/dev/null; then
  for rows in '' --rows; do
    # shellcheck disable=SC2086 # an empty word is none
    python3 perf/peers_pytorch.py $rows 2>&1 | tee -a "$logs/peers.log"
  done
fi
exit $failed
