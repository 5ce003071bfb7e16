#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The shared library exports exactly the functions that ulyx.h declares and the table that ulyx_plugin.h names, and what
# tests/exported_symbols.txt holds: a function that goes away is seen, and one that comes is meant. Of the headers'
# structs and enums none is missing in tests/abi_test.c.
#
# usage: exports_test.sh LIBRARY PROJECT
set -eu
library=$1 project=$2
LC_ALL=C
export LC_ALL
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

{
  sed -n 's/^ULYX_API .*[ *]\(ulyx[A-Za-z0-9]*\)(.*/\1/p' "$project/include/ulyx.h"
  sed -n 's/^#define ULYX_PLUGIN_SYMBOL "\(.*\)"/\1/p' "$project/include/ulyx_plugin.h"
} | sort >"$tmp/declared"
nm -D --defined-only "$library" | awk '$2 != "A" {print $3}' | sed 's/@.*//' | sort >"$tmp/exported"
[ -s "$tmp/declared" ] || { echo "no declarations found"; exit 1; }
if ! diff "$tmp/declared" "$tmp/exported" >"$tmp/diff"; then
  echo "declared but not exported, and exported but not declared:"
  cat "$tmp/diff"
  exit 1
fi
if ! diff "$project/tests/exported_symbols.txt" "$tmp/exported" >"$tmp/diff"; then
  echo "in exported_symbols.txt but not exported, and exported but not there:"
  cat "$tmp/diff"
  exit 1
fi
types=$(sed -n 's/^} \(ulyx[A-Za-z0-9_]*_t\);$/\1/p' "$project/include/ulyx.h" "$project/include/ulyx_plugin.h")
for type in $types; do
  grep -q -e "STRUCT($type, " -e "sizeof($type)" "$project/tests/abi_test.c" || {
    echo "$type is not in abi_test.c"
    exit 1
  }
done
wc -l <"$tmp/exported" | sed 's/$/ symbols/'
