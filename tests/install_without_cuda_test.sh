#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Installs a build with CUDA and links it where CUDA or NCCL are not found: the shared library is linked all the same,
# whoever insists on the static one is told what is missing.
#
# usage: install_without_cuda_test.sh BUILD CMAKE GENERATOR MAKE_PROGRAM CC CXX
#
# Ends with one line, '<n> passed, <m> failed', and exits non-zero where one failed.
set -u
# shellcheck source=tests/install_support.sh
. "$(dirname "$0")/install_support.sh"
unset CUDAToolkit_ROOT NCCL_ROOT
install_and_move

# refuses WORDS DIRECTORY FLAG...: the consumer is not configured, and these words say why.
refuses() {
  words=$1
  shift
  ! configure "$@" >"$scratch/said" 2>&1 || return 1
  cat "$scratch/said"
  tr -s ' \n' ' ' <"$scratch/said" | grep -q -F -e "$words"
}
# says WORDS DIRECTORY FLAG...: it is configured, and these words are said.
says() {
  words=$1
  shift
  configure "$@" >"$scratch/said" 2>&1 || return 1
  cat "$scratch/said"
  grep -q -F -e "$words" "$scratch/said"
}
links() { "$cmake" --build "$scratch/$1"; }

# --- Nothing is found ---------------------------------------------------------------------------------------------

# All libraries and headers are looked for below a directory that has none.
mkdir "$scratch/nothing"
nothing="-DCMAKE_FIND_ROOT_PATH=$scratch/nothing -DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY"
cache=$build/CMakeCache.txt
cudart=$(sed -n 's/^CUDA_CUDART:FILEPATH=//p' "$cache")
# shellcheck disable=SC2086 # flags
{
  check "without CUDA: static is refused" refuses "ulyx's static library needs the CUDA Toolkit" refused $nothing
  check "without NCCL: static is refused" refuses "ulyx's static library needs NCCL (set NCCL_ROOT)" without_nccl $nothing \
    "-DCUDA_CUDART=$cudart" "-DCUDA_cudart_LIBRARY=$cudart"
  check "a toolkit that is disabled: static is refused" refuses "ulyx's static library needs the CUDA Toolkit" disabled \
    -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON
  check "without CUDA: shared is found, and that static is not is said" says "ulyx::ulyx_static is left out: ulyx's" \
    shared $nothing -Dkinds=shared
}
check "without CUDA: shared links" links shared
for program in consumer_c_shared consumer_cxx_shared; do
  check "without CUDA: $program is right where it runs" is_right "$scratch/shared/$program"
done

# --- What libulyx.so needs is nowhere ------------------------------------------------------------------------------

# The library asks for files of other names, as long. What was linked with it runs where the right ones are again.
file=$libdir/$(readlink "$libdir/$(readlink "$libdir/libulyx.so")")
mv "$file" "$scratch/right"
LC_ALL=C sed -e 's/libcudart\.so/libcudarX.so/g' -e 's/libnccl\.so/libnccX.so/g' "$scratch/right" >"$file"

does_not_start() {
  if "$1" >"$scratch/said" 2>&1; then return 1; fi
  cat "$scratch/said"
  grep -q 'lib\(cudar\|ncc\)X.*cannot open shared object file' "$scratch/said"
}
# shellcheck disable=SC2086 # flags
check "nowhere: find_package" configure nowhere $nothing -Dkinds=shared
check "nowhere: shared links" links nowhere
check "nowhere: by hand, as the README says" "$cc" -o "$scratch/program" "$consumer/consumer.c" -pthread \
  "-I$prefix/include" "-L$libdir" -lulyx "-Wl,-rpath,$libdir" -Wl,--allow-shlib-undefined
for program in "$scratch/program" "$scratch/nowhere/consumer_c_shared" "$scratch/nowhere/consumer_cxx_shared"; do
  check "nowhere: ${program##*/} says what is missing" does_not_start "$program"
done

# Then they are in a directory that CMake is told of, as users do, and that the library knows nothing of.
elsewhere=$scratch/elsewhere
nccl=$(sed -n 's/^NCCL_LIBRARY:FILEPATH=//p' "$cache")
mkdir "$elsewhere" && ln -s "$nccl" "$elsewhere/libnccl.so" && ln -s "$nccl" "$elsewhere/libnccX.so.2"
renamed=$(readelf -d "$file" | sed -n 's/.*NEEDED.*\[\(libcudarX.*\)\]/\1/p')
LC_ALL=C sed -e 's/libcudart\.so/libcudarX.so/g' "$cudart" >"$elsewhere/$renamed"
ln -s "$renamed" "$elsewhere/libcudart.so"
check "elsewhere: find_package" configure told -Dkinds=shared "-DCUDA_CUDART=$elsewhere/libcudart.so" \
  "-DCUDA_cudart_LIBRARY=$elsewhere/libcudart.so" "-DNCCL_ROOT=$elsewhere"
check "elsewhere: NCCL is the one there" grep -q -F "ULYX_NCCL_LIBRARY:FILEPATH=$elsewhere/" "$scratch/told/CMakeCache.txt"
check "elsewhere: shared links" links told
for program in "$scratch/nowhere/consumer_c_shared" "$scratch/told/consumer_c_shared"; do
  check "elsewhere: ${program#"$scratch"/} is right" is_right env "LD_LIBRARY_PATH=$elsewhere" "$program"
done

mv "$scratch/right" "$file"
for program in "$scratch/program" "$scratch/nowhere/consumer_c_shared" "$scratch/nowhere/consumer_cxx_shared"; do
  check "there again: ${program##*/} is right" is_right "$program"
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
