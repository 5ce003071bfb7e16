#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What the launchers that are here really set: mpirun of Open MPI and of MPICH, torchrun, and srun where it reaches a
# cluster start a perf program that may see no GPU, and whose refusal says which rank of how many it is and which on its
# machine. launcher_test.cc has the same from written variables, and all that launchers do not set.
#
#   tests/launchers_test.sh DIRECTORY    where the programs are
#
# Ends with one line, '<n> passed, <m> failed, <k> skipped', counted in launchers, and exits non-zero where one failed, 77
# where none is here.
set -u

[ $# -eq 1 ] || { echo "usage: $0 DIRECTORY" >&2 && exit 2; }
program=$(cd "$1" && pwd)/seq_to_heads_perf || exit 2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0
failed=0
skipped=0
export CUDA_VISIBLE_DEVICES=''
# A launcher around this test.
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS NCCL_COMM_ID
unset SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE
unset OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE
# A launcher ends the others when one has failed.
# shellcheck disable=SC2016 # the shell that is launched replaces it
always_right='"$0" -b 16 2>&1; exit 0'

skip() {
  skipped=$((skipped + 1))
  echo "SKIPPED: $1"
}

# launches NAME COMMAND...: three ranks on this machine, each of which names itself.
launches() {
  name=$1
  shift
  timeout 100 "$@" sh -c "$always_right" "$program" >"$tmp/out" 2>&1
  for rank in 0 1 2; do
    grep -q "error: $name started 3 processes, which need a GPU each, but rank $rank (local rank $rank) sees none" \
      "$tmp/out" && continue
    failed=$((failed + 1))
    echo "FAILED: $name: no word of rank $rank"
    sed 's/^/  | /' "$tmp/out" | tail -n 20
    return
  done
  passed=$((passed + 1))
  echo "$name: three ranks"
}

# first_of COMMAND...: the first that is here.
first_of() {
  for command in "$@"; do
    command -v "$command" && return
  done
  return 1
}

if mpirun=$(first_of mpirun.openmpi) || { mpirun --version 2>/dev/null | grep -q 'Open MPI' && mpirun=mpirun; }; then
  launches mpirun env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$mpirun" --oversubscribe -n 3
else
  skip "no mpirun of Open MPI"
fi
if mpiexec=$(first_of mpiexec.hydra); then
  launches PMI "$mpiexec" -n 3
else
  skip "no mpirun of MPICH"
fi
if timeout 100 torchrun --standalone --nproc_per_node 2 --no_python true >/dev/null 2>&1; then
  launches torchrun torchrun --standalone --nproc_per_node 3 --no_python
else
  skip "no torchrun that works"
fi
# A cluster that has room now, and sees the program.
if timeout 60 srun --immediate=20 -N 1 -n 3 --overcommit test -x "$program" >/dev/null 2>&1; then
  launches srun srun -N 1 -n 3 --overcommit
else
  skip "no srun with a cluster"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] || exit 1
[ "$passed" -gt 0 ] || exit 77
