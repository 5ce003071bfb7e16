#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Which versions of CUDA and NCCL the library compiles with: every C source that touches them, with warnings as errors,
# against each CUDA's headers with each NCCL's; and the kernels, for every architecture that they are built for,
# with CUDA's compilers. Headers, and the newest compiler, are PyPI's packages of them, kept in build/versions/.
#
#   tests/versions.sh [-c CUDAS] [-n NCCLS] [-k NVCCS]
#
#   -c '12.4 13.5'     these CUDA headers rather than all
#   -n '2.19 2.32'     these NCCL headers rather than all
#   -k '/path/nvcc'    these compilers rather than the one at hand and PyPI's newest; '' for none
#
# Needs python3 with pip and, the first time, 3 GB of download; nothing of it is executed but the compiler.
# Ends with one line, '<n> passed, <m> failed, <k> skipped', and exits non-zero where one failed; 77 without pip.
set -eu

cd "$(dirname "$0")/.."
cudas='12.4 12.5 12.6 12.8 12.9 13.0 13.1 13.2 13.3 13.4 13.5'
nccls='2.19 2.20 2.21 2.22 2.23 2.24 2.25 2.26 2.27 2.28 2.29 2.30 2.31 2.32'
newest_nvcc=13.5
nvccs=default
while getopts c:n:k: flag; do
  case $flag in
    c) cudas=$OPTARG ;;
    n) nccls=$OPTARG ;;
    k) nvccs=$OPTARG ;;
    *) exit 2 ;;
  esac
done
if ! python3 -m pip --version >/dev/null 2>&1; then
  echo "SKIPPED: no python3 with pip"
  echo "0 passed, 0 failed, 1 skipped"
  exit 77
fi
cache=$PWD/build/versions
mkdir -p "$cache"
passed=0
failed=0

# unpack DIRECTORY REQUIREMENT FILES...: those files of PyPI's package, laid out as in the package.
unpack() {
  directory=$1 requirement=$2
  shift 2
  rm -rf "$cache/download"
  python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$cache/download" "$requirement"
  python3 - "$directory" "$cache/download" "$@" <<'END'
import fnmatch, glob, os, sys, zipfile
directory, download, patterns = sys.argv[1], sys.argv[2], sys.argv[3:]
for name in glob.glob(download + '/*.whl'):
    with zipfile.ZipFile(name) as wheel:
        for member in wheel.infolist():
            if any(fnmatch.fnmatch(member.filename, pattern) for pattern in patterns):
                path = wheel.extract(member, directory)
                os.chmod(path, member.external_attr >> 16 | 0o600)
END
  rm -rf "$cache/download"
}

# fetch NAME COMMAND...: runs the command with a directory to fill, unless that was filled before.
fetch() {
  name=$1
  shift
  [ ! -d "$cache/$name" ] || return 0
  rm -rf "$cache/partial"
  mkdir -p "$cache/partial"
  "$@" "$cache/partial"
  mv "$cache/partial" "$cache/$name"
}
fetch_cuda_headers() {
  case $1 in
    12.*)
      unpack "$2" "nvidia-cuda-runtime-cu12==$1.*" '*/include/*'
      unpack "$2" "nvidia-cuda-nvcc-cu12==$1.*" '*/include/*'
      unpack "$2" "nvidia-nvtx-cu12==$1.*" '*/include/*'
      ;;
    *)
      unpack "$2" "nvidia-cuda-runtime==$1.*" '*/include/*'
      unpack "$2" "nvidia-cuda-crt==$1.*" '*/include/*'
      unpack "$2" "nvidia-nvtx==$1.*" '*/include/*'
      ;;
  esac
}
fetch_nccl_headers() { unpack "$2" "nvidia-nccl-cu12==$1.*" '*/include/*'; }
fetch_nvcc() {
  for part in runtime crt nvcc; do
    unpack "$2" "nvidia-cuda-$part==$1.*" '*/include/*' '*/bin/*'
  done
  unpack "$2" nvidia-cuda-cccl '*/include/*' # has a version of its own
  unpack "$2" "nvidia-nvvm==$1.*" '*/nvvm/*'
}
for cuda in $cudas; do fetch "cuda-$cuda" fetch_cuda_headers "$cuda"; done
for nccl in $nccls; do fetch "nccl-$nccl" fetch_nccl_headers "$nccl"; done

# -isystem for every directory of headers in a package.
includes() { find "$cache/$1" -type d -name include | sed 's/^/-isystem /' | tr '\n' ' '; }

# What CMakeLists.txt lists, and perf/'s.
sources() {
  sed -n '/^set(ULYX_CUDA_SOURCES/,/)/p' CMakeLists.txt | grep -o 'runtime/[a-z_]*\.c'
  find perf -name 'cuda_*.c' ! -name cuda_absent.c
}
kernels() { sed -n 's/.*add_library(ulyx_cuda_objects OBJECT//p' CMakeLists.txt | grep -o 'cuda/[a-z_]*\.cu'; }

# result COUNT LOG TEXT: one result, and what the compiler said where it failed.
result() {
  if [ "$1" -eq 0 ]; then
    passed=$((passed + 1))
    echo "ok      $3"
  else
    failed=$((failed + 1))
    echo "FAILED: $3"
    head -n 40 "$2"
  fi
}

log=$cache/log
flags='-std=c11 -fsyntax-only -Wall -Wextra -Werror -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes
  -Wmissing-prototypes -D_POSIX_C_SOURCE=200809L -DULYX_HAVE_CUDA -Iinclude -Iruntime -Icuda'
for cuda in $cudas; do
  for nccl in $nccls; do
    status=0
    # shellcheck disable=SC2046,SC2086 # one word a flag
    sources | xargs -P "$(getconf _NPROCESSORS_ONLN)" -n 4 "${CC:-cc}" $flags \
      $(includes "nccl-$nccl") $(includes "cuda-$cuda") >"$log" 2>&1 || status=$?
    result $status "$log" "CUDA $cuda, NCCL $nccl: sources"
  done
done

# compile_kernels NVCC: the one that has NCCL in it with each, the others with the oldest.
compile_kernels() {
  release=$("$1" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
  newest=90
  codes='-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90'
  if "$1" --list-gpu-code | grep -qx sm_100; then
    newest=100
    codes="$codes -gencode arch=compute_100,code=sm_100"
  fi
  codes="$codes -gencode arch=compute_$newest,code=compute_$newest"
  for kernel in $(kernels); do
    with=${nccls%% *}
    [ "$kernel" != cuda/window.cu ] || with=$nccls
    for nccl in $with; do
      status=0
      # shellcheck disable=SC2046,SC2086 # one word a flag
      "$1" -std=c++17 -Werror=all-warnings $codes -Iinclude -Iruntime -Icuda $(includes "nccl-$nccl") \
        -c -o "$cache/kernel.o" "$kernel" >"$log" 2>&1 || status=$?
      result $status "$log" "nvcc $release, NCCL $nccl: $kernel, sm_80 to sm_$newest"
    done
  done
}
if [ "$nvccs" = default ]; then
  fetch "nvcc-$newest_nvcc" fetch_nvcc "$newest_nvcc"
  nvccs=$(find "$cache/nvcc-$newest_nvcc" -name nvcc -type f)
  [ ! -x /usr/local/cuda/bin/nvcc ] || nvccs="/usr/local/cuda/bin/nvcc $nvccs"
fi
for nvcc in $nvccs; do compile_kernels "$nvcc"; done

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
