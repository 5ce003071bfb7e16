#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The run that CI cannot make, on the GPUs of a machine, all or those of CUDA_VISIBLE_DEVICES: builds, runs the whole
# suite, then measures what docs/performance.md shows. Logs go to a directory; what docs/gpu-runs.md records is printed.
# One GPU is enough for the parts suite, which skips what needs more, endurance, hosts and shared.
#
#   tests/gpu.sh [DIRECTORY [PART...]]      default build/gpu-run, and the parts up to soak
#
#   suite     every test
#   endurance memory after 100,000 exchanges and 200 worlds, with nothing else on the GPUs
#   tables    each perf program by its automatic transport
#   compare   every transport beside NCCL and PyTorch (perf/compare.sh), and the sweep
#   soak      exchanges under random delays, skewed ranks, and a matrix product beside exchanges
#   models    every model of perf/models.tsv at full size by direct, copy_engine and what auto takes
#   loss      peers that are killed, stopped or absent, ULYX_TRIALS (100) of each on every transport
#   network   NCCL over sockets, as between hosts: one process of all ranks, and a process a rank
#   python    the examples on tensors of all GPUs, with PyTorch
#   hosts     NCCL between processes that it takes for hosts of their own, two ranks a GPU: exchanges, lost peers, PyTorch
#   shared    the same by direct and copy_engine, between processes that share a GPU (tests/shared_gpu.c)
set -u

cd "$(dirname "$0")/.." || exit
logs=${1:-build/gpu-run}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- suite tables compare soak
mkdir -p "$logs"
export NCCL_NVLS_ENABLE=0
devices=${CUDA_VISIBLE_DEVICES:-$(nvidia-smi --query-gpu=index --format=csv,noheader | paste -sd, -)}
gpus=$(echo "$devices" | tr ',' '\n' | grep -c .)
device() { echo "$devices" | cut -d, -f$(($1 + 1)); }
for part in "$@"; do
  case $part in
    suite | endurance | hosts | shared) [ "$gpus" -ge 1 ] ;;
    tables | compare | models | soak | loss | network | python) [ "$gpus" -ge 2 ] ;;
    *) echo "error: no part '$part'" >&2 && exit 2 ;;
  esac || { echo "error: too few GPUs for the part '$part': $gpus" >&2 && exit 1; }
done
others=$((gpus > 1 ? gpus - 1 : 1)) # that what needs one GPU has, while all do something else

# Nothing that was started runs on. What is in front is waited for by `await`, since a trap interrupts waits alone.
started() {
  ps -e -o pid= -o ppid= | awk -v root=$$ '{ parent[$1] = $2 } END {
    for (one in parent) {
      for (at = parent[one]; at > 1 && at != root;) at = parent[at]
      if (at == root) print one
    }
  }'
}
trap 'trap "" INT TERM; kill $(started) 2>/dev/null; exit 143' INT TERM
await() {
  "$@" &
  wait $!
}

await_all() { for process in "$@"; do wait "$process" || failed=1; done; }

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
if ! { cmake --preset cuda -DULYX_TESTS=ON -DCMAKE_CUDA_ARCHITECTURES=native >"$logs/configure.log" 2>&1 &&
  cmake --build build/cuda >"$logs/build.log" 2>&1; }; then
  tail -n 30 "$logs"/configure.log "$logs"/build.log
  exit 1
fi
grep 'ulyx transports' "$logs/configure.log"

# One program of tests in $2 processes at once, each of which ends with its own count; adds them up. Making a world
# costs far more than what a test then does, so the processes hardly disturb each other. $3: a filter. $4: each process
# has a GPU of its own, of those after the first.
suite() {
  binary=$(find build/cuda/tests -name "$1" -type f)
  log=$logs/$1${3:+.alone}
  running=''
  shard=0
  while [ $shard -lt "$2" ]; do
    (
      [ -z "${4:-}" ] || devices=$(device $((gpus - 1 - shard % others)))
      export CUDA_VISIBLE_DEVICES="$devices"
      export GTEST_TOTAL_SHARDS="$2" GTEST_SHARD_INDEX=$shard
      exec timeout 800 "$binary" --gtest_filter="${3:--*FarOffsets*:*Endurance*}"
    ) >"$log.$shard.log" 2>&1 &
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
  { ctest --test-dir build/cuda -E '^ulyx_' --timeout 240 --output-on-failure >"$logs/ctest.log" 2>&1; } &
  ctest=$!
  suite ulyx_sim_tests 4 &
  sim=$!
  suite ulyx_fault_tests 4 &
  fault=$!
  suite ulyx_fake_tests 1 &
  fake=$!
  suite ulyx_onegpu_tests $others '' alone &
  onegpu=$!
  suite ulyx_tests 6 || failed=1 # more, and their contexts hold each other up, all the more the more GPUs each has
  await_all $ctest $sim $fault $fake $onegpu
  # Tens of gigabytes each.
  suite ulyx_tests 1 '*FarOffsets*' || failed=1
  suite ulyx_onegpu_tests 1 '*FarOffsets*' || failed=1
  grep -E 'tests passed|Failed|Skipped|^FAILED' "$logs/ctest.log"
}

run_endurance() {
  (
    export ULYX_TEST_ALONE=1 ULYX_TEST_WATCHDOG_S=400
    suite ulyx_tests 1 '*Endurance*' || failed=1
    suite ulyx_onegpu_tests 1 '*Endurance*' || failed=1
    grep -h 'less free\|more resident\|OK \].*Endurance' "$logs"/*.alone.log
    exit $failed
  ) &
  wait $! || failed=1
}

rows() { grep -v -e '^#' -e '^$' "$1"; }
# One run of a program of perf/, of which the rows are shown.
measure() {
  echo "== $*"
  program=$1
  shift
  await timeout 120 "build/cuda/perf/$program" -g "$gpus" "$@" >"$logs/measured.log" 2>&1 || failed=1
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
  [ "$gpus" -ne 2 ] || measure all_gather_rows_perf --counts 50001,25599 --row-elements 1280 -G 20 --baseline 1
  measure conv_halo_perf -b 75600 --row-elements 4096 --conv-kernel 4 -G 20 --baseline 1
  measure state_chain_perf -b 75600 --heads 16 --key-dim 128 --value-dim 128 -G 20
  if [ "$gpus" -eq 2 ] && python3 -c 'import torch' 2>/dev/null; then # its rows are those of two ranks
    await python3 perf/peers_pytorch.py --rows >"$logs/peers.log" 2>&1 || failed=1
    cat "$logs/peers.log"
  fi
}

run_compare() {
  await sh perf/compare.sh -o "$logs" --gpus "$gpus" build/cuda/perf || failed=1
  await sh perf/compare.sh -o "$logs" --gpus "$gpus" --sweep build/cuda/perf || failed=1
}

run_models() {
  for transport in direct copy_engine auto; do
    for program in seq_to_heads_perf heads_to_seq_perf; do
      measure $program --model all --transport $transport --baseline 1 -n 10 -w 3 -G 20
    done
  done
}

run_soak() {
  for transport in direct copy_engine; do
    await timeout 200 build/cuda/perf/soak -g "$gpus" --transport $transport || failed=1
    await timeout 200 build/cuda/perf/soak -g "$gpus" --transport $transport --skew-us 100 || failed=1
  done
  await timeout 200 build/cuda/perf/beside_perf -g "$gpus" || failed=1
}

# Many trials at once ($3): each mostly waits for its deadline. The rest: more of peer_loss's flags.
lose() {
  signal=$1
  transport=$2
  together=$3
  shift 3
  log=$logs/loss.$signal.$transport${1:-}.log
  timeout 1200 ${preload:+env "LD_PRELOAD=$preload"} build/cuda/tests/peer_loss -s "$signal" -n "${ULYX_TRIALS:-100}" -j "$together" -T 3000 -t "$transport" \
    "$@" >"$log" 2>&1
  status=$?
  echo "peer_loss -s $signal -t $transport $*: $(tail -n 1 "$log")"
  return $status
}
# One transport on every two GPUs.
run_loss() {
  pair=0
  running=''
  for signal in kill stop absent overlap rest; do
    for transport in nccl direct copy_engine; do
      CUDA_VISIBLE_DEVICES=$(device $((2 * pair))),$(device $((2 * pair + 1))) lose $signal $transport 16 &
      running="$running $!"
      pair=$((pair + 1))
      [ $pair -eq $((gpus / 2)) ] || continue
      await_all $running
      pair=0
      running=''
    done
  done
  lose order nccl 16 & # of direct and copy_engine there are tests in the suite
  await_all $running $!
}

# $1 ranks, a process each, of the command that follows, which shows its rows. A process knows its GPU by LOCAL_RANK; with
# $hosts it is the only one of its host.
processes() {
  ranks=$1
  shift
  echo "== $ranks processes${hosts:+, a host each}: $*"
  rm -f "$logs"/processes.*.log "$logs/processes.id"
  running=''
  rank=0
  while [ $rank -lt "$ranks" ]; do
    (
      export RANK=$rank LOCAL_RANK=$rank WORLD_SIZE="$ranks" LOCAL_WORLD_SIZE="$ranks"
      if [ -n "${hosts:-}" ]; then
        export NCCL_HOSTID="host-$rank" LOCAL_RANK=0 LOCAL_WORLD_SIZE=1
        devices=$(device $((rank % gpus)))
      fi
      export CUDA_VISIBLE_DEVICES="$devices"
      exec timeout 100 ${preload:+env "LD_PRELOAD=$preload"} "$@"
    ) >"$logs/processes.$rank.log" 2>&1 &
    running="$running $!"
    rank=$((rank + 1))
  done
  await_all $running
  cat "$logs"/processes.*.log >>"$logs/processes.log"
  rows "$logs/processes.0.log"
}
# NCCL's own word for the way that it has taken in all processes since `over_sockets`.
over_sockets() {
  rm -f "$logs"/nccl.*.log
  export NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_DEBUG=INFO NCCL_DEBUG_FILE="$logs/nccl.%p.log"
}
count_sockets() { grep -h -o 'via NET/Socket' "$logs"/nccl.*.log | sort | uniq -c | grep . || failed=1; }

# The example that replaces a SequenceParallelContext, on so many ranks, against that of the file $ULYX_AGAINST where it is
# given. The rest: more of torchrun's words, before the program.
check_under_torchrun() {
  ranks=$1
  shift
  set -- "$@" docs/examples/python/sequence_parallel_check.py
  [ -z "${ULYX_AGAINST:-}" ] || set -- "$@" --against "$ULYX_AGAINST"
  ULYX_LIBRARY=$PWD/build/cuda/libulyx.so await torchrun --nproc-per-node "$ranks" "$@" >"$logs/torchrun.log" 2>&1 ||
    failed=1
  tail -n $((2 * ranks)) "$logs/torchrun.log"
}

run_network() {
  (
    over_sockets
    export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1
    for program in seq_to_heads_perf heads_to_seq_perf; do
      measure $program -b 4096 -e 32760 -f 8 -n 20
      processes "$gpus" build/cuda/perf/$program --id-file "$logs/processes.id" -b 4096 -e 32760 -f 8 -n 20
    done
    count_sockets
    exit $failed
  ) &
  wait $! || failed=1
}

# Processes that NCCL takes for hosts: the perf programs on so many ranks, with more of their flags, and the example in
# PyTorch on two.
exchange_between_hosts() {
  ranks=$1
  shift
  for program in seq_to_heads_perf heads_to_seq_perf all_to_all_rows_perf conv_halo_perf state_chain_perf; do
    processes "$ranks" build/cuda/perf/$program --id-file "$logs/processes.id" -b 4096 -e 4099 -i 3 -n 10 -w 2 "$@"
  done
}
check_between_hosts() {
  python3 -c 'import torch' 2>/dev/null || return 0
  # on the first GPU
  # shellcheck disable=SC2016 # the ranks' shells replace these
  check_under_torchrun 2 --no-python sh -c \
    'NCCL_HOSTID=host-$RANK LOCAL_RANK=0 LD_PRELOAD=$1 && export NCCL_HOSTID LOCAL_RANK LD_PRELOAD && shift && exec python3 "$@"' \
    sh "${preload:-}"
}

run_hosts() {
  (
    over_sockets
    hosts=1
    for ranks in 2 $((2 * gpus > 2 ? 2 * gpus : 3)); do exchange_between_hosts $ranks; done
    check_between_hosts
    count_sockets
    unset NCCL_DEBUG NCCL_DEBUG_FILE
    await lose absent nccl 16 -H || failed=1
    for signal in kill stop order overlap rest; do
      await lose $signal nccl 12 -H || failed=1
    done
    exit $failed
  ) &
  wait $! || failed=1
}

run_shared() {
  (
    over_sockets
    unset NCCL_DEBUG NCCL_DEBUG_FILE
    hosts=1
    preload=$PWD/build/cuda/tests/libshared_gpu.so
    CUDA_VISIBLE_DEVICES=$(device 0)
    devices=$CUDA_VISIBLE_DEVICES
    gpus=1
    export CUDA_VISIBLE_DEVICES
    for transport in direct copy_engine; do
      for ranks in 2 3; do exchange_between_hosts $ranks --transport $transport; done
      ULYX_TRANSPORT=$transport check_between_hosts
      await lose absent $transport 16 -H || failed=1
      for signal in kill stop overlap rest; do
        await lose $signal $transport 16 -H || failed=1
      done
    done
    exit $failed
  ) &
  wait $! || failed=1
}

run_python() {
  library=$PWD/build/cuda/libulyx.so
  await sh tests/python_test.sh "$library" "$PWD" >"$logs/python.log" 2>&1
  case $? in 0 | 77) ;; *) failed=1 ;; esac
  tail -n 3 "$logs/python.log"
  check_under_torchrun "$gpus"
}

for part in "$@"; do "run_$part"; done
exit $failed
