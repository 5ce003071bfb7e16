#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The binding and the examples of docs/examples/python, over loopback threads. Needs no package of Python's; with numpy
# its arrays are exchanged as well, with PyTorch its tensors and custom ops, compiled too. What is not there is skipped.
#
#   tests/python_test.sh LIBRARY PROJECT
#
# Of python3 and /usr/bin/python3 the one that has more of numpy and PyTorch runs it: packages of the system are the
# latter's, and another may come first on the path.
#
# Ends with one line, '<n> passed, <m> failed, <k> skipped', and exits non-zero where one failed; 77 without Python 3.9.
set -eu
library=$1 project=$2

# What an interpreter has, in words, after how many of the two packages that is; nothing where it cannot run the tests.
what_has() {
  "$1" - 2>/dev/null <<'END' || true
import importlib, platform, sys
assert sys.version_info >= (3, 9)
words = []
for name in "numpy", "torch":
    try:
        words.append(f"{name} {importlib.import_module(name).__version__}")
    except Exception:  # broken is as good as missing
        pass
print(len(words), "Python", platform.python_version(), "with", " and ".join(words) or "neither numpy nor torch")
END
}

chosen='' chosen_has=''
for python in python3 /usr/bin/python3; do
  has=$(what_has "$python")
  if [ -n "$has" ] && { [ -z "$chosen" ] || [ "${has%% *}" -gt "${chosen_has%% *}" ]; }; then
    chosen=$python chosen_has=$has
  fi
done
if [ -z "$chosen" ]; then
  echo "SKIPPED: no python3 of version 3.9 or newer"
  echo "0 passed, 0 failed, 1 skipped"
  exit 77
fi
echo "by $(command -v "$chosen"): ${chosen_has#* }"
ULYX_LIBRARY=$library exec "$chosen" -B "$project/docs/examples/python/test_ulyx.py"
