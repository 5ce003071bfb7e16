#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The binding and the examples of docs/examples/python, over loopback threads. Needs no package of Python's; with numpy
# its arrays are exchanged as well, with PyTorch its tensors and custom ops, compiled too. What is not there is skipped.
#
#   tests/python_test.sh LIBRARY PROJECT
#
# Ends with one line, '<n> passed, <m> failed, <k> skipped', and exits non-zero where one failed; 77 without Python 3.9.
set -eu
library=$1 project=$2
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
  echo "SKIPPED: no python3 of version 3.9 or newer"
  echo "0 passed, 0 failed, 1 skipped"
  exit 77
fi
ULYX_LIBRARY=$library exec python3 -B "$project/docs/examples/python/test_ulyx.py"
