#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Installs a build, moves what was installed, and builds tests/consumer/ against it as other projects would: with
# find_package, with pkg-config, and by hand.
#
# usage: install_test.sh BUILD CMAKE GENERATOR MAKE_PROGRAM CC CXX HAVE_CUDA
#
# A build with loopback alone (HAVE_CUDA is OFF) must ask for neither CUDA nor NCCL, wherever they may be.
#
# Ends with one line, '<n> passed, <m> failed', and exits non-zero where one failed.
set -u
# shellcheck source=tests/install_support.sh
. "$(dirname "$0")/install_support.sh"
have_cuda=$7

needs_ulyx() { readelf -d "$1" | grep -q 'NEEDED.*\[libulyx\.so\.[0-9]*\]'; }
has_no_need_of_ulyx() { [ -x "$1" ] && ! needs_ulyx "$1"; }
names_no_directory_of() { ! grep -r -F -e "$1" "$libdir/cmake" "$libdir/pkgconfig" "$prefix/include"; }

# speaks_of_no_cuda COMMAND...: it prints something, and neither CUDA nor NCCL is in it.
speaks_of_no_cuda() { "$@" >"$scratch/said" && [ -s "$scratch/said" ] && ! grep -i -e cuda -e nccl "$scratch/said"; }

# build_and_run HOW COMPILER SOURCE FLAG...: by a plain compiler line.
build_and_run() {
  how=$1 compiler=$2 source=$3
  shift 3
  rm -f "$scratch/program"
  check "$how: builds" "$compiler" -o "$scratch/program" "$consumer/$source" "$@"
  check "$how: is right" is_right "$scratch/program"
}

# --- What was installed, elsewhere than it was installed to ------------------------------------------------------

install_and_move
for header in ulyx.h ulyx.hpp ulyx_plugin.h; do
  check "$header is there" test -f "$prefix/include/$header"
done
check "the static library is there" test -f "$libdir/libulyx.a"
soname=$(readelf -d "$libdir/libulyx.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
check "libulyx.so has a versioned SONAME" test "${soname#libulyx.so.}" != "$soname"
check "and lies there by that name" test -e "$libdir/$soname"
check "only libulyx's own file is a file" test -h "$libdir/$soname" -a -h "$libdir/libulyx.so"
check "nothing names the prefix of the installation" names_no_directory_of "$scratch/first"
check "nothing names the build" names_no_directory_of "$build"
if [ "$have_cuda" = OFF ]; then
  check "the library needs neither CUDA nor NCCL" speaks_of_no_cuda readelf -d "$libdir/libulyx.so"
  check "nor does ulyx.pc" speaks_of_no_cuda cat "$libdir/pkgconfig/ulyx.pc"
  check "nor do the targets" speaks_of_no_cuda eval "cat \"\$libdir\"/cmake/ulyx/*Targets*.cmake"
fi
if [ -x "$build/perf/ulyx_plan" ]; then
  check "ulyx_plan runs" "$prefix/bin/ulyx_plan" exchange --tokens 9 --heads 7 --head-dim 4 --ranks 4
  check "a perf program runs" "$prefix/bin/seq_to_heads_perf" --ranks 2 -b 32 -n 1 -w 0
fi

# --- find_package ------------------------------------------------------------------------------------------------

check "find_package: configures" configure consumer
check "find_package: found what was moved" grep -q -F "ulyx_DIR:PATH=$prefix/" "$scratch/consumer/CMakeCache.txt"
check "find_package: builds" "$cmake" --build "$scratch/consumer" --config Release
for program in consumer_c_shared consumer_cxx_shared consumer_c_static consumer_cxx_static; do
  path=$(find "$scratch/consumer" -type f -name "$program")
  check "find_package: $program is right" is_right "$path"
  case $program in
    *_shared) check "find_package: $program needs libulyx.so" needs_ulyx "$path" ;;
    *_static) check "find_package: $program has ulyx in itself" has_no_need_of_ulyx "$path" ;;
  esac
done
if [ "$have_cuda" = OFF ]; then # what was looked for is in the cache
  check "find_package: looks for neither CUDA nor NCCL" speaks_of_no_cuda cat "$scratch/consumer/CMakeCache.txt"
fi
sed 's/ulyx 0\.1 /ulyx 1.0 /' "$consumer/CMakeLists.txt" >"$scratch/CMakeLists.txt"
cp "$consumer"/consumer.* "$scratch"
consumer_was=$consumer consumer=$scratch
check "find_package: another major version is refused" eval '! configure refused'
consumer=$consumer_was

# --- pkg-config --------------------------------------------------------------------------------------------------

# shellcheck disable=SC2086,SC2046 # the flags are words; pkg-config escapes what the shell splits, hence eval
if command -v pkg-config >/dev/null 2>&1; then
  PKG_CONFIG_PATH=$libdir/pkgconfig
  export PKG_CONFIG_PATH
  check "pkg-config: knows the version" pkg-config --exact-version="$(sed -n 's/^Version: //p' "$PKG_CONFIG_PATH/ulyx.pc")" ulyx
  check "pkg-config: says nothing of what only the static library needs" eval \
    '! pkg-config --libs ulyx | grep -q -e -lm -e cudart -e nccl'
  eval "set -- $(pkg-config --cflags --libs ulyx)"
  build_and_run "pkg-config, C" "$cc" consumer.c -pthread "$@" "-Wl,-rpath,$libdir"
  check "pkg-config, C: needs libulyx.so" needs_ulyx "$scratch/program"
  build_and_run "pkg-config, C++" "$cxx" consumer.cc "$@" "-Wl,-rpath,$libdir"
  # Where both libraries lie side by side -lulyx is the shared one.
  eval "set -- $(pkg-config --static --cflags --libs ulyx | sed 's/-lulyx/-l:libulyx.a/')"
  build_and_run "pkg-config, static" "$cc" consumer.c "$@"
  check "pkg-config, static: has ulyx in itself" has_no_need_of_ulyx "$scratch/program"
else
  echo "SKIPPED: pkg-config (there is none)"
fi

# --- By hand -----------------------------------------------------------------------------------------------------

build_and_run "by hand, C" "$cc" consumer.c -std=c11 -pthread "-I$prefix/include" "-L$libdir" -lulyx "-Wl,-rpath,$libdir"
build_and_run "by hand, C++" "$cxx" consumer.cc -std=c++11 "-I$prefix/include" "-L$libdir" -lulyx "-Wl,-rpath,$libdir"
build_and_run "by hand, ulyx.hpp" "$cxx" consumer_17.cc -std=c++17 "-I$prefix/include" "-L$libdir" -lulyx \
  "-Wl,-rpath,$libdir"

# --- As a plugin: one header, and the library only when it runs --------------------------------------------------

mkdir "$scratch/alone" && cp "$prefix/include/ulyx_plugin.h" "$scratch/alone"
check "plugin: builds" "$cc" -o "$scratch/program" "$consumer/../plugin_test.c" -std=c11 -D_POSIX_C_SOURCE=200809L \
  -pthread "-I$scratch/alone" -ldl
check "plugin: is right" "$scratch/program" "$libdir/libulyx.so"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
