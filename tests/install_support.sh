# shellcheck shell=sh disable=SC2034 # what is not used here is used where it is sourced
# SPDX-License-Identifier: MIT
#
# What the tests of installing share; sourced with their arguments: BUILD CMAKE GENERATOR MAKE_PROGRAM CC CXX.
build=$1 cmake=$2 generator=$3 make_program=$4 cc=$5 cxx=$6
consumer=$(cd "$(dirname "$0")/consumer" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
log=$scratch/log
passed=0
failed=0

# Nothing of this machine's may stand in for what was installed.
unset DESTDIR LD_LIBRARY_PATH LIBRARY_PATH CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH CMAKE_PREFIX_PATH ulyx_DIR ulyx_ROOT
unset PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR CFLAGS CXXFLAGS LDFLAGS
unset ULYX_TRANSPORT ULYX_TIMEOUT_MS ULYX_AGREE_PLANS

# check NAME COMMAND...: one result, from the command's exit status.
check() {
  name=$1
  shift
  if "$@" >"$log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $name"
    sed 's/^/  | /' "$log" | tail -n 20
  fi
}

is_right() { "$@" | grep -q '^ulyx [0-9]*: right$'; }

# Installs the build and moves what was installed; sets prefix and libdir.
install_and_move() {
  check "installs" "$cmake" --install "$build" --prefix "$scratch/first/prefix"
  mkdir "$scratch/moved there" && mv "$scratch/first/prefix" "$scratch/moved there/ulyx" && rmdir "$scratch/first"
  prefix="$scratch/moved there/ulyx"
  libdir=$(dirname "$(find "$prefix" -name ulyx.pc)")/..
  if ! libdir=$(cd "$libdir" && pwd) || [ ! -e "$libdir/libulyx.so" ]; then
    echo "FAILED: no ulyx.pc below a directory with libulyx.so"
    echo "$passed passed, $((failed + 1)) failed"
    exit 1
  fi
}

# configure DIRECTORY FLAG...
configure() {
  directory=$1
  shift
  "$cmake" -S "$consumer" -B "$scratch/$directory" -G "$generator" "-DCMAKE_MAKE_PROGRAM=$make_program" \
    "-DCMAKE_C_COMPILER=$cc" "-DCMAKE_CXX_COMPILER=$cxx" "-DCMAKE_PREFIX_PATH=$prefix" -DCMAKE_BUILD_TYPE=Release "$@"
}
