#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The run that CI cannot make, on a machine with two GPUs: builds, runs the whole suite, then measures what
# docs/performance.md shows. Logs go to a directory; what docs/gpu-runs.md records is printed.
#
#   tests/gpu.sh [DIRECTORY [PART...]]      default build/gpu-run, all parts
#
#   suite     every test
#   tables    each perf program by its automatic transport
#   compare   every transport beside NCCL and PyTorch (perf/compare.sh), and the sweep
#   soak      exchanges under random delays, skewed ranks, and a matrix product beside exchanges
set -u

cd "$(dirname "$0")/.." || exit
logs=${1:-build/gpu-run}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- suite tables compare soak
mkdir -p "$logs"
export NCCL_NVLS_ENABLE=0

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
if ! { cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=native >"$logs/configure.log" 2>&1 &&
  cmake --build build/cuda >"$logs/build.log" 2>&1; }; then
  tail -n 30 "$logs"/configure.log "$logs"/build.log
  exit 1
fi
grep 'ulyx transports' "$logs/configure.log"

# One program of tests in $2 processes at once, each of which ends with its own count; adds them up. Making a world
# costs far more than what a test then does, so the processes hardly disturb each other.
suite() {
  binary=$(find build/cuda/tests -name "$1" -type f)
  running=''
  shard=0
  while [ $shard -lt "$2" ]; do
    GTEST_TOTAL_SHARDS=$2 GTEST_SHARD_INDEX=$shard timeout 280 "$binary" >"$logs/$1.$shard.log" 2>&1 &
    running="$running $!"
    shard=$((shard + 1))
  done
  status=0
  for process in $running; do wait "$process" || status=1; done
  cat "$logs/$1".*.log >"$logs/$1.log" && rm "$logs/$1".*.log
  awk -v name="$1" '/^[0-9]+ passed, [0-9]+ failed/ { p += $1; f += $3; s += $5 }
    END { print name ": " p + 0 " passed, " f + 0 " failed, " s + 0 " skipped" }' "$logs/$1.log"
  grep -h '^\[  FAILED' "$logs/$1.log" | sort -u
  return $status
}

failed=0
run_suite() {
  # What needs no GPU runs beside what does.
  { ctest --test-dir build/cuda -E '^ulyx_' --timeout 240 >"$logs/ctest.log" 2>&1; } &
  ctest=$!
  suite ulyx_sim_tests 4 &
  sim=$!
  suite ulyx_fake_tests 1 &
  fake=$!
  CUDA_VISIBLE_DEVICES=1 suite ulyx_onegpu_tests 1 &
  onegpu=$!
  suite ulyx_tests 6 || failed=1
  for job in $ctest $sim $fake $onegpu; do wait "$job" || failed=1; done
  grep -E 'tests passed|Failed|Skipped' "$logs/ctest.log"
}

measure() {
  echo "== $*"
  program=$1
  shift
  timeout 60 "build/cuda/perf/$program" -g 2 "$@" 2>&1 | tee -a "$logs/perf.log" | grep -v '^#' | grep -v '^$'
}
run_tables() {
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
    python3 perf/peers_pytorch.py --rows 2>&1 | tee "$logs/peers.log"
  fi
}

run_compare() {
  sh perf/compare.sh -o "$logs" build/cuda/perf || failed=1
  sh perf/compare.sh -o "$logs" --sweep build/cuda/perf || failed=1
}

run_soak() {
  for transport in direct copy_engine; do
    build/cuda/perf/soak -g 2 --transport $transport || failed=1
    build/cuda/perf/soak -g 2 --transport $transport --skew-us 100 || failed=1
  done
  build/cuda/perf/beside_perf -g 2 || failed=1
}

for part in "$@"; do
  case $part in
    suite | tables | compare | soak) "run_$part" ;;
    *) echo "error: no part '$part'" >&2 && exit 2 ;;
  esac
done
exit $failed
