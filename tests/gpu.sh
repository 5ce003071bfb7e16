#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The run that CI cannot make, on a machine with two GPUs: builds, runs the whole suite, then measures what
# docs/performance.md shows. Logs go to a directory; what docs/gpu-runs.md records is printed.
#
#   tests/gpu.sh [DIRECTORY [PART...]]      default build/gpu-run, and the parts up to soak
#
#   suite     every test
#   tables    each perf program by its automatic transport
#   compare   every transport beside NCCL and PyTorch (perf/compare.sh), and the sweep
#   soak      exchanges under random delays, skewed ranks, and a matrix product beside exchanges
#   loss      peers that are killed, stopped or absent, ULYX_TRIALS (100) of each on every transport
#   network   NCCL over sockets, as between hosts: one process of two ranks, and two processes
#   python    the examples on tensors of both GPUs, with PyTorch
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
# costs far more than what a test then does, so the processes hardly disturb each other. $3: a filter.
suite() {
  binary=$(find build/cuda/tests -name "$1" -type f)
  log=$logs/$1${3:+.alone}
  running=''
  shard=0
  while [ $shard -lt "$2" ]; do
    GTEST_TOTAL_SHARDS=$2 GTEST_SHARD_INDEX=$shard timeout 280 "$binary" --gtest_filter="${3:--*FarOffsets*}" \
      >"$log.$shard.log" 2>&1 &
    running="$running $!"
    shard=$((shard + 1))
  done
  status=0
  for process in $running; do wait "$process" || status=1; done
  cat "$log".[0-9]*.log >"$log.log" && rm "$log".[0-9]*.log
  awk -v name="$1 ${3:-}" '/^[0-9]+ passed, [0-9]+ failed/ { p += $1; f += $3; s += $5 }
    END { print name ": " p + 0 " passed, " f + 0 " failed, " s + 0 " skipped" }' "$log.log"
  grep -h '^\[  FAILED' "$log.log" | sort -u
  return $status
}

failed=0
run_suite() {
  # What needs no GPU runs beside what does.
  { ctest --test-dir build/cuda -E '^ulyx_' --timeout 240 >"$logs/ctest.log" 2>&1; } &
  ctest=$!
  suite ulyx_sim_tests 4 &
  sim=$!
  suite ulyx_fault_tests 4 &
  fault=$!
  suite ulyx_fake_tests 1 &
  fake=$!
  CUDA_VISIBLE_DEVICES=1 suite ulyx_onegpu_tests 1 &
  onegpu=$!
  suite ulyx_tests 6 || failed=1
  for job in $ctest $sim $fault $fake $onegpu; do wait "$job" || failed=1; done
  # Tens of gigabytes each.
  suite ulyx_tests 1 '*FarOffsets*' || failed=1
  suite ulyx_onegpu_tests 1 '*FarOffsets*' || failed=1
  grep -E 'tests passed|Failed|Skipped' "$logs/ctest.log"
}

rows() { grep -v -e '^#' -e '^$' "$1"; }
# One run of a program of perf/, of which the rows are shown.
measure() {
  echo "== $*"
  program=$1
  shift
  timeout 60 "build/cuda/perf/$program" -g 2 "$@" >"$logs/measured.log" 2>&1 || failed=1
  cat "$logs/measured.log" >>"$logs/perf.log"
  rows "$logs/measured.log"
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

# Sixteen trials at once: each mostly waits for its deadline.
run_loss() {
  for signal in kill stop absent; do
    for transport in nccl direct copy_engine; do
      log=$logs/loss.$signal.$transport.log
      timeout 400 build/cuda/tests/peer_loss -s $signal -n "${ULYX_TRIALS:-100}" -j 16 -T 3000 -t $transport \
        >"$log" 2>&1 || failed=1
      echo "peer_loss -s $signal -t $transport: $(tail -n 1 "$log")"
    done
  done
}

# Both ranks of a perf program, a process each.
two_processes() {
  program=$1
  shift
  echo "== $program, two processes: $*"
  rm -f "$logs/network.id"
  running=''
  for rank in 0 1; do
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 \
      timeout 60 "build/cuda/perf/$program" --id-file "$logs/network.id" "$@" >"$logs/network.$rank.log" 2>&1 &
    running="$running $!"
  done
  for process in $running; do wait "$process" || failed=1; done
  rows "$logs/network.0.log"
}
run_network() {
  rm -f "$logs"/nccl.*.log
  (
    export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo
    export NCCL_DEBUG=INFO NCCL_DEBUG_FILE="$logs/nccl.%p.log"
    for program in seq_to_heads_perf heads_to_seq_perf; do
      measure $program -b 4096 -e 32760 -f 8 -n 20
      two_processes $program -b 4096 -e 32760 -f 8 -n 20
    done
    grep -h -o 'via NET/Socket' "$logs"/nccl.*.log | sort | uniq -c | grep . || failed=1
    exit $failed
  ) || failed=1
}

run_python() {
  library=$PWD/build/cuda/libulyx.so
  sh tests/python_test.sh "$library" "$PWD" >"$logs/python.log" 2>&1
  case $? in 0 | 77) ;; *) failed=1 ;; esac
  tail -n 3 "$logs/python.log"
  ULYX_LIBRARY=$library torchrun --nproc-per-node 2 docs/examples/python/sequence_parallel_check.py \
    >"$logs/torchrun.log" 2>&1 || failed=1
  tail -n 12 "$logs/torchrun.log"
}

for part in "$@"; do
  case $part in
    suite | tables | compare | soak | loss | network | python) "run_$part" ;;
    *) echo "error: no part '$part'" >&2 && exit 2 ;;
  esac
done
exit $failed
