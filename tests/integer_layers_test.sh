#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The integer layers compile without CUDA or NCCL anywhere in sight: no header of theirs among what the sources
# include, directly or through others.
#
# usage: integer_layers_test.sh PROJECT CC SOURCE...
set -eu
project=$1 cc=$2
shift 2
cd "$project"
for source in "$@"; do
  # Every header, system ones too. -nostdinc++ and the like are not needed: no CUDA directory is given.
  headers=$("$cc" -std=c11 -D_POSIX_C_SOURCE=200809L -M -Iinclude -Iruntime "$source") || exit 1
  if printf '%s\n' "$headers" | tr ' ' '\n' | grep -Ei '(^|/)(cuda[^/]*|nccl[^/]*)\.h$|/cuda[^/]*/.*include/'; then
    echo "$source includes the above"
    exit 1
  fi
done
echo "$# sources include neither CUDA nor NCCL"
