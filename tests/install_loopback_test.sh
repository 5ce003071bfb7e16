#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Builds the library with loopback alone, where CUDA and NCCL are there to be found, and tests its installation as
# install_test.sh does.
#
# usage: install_loopback_test.sh SOURCE CMAKE GENERATOR MAKE_PROGRAM CC CXX
#
# Ends with one line, '<n> passed, <m> failed', and exits non-zero where one failed.
set -u
source=$1 cmake=$2 generator=$3 make_program=$4 cc=$5 cxx=$6
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
if ! "$cmake" -S "$source" -B "$build" -G "$generator" "-DCMAKE_MAKE_PROGRAM=$make_program" "-DCMAKE_C_COMPILER=$cc" \
  "-DCMAKE_CXX_COMPILER=$cxx" -DULYX_CUDA=OFF -DULYX_TESTS=OFF -DULYX_PERF=OFF >"$build/log" 2>&1 ||
  ! grep 'ulyx transports: loopback only' "$build/log" || ! "$cmake" --build "$build" >"$build/log" 2>&1; then
  cat "$build/log"
  echo "FAILED: builds with loopback alone"
  echo "0 passed, 1 failed"
  exit 1
fi
sh "$(dirname "$0")/install_test.sh" "$build" "$cmake" "$generator" "$make_program" "$cc" "$cxx" OFF
