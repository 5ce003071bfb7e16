# SPDX-License-Identifier: MIT
"""What the tests of this directory share: tensors of the standard library, counting, worlds of threads."""

from __future__ import annotations

import array
import ctypes
import math
import threading
from typing import Any, Callable, Optional, Sequence

import ulyx

try:
    import numpy as np
except ImportError:
    np = None
try:
    torch = ulyx.import_torch()  # before anything else loads the library
except ImportError:
    torch = None

CTYPES = {
    "int8": ctypes.c_int8,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
    "bfloat16": ctypes.c_uint16,
}
RANKS = (1, 2, 3, 5)
QUICK = ulyx.Config(timeout_ms=2000)


class Array:
    """A dense tensor of the standard library with numpy's interface. Untouched elements are 77."""

    def __init__(
        self, shape: Sequence[int], dtype: str, values: Optional[Sequence[float]] = None, read_only: bool = False
    ) -> None:
        self.shape, self.dtype = tuple(shape), dtype
        count = math.prod(shape)
        self.data = (CTYPES[dtype] * max(count, 1))(*(values if values is not None else [77] * count))
        pointer = (ctypes.addressof(self.data), read_only)
        typestr = ulyx.DATA_TYPES[dtype].typestr
        self.__array_interface__ = {"version": 3, "shape": self.shape, "typestr": typestr, "data": pointer}

    def new_empty(self, shape: Sequence[int]) -> "Array":
        return Array(shape, self.dtype)

    def values(self) -> list:
        return list(self.data[: math.prod(self.shape)])


def buffer_values(buffer: ulyx.Buffer) -> list:
    kind = CTYPES[buffer.dtype]
    return list((kind * math.prod(buffer.shape)).from_buffer_copy(buffer.tobytes() or b"")) if buffer.nbytes else []


# ---- Counting -----------------------------------------------------------------------------------------------------


class Tally:
    """Results of the checks, from any thread."""

    def __init__(self) -> None:
        self.passed = self.failed = self.skipped = 0
        self._lock = threading.Lock()

    def check(self, name: str, good: bool, detail: Any = "") -> None:
        with self._lock:
            self.passed += bool(good)
            self.failed += not good
        if not good:
            print(f"FAILED: {name} {detail}", flush=True)

    def equal(self, name: str, got: Any, expected: Any) -> None:
        self.check(name, got == expected, f"\n  got      {got!r:.300}\n  expected {expected!r:.300}")

    def skip(self, name: str, why: str) -> None:
        self.skipped += 1
        print(f"SKIPPED: {name} ({why})")

    def refuses(self, name: str, call: Callable[[], Any], code: Any, *words: str) -> None:
        """The call raises ulyx.Error of this code (or the exception class `code`) and says all words."""
        try:
            call()
        except Exception as error:  # judged below
            right = isinstance(error, code) if isinstance(code, type) else getattr(error, "code", None) == code
            said = all(word in str(error) for word in words)
            self.check(name, right and said, f"raised {type(error).__name__}: {error}")
        else:
            self.check(name, False, "was not refused")


def world(n_ranks: int, function: Callable[[ulyx.Runtime], Any], config: ulyx.Config = QUICK) -> list:
    """function(runtime) on every rank of a fresh world."""
    runtimes = ulyx.Runtime.create_local(n_ranks, config=config)
    try:
        return ulyx.run_local(runtimes, function)
    finally:
        for runtime in runtimes:
            runtime.destroy()


def rows_of_seq(info: ulyx.PlanInfo) -> list[int]:
    """The tokens of this rank's sequence side in memory order, as the heads side counts them."""
    first = info.replicated_tokens if info.heads_replicated.start == 0 else 0
    return sorted([first + token for token in info.token_range] + list(info.heads_replicated))


def row_values(rows: Sequence[int], width: int, scale: int = 1) -> list[int]:
    return [scale * (row * width + column) for row in rows for column in range(width)]


# ---- Odd tensors --------------------------------------------------------------------------------------------------


class OnlyDlpack:
    """Hides every protocol of an array but __dlpack__."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **arguments: Any) -> Any:
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class Repeated:
    """One element shown as a whole tensor."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.memory = array.array("f", [7.0])
        address = self.memory.buffer_info()[0]
        self.__array_interface__ = {
            "version": 3,
            "typestr": "<f4",
            "shape": shape,
            "strides": (0,) * len(shape),
            "data": (address, False),
        }
