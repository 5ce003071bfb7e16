#!/bin/sh
# SPDX-License-Identifier: MIT
#
# nccl-tests' -t and -g: a perf program of N threads times G GPUs has N x G ranks, a GPU and a thread each, and moves right
# data between them. The GPUs are not there: the program runs on what stands in for CUDA and NCCL (tests/sim), which has as
# many devices as is said here.
#
#   tests/perf_threads_test.sh DIRECTORY    where seq_to_heads_sim is
#
# Ends with one line, '<n> passed, <m> failed', and exits non-zero where one failed.
# shellcheck disable=SC2086 # unquoted variables below hold one word a flag
set -u

here=$(dirname "$0")
# shellcheck source=tests/perf_checks.sh
. "$here/perf_checks.sh"
quick="-b 130 -n 2 -w 1 --heads 66 --head-dim 8"
program=seq_to_heads_sim

# Each rank's device, in rank order.
devices() { sed -n 's/^#  Rank .* device \([0-9]*\) fake$/\1/p' "$out" | tr '\n' ' '; }
devices_are() { [ "$(devices)" = "$(seq 0 $(($1 - 1)) | tr '\n' ' ')" ]; }

# has DEVICES RANKS THREADS GPUS FLAG...: what a run on so many devices has.
has() {
  export ULYX_FAKE_DEVICES="$1"
  ranks=$2 threads=$3 gpus=$4
  shift 4
  name="$* on $ULYX_FAKE_DEVICES GPUs"
  passes "$name" $program $quick -J "$json" "$@"
  check "$name: $threads threads of $gpus GPUs in the header" out_has "^# nThread $threads nGpus $gpus "
  check "$name: $ranks ranks" out_has ", $ranks ranks\$"
  check "$name: a device a rank" devices_are $ranks
  check_json "$name: as many in the JSON" "d['ranks'] == $ranks" "$json"
}

has 8 6 2 3 -t 2 -g 3
has 8 6 3 2 -t 3 -g 2
has 8 6 3 2 --nthreads 3 --ngpus 2
has 8 6 3 2 --nthreads=3 --ngpus=2
has 8 6 3 2 -t3 -g2
has 8 5 5 1 -t 5
has 8 5 1 5 -g 5
has 8 8 8 1 -t 8 -g 1
has 8 8 1 8 -t 1 -g 8
has 8 2 2 1 -t 4 -t 2 # the last one counts
has 1 1 1 1 -t 1
has 16 16 4 4 -t 4 -g 4
has 8 8 1 8 # all, unless told

# refuses_on DEVICES WHY FLAG...
refuses_on() {
  export ULYX_FAKE_DEVICES="$1"
  why=$2
  shift 2
  refuses "$why" $program $quick "$@"
}

refuses_on 8 'error: 9 GPUs were asked for, but there are 8$' -t 9
refuses_on 8 'error: 9 GPUs were asked for, but there are 8$' -t 3 -g 3
refuses_on 0 'error: 2 GPUs were asked for, but there are 0$' -t 2
refuses_on 64 'error: a process drives 64 GPUs at most, not 128$' -t 64 -g 2
refuses_on 64 'error: a process drives 64 GPUs at most, not 65$' -t 13 -g 5
refuses_on 8 'error: -t must be 1 to 64, not 0$' -t 0
refuses_on 8 'error: -t must be 1 to 64, not -1$' -t -1
refuses_on 8 'error: -t must be 1 to 64, not 65$' -t 65
refuses_on 8 'error: --nthreads must be 1 to 64, not 0$' --nthreads=0
refuses_on 8 "error: -t takes a number, not 'two'\$" -t two
refuses_on 8 "error: -t takes a number, not '2x'\$" -t2x
refuses_on 8 "error: -t takes a number, not '1.5'\$" -t 1.5
refuses_on 8 "error: -t takes a number, not ''\$" -t ''
refuses_on 8 "error: -t takes a number, not '99999999999999999999'\$" -t 99999999999999999999
refuses_on 8 'error: -t takes a value$' -t
refuses_on 8 'error: --ranks is for the CPU, -g and -t are for GPUs: give one of them$' --ranks 2 -t 2

# A process that a launcher has started drives one GPU.
export RANK=0 WORLD_SIZE=2 LOCAL_RANK=0
refuses_on 8 'error: torchrun started 2 processes, and each drives one GPU: drop -g and -t$' -t 2 --id-file "$scratch/id"
refuses_on 8 'error: torchrun started 2 processes, and each drives one GPU: drop -g and -t$' -g 2 --id-file "$scratch/id"
unset RANK WORLD_SIZE LOCAL_RANK

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
