#!/bin/sh
# SPDX-License-Identifier: MIT
#
# ulyx by every transport beside what it is held against, on the same shapes and the same machine: a contiguous copy to
# a peer (the limit), NCCL alone and, where PyTorch is there, what PyTorch programs do. Builds nothing.
#
#   perf/compare.sh [-o DIRECTORY] [--gpus N] [--mode graph|eager] [--sweep] [BUILD_PERF_DIR]
#
#   -o DIRECTORY     where the results go: compare.json or sweep.json, and a log of every run [BUILD_PERF_DIR/compare]
#   --gpus N         on N GPUs; 0 and 1: none [all]
#   --mode MODE      CUDA graphs alone or eager exchanges alone [both; with --sweep graphs]
#   --sweep          sizes from 1 KB to 1 GB a rank instead: how far auto is from the best transport
#   BUILD_PERF_DIR   where the perf programs are [build/perf/perf, else build/cuda/perf]
#
# Without two GPUs it runs tiny shapes on loopback, to show that it works: those numbers mean nothing. Exit status: 0 all
# right, 1 wrong data or no result of auto, 2 wrong usage.
set -u

here=$(cd "$(dirname "$0")" && pwd)
refuse() {
  echo "error: $1" >&2
  exit 2
}

dir='' gpus='' modes='' kind=compare bin=''
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '4,/^set/{ /^#/s/^# \{0,1\}//p; }' "$0" && exit 0 ;;
    --sweep) kind=sweep ;;
    -o | --gpus | --mode)
      [ $# -ge 2 ] || refuse "$1 takes a value"
      case $1 in -o) dir=$2 ;; --gpus) gpus=$2 ;; --mode) modes=$2 ;; esac
      shift
      ;;
    -*) refuse "unknown flag '$1' (-h lists the flags)" ;;
    *) bin=$1 ;;
  esac
  shift
done
case $gpus in *[!0-9]* | ??????*) refuse "--gpus takes a number, not '$gpus'" ;; esac
case $modes in '' | graph | eager) ;; *) refuse "--mode takes graph or eager, not '$modes'" ;; esac
if [ -z "$bin" ]; then
  bin=$here/../build/perf/perf
  [ -x "$bin/seq_to_heads_perf" ] || bin=$here/../build/cuda/perf
fi
[ -x "$bin/seq_to_heads_perf" ] || refuse "no perf programs in $bin: build them first, or name their directory"
dir=${dir:-$bin/compare}
mkdir -p "$dir" || exit 2
if [ -z "$gpus" ]; then gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU'); fi

if [ "$gpus" -ge 2 ]; then
  ranks=$gpus world="-g $gpus"
  shapes='512x8x64 4096x24x128 32760x12x128 75600x40x128 75601x41x128'
  graph='-G 20' eager='-n 50' patience=120
  # Tokens a rank that each heads and dim begin and end with; a token of o is a third of one of q, k and v.
  sweeps='seq_to_heads:8:64:1:4096 seq_to_heads:40:128:512:32768 heads_to_seq:8:64:1:4096 heads_to_seq:40:128:512:131072'
  case $kind in compare) modes=${modes:-graph eager} ;; sweep) modes=${modes:-graph} ;; esac
else
  ranks=2 world='--ranks 2'
  shapes='16x4x8 17x5x8'
  graph='' eager='-n 3 -w 1' patience=20
  sweeps='seq_to_heads:4:8:1:16 seq_to_heads:8:16:32:128 heads_to_seq:4:8:1:16 heads_to_seq:8:16:32:128'
  [ "$modes" != graph ] || echo "# The CPU has no graphs: eager."
  modes=eager
  echo "# Fewer than two GPUs: 2 ranks on loopback. This shows that the comparison runs; its numbers mean nothing."
fi

facts=$dir/facts
notes=$dir/notes
: >"$facts"
: >"$notes"

# measure MODE OPERATION TRANSPORT HEADS DIM FLAG...: one run of a program, its rows as facts.
measure() {
  mode=$1 operation=$2 transport=$3 heads=$4 dim=$5
  shift 5
  case $mode in graph) repeat=$graph ;; *) repeat=$eager ;; esac
  # The limit and NCCL alone are auto's neighbours in the same run.
  if [ "$transport" = auto ] && [ "$kind" = compare ] && [ "$gpus" -ge 2 ]; then repeat="$repeat --baseline 1"; fi
  run=$dir/$kind-$mode-$operation-$heads-$dim-$transport
  # shellcheck disable=SC2086 # one word a flag
  timeout -k 5 "$patience" "$bin/${operation}_perf" $world --transport "$transport" --heads "$heads" --head-dim "$dim" \
    $repeat "$@" -J "$run.json" >"$run.log" 2>&1
  status=$?
  if [ "$status" -le 1 ]; then # 1: wrong data, which the rows say
    awk -v kind=ulyx -v mode="$mode" -v operation="$operation" -v transport="$transport" -f "$here/compare_facts.awk" \
      "$run.json" >>"$facts"
  else
    why=$(grep -m 1 '^error: ' "$run.log") || why="exit status $status (124: not done after $patience s)"
    echo "# N/A: $transport: ${why#error: }" >>"$notes"
  fi
}

transports='nccl direct copy_engine auto'
compare() {
  for mode in $modes; do
    for operation in seq_to_heads heads_to_seq; do
      for shape in $shapes; do
        dim=${shape##*x} heads=${shape%x*} tokens=${shape%%x*}
        heads=${heads#*x}
        echo "# $mode $operation $shape" >&2
        printf '%s\tshape\t%s\n' "$mode $operation $tokens $heads $dim" "$shape" >>"$facts"
        for transport in $transports; do measure "$mode" "$operation" "$transport" "$heads" "$dim" -b "$tokens"; done
      done
    done
  done
}

sweep() {
  for mode in $modes; do
    for one in $sweeps; do
      oldIFS=$IFS IFS=:
      # shellcheck disable=SC2086 # its five fields
      set -- $one
      IFS=$oldIFS
      echo "# $mode $1, heads $2, dim $3, $4 to $5 tokens a rank" >&2
      for transport in $transports; do
        measure "$mode" "$1" "$transport" "$2" "$3" -b $(($4 * ranks)) -e $(($5 * ranks)) -f 4
      done
    done
  done
}

# What PyTorch programs do, each shape eager and as a graph in one run.
peers() {
  [ "$gpus" -ge 2 ] && python3 -c 'import torch' 2>/dev/null || return 0
  echo "# PyTorch" >&2
  rm -f "$dir/peers.json"
  timeout --foreground -k 5 300 python3 "$here/peers_pytorch.py" --ranks "$ranks" --json "$dir/peers.json" \
    --shapes "$(echo "$shapes" | tr ' ' ,)" >"$dir/peers.log" 2>&1 || echo "# PyTorch: see $dir/peers.log" >>"$notes"
  [ -e "$dir/peers.json" ] || return 0
  for mode in $modes; do awk -v kind=peers -v mode="$mode" -f "$here/compare_facts.awk" "$dir/peers.json" >>"$facts"; done
}

case $kind in
  compare) compare && peers ;;
  sweep) sweep ;;
esac
awk -v kind=$kind -v ranks="$ranks" -v gpus="$gpus" -v json="$dir/$kind.json" -f "$here/compare_table.awk" "$facts"
status=$?
sort -u "$notes"
echo "# JSON: $dir/$kind.json"
exit $status
