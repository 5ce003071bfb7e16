#!/bin/sh
# SPDX-License-Identifier: MIT
#
# ulyx in a process that has loaded another NCCL than it was built with (loaded_nccl.c): too old, old enough to have no
# windows, and one of a year to come. What stands in for it has the functions that ulyx cannot do without, and a version.
#
# usage: loaded_nccl_test.sh PROGRAM LIBULYX CC
#
# Ends with one line, '<n> passed, <m> failed', and exits non-zero where one failed.
set -u
program=$1 library=$2 cc=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0
failed=0

# nccl VERSION: makes $scratch/libnccl.so.2.
nccl() {
  {
    echo "int ncclGetVersion(int* version) { return *version = $1, 0; }"
    nm -D --undefined-only "$library" | awk '$1 == "U" && $2 ~ /^nccl/ && $2 != "ncclGetVersion" {
      print "int " $2 "(void) { return 0; }" }'
  } >"$scratch/nccl.c"
  "$cc" -shared -fPIC -Wl,-soname,libnccl.so.2 -o "$scratch/libnccl.so.2" "$scratch/nccl.c"
}

# check VERSION RESULT TEXT: one result.
check() {
  if nccl "$1" && "$program" "$scratch/libnccl.so.2" "$library" "$2" "$3"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: NCCL $1"
  fi
}

check 21805 104 'the NCCL loaded has version 21805, expected 21900 or newer'
check 21903 0 ''
check 29999 0 ''
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
