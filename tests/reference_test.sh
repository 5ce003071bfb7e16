#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The reference is made from the public headers without a warning, and has every function of the library, none without
# a word.
#
#   tests/reference_test.sh PROJECT
#
# Ends with one line, '<n> passed, <m> failed, <k> skipped', and exits non-zero where one failed; 77 without doxygen.
set -eu
project=$1
if ! command -v doxygen >/dev/null 2>&1; then
  echo "SKIPPED: no doxygen"
  echo "0 passed, 0 failed, 1 skipped"
  exit 77
fi
LC_ALL=C
export LC_ALL
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$project"

fail() {
  echo "FAILED: $1"
  cat "$2"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
}

{
  cat docs/reference/Doxyfile
  echo "OUTPUT_DIRECTORY = $tmp"
  echo "GENERATE_XML = YES"
} | doxygen - >"$tmp/log" 2>&1 || fail "doxygen warns:" "$tmp/log"

# 'name documented' or 'name bare', a function a line.
cat "$tmp"/xml/group__*.xml | awk '
  /<memberdef kind="function"/ { inside = 1; words = 0; name = "" }
  inside && name == "" && /<name>/ { name = $0; gsub(/.*<name>|<\/name>.*/, "", name) }
  inside && /<para>/ { words = 1 }
  inside && /<\/memberdef>/ { inside = 0; print name, words ? "documented" : "bare" }' >"$tmp/functions"
sed 's/ .*//' "$tmp/functions" | sort >"$tmp/named"
grep -v '^ulyxPlugin' tests/exported_symbols.txt | diff - "$tmp/named" >"$tmp/diff" ||
  fail "in the library but not in the reference, and in the reference but not in the library:" "$tmp/diff"
if grep ' bare$' "$tmp/functions" >"$tmp/bare"; then fail "without a word:" "$tmp/bare"; fi
echo "$(wc -l <"$tmp/named") functions"
echo "1 passed, 0 failed, 0 skipped"
