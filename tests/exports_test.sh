#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The shared library exports exactly the functions that ulyx.h declares.
#
# usage: exports_test.sh LIBRARY PROJECT
set -eu
library=$1 project=$2
declared=$(sed -n 's/^ULYX_API .*[ *]\(ulyx[A-Za-z0-9]*\)(.*/\1/p' "$project/include/ulyx.h" | sort)
exported=$(nm -D --defined-only "$library" | awk '$2 != "A" {print $3}' | sed 's/@.*//' | sort)
[ -n "$declared" ] || { echo "no declarations found"; exit 1; }
if [ "$declared" != "$exported" ]; then
  echo "declared but not exported, and exported but not declared:"
  tmp=$(mktemp -d)
  trap 'rm -rf "$tmp"' EXIT
  printf '%s\n' "$declared" >"$tmp/declared"
  printf '%s\n' "$exported" >"$tmp/exported"
  diff "$tmp/declared" "$tmp/exported" || true
  exit 1
fi
printf '%s\n' "$declared" | wc -l | sed 's/$/ functions/'
