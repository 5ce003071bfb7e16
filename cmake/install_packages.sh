# shellcheck shell=sh
# Sourced by scripts that build ulyx on a fresh Debian or Ubuntu machine. Defines ulyx_install_packages and
# runs nothing by itself.
#
#   ulyx_install_packages build          what the library and the perf programs need
#   ulyx_install_packages build tests    the tests' needs too
#   ulyx_install_packages reference      what makes the reference of the headers; tests skip that without it
#   ulyx_install_packages drawings       what perf/plot.sh draws with; tests skip that without it
#   ulyx_install_packages launchers      two mpiruns, of Open MPI and MPICH; tests skip those that are missing
#   ulyx_install_packages checks         what static checks and fuzzing need: tests that are skipped without
#   ulyx_install_packages numpy          what the Python examples take arrays of; tests skip that without it
#
# Installs only what is missing, as root or through sudo; a machine that has everything is left untouched and
# needs neither network nor root. Returns non-zero, with one line on standard error, where it cannot.

# The packages among the asked-for kinds' that are missing, on standard output.
ulyx_missing_packages() {
  ulyx_want_cxx=no
  for ulyx_kind in "$@"; do
    case $ulyx_kind in
      build)
        # A compiler without the C library's headers is of no use, so one is compiled.
        echo 'int main(void) { return 0; }' | cc -x c -include stdio.h -o /dev/null - 2>/dev/null || echo gcc libc6-dev
        command -v cmake >/dev/null 2>&1 || echo cmake
        command -v ninja >/dev/null 2>&1 || echo ninja-build
        # nvcc hands the host's part of a file to the C++ compiler.
        if command -v nvcc >/dev/null 2>&1 || [ -x /usr/local/cuda/bin/nvcc ]; then ulyx_want_cxx=yes; fi
        ;;
      tests)
        ulyx_want_cxx=yes
        echo '#include <gtest/gtest.h>' | c++ -std=c++17 -x c++ -fsyntax-only - 2>/dev/null || echo libgtest-dev
        command -v pkg-config >/dev/null 2>&1 || echo pkg-config
        command -v spin >/dev/null 2>&1 || echo spin
        ;;
      reference) command -v doxygen >/dev/null 2>&1 || echo doxygen ;;
      drawings) command -v gnuplot >/dev/null 2>&1 || echo gnuplot-nox ;;
      launchers)
        command -v mpirun.openmpi >/dev/null 2>&1 || mpirun --version 2>/dev/null | grep -q 'Open MPI' || echo openmpi-bin
        command -v mpiexec.hydra >/dev/null 2>&1 || echo mpich
        ;;
      checks)
        for ulyx_tool in clang clang-tidy clang-format cppcheck shellcheck; do
          command -v $ulyx_tool >/dev/null 2>&1 || echo $ulyx_tool
        done
        # Where clang's runtimes are no package of their own, they come with clang.
        echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' |
          clang -fsanitize=fuzzer,address -x c -o /dev/null - 2>/dev/null ||
          grep -qE '^VERSION_CODENAME=(bullseye|focal|jammy)' /etc/os-release 2>/dev/null || echo libclang-rt-dev
        ;;
      # Of any Python that tests/python_test.sh would choose: the system's need not be the first on the path.
      numpy)
        for ulyx_python in python3 /usr/bin/python3; do
          if $ulyx_python -c 'import numpy' 2>/dev/null; then continue 2; fi
        done
        echo python3-numpy
        ;;
      *)
        echo "ulyx_install_packages: unknown kind '$ulyx_kind'" >&2
        return 1
        ;;
    esac
  done
  if [ $ulyx_want_cxx = yes ]; then
    echo 'int main() { return 0; }' | c++ -x c++ -include vector -o /dev/null - 2>/dev/null || echo g++
  fi
}

# apt-get, as root.
ulyx_apt_get() {
  if [ "$(id -u)" -eq 0 ]; then
    env DEBIAN_FRONTEND=noninteractive apt-get "$@"
  else
    sudo env DEBIAN_FRONTEND=noninteractive apt-get "$@"
  fi
}

ulyx_install_packages() {
  ulyx_missing=$(ulyx_missing_packages "$@") || return 1
  [ -n "$ulyx_missing" ] || return 0
  ulyx_missing=$(echo "$ulyx_missing" | tr '\n' ' ')
  if ! command -v apt-get >/dev/null 2>&1; then
    echo "install_packages.sh: no apt-get here; install these or their like: $ulyx_missing" >&2
    return 1
  fi
  if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null 2>&1; then
    echo "install_packages.sh: neither root nor sudo; install these: $ulyx_missing" >&2
    return 1
  fi
  echo "installing: $ulyx_missing"
  # The lists of packages are fetched only where the ones at hand are missing or out of date.
  # shellcheck disable=SC2086 # one word a package
  ulyx_apt_get install -y -qq --no-install-recommends $ulyx_missing >/dev/null 2>&1 && return 0
  if ! ulyx_apt_get update -qq; then
    echo "install_packages.sh: apt-get update failed" >&2
    return 1
  fi
  # shellcheck disable=SC2086
  if ! ulyx_apt_get install -y -qq --no-install-recommends $ulyx_missing >/dev/null; then
    echo "install_packages.sh: apt-get could not install: $ulyx_missing" >&2
    return 1
  fi
}
