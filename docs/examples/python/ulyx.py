# SPDX-License-Identifier: MIT
"""ulyx from Python: the C ABI of include/ulyx.h through ctypes, in one file, on the standard library alone.

    runtimes = ulyx.Runtime.create_local(4)              # four ranks as threads on the CPU
    plan = ulyx.Plan(runtime, tokens=10, heads=6, head_dim=2, dtype="float32")
    q, k, v = plan.seq_to_heads(q, k, v)                 # own tokens, all heads -> all tokens, own heads
    o = plan.heads_to_seq(o)                             # and back

A tensor is anything with data_ptr() (torch), __cuda_array_interface__ (cupy, numba), __array_interface__ (numpy) or
__dlpack__; none of those packages is imported here. What the header says holds here too: which calls are collective,
that one thread drives a rank, and that tensors must stay alive until an enqueued exchange has run.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import importlib.metadata
import itertools
import keyword
import math
import operator
import os
import statistics
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from ctypes import POINTER, byref, c_char, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass, fields
from typing import Any, Callable, NamedTuple, Optional, Sequence

VERSION = (0, 1)  # major and minor of the header that the structs below mirror
UNDEF_INT = -(2**31)
UNDEF_INT64 = -(2**63)
LOCAL_MAX_RANKS = 64  # of Runtime.create_local

# ---- Names of numbers -------------------------------------------------------------------------------------------

SUCCESS, INVALID_ARGUMENT, INVALID_USAGE = 0, 4, 5
LOG_ERROR, LOG_RECORD = 1, 2
REMOTE_ERROR, MISMATCH, TIMEOUT, ARENA_TOO_SMALL, CLOSED, UNSUPPORTED = 6, 100, 101, 102, 103, 104

TRANSPORTS = ("auto", "loopback", "nccl", "direct", "copy_engine")
ORDERS = ("batch_first", "seq_first")
OPERATIONS = ("seq_to_heads", "heads_to_seq")


class DataType(NamedTuple):
    """An element type: its ulyxDataType_t, bytes an element, and what array interfaces call it (a carrier of the
    same size where they have no name)."""

    code: int
    bytes: int
    typestr: str


DATA_TYPES = {
    "int8": DataType(0, 1, "|i1"),
    "uint8": DataType(1, 1, "|u1"),
    "int32": DataType(2, 4, "<i4"),
    "uint32": DataType(3, 4, "<u4"),
    "int64": DataType(4, 8, "<i8"),
    "uint64": DataType(5, 8, "<u8"),
    "float16": DataType(6, 2, "<f2"),
    "float32": DataType(7, 4, "<f4"),
    "float64": DataType(8, 8, "<f8"),
    "bfloat16": DataType(9, 2, "<u2"),
    "float8_e4m3fn": DataType(10, 1, "|u1"),
    "float8_e5m2": DataType(11, 1, "|u1"),
    "bool": DataType(100, 1, "|b1"),
    "int16": DataType(101, 2, "<i2"),
    "uint16": DataType(102, 2, "<u2"),
}
# A carrier stands for these where the plan asks for them: numpy has neither bfloat16 nor float8.
CARRIERS = {"uint16": ("bfloat16",), "int16": ("bfloat16",), "uint8": ("float8_e4m3fn", "float8_e5m2")}
TYPESTRS = {"b1": "bool"} | {
    kind + str(size): word + str(8 * size)
    for kind, word, sizes in (("i", "int", (1, 2, 4, 8)), ("u", "uint", (1, 2, 4, 8)), ("f", "float", (2, 4, 8)))
    for size in sizes
}


def _choose(what: str, name: str, names: Sequence[str]) -> int:
    """The number of a name."""
    if not isinstance(name, str):
        raise TypeError(f"{what} is {name!r}, expected one of {', '.join(names)}")
    if name not in names:
        raise ValueError(f"{what} is {name!r}; known are {', '.join(names)}")
    return names.index(name)


def dtype_name(dtype: Any) -> str:
    """'bfloat16' and the like, of such a name, a torch.dtype, a numpy dtype or a numpy scalar type."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or str(dtype)
    name = name.removeprefix("torch.")
    if name not in DATA_TYPES:
        raise TypeError(f"unknown dtype {dtype!r}; known are {', '.join(DATA_TYPES)}")
    return name


# ---- The structs of ulyx.h ----------------------------------------------------------------------------------------


# ctypes wraps integers that do not fit; a count that wraps would be another count.
_LIMITS = {c_int64: (-(2**63), 2**63 - 1), c_int: (-(2**31), 2**31 - 1)}


def _fit(value: Any, kind: Any, name: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, expected an integer") from None
    least, most = _LIMITS[kind]
    if not least <= number <= most:
        raise OverflowError(f"{name} is {number}, expected {least} to {most}")
    return number


@functools.lru_cache(maxsize=None)
def _kinds(structure: Any) -> dict[str, Any]:
    return dict(structure._fields_)


class _Checked(ctypes.Structure):
    """A structure whose integers must fit their fields."""

    def __setattr__(self, name: str, value: Any) -> None:
        kind = _kinds(type(self)).get(name)
        super().__setattr__(name, _fit(value, kind, name) if kind in _LIMITS else value)


def _argument(kind: Any) -> Any:
    """The same for an argument of a function."""

    class Argument:
        @classmethod
        def from_param(cls, value: Any) -> Any:
            return value if isinstance(value, kind) else kind(_fit(value, kind, "an argument"))

    return Argument


def _sequence(values: Any, name: str, of: str = "integers") -> Sequence[Any]:
    """Refuses what has no length and items in an order of its own: a string's are its characters, a dict's its keys."""
    if not isinstance(values, (str, bytes, Mapping)) and hasattr(values, "__getitem__"):
        try:
            len(values)
            return values
        except TypeError:  # an iterator, a tensor without dimensions
            pass
    raise TypeError(f"{name} is {values!r}, expected a sequence of {of}")


def int64_array(values: Sequence[int], name: str) -> Any:
    """A C array of int64."""
    values = _sequence(values, name)
    return (c_int64 * len(values))(*(_fit(value, c_int64, f"{name}[{i}]") for i, value in enumerate(values)))


def _bounds(whole: range, name: str) -> tuple[int, int]:
    if not isinstance(whole, range):
        raise TypeError(f"{name} is {whole!r}, expected a range")
    if whole.step != 1:
        raise ValueError(f"{name} is {whole}, expected a step of 1")
    return _fit(whole.start, c_int64, f"{name}.start"), _fit(whole.stop, c_int64, f"{name}.stop")


class _Struct(_Checked):
    """Starts from its ULYX_..._INITIALIZER."""

    _magic_ = 0

    def __init__(self, **values: Any) -> None:
        super().__init__(size=ctypes.sizeof(self), magic=self._magic_, version=1, **values)


_HEADER = [("size", c_size_t), ("magic", c_uint), ("version", c_uint)]


class CRange(_Checked):
    _fields_ = [("start", c_int64), ("stop", c_int64)]

    def to_range(self) -> range:
        return range(self.start, self.stop)


class CStrides(_Checked):
    _fields_ = [("batch", c_int64), ("token", c_int64), ("head", c_int64)]


STRIDE_FIELDS = ("qIn", "kIn", "vIn", "qOut", "kOut", "vOut", "oIn", "oOut")


class CShape(_Struct):
    _magic_ = 0x756C7953
    _fields_ = (
        _HEADER
        + [(name, c_int64) for name in ("tokens", "heads", "kvHeads", "headDim", "valueDim", "batch")]
        + [("replicatedTokens", c_int64), ("tokenCounts", POINTER(c_int64)), ("headCounts", POINTER(c_int64))]
        + [(name, c_int) for name in ("type", "elementBytes", "seqOrder", "headsOrder", "packedIn", "packedOut")]
        + [("replicatedPlace", c_int), ("reserved", c_int), ("sequences", c_void_p)]
        + [(name, CStrides) for name in STRIDE_FIELDS]
    )


class CShapeBytes(_Struct):
    _magic_ = 0x756C7942
    _fields_ = _HEADER + [(name, c_int64) for name in STRIDE_FIELDS + ("arena",)]


class CShapeTimes(_Struct):
    _magic_ = 0x756C7955
    _fields_ = _HEADER + [
        ("remoteBytes", c_int64),
        ("limitUs", c_double),
        ("directUs", c_double),
        ("copyEngineUs", c_double),
    ]


class CConfig(_Struct):
    _magic_ = 0x756C7943
    _fields_ = (
        _HEADER
        + [(name, c_int) for name in ("transport", "agreePlans", "timeoutMs", "maxCtas")]
        + [("arenaBytes", c_int64)]
        + [(name, c_int) for name in ("streamPriority", "undisturbed", "copyStreams", "reserved")]
    )


class CUniqueId(ctypes.Structure):
    _fields_ = [("internal", c_char * 128)]


class CRuntimeInfo(_Struct):
    _magic_ = 0x756C7952
    _fields_ = (
        _HEADER
        + [(name, c_int) for name in ("rank", "nRanks", "transport", "device", "ncclVersion", "closed")]
        + [("arenaBytes", c_int64), ("transportReason", c_char_p)]
    )


class CChoice(ctypes.Structure):
    _fields_ = [("transport", c_int), ("reserved", c_int), ("reason", c_char_p), ("predictedUs", c_double)]


class CPlanInfo(_Struct):
    _magic_ = 0x756C7950
    _fields_ = (
        _HEADER
        + [(name, c_int) for name in ("rank", "nRanks", "transport", "type")]
        + [(name, c_int64) for name in ("elementBytes", "tokens", "heads", "kvHeads", "headDim", "valueDim", "batch")]
        + [("replicatedTokens", c_int64)]
        + [(name, CRange) for name in ("seqReplicated", "headsReplicated", "tokenRange", "headRange", "kvHeadRange")]
        + [(name, c_int64) for name in ("tokenCount", "headCount", "kvHeadCount")]
        + [(name, POINTER(CRange)) for name in ("tokenRanges", "headRanges", "kvHeadRanges")]
        + [(name, POINTER(c_int64)) for name in ("tokenCounts", "headCounts", "kvHeadCounts", "kvHeadOfHead")]
        + [("sequenceCount", c_int64), ("longestSequence", c_int64)]
        + [(name, POINTER(c_int64)) for name in ("seqToHeadsSendBytes", "seqToHeadsRecvBytes")]
        + [(name, POINTER(c_int64)) for name in ("headsToSeqSendBytes", "headsToSeqRecvBytes")]
        + [("arenaBytes", c_int64), ("signature", c_uint64), ("seqToHeads", CChoice), ("headsToSeq", CChoice)]
    )


class CTensor(_Struct):
    _magic_ = 0x756C7954
    _fields_ = _HEADER + [
        ("data", c_void_p),
        ("extents", c_int64 * 4),
        ("strides", c_int64 * 4),
        ("type", c_int),
        ("elementBytes", c_int),
    ]


class CQkv(ctypes.Structure):
    _fields_ = [("q", CTensor), ("k", CTensor), ("v", CTensor)]


class CSegment(_Checked):
    _fields_ = [("start", c_int64), ("stop", c_int64), ("row", c_int64)]


class CRowsShape(_Struct):
    _magic_ = 0x756C7957
    _fields_ = (
        _HEADER
        + [(name, c_int) for name in ("op", "type", "elementBytes", "targeted")]
        + [("rowElements", c_int64), ("total", c_int64), ("counts", POINTER(c_int64)), ("target", CRange)]
        + [("sendCounts", POINTER(c_int64)), ("recvCounts", POINTER(c_int64))]
        + [("inStride", c_int64), ("outStride", c_int64)]
    )


_CONFIG_UNDEFINED = {
    name: UNDEF_INT64 if ctype is c_int64 else UNDEF_INT
    for name, ctype in CConfig._fields_
    if name not in ("size", "magic", "version", "reserved")
}


# ---- Library ------------------------------------------------------------------------------------------------------


class Error(RuntimeError):
    """A refused call: `code` is its ulyxResult_t, `name` the code's name, `message` what ulyxGetLastError said."""

    def __init__(self, code: int, message: str, name: str = "") -> None:
        super().__init__(f"{name or code}: {message}")
        self.code = code
        self.name = name
        self.message = message


_LOGGER = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)

_PROTOTYPES = {
    "ulyxGetVersion": [POINTER(c_int)],
    "ulyxBalancedRanges": [c_int64, c_int, POINTER(CRange)],
    "ulyxShapeGetRanges": [POINTER(CShape), c_int, c_void_p, c_void_p, c_void_p],
    "ulyxShapeGetBytes": [POINTER(CShape), c_int, c_int, POINTER(CShapeBytes)],
    "ulyxShapeGetTimes": [POINTER(CShape), c_int, c_int, POINTER(CShapeTimes)],
    "ulyxGetUniqueId": [POINTER(CUniqueId)],
    "ulyxRuntimeCreate": [POINTER(CConfig), c_int, CUniqueId, c_int, POINTER(c_void_p)],
    "ulyxRuntimeCreateLocal": [POINTER(CConfig), c_int, POINTER(c_int), POINTER(c_void_p)],
    "ulyxRuntimeReserve": [c_void_p, c_int64],
    "ulyxRuntimeGetInfo": [c_void_p, POINTER(CRuntimeInfo)],
    "ulyxRuntimeSetLogger": [c_void_p, _LOGGER, c_void_p],
    "ulyxRuntimeLogRecord": [c_void_p],
    "ulyxRuntimeGetAsyncError": [c_void_p, POINTER(c_int)],
    "ulyxRuntimeAbort": [c_void_p],
    "ulyxRuntimeClose": [c_void_p],
    "ulyxRuntimeDestroy": [POINTER(c_void_p)],
    "ulyxMemAlloc": [c_void_p, c_int64, POINTER(c_void_p)],
    "ulyxMemFree": [c_void_p, c_void_p],
    "ulyxPlanCreate": [c_void_p, POINTER(CShape), POINTER(c_void_p)],
    "ulyxPlanDestroy": [c_void_p],
    "ulyxPlanGetInfo": [c_void_p, POINTER(CPlanInfo)],
    "ulyxPlanStoreCuSeqlens": [c_void_p, c_void_p, c_void_p],
    "ulyxPlanGetQkv": [c_void_p, c_void_p, c_void_p],
    "ulyxPlanGetOutput": [c_void_p, c_void_p, c_void_p],
    "ulyxSeqToHeads": [c_void_p, POINTER(CQkv), POINTER(CQkv), c_void_p],
    "ulyxHeadsToSeq": [c_void_p, POINTER(CTensor), POINTER(CTensor), c_void_p],
    "ulyxSequencesCreate": [c_void_p, c_int64, c_int, POINTER(c_void_p)],
    "ulyxSequencesDestroy": [c_void_p],
    "ulyxLocalizeSegments": [c_void_p, c_int64, CRange, c_void_p, POINTER(c_int64)],
    "ulyxTargetIntersection": [CRange, CRange, POINTER(CRange)],
    "ulyxRowsPlanCreate": [c_void_p, POINTER(CRowsShape), POINTER(c_void_p)],
    "ulyxRowsShapeGetArenaBytes": [POINTER(CRowsShape), c_int, c_int, POINTER(c_int64)],
    "ulyxPlanGetRows": [c_void_p, c_void_p, c_void_p],
    "ulyxAllGatherRows": [c_void_p, POINTER(CTensor), POINTER(CTensor), c_void_p],
    "ulyxReduceScatterRows": [c_void_p, POINTER(CTensor), POINTER(CTensor), c_void_p],
    "ulyxAllToAllRows": [c_void_p, POINTER(CTensor), POINTER(CTensor), c_void_p],
}


class Library:
    """A loaded libulyx.so, checked against the structs of this file. Get one from load()."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.c = ctypes.CDLL(path)
        except OSError as error:
            if "undefined symbol: nccl" not in str(error):
                raise
            raise OSError(
                f"{error}: an older libnccl.so.2 was loaded before, PyTorch's own perhaps, and ulyx needs 2.27; "
                "call ulyx.import_torch() before the first import of torch, or use a PyTorch that brings 2.27 or newer"
            ) from None
        for name, arguments in _PROTOTYPES.items():
            function = getattr(self.c, name)
            function.argtypes = [_argument(kind) if kind in _LIMITS else kind for kind in arguments]
            function.restype = c_int
        self.c.ulyxGetErrorString.argtypes, self.c.ulyxGetErrorString.restype = [c_int], c_char_p
        self.c.ulyxGetLastError.argtypes, self.c.ulyxGetLastError.restype = [c_void_p], c_char_p
        version = c_int()
        self.check(self.c.ulyxGetVersion(byref(version)))
        self.version = (version.value // 10000, version.value // 100 % 100, version.value % 100)
        _verify(self)

    def check(self, result: int) -> None:
        """Raises Error unless `result` is ulyxSuccess."""
        if result != SUCCESS:
            raise self.error(result, self.last_error())

    def error(self, code: int, message: str) -> Error:
        return Error(code, message, self.c.ulyxGetErrorString(code).decode())

    def last_error(self) -> str:
        """What this thread's last refused call said."""
        return self.c.ulyxGetLastError(None).decode(errors="replace")


@functools.lru_cache(maxsize=None)
def _load(path: str) -> Library:
    return Library(path)


def load(path: Optional[str] = None) -> Library:
    """The library at `path`, else at $ULYX_LIBRARY, else where the system finds it. Loaded and checked once a path."""
    if path is not None and not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path is {path!r}, expected the path of libulyx.so")
    found = os.fspath(path or "") or os.environ.get("ULYX_LIBRARY") or ctypes.util.find_library("ulyx")
    if not found:
        raise OSError("libulyx.so not found: name it, or set ULYX_LIBRARY to its path")
    return _load(found)


def _library(library: Optional[Library]) -> Library:
    """What an argument `library` stands for."""
    if library is None:
        return load()
    if not isinstance(library, Library):
        raise TypeError(f"library is {library!r}, expected a ulyx.Library, from ulyx.load")
    return library


def _verify(library: Library) -> None:
    """Raises ImportError unless the library's structs are this file's. A world of one rank on the CPU is made to ask:
    each struct must be accepted at its size here and refused one byte shorter."""
    if library.version[:2] != VERSION:
        raise ImportError(f"{library.path} is ulyx {library.version}, ulyx.py is written for {VERSION}")
    c, handles = library.c, []

    def probe(struct: _Struct, call: Callable[[], int]) -> None:
        name, size = type(struct).__name__, ctypes.sizeof(struct)
        struct.size = size - 1
        shorter = call()
        struct.size = size
        if call() != SUCCESS or shorter != INVALID_ARGUMENT:
            raise ImportError(
                f"{library.path}: {name} is {size} bytes here and not in the library, "
                f"which said: {library.last_error()!r}"
            )

    def make(call: Callable[[Any], int]) -> int:
        handle = c_void_p()
        handles.append(handle)
        return call(byref(handle))

    def destroy_runtimes() -> None:
        for handle in handles[::-1]:
            c.ulyxRuntimeDestroy(byref(handle))

    config = CConfig(transport=1, agreePlans=0, timeoutMs=1000)
    shape = CShape(tokens=1, heads=1, headDim=1, type=DATA_TYPES["int8"].code)
    shape_bytes, shape_times, info, plan_info = CShapeBytes(), CShapeTimes(), CRuntimeInfo(), CPlanInfo()
    rows = CRowsShape(rowElements=1, total=1, type=DATA_TYPES["int8"].code)
    try:
        probe(config, lambda: make(lambda handle: c.ulyxRuntimeCreateLocal(byref(config), 1, None, handle)))
        runtime = handles[-1]
        probe(info, lambda: c.ulyxRuntimeGetInfo(runtime, byref(info)))
        probe(shape, lambda: c.ulyxShapeGetRanges(byref(shape), 1, None, None, None))
        probe(shape_bytes, lambda: c.ulyxShapeGetBytes(byref(shape), 1, 0, byref(shape_bytes)))
        probe(shape_times, lambda: c.ulyxShapeGetTimes(byref(shape), 1, 0, byref(shape_times)))
        arena = c_int64()
        probe(rows, lambda: c.ulyxRowsShapeGetArenaBytes(byref(rows), 1, 0, byref(arena)))
        plan = c_void_p()
        library.check(c.ulyxPlanCreate(runtime, byref(shape), byref(plan)))
        probe(plan_info, lambda: c.ulyxPlanGetInfo(plan, byref(plan_info)))
        room = (ctypes.c_char * (4 * ctypes.sizeof(CTensor)))()  # a longer struct of the library's would fit, too
        library.check(c.ulyxPlanGetOutput(plan, room, None))
        tensor, element = CTensor.from_buffer_copy(room), (c_char * 2)()
        tensor.data = ctypes.addressof(element)
        output = CTensor.from_buffer_copy(tensor)
        output.data = ctypes.addressof(element) + 1
        probe(tensor, lambda: c.ulyxHeadsToSeq(plan, byref(tensor), byref(output), None))
    finally:
        destroy_runtimes()


def _address(value: Any, name: str) -> int:
    """What a pointer can hold; ctypes wraps the rest."""
    number = operator.index(value)
    if not 0 <= number < 2**64:
        raise OverflowError(f"{name} is {number}, expected 0 to {2**64 - 1}")
    return number


def _stream_handle(stream: Any) -> int:
    """A cudaStream_t, given as an integer or by an owner: torch names it cuda_stream, cupy ptr."""
    for handle in (stream, getattr(stream, "cuda_stream", None), getattr(stream, "ptr", None)):
        if isinstance(handle, int):
            return _address(handle, "stream")
    raise TypeError(f"stream is {stream!r}, expected a cudaStream_t as an integer, or a stream of torch or cupy")


# ---- Tensors ------------------------------------------------------------------------------------------------------


class TensorError(TypeError, ValueError):
    """An object that cannot be read as a tensor: it is none, or its memory is gone."""


class View(NamedTuple):
    """What a tensor's owner says about it. Strides are in elements."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str  # a key of DATA_TYPES, or '' where it has none
    element_bytes: int
    device: str  # 'cpu', 'cuda', or '' where it may be either
    writable: bool
    keep: Any  # holds what the pointer needs while the call runs


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of a dense row-major tensor."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def view(tensor: Any, name: str = "a tensor") -> View:
    """Describes a tensor of any of the four protocols; `name` is what a refusal calls it."""
    try:
        return _read(tensor)
    except TensorError as error:
        raise TensorError(f"{name}: {error}") from None
    except Exception as error:  # whatever its owner raises: what matters here is which tensor it is
        kind = type(tensor).__name__
        raise TensorError(f"{name}: {kind} does not say where it lies: {type(error).__name__}: {error}") from error


def _integers(values: Any, name: str) -> tuple[int, ...]:
    """The extents or strides of a tensor, which ctypes would wrap."""
    numbers = tuple(map(operator.index, values if isinstance(values, tuple) else _sequence(values, name)))
    if numbers and not -(2**63) <= min(numbers) <= max(numbers) < 2**63:
        raise TensorError(f"{name} is {numbers}, which 64 bits do not hold")
    return numbers


def _layout(shape: Any, strides: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Both as integers, one stride an extent; strides that are None are dense ones."""
    extents = _integers(shape, "shape")
    steps = _integers(dense_strides(extents) if strides is None else strides, "strides")
    if len(steps) != len(extents):
        raise TensorError(f"strides is {steps}, expected one for each of the {len(extents)} extents {extents}")
    return extents, steps


def _read(tensor: Any) -> View:
    if isinstance(tensor, type):
        raise TensorError(f"{tensor.__name__} is a class, no tensor")
    if hasattr(tensor, "data_ptr"):
        return _view_torch(tensor)
    for attribute, device in (("__cuda_array_interface__", "cuda"), ("__array_interface__", "cpu")):
        interface = getattr(tensor, attribute, None)
        if interface is not None:
            return _view_interface(tensor, interface, device)
    if hasattr(tensor, "__dlpack__"):
        return _view_dlpack(tensor)
    raise TensorError(
        f"{type(tensor).__name__} is no tensor: it has neither data_ptr, __cuda_array_interface__, __array_interface__"
        " nor __dlpack__"
    )


def _view_torch(tensor: Any) -> View:
    if getattr(tensor, "is_neg", bool)():
        raise TensorError("a negated view, whose memory holds other numbers; resolve_neg() it first")
    device = getattr(tensor.device, "type", tensor.device)
    name = str(tensor.dtype).removeprefix("torch.")
    name = name if name in DATA_TYPES else ""
    size = tensor.element_size()
    shape, strides = _layout(tensor.shape, tensor.stride())
    return View(_address(tensor.data_ptr(), "the pointer"), shape, strides, name, size, device, True, tensor)


def _view_interface(tensor: Any, interface: dict, device: str) -> View:
    shape, typestr = interface["shape"], interface["typestr"]
    if typestr[0] == ">":
        raise TensorError(f"a tensor of type {typestr} is big-endian")
    if not typestr[2:].isdigit() or typestr[1] == "O":
        raise TensorError(f"elements of type {typestr!r} are no numbers")
    element_bytes = int(typestr[2:])
    strides = interface.get("strides")
    if strides is not None:
        strides = _integers(strides, "strides")
        if any(stride % element_bytes for stride in strides):
            raise TensorError(f"strides of {strides} bytes are no multiples of the element's {element_bytes}")
        strides = tuple(stride // element_bytes for stride in strides)
    shape, strides = _layout(shape, strides)
    if interface.get("data") is None:
        raise TensorError(f"the array interface of {type(tensor).__name__} names no data pointer")
    pointer, read_only = interface["data"]
    name = TYPESTRS.get(typestr[1:], "")
    own = str(getattr(tensor, "dtype", ""))  # ml_dtypes' bfloat16 and float8, which numpy shows as raw bytes
    if not name and own in DATA_TYPES and DATA_TYPES[own].bytes == element_bytes:
        name = own
    pointer = 0 if pointer is None else _address(pointer, "the pointer")
    return View(pointer, shape, strides, name, element_bytes, device, not read_only, tensor)


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


_DL_DEVICES = {1: "cpu", 2: "cuda", 3: "cpu", 13: ""}
_DL_TYPES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}


def _view_dlpack(tensor: Any) -> View:
    device_type = int(tensor.__dlpack_device__()[0])
    if device_type not in _DL_DEVICES:
        raise TensorError(f"a tensor on DLPack device type {device_type}; ulyx reads CPU and CUDA memory")
    # -1: no synchronisation, the exchange is ordered by the stream that it runs on
    capsule = tensor.__dlpack__(stream=-1) if device_type in (2, 13) else tensor.__dlpack__()
    get_pointer = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    # The capsule stays "dltensor" and is not consumed: it gives the tensor back when it is dropped.
    dl = _DLTensor.from_address(get_pointer(capsule, b"dltensor"))
    shape, strides = _layout(tuple(dl.shape[: dl.ndim]), tuple(dl.strides[: dl.ndim]) if dl.strides else None)
    kind = _DL_TYPES.get(dl.type_code, "")
    name = kind if kind == "bool" else f"{kind}{dl.bits}"
    name = name if name in DATA_TYPES and dl.lanes == 1 else ""
    pointer = (dl.data or 0) + dl.byte_offset
    size = (dl.bits * dl.lanes + 7) // 8
    return View(pointer, shape, strides, name, size, _DL_DEVICES[device_type], True, (tensor, capsule))


class Buffer:
    """A dense tensor in symmetric memory of a runtime. Read it through __cuda_array_interface__ (GPU),
    __array_interface__ (CPU) or torch(). Must not be used once it or its runtime is freed."""

    def __init__(self, runtime: "Runtime", pointer: int, shape: Sequence[int], dtype: str) -> None:
        self.runtime = runtime
        self.shape = tuple(shape)
        self.dtype = dtype
        self.device = "cuda" if runtime.device >= 0 else "cpu"
        self.nbytes = math.prod(self.shape) * DATA_TYPES[dtype].bytes
        self._stride = dense_strides(self.shape)
        self._pointer = pointer

    def data_ptr(self) -> int:
        """The address, 0 without elements. Raises TensorError once the memory is gone."""
        if self.runtime.handle is None or (self.nbytes and not self._pointer):
            raise TensorError("this memory was freed, alone or with its runtime")
        return self._pointer

    def stride(self) -> tuple[int, ...]:
        """In elements, as torch has it."""
        return self._stride

    @property
    def strides(self) -> tuple[int, ...]:
        """In bytes, as numpy has it."""
        return tuple(stride * self.element_size() for stride in self.stride())

    def element_size(self) -> int:
        return DATA_TYPES[self.dtype].bytes

    def _interface(self, device: str, typestr: str) -> dict:
        if self.device != device:
            raise AttributeError(f"memory on {self.device} has no array interface of {device}")
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": typestr,
            "data": (self.data_ptr(), False),
            "strides": None,
        }

    @property
    def __array_interface__(self) -> dict:
        return self._interface("cpu", DATA_TYPES[self.dtype].typestr)

    @property
    def __cuda_array_interface__(self) -> dict:
        typestr = DATA_TYPES[self.dtype].typestr
        return self._interface("cuda", "<i2" if self.dtype == "bfloat16" else typestr)

    def __len__(self) -> int:
        return self.shape[0]

    def tobytes(self) -> bytes:
        """A copy of the contents. CPU only."""
        if self.device != "cpu":
            raise TypeError("tobytes reads memory of the CPU, this is on a GPU")
        return ctypes.string_at(self.data_ptr(), self.nbytes) if self.nbytes else b""

    def torch(self) -> Any:
        """The same memory as a torch.Tensor."""
        import torch

        dtype = getattr(torch, self.dtype)
        if self.nbytes == 0:
            return torch.empty(self.shape, dtype=dtype, device=self.device)
        if self.device == "cpu":
            memory = (c_char * self.nbytes).from_address(self.data_ptr())
            return torch.frombuffer(memory, dtype=dtype).reshape(self.shape)
        return torch.as_tensor(self, device=f"cuda:{self.runtime.device}").view(dtype)

    def free(self) -> None:
        """Gives the memory back before the runtime does. Collective and blocking on GPUs."""
        runtime = self.runtime
        runtime.library.check(runtime.library.c.ulyxMemFree(runtime.living(), self._pointer or None))
        self._pointer = 0


# ---- Runtime ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Config:
    """Fields of ulyxConfig_t; None is undefined, and then the environment decides. transport is a name."""

    transport: Optional[str] = None
    agree_plans: Optional[int] = None
    timeout_ms: Optional[int] = None
    max_ctas: Optional[int] = None
    arena_bytes: Optional[int] = None
    stream_priority: Optional[int] = None
    undisturbed: Optional[int] = None
    copy_streams: Optional[int] = None

    def to_c(self) -> CConfig:
        given = {_camel(f.name): getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        if self.transport is not None:
            given["transport"] = _choose("transport", self.transport, TRANSPORTS)
        return CConfig(**{**_CONFIG_UNDEFINED, **given})


@dataclass(frozen=True)
class RuntimeInfo:
    """ulyxRuntimeInfo_t. device is -1 on the CPU."""

    rank: int
    n_ranks: int
    transport: str
    transport_reason: str
    device: int
    nccl_version: int
    closed: bool
    arena_bytes: int


def _config(config: Optional[Config]) -> CConfig:
    if config is not None and not isinstance(config, Config):
        raise TypeError(f"config is {config!r}, expected a ulyx.Config")
    return (Config() if config is None else config).to_c()


def unique_id(library: Optional[Library] = None) -> bytes:
    """The 128 bytes that name a world; made on one rank, handed to all."""
    library = _library(library)
    made = CUniqueId()
    library.check(library.c.ulyxGetUniqueId(byref(made)))
    return ctypes.string_at(byref(made), ctypes.sizeof(made))


class Runtime:
    """One rank of a world. As a context manager it destroys itself, which is collective on GPUs."""

    def __init__(self, library: Library, handle: int) -> None:
        """Not for callers: create and create_local make runtimes."""
        self.library = library
        self.handle: Optional[int] = handle
        self._plans: list[_PlanBase] = []
        info = self.info
        self.rank, self.n_ranks, self.device = info.rank, info.n_ranks, info.device

    @staticmethod
    def create(
        n_ranks: int, rank: int, unique_id: bytes, config: Optional[Config] = None, library: Optional[Library] = None
    ) -> "Runtime":
        """Joins a world as `rank` on the current CUDA device. Collective and blocking."""
        library, handle = _library(library), c_void_p()
        if not isinstance(unique_id, bytes):
            raise TypeError(f"the unique id is a {type(unique_id).__name__}, expected bytes")
        if len(unique_id) != ctypes.sizeof(CUniqueId):
            raise ValueError(f"a unique id has {ctypes.sizeof(CUniqueId)} bytes, not {len(unique_id)}")
        n_ranks, rank = _fit(n_ranks, c_int, "n_ranks"), _fit(rank, c_int, "rank")
        c_config, c_id = _config(config), CUniqueId.from_buffer_copy(unique_id)
        library.check(library.c.ulyxRuntimeCreate(byref(c_config), n_ranks, c_id, rank, byref(handle)))
        return Runtime(library, handle.value)

    @staticmethod
    def create_local(
        n_ranks: int,
        devices: Optional[Sequence[int]] = None,
        config: Optional[Config] = None,
        library: Optional[Library] = None,
    ) -> list["Runtime"]:
        """All ranks in this process: on the CPU, or rank r on CUDA device devices[r]. One thread then drives each."""
        library, n_ranks, c_devices = _library(library), _fit(n_ranks, c_int, "n_ranks"), None
        if devices is not None:
            if len(_sequence(devices, "devices")) != n_ranks:
                raise ValueError(f"devices has {len(devices)} entries for {n_ranks} ranks")
            c_devices = (c_int * n_ranks)(*(_fit(device, c_int, f"devices[{i}]") for i, device in enumerate(devices)))
        handles, c_config = (c_void_p * min(max(n_ranks, 1), LOCAL_MAX_RANKS))(), _config(config)
        library.check(library.c.ulyxRuntimeCreateLocal(byref(c_config), n_ranks, c_devices, handles))
        return [Runtime(library, handle) for handle in handles]

    def living(self) -> int:
        """The handle. Raises Error once the runtime was destroyed."""
        if self.handle is None:
            raise self.library.error(INVALID_ARGUMENT, "the runtime was destroyed")
        return self.handle

    @property
    def info(self) -> RuntimeInfo:
        info = CRuntimeInfo()
        self.library.check(self.library.c.ulyxRuntimeGetInfo(self.living(), byref(info)))
        return RuntimeInfo(
            rank=info.rank,
            n_ranks=info.nRanks,
            transport=TRANSPORTS[info.transport],
            transport_reason=(info.transportReason or b"").decode(),
            device=info.device,
            nccl_version=info.ncclVersion,
            closed=bool(info.closed),
            arena_bytes=info.arenaBytes,
        )

    def reserve(self, arena_bytes: int) -> None:
        """Grows the staging arena to at least so many bytes. Collective and blocking on GPUs."""
        self.library.check(self.library.c.ulyxRuntimeReserve(self.living(), _fit(arena_bytes, c_int64, "arena_bytes")))

    def async_error(self) -> Optional[Error]:
        """What a device found while an exchange ran, None if nothing. Waits for nothing."""
        found = c_int()
        self.library.check(self.library.c.ulyxRuntimeGetAsyncError(self.living(), byref(found)))
        if found.value == SUCCESS:
            return None
        return self.library.error(found.value, self.library.c.ulyxGetLastError(self.living()).decode(errors="replace"))

    def empty(self, shape: Sequence[int], dtype: Any) -> Buffer:
        """Uninitialised symmetric memory. Ranks may differ in shape; all get the bytes of the largest. Collective and
        blocking; each output deserves a Buffer of its own."""
        name, pointer = dtype_name(dtype), c_void_p()
        shape = tuple(_fit(extent, c_int64, f"shape[{i}]") for i, extent in enumerate(_sequence(shape, "shape")))
        if min(shape, default=0) < 0:
            raise ValueError(f"shape is {shape}, expected extents of 0 or more")
        nbytes = _fit(math.prod(shape) * DATA_TYPES[name].bytes, c_int64, f"the bytes of shape {shape}")
        self.library.check(self.library.c.ulyxMemAlloc(self.living(), nbytes, byref(pointer)))
        return Buffer(self, pointer.value or 0, shape, name)

    def abort(self) -> None:
        """Loses the world, from any thread: nobody waits any more. What waited raises, and so does every later call."""
        self.library.check(self.library.c.ulyxRuntimeAbort(self.living()))

    def set_logger(self, logger: Optional[Callable[[int, str], None]]) -> None:
        """From now on `logger(level, line)` hears of every error of a call (LOG_ERROR), and with one that is not a refusal
        of the exchanges before it (LOG_RECORD). It must not call the runtime. None: nobody, as at first."""
        if logger is not None and not callable(logger):
            raise TypeError(f"logger is {logger!r}, expected a function of level and line, or None")
        hear = _LOGGER() if logger is None else _LOGGER(lambda _, level, line: logger(level, line.decode(errors="replace")))
        self.library.check(self.library.c.ulyxRuntimeSetLogger(self.living(), hear, None))
        self._logger = hear  # which the library calls from now on

    def log_record(self) -> None:
        """Tells the logger the last exchanges."""
        self.library.check(self.library.c.ulyxRuntimeLogRecord(self.living()))

    def close(self) -> None:
        """Ends use; what is enqueued finishes. Not collective."""
        self.library.check(self.library.c.ulyxRuntimeClose(self.living()))

    def destroy(self) -> None:
        """Frees all that the runtime owns, its plans and Buffers among it. Collective on GPUs. A second call does
        nothing."""
        handle = c_void_p(self.handle)
        self.library.check(self.library.c.ulyxRuntimeDestroy(byref(handle)))
        self.handle = None
        for plan in self._plans:
            plan.handle = None
        self._plans.clear()

    def __enter__(self) -> "Runtime":
        return self

    def __exit__(self, *_: Any) -> None:
        self.destroy()


def run_local(runtimes: Sequence[Runtime], function: Callable[[Runtime], Any]) -> list[Any]:
    """function(runtime) of every rank at once, each in a thread; their results in rank order. Raises the error of the
    lowest rank that has one; one that only waited for another in vain counts last."""
    results: list[Any] = [None] * len(_sequence(runtimes, "runtimes", "runtimes"))
    errors: list[Optional[BaseException]] = [None] * len(runtimes)

    def rank_main(index: int) -> None:
        try:
            results[index] = function(runtimes[index])
        except BaseException as error:  # handed to the caller's thread
            errors[index] = error

    threads = [threading.Thread(target=rank_main, args=(index,)) for index in range(len(runtimes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    raised = [error for error in errors if error is not None]
    causes = [error for error in raised if not (isinstance(error, Error) and error.code in (TIMEOUT, REMOTE_ERROR))]
    if raised:
        raise (causes or raised)[0]
    return results


def _flat(nested: Any) -> list[Any]:
    return [item for part in nested for item in _flat(part)] if isinstance(nested, (tuple, list)) else [nested]


# ---- Plans --------------------------------------------------------------------------------------------------------


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _counts(counts: Optional[Sequence[int]], n_ranks: int, name: str) -> Any:
    """An int64 array for a struct, which must name one count a rank."""
    if counts is None:
        return None
    if len(_sequence(counts, name)) != n_ranks:
        raise ValueError(f"{name} has {len(counts)} entries for {n_ranks} ranks")
    return int64_array(counts, name)


class Sequences:
    """Sequences that stand one after another in one run of tokens: sequence i is tokens [cu_seqlens[i],
    cu_seqlens[i + 1]). Never changes; a plan made from it outlives it."""

    def __init__(self, cu_seqlens: Sequence[int], library: Optional[Library] = None) -> None:
        library, handle = _library(library), c_void_p()
        bounds = int64_array(cu_seqlens, "cu_seqlens")
        library.check(library.c.ulyxSequencesCreate(bounds, len(bounds), DATA_TYPES["int64"].code, byref(handle)))
        self.handle = handle.value
        weakref.finalize(self, library.c.ulyxSequencesDestroy, handle.value)


def make_shape(
    n_ranks: int,
    *,
    tokens: int = 0,
    heads: int,
    head_dim: int,
    kv_heads: int = 0,
    value_dim: int = 0,
    batch: int = 1,
    dtype: Any = "bfloat16",
    token_counts: Optional[Sequence[int]] = None,
    head_counts: Optional[Sequence[int]] = None,
    packed_in: bool = False,
    packed_out: bool = False,
    seq_order: str = "batch_first",
    heads_order: str = "batch_first",
    strides: Optional[dict[str, tuple[int, int, int]]] = None,
    replicated_tokens: int = 0,
    replicated_last: bool = False,
    sequences: Optional[Sequences | Sequence[int]] = None,
    library: Optional[Library] = None,
) -> CShape:
    """ulyxShape_t of these. strides names tensors as the struct does ('qIn': batch, token, head), in elements.
    Replicated tokens are held by every rank besides `tokens`, before them or after. sequences are what the tokens of
    the heads side are, those among them: a Sequences, or the cu_seqlens of one."""
    n_ranks, strides = _fit(n_ranks, c_int, "n_ranks"), {} if strides is None else strides
    if not isinstance(strides, Mapping):
        raise TypeError(f"strides is {strides!r}, expected a dict of tensors' names and strides")
    if sequences is not None and not isinstance(sequences, Sequences):
        sequences = Sequences(sequences, library)
    shape = CShape(
        tokens=tokens,
        heads=heads,
        kvHeads=kv_heads,
        headDim=head_dim,
        valueDim=value_dim,
        batch=batch,
        tokenCounts=_counts(token_counts, n_ranks, "token_counts"),
        headCounts=_counts(head_counts, n_ranks, "head_counts"),
        type=DATA_TYPES[dtype_name(dtype)].code,
        seqOrder=_choose("seq_order", seq_order, ORDERS),
        headsOrder=_choose("heads_order", heads_order, ORDERS),
        packedIn=packed_in,
        packedOut=packed_out,
        replicatedTokens=replicated_tokens,
        replicatedPlace=replicated_last,
        sequences=sequences.handle if sequences is not None else None,
    )
    shape.keep = sequences  # lives as long as the struct that names it
    for name, values in strides.items():
        if name not in STRIDE_FIELDS:
            raise ValueError(f"strides of {name!r}; tensors are {', '.join(STRIDE_FIELDS)}")
        if len(_sequence(values, f"the stride of {name}")) != 3:
            raise ValueError(f"the stride of {name} is {values!r}, expected three: batch, token and head")
        given = (_fit(value, c_int64, f"the stride of {name}[{i}]") for i, value in enumerate(values))
        setattr(shape, name, CStrides(*given))
    return shape


def shape_bytes(n_ranks: int, rank: int, library: Optional[Library] = None, **shape: Any) -> dict[str, int]:
    """Bytes that one rank needs for the tensors of a shape (keywords of Plan), and under 'arena' for staging."""
    library, needed, rank = _library(library), CShapeBytes(), _fit(rank, c_int, "rank")
    c_shape = make_shape(n_ranks, library=library, **shape)
    library.check(library.c.ulyxShapeGetBytes(byref(c_shape), n_ranks, rank, byref(needed)))
    return {name: getattr(needed, name) for name in STRIDE_FIELDS + ("arena",)}


class ShapeTimes(NamedTuple):
    """How long one exchange should take where NVLink 4 joins all GPUs; remote_bytes are the busiest rank's."""

    remote_bytes: int
    limit_us: float
    direct_us: float
    copy_engine_us: float


def shape_times(n_ranks: int, operation: str, library: Optional[Library] = None, **shape: Any) -> ShapeTimes:
    """Predictions for 'seq_to_heads' or 'heads_to_seq' of a shape (keywords of Plan)."""
    library, times = _library(library), CShapeTimes()
    c_shape = make_shape(n_ranks, library=library, **shape)
    code = _choose("operation", operation, OPERATIONS)
    library.check(library.c.ulyxShapeGetTimes(byref(c_shape), n_ranks, code, byref(times)))
    return ShapeTimes(times.remoteBytes, times.limitUs, times.directUs, times.copyEngineUs)


@dataclass(frozen=True)
class Choice:
    """How an operation is moved and why; predicted_us is negative without a prediction."""

    transport: str
    reason: str
    predicted_us: float


@dataclass(frozen=True)
class PlanInfo:
    """ulyxPlanInfo_t. Ranges are this rank's, the lists are every rank's; bytes are by peer. kv_head_of_head has the
    local key/value head of each local query head."""

    rank: int
    n_ranks: int
    tokens: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    batch: int
    element_bytes: int
    replicated_tokens: int
    seq_replicated: range
    heads_replicated: range
    token_range: range
    head_range: range
    kv_head_range: range
    token_ranges: list[range]
    head_ranges: list[range]
    kv_head_ranges: list[range]
    kv_head_of_head: list[int]
    sequence_count: int
    longest_sequence: int
    seq_to_heads_send_bytes: list[int]
    seq_to_heads_recv_bytes: list[int]
    heads_to_seq_send_bytes: list[int]
    heads_to_seq_recv_bytes: list[int]
    arena_bytes: int
    signature: int
    seq_to_heads: Choice
    heads_to_seq: Choice


def _python_value(value: Any, length: int) -> Any:
    """A field of ulyxPlanInfo_t as PlanInfo has it, which has so many entries if it is an array."""
    if isinstance(value, CRange):
        return value.to_range()
    if isinstance(value, CChoice):
        return Choice(TRANSPORTS[value.transport], (value.reason or b"").decode(), value.predictedUs)
    if isinstance(value, int):
        return value
    return [_python_value(item, length) for item in value[:length]]


def _expect_runtime(runtime: Any) -> Runtime:
    if not isinstance(runtime, Runtime):
        raise TypeError(f"runtime is a {type(runtime).__name__}, expected one rank's ulyx.Runtime")
    return runtime


class _PlanBase:
    """A handle that a runtime owns, and the tensors that it expects."""

    def __init__(self, runtime: Runtime, dtype: Any) -> None:
        self.runtime = _expect_runtime(runtime)
        self.dtype = dtype_name(dtype)
        self.handle: Optional[int] = None
        self._c = runtime.library.c

    def _reserve(self, result: int, staged: int) -> None:
        """Grows the arena to what the plan stages. A shape without a size is refused by the plan, to all ranks."""
        self.runtime.reserve(staged if result == SUCCESS else 0)

    def _adopt(self, result: int, handle: c_void_p) -> None:
        self.runtime.library.check(result)
        self.handle = handle.value
        self.runtime._plans.append(self)

    def living(self) -> int:
        """The handle. Raises Error once the plan was destroyed."""
        if self.handle is None:
            raise self.runtime.library.error(INVALID_ARGUMENT, "the plan was destroyed, alone or with its runtime")
        return self.handle

    def _before(self, stream: Any) -> None:
        """Refuses before an output is allocated, which is collective, what would be refused after it."""
        self.living()
        _stream_handle(stream)

    def destroy(self) -> None:
        """Host memory only; exchanges in flight and captured graphs go on. The runtime does it, too."""
        if self.handle is None:
            return
        self.runtime.library.check(self._c.ulyxPlanDestroy(self.handle))
        self.handle = None
        self.runtime._plans.remove(self)

    def __enter__(self) -> "_PlanBase":
        return self

    def __exit__(self, *_: Any) -> None:
        self.destroy()

    def _fill(self, tensor: CTensor, given: View, name: str, output: bool) -> None:
        """What every tensor needs; extents and strides are its caller's."""
        self._check(given, self.dtype, name, output)
        tensor.data = given.pointer or None

    def _check(self, given: View, dtype: str, name: str, output: bool) -> None:
        place = "cuda" if self.runtime.device >= 0 else "cpu"
        if given.device not in ("", place):
            raise self._mismatch(f"{name} is on {given.device}, the runtime's rank on {place}")
        if output and not given.writable:
            raise self._mismatch(f"{name} is read-only")
        if given.dtype != dtype and dtype not in CARRIERS.get(given.dtype, ()):
            raise self._mismatch(f"{name} has elements of {given.dtype or 'no known type'}, the plan's are {dtype}")

    def _mismatch(self, message: str) -> Error:
        return self.runtime.library.error(MISMATCH, message)


class Plan(_PlanBase):
    """A shape resolved for both exchanges of one runtime. Creation is collective.

    Tensors are [batch, tokens, heads, dim], with order 'seq_first' [tokens, batch, heads, dim], with batch 1 also
    [tokens, heads, dim]. A packed side is one tensor, given and returned as q alone, of q, k and v heads together
    ([..., 1, row elements] where head_dim and value_dim differ). Tokens of a tensor are a rank's own, or all, and the
    replicated ones.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        dtype: Any = "bfloat16",
        strides: Optional[dict[str, tuple[int, int, int]]] = None,
        reserve: bool = False,
        **shape: Any,
    ) -> None:
        """Keywords are those of make_shape: numbers of the whole model, counts one a rank. reserve: the arena first
        grows to what the plan stages, on all ranks together; it cannot while one of them has a captured graph."""
        super().__init__(runtime, dtype)
        c_shape = make_shape(runtime.n_ranks, dtype=dtype, strides=strides, library=runtime.library, **shape)
        handle, needed = c_void_p(), CShapeBytes()
        if reserve:
            sized = self._c.ulyxShapeGetBytes(byref(c_shape), runtime.n_ranks, runtime.rank, byref(needed))
            self._reserve(sized, needed.arena)
        self._adopt(self._c.ulyxPlanCreate(runtime.living(), byref(c_shape), byref(handle)), handle)
        self._seq_first = {"seq": bool(c_shape.seqOrder), "heads": bool(c_shape.headsOrder)}
        self._packed_in, self._packed_out = bool(c_shape.packedIn), bool(c_shape.packedOut)
        self._strided = {name for name in STRIDE_FIELDS if any((strides or {}).get(name, ()))}
        self._in, self._out, self._o_in, self._o_out = CQkv(), CQkv(), CTensor(), CTensor()
        runtime.library.check(self._c.ulyxPlanGetQkv(self.handle, byref(self._in), byref(self._out)))
        runtime.library.check(self._c.ulyxPlanGetOutput(self.handle, byref(self._o_in), byref(self._o_out)))

    @property
    def info(self) -> PlanInfo:
        """Every number of the plan."""
        info = CPlanInfo()
        self.runtime.library.check(self._c.ulyxPlanGetInfo(self.living(), byref(info)))
        lengths = {"kv_head_of_head": info.headCount}
        return PlanInfo(
            **{
                f.name: _python_value(getattr(info, _camel(f.name)), lengths.get(f.name, info.nRanks))
                for f in fields(PlanInfo)
            }
        )

    @property
    def kv_head_of_head(self) -> list[int]:
        """The local key/value head of each local query head: k[..., kv_head_of_head, :] lies beside q."""
        return self.info.kv_head_of_head

    def store_cu_seqlens(self, out: Any, stream: int = 0) -> Any:
        """Writes the bounds of the plan's sequences, as attention over the heads side takes them, to `out`: int32
        [info.sequence_count + 1], in the order of `stream`. Returns `out`. Not collective."""
        count = self.info.sequence_count + 1
        seen = view(out, "out")
        self._check(seen, "int32", "out", True)
        if seen.shape != (count,) or (count > 1 and seen.strides != (1,)):
            raise self._mismatch(f"out has shape {seen.shape} and strides {seen.strides}, expected a dense ({count},)")
        self.runtime.library.check(self._c.ulyxPlanStoreCuSeqlens(self.living(), seen.pointer, _stream_handle(stream)))
        return out

    def seq_shapes(self) -> list[tuple[int, ...]]:
        """Shapes in memory order of q, k, v (packed: of the one tensor) on this rank's sequence side."""
        return self._shapes(self._in, self._packed_in, "seq")

    def heads_shapes(self) -> list[tuple[int, ...]]:
        """The same of this rank's heads side."""
        return self._shapes(self._out, self._packed_out, "heads")

    def o_heads_shape(self) -> tuple[int, ...]:
        """Shape of what heads_to_seq reads."""
        return self._shape(self._o_in, "heads")

    def o_seq_shape(self) -> tuple[int, ...]:
        """Shape of what heads_to_seq writes."""
        return self._shape(self._o_out, "seq")

    def _shapes(self, qkv: CQkv, packed: bool, side: str) -> list[tuple[int, ...]]:
        return [self._shape(tensor, side) for tensor in ((qkv.q,) if packed else (qkv.q, qkv.k, qkv.v))]

    def _shape(self, tensor: CTensor, side: str) -> tuple[int, ...]:
        batch, tokens, heads, dim = tensor.extents
        return (tokens, batch, heads, dim) if self._seq_first[side] else (batch, tokens, heads, dim)

    def empty_heads(self) -> list[Buffer]:
        """Outputs for seq_to_heads in symmetric memory. Collective and blocking."""
        self._refuse_strided("qOut", "kOut", "vOut")
        return [self.runtime.empty(shape, self.dtype) for shape in self.heads_shapes()]

    def empty_seq(self) -> Buffer:
        """The output for heads_to_seq in symmetric memory. Collective and blocking."""
        self._refuse_strided("oOut")
        return self.runtime.empty(self.o_seq_shape(), self.dtype)

    def _refuse_strided(self, *outputs: str) -> None:
        """Any stride that was given counts, dense on this rank or not: ranks that differ would wait for each other."""
        strided = [name for name in outputs if name in self._strided]
        if strided:
            raise self._mismatch(
                f"the plan has strides for {', '.join(strided)}, which new outputs, being dense, do not keep: "
                "pass outputs that lie so"
            )

    def seq_to_heads(self, q: Any, k: Any = None, v: Any = None, out: Any = None, stream: int = 0) -> Any:
        """Own tokens over all heads -> all tokens over own heads. Returns `out`: (q, k, v), or one tensor where that
        side is packed; None allocates it anew, so make it once (empty_heads) and pass it. `stream` is a cudaStream_t.
        Collective."""
        self._before(stream)
        if out is None:
            out = self.empty_heads()
            out = out[0] if self._packed_out else tuple(out)
        self.bind_seq_to_heads(q, k, v, out)(stream)
        return out

    def heads_to_seq(self, o: Any, out: Any = None, stream: int = 0) -> Any:
        """All tokens over own heads -> own tokens over all heads. Returns `out`; otherwise as seq_to_heads."""
        self._before(stream)
        if out is None:
            out = self.empty_seq()
        self.bind_heads_to_seq(o, out)(stream)
        return out

    def bind_seq_to_heads(self, q: Any, k: Any, v: Any, out: Any) -> Callable[[int], None]:
        """A function of the stream that does seq_to_heads on the memory that these tensors have now, and keeps them
        alive: what reading the tensors costs is paid once. Not collective; its calls are."""
        c_in = self._qkv(self._in, (q, k, v), self._packed_in, "seq", "in.", False)
        given = (out,) if self._packed_out else out
        if not isinstance(given, (tuple, list)):
            raise self._mismatch(f"out is a {type(out).__name__}, expected a tuple or list of q, k and v")
        c_out = self._qkv(self._out, given, self._packed_out, "heads", "out.", True)
        return self._bound(self._c.ulyxSeqToHeads, c_in, c_out, (q, k, v, given))

    def bind_heads_to_seq(self, o: Any, out: Any) -> Callable[[int], None]:
        """The same for heads_to_seq."""
        c_in, c_out = CTensor.from_buffer_copy(self._o_in), CTensor.from_buffer_copy(self._o_out)
        self._fill4(c_in, o, "heads", "in", False)
        self._fill4(c_out, out, "seq", "out", True)
        return self._bound(self._c.ulyxHeadsToSeq, c_in, c_out, (o, out))

    def _bound(self, function: Any, c_in: Any, c_out: Any, keep: Any) -> Callable[[int], None]:
        check, in_pointer, out_pointer = self.runtime.library.check, byref(c_in), byref(c_out)
        ours = [tensor for tensor in _flat(keep) if isinstance(tensor, Buffer)]

        def call(stream: int = 0, _keep: Any = keep) -> None:
            for tensor in ours:
                tensor.data_ptr()  # raises once its memory was freed
            plain = type(stream) is int and 0 <= stream < 2**64
            on = stream if plain else _stream_handle(stream)
            check(function(self.handle or self.living(), in_pointer, out_pointer, on))

        return call

    def _qkv(self, expected: CQkv, given: Sequence[Any], packed: bool, side: str, name: str, output: bool) -> CQkv:
        if not packed and (len(given) != 3 or any(tensor is None for tensor in given)):
            raise self._mismatch(f"{name[:-1]} needs q, k and v: this side is not packed")
        if packed and any(tensor is not None for tensor in given[1:]):
            raise self._mismatch(f"{name[:-1]} takes q alone: this side is packed")
        qkv = CQkv.from_buffer_copy(expected)
        self._fill4(qkv.q, given[0], side, name + "q", output)
        if not packed:
            self._fill4(qkv.k, given[1], side, name + "k", output)
            self._fill4(qkv.v, given[2], side, name + "v", output)
        return qkv

    def _fill4(self, tensor: CTensor, given: Any, side: str, name: str, output: bool) -> None:
        seen = view(given, name)
        self._fill(tensor, seen, name, output)
        shape, strides = seen.shape, seen.strides
        if len(shape) == 3:
            shape, strides = (1,) + shape, (0,) + strides
        elif len(shape) != 4:
            raise self._mismatch(f"{name} has {len(shape)} dimensions, expected 4, or 3 with batch 1")
        elif self._seq_first[side]:
            shape, strides = (shape[1], shape[0]) + shape[2:], (strides[1], strides[0]) + strides[2:]
        if 0 not in shape and any(n > 1 and stride == 0 for n, stride in zip(shape, strides)):
            raise self._mismatch(f"{name} repeats memory: shape {shape}, strides {strides}; copy it first")
        tensor.extents[:] = shape
        tensor.strides[:] = (0, 0, 0, 0) if 0 in shape or not any(strides) else strides


def enqueue_cost(
    plan: Plan,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    stream: int = 0,
    calls: int = 200,
    warmup: int = 20,
    bound: bool = False,
) -> float:
    """Median host time of one seq_to_heads from Python in microseconds; `bound`: of a bound one. Collective: every rank
    calls it alike. On loopback that is the whole exchange, waiting for the other ranks included; on GPUs `stream` is
    left with calls + warmup exchanges queued, and where CUDA's queue fills up the host waits for the device."""
    exchange, times = plan.bind_seq_to_heads(q, k, v, out), []
    for _ in range(warmup + calls):
        start = time.perf_counter_ns()
        if bound:
            exchange(stream)
        else:
            plan.seq_to_heads(q, k, v, out, stream)
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times[warmup:]) / 1e3


# ---- Row collectives ----------------------------------------------------------------------------------------------

_ALL_GATHER, _REDUCE_SCATTER, _ALL_TO_ALL = 0, 1, 2


def _owned_rows(
    runtime: Runtime, total: int, counts: Optional[Sequence[int]], in_stride: int, out_stride: int
) -> dict[str, Any]:
    """The fields of a CRowsShape whose rows have owners."""
    return {
        "total": total,
        "counts": _counts(counts, _expect_runtime(runtime).n_ranks, "counts"),
        "inStride": in_stride,
        "outStride": out_stride,
    }


class RowsPlan(_PlanBase):
    """A plan for one row collective; the static methods make it, collectively, and run() does it. A row is
    `row_elements` elements whatever its own shape, so tensors are [rows, ...], dense within a row. `in_stride` and
    `out_stride` are elements from row to row, 0 dense; `reserve` is Plan's."""

    def __init__(
        self, runtime: Runtime, op: int, row_elements: int, dtype: Any, shape: dict[str, Any], reserve: bool
    ) -> None:
        """Not for callers: shape has fields of ulyxRowsShape_t."""
        super().__init__(runtime, dtype)
        code, handle = DATA_TYPES[self.dtype].code, c_void_p()
        c_shape, arena = CRowsShape(op=op, type=code, rowElements=row_elements, **shape), c_int64()
        if reserve:
            sized = self._c.ulyxRowsShapeGetArenaBytes(byref(c_shape), runtime.n_ranks, runtime.rank, byref(arena))
            self._reserve(sized, arena.value)
        self._adopt(self._c.ulyxRowsPlanCreate(runtime.living(), byref(c_shape), byref(handle)), handle)
        self._run = (self._c.ulyxAllGatherRows, self._c.ulyxReduceScatterRows, self._c.ulyxAllToAllRows)[op]
        self._in, self._out, self._out_stride = CTensor(), CTensor(), c_shape.outStride
        runtime.library.check(self._c.ulyxPlanGetRows(self.handle, byref(self._in), byref(self._out)))

    @staticmethod
    def all_gather(
        runtime: Runtime,
        row_elements: int,
        *,
        total: int = 0,
        counts: Optional[Sequence[int]] = None,
        dtype: Any = "bfloat16",
        in_stride: int = 0,
        out_stride: int = 0,
        reserve: bool = False,
    ) -> "RowsPlan":
        """Own rows -> all rows. Rows are balanced over the ranks unless counts has each rank's."""
        shape = _owned_rows(runtime, total, counts, in_stride, out_stride)
        return RowsPlan(runtime, _ALL_GATHER, row_elements, dtype, shape, reserve)

    @staticmethod
    def all_gather_target(
        runtime: Runtime,
        row_elements: int,
        target: range,
        *,
        total: int = 0,
        counts: Optional[Sequence[int]] = None,
        dtype: Any = "bfloat16",
        in_stride: int = 0,
        out_stride: int = 0,
        reserve: bool = False,
    ) -> "RowsPlan":
        """The rows of `target` that each rank owns -> all rows of `target`."""
        shape = _owned_rows(runtime, total, counts, in_stride, out_stride)
        shape |= {"targeted": 1, "target": CRange(*_bounds(target, "target"))}
        return RowsPlan(runtime, _ALL_GATHER, row_elements, dtype, shape, reserve)

    @staticmethod
    def reduce_scatter(
        runtime: Runtime,
        row_elements: int,
        *,
        total: int = 0,
        counts: Optional[Sequence[int]] = None,
        dtype: Any = "bfloat16",
        in_stride: int = 0,
        out_stride: int = 0,
        reserve: bool = False,
    ) -> "RowsPlan":
        """Partial sums of all rows -> own rows, summed over ranks. float16, bfloat16, float32."""
        shape = _owned_rows(runtime, total, counts, in_stride, out_stride)
        return RowsPlan(runtime, _REDUCE_SCATTER, row_elements, dtype, shape, reserve)

    @staticmethod
    def all_to_all(
        runtime: Runtime,
        row_elements: int,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        *,
        dtype: Any = "bfloat16",
        in_stride: int = 0,
        out_stride: int = 0,
        reserve: bool = False,
    ) -> "RowsPlan":
        """send_counts[r] rows to rank r and recv_counts[r] from it, in rank order; the ranks' own numbers."""
        shape = {"sendCounts": _counts(send_counts, _expect_runtime(runtime).n_ranks, "send_counts")}
        shape |= {"recvCounts": _counts(recv_counts, runtime.n_ranks, "recv_counts")}
        shape |= {"inStride": in_stride, "outStride": out_stride}
        return RowsPlan(runtime, _ALL_TO_ALL, row_elements, dtype, shape, reserve)

    @property
    def in_rows(self) -> int:
        """Rows that this rank hands in."""
        return self._in.extents[1]

    @property
    def out_rows(self) -> int:
        """Rows that this rank gets."""
        return self._out.extents[1]

    def empty(self) -> Buffer:
        """The output [out_rows, row_elements] in symmetric memory. Collective and blocking."""
        if self._out_stride not in (0, self._out.extents[3]):
            raise self._mismatch(
                f"the plan's out_stride is {self._out_stride}, a new output's rows are {self._out.extents[3]} apart: "
                "pass an output that lies so"
            )
        return self.runtime.empty((self.out_rows, self._out.extents[3]), self.dtype)

    def run(self, rows: Any, out: Any = None, stream: int = 0) -> Any:
        """Does the collective and returns `out`, allocated anew if None. `stream` is a cudaStream_t. Collective."""
        self._before(stream)
        if out is None:
            out = self.empty()
        c_in, c_out = CTensor.from_buffer_copy(self._in), CTensor.from_buffer_copy(self._out)
        self._fill_rows(c_in, rows, "in", False)
        self._fill_rows(c_out, out, "out", True)
        self.runtime.library.check(self._run(self.living(), byref(c_in), byref(c_out), _stream_handle(stream)))
        return out

    def _fill_rows(self, tensor: CTensor, given: Any, name: str, output: bool) -> None:
        seen = view(given, name)
        self._fill(tensor, seen, name, output)
        if not seen.shape:
            raise self._mismatch(f"{name} has no dimensions, expected [rows, ...]")
        rows, inner = seen.shape[0], seen.shape[1:]
        wrong = any(n > 1 and a != b for n, a, b in zip(inner, seen.strides[1:], dense_strides(inner)))
        if wrong and rows > 0:
            raise self._mismatch(f"{name}: strides within a row are {seen.strides[1:]}, dense {dense_strides(inner)}")
        tensor.extents[:] = (1, rows, 1, _fit(math.prod(inner), c_int64, f"the row of {name}"))
        tensor.strides[:] = (0, seen.strides[0], 0, 1) if rows > 0 else (0, 0, 0, 0)


# ---- Pure functions -----------------------------------------------------------------------------------------------


def balanced_ranges(total: int, parts: int, library: Optional[Library] = None) -> list[range]:
    """`total` items in `parts` contiguous ranges, the first ones a token longer."""
    library, total, parts = _library(library), _fit(total, c_int64, "total"), _fit(parts, c_int, "parts")
    ranges = (CRange * max(min(parts, total), 1))()  # more parts than items are refused
    library.check(library.c.ulyxBalancedRanges(total, parts, ranges))
    return [item.to_range() for item in ranges]


def _segment(segment: Any, name: str) -> CSegment:
    if len(_sequence(segment, name)) != 3:
        raise ValueError(f"{name} is {segment!r}, expected three: start, stop and row")
    return CSegment(*(_fit(value, c_int64, f"{name}[{i}]") for i, value in enumerate(segment)))


def localize_segments(
    segments: Sequence[tuple[int, int, int]], shard: range, library: Optional[Library] = None
) -> list[tuple[int, int, int]]:
    """(start, stop, row) of the whole sequence, clipped to a shard and counted from its first token."""
    library, kept = _library(library), c_int64()
    count = len(_sequence(segments, "segments", "(start, stop, row)"))
    c_segments = (CSegment * count)(*(_segment(segment, f"segments[{i}]") for i, segment in enumerate(segments)))
    c_shard = CRange(*_bounds(shard, "shard"))
    library.check(library.c.ulyxLocalizeSegments(c_segments, count, c_shard, c_segments, byref(kept)))
    return [(segment.start, segment.stop, segment.row) for segment in c_segments[: kept.value]]


def target_intersection(target: range, shard: range, library: Optional[Library] = None) -> range:
    """The tokens of `target` in `shard`, counted from the shard's first token; range(0, 0) if there are none."""
    library, local = _library(library), CRange()
    given = CRange(*_bounds(target, "target")), CRange(*_bounds(shard, "shard"))
    library.check(library.c.ulyxTargetIntersection(*given, byref(local)))
    return local.to_range()


# ---- PyTorch ------------------------------------------------------------------------------------------------------


class TorchOps:
    """The plans that the custom ops of one namespace know by number: a compiled graph can hold an integer, not a plan.
    From register_torch_ops.

    A number keeps its plan until remove() and is never given again, so a graph that was compiled for it can reach no
    other plan. Destroying the plan or its runtime is allowed at any time; the number then refuses. A captured CUDA
    graph needs neither plan nor number.
    """

    def __init__(self, seq_to_heads: Any = None, heads_to_seq: Any = None) -> None:
        self.seq_to_heads = seq_to_heads
        self.heads_to_seq = heads_to_seq
        self._plans: dict[int, Plan] = {}
        self._numbers = itertools.count()

    def add(self, plan: Plan) -> int:
        """The number that the ops take for this plan. Not collective; ranks in processes of their own that add alike
        get the same numbers, ranks that are threads of one do not."""
        if not isinstance(plan, Plan):
            raise TypeError(f"plan is a {type(plan).__name__}, expected a ulyx.Plan")
        number = next(self._numbers)
        self._plans[number] = plan
        return number

    def remove(self, number: int) -> None:
        """Forgets a plan, which is destroyed by its owner."""
        self[number]
        del self._plans[number]

    def __getitem__(self, number: int) -> Plan:
        if number not in self._plans:
            raise LookupError(f"no plan has number {number}: it was removed, or never added in this process")
        return self._plans[number]


def import_torch() -> Any:
    """torch, with the library loaded beside it in the order that suits both. A process has one libnccl.so.2, the first
    that is loaded, so that has to be the newer one: ulyx's where PyTorch brings one older than ulyx needs."""
    names = [f"nvidia-nccl-cu{cuda}" for cuda in (11, 12, 13)]
    if "torch" not in sys.modules and any(_older_than(name, (2, 27)) for name in names):
        load()
    import torch

    load()
    return torch


def _older_than(package: str, version: tuple[int, int]) -> bool:
    try:
        found = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return tuple(int(part) for part in found.split(".")[:2]) < version


def register_torch_ops(namespace: str = "ulyx") -> TorchOps:
    """The custom ops torch.ops.<namespace>.seq_to_heads(q, k, v, q_out, k_out, v_out, plan) and
    .heads_to_seq(o, o_out, plan), registered at the first call of a process and namespace; `plan` is a number from
    add(). PyTorch 2.4 or newer.

    Both write their outputs and return nothing, run on torch's current stream, and may be compiled and captured. Where
    a side is packed, q (q_out) is its one tensor and the other two are None. There is no autograd.

    In one compiled graph write an output once: compile layer by layer, or give each layer of a graph outputs of its
    own. Inductor from PyTorch 2.6 on (2.14 was the last that was looked at) may put off reading an output until a later
    op has written it again, whatever the custom op is: silently wrong. Nor does it always update an output in place:
    the exchange then writes a copy, which is right, but no symmetric memory. Outputs that are graph inputs which
    nothing else writes are updated in place.
    """
    if not isinstance(namespace, str):
        raise TypeError(f"namespace is {namespace!r}, expected a string")
    if not (namespace.isascii() and namespace.isidentifier()) or keyword.iskeyword(namespace):
        raise ValueError(f"namespace is {namespace!r}, expected an identifier")
    if namespace.startswith("_") or namespace in _OF_TORCH:
        raise ValueError(f"namespace is {namespace!r}, a name of torch.ops' own")
    with _registering:  # ranks that are threads all ask
        if namespace not in _registered:
            _registered[namespace] = _register_torch_ops(namespace)
        return _registered[namespace]


# What torch.ops has itself, from PyTorch 2.4 to 2.14, besides names that begin with an underscore.
_OF_TORCH = frozenset(
    "aten c10d c10d_functional coor cuda debug_mode_ops debugprims export flex_lib fsdp higher_order"
    " import_module inductor inductor_prims load_library loaded_libraries mempool mkl mkldnn mkldnn_prepacked"
    " nvprims onednn onnx onnx_symbolic prepacked prim prims profiler quantization quantized quantized_decomposed"
    " rngprims sparse static_runtime streams symm_mem tensorexpr torch".split()
)

_registering = threading.Lock()
_registered: dict[str, TorchOps] = {}


def _register_torch_ops(namespace: str) -> TorchOps:
    import torch

    if not hasattr(torch.library, "custom_op"):
        raise ImportError(f"PyTorch {torch.__version__} has no torch.library.custom_op; 2.4 is the first that has")

    def stream_of(tensor: Any) -> int:
        return torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else 0

    def seq_to_heads(q, k, v, q_out, k_out, v_out, plan):  # the schema has the types
        out = q_out if k_out is None and v_out is None else (q_out, k_out, v_out)
        ops[plan].seq_to_heads(q, k, v, out, stream_of(q))

    def heads_to_seq(o, o_out, plan):
        ops[plan].heads_to_seq(o, o_out, stream_of(o))

    # A SymInt may vary between calls of a graph that was compiled once for shapes that vary.
    exchange = torch.library.custom_op(
        f"{namespace}::seq_to_heads",
        seq_to_heads,
        mutates_args=("q_out", "k_out", "v_out"),
        schema="(Tensor q, Tensor? k, Tensor? v, Tensor(a!) q_out, Tensor(b!)? k_out, Tensor(c!)? v_out, SymInt plan)"
        " -> ()",
    )
    back = torch.library.custom_op(
        f"{namespace}::heads_to_seq",
        heads_to_seq,
        mutates_args=("o_out",),
        schema="(Tensor o, Tensor(a!) o_out, SymInt plan) -> ()",
    )
    exchange.register_fake(lambda q, k, v, q_out, k_out, v_out, plan: None)
    back.register_fake(lambda o, o_out, plan: None)
    ops = TorchOps(exchange, back)
    return ops


# ---- What an enqueue costs here -------------------------------------------------------------------------------------


def main() -> None:
    """Says which library is found and what an enqueue costs from Python: one rank on the CPU, 64 tokens of 4 heads."""
    (runtime,) = Runtime.create_local(1)
    with runtime:
        plan = Plan(runtime, tokens=64, heads=4, head_dim=8, dtype="float32")
        given, out = [runtime.empty(shape, "float32") for shape in plan.seq_shapes()], plan.empty_heads()
        called, bound = (enqueue_cost(plan, *given, out, calls=2000, bound=bound) for bound in (False, True))
        print(f"ulyx {'.'.join(map(str, runtime.library.version))} at {runtime.library.path}")
        print(f"seq_to_heads on one rank of the CPU: {called:.1f} us a call, {bound:.1f} us bound to its tensors")


if __name__ == "__main__":
    main()
