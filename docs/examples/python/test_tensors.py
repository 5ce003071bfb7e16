# SPDX-License-Identifier: MIT
"""What plans refuse: tensors that are none, that lie otherwise or elsewhere, and outputs that cannot be made. Run by
test_ulyx.py."""

from __future__ import annotations

import array
import ctypes
from types import SimpleNamespace
from typing import Any
from unittest import mock

import ulyx
from support import QUICK, Array, OnlyDlpack, Repeated, Tally, np, world

SHAPE = {"tokens": 5, "heads": 3, "head_dim": 2, "dtype": "float32"}


def test_refused_tensors(tally: Tally) -> None:
    [runtime] = ulyx.Runtime.create_local(1, config=QUICK)
    plan = ulyx.Plan(runtime, tokens=5, heads=3, head_dim=2, dtype="float32")
    good = [Array((1, 5, 3, 2), "float32") for _ in range(7)]
    q, k, v, out = good[0], good[1], good[2], good[3:6]
    for bad, words in (
        ((1, 4, 3, 2), "[1, 4, 3, 2], the plan's [1, 5, 3, 2]"),
        ((5, 4, 2), "[1, 5, 4, 2], the plan's"),
        ((5, 6), "in.q has 2 dimensions"),
    ):
        wrong = Array(bad, "float32")
        tally.refuses(f"q of {bad}", lambda: plan.seq_to_heads(wrong, k, v, out), ulyx.MISMATCH, "in.q", words)
    wrong = Array((1, 5, 3, 2), "float64")
    tally.refuses(
        "another type", lambda: plan.seq_to_heads(q, wrong, v, out), ulyx.MISMATCH, "in.k", "float64", "float32"
    )
    bits = Array((1, 5, 3, 2), "bfloat16")
    tally.refuses(
        "a carrier of another size", lambda: plan.seq_to_heads(q, k, bits, out), ulyx.MISMATCH, "uint16", "float32"
    )
    fixed = Array((1, 5, 3, 2), "float32", read_only=True)
    tally.refuses("a read-only output", lambda: plan.heads_to_seq(q, fixed), ulyx.MISMATCH, "out is read-only")
    plan.heads_to_seq(fixed, good[6])
    tally.equal("a read-only input", good[6].values(), fixed.values())
    tally.refuses("no v", lambda: plan.seq_to_heads(q, k, None, out), ulyx.MISMATCH, "q, k and v")
    tally.refuses("no tensor", lambda: plan.seq_to_heads(q, k, [1], out), TypeError, "list is no tensor")
    tally.refuses("output over input", lambda: plan.seq_to_heads(q, k, v, (out[0], out[1], k)), ulyx.INVALID_ARGUMENT)
    tally.equal("a refused call has written nothing", [array.values() for array in out], [[77.0] * 30] * 3)
    rows = ulyx.RowsPlan.all_gather(runtime, 4, total=3, dtype="float32")
    short = Array((2, 4), "float32")
    tally.refuses("too few rows", lambda: rows.run(short), ulyx.MISMATCH, "[1, 2, 1, 4], the plan's [1, 3, 1, 4]")

    class Gpu(Array):
        def __init__(self) -> None:
            super().__init__((1, 5, 3, 2), "float32")
            self.__cuda_array_interface__ = self.__array_interface__

    tally.refuses("GPU memory on the CPU", lambda: plan.heads_to_seq(Gpu(), out[0]), ulyx.MISMATCH, "cuda", "cpu")
    runtime.destroy()


def test_what_would_wrap_or_run_over(tally: Tally) -> None:
    (runtime,) = ulyx.Runtime.create_local(1)
    plan = ulyx.Plan(runtime, tokens=3, heads=2, head_dim=2, dtype="float32")
    q, k, v = (Array((3, 2, 2), "float32") for _ in range(3))
    out = plan.empty_heads()
    repeated = Repeated((3, 2, 2))
    tally.refuses("an input that repeats", lambda: plan.seq_to_heads(repeated, k, v, out), ulyx.MISMATCH, "repeats")
    tally.refuses("an output that repeats", lambda: plan.seq_to_heads(q, k, v, (repeated, *out[1:])), ulyx.MISMATCH)
    much = 2**64 + 3
    keywords = {"heads": 2, "head_dim": 2}
    tally.refuses("tokens that wrap", lambda: ulyx.Plan(runtime, tokens=much, **keywords), OverflowError, str(much))
    tally.refuses("counts that wrap", lambda: ulyx.Plan(runtime, token_counts=[much], **keywords), OverflowError)
    tally.refuses("parts of too much", lambda: ulyx.balanced_ranges(much, 2), OverflowError, str(much))
    tally.refuses("a rank that wraps", lambda: ulyx.shape_bytes(2, 2**32, tokens=3, **keywords), OverflowError, "rank")
    tally.refuses("a setting that wraps", lambda: ulyx.Config(max_ctas=2**32 + 5).to_c(), OverflowError, "maxCtas")
    tally.refuses("an arena that wraps", lambda: runtime.reserve(2**70), OverflowError, "arena_bytes")
    tally.refuses("segments that wrap", lambda: ulyx.localize_segments([(0, much, 0)], range(5)), OverflowError)
    tally.refuses("a tensor that wraps", lambda: runtime.empty((2**62, 4), "int32"), OverflowError, "shape (")
    rows = ulyx.RowsPlan.all_gather(runtime, 4, total=3, dtype="float32")
    exact = Interface(shape=(3, (2**64 + 4) // 20, 20), strides=(16, 80, 4))  # 2**64 + 4 is 20 times an integer
    tally.refuses("a row that wraps to its length", lambda: rows.run(exact, rows.empty()), OverflowError, "row of in")
    for stream in (2**70, 2**64, -1):
        bound = plan.bind_seq_to_heads(q, k, v, out)
        for name, call in (
            ("bound", lambda: bound(stream)),
            ("heads_to_seq", lambda: plan.heads_to_seq(q, v, stream)),
            ("rows", lambda: rows.run(Array((3, 4), "float32"), rows.empty(), stream)),
            ("of torch", lambda: bound(SimpleNamespace(cuda_stream=stream))),
        ):
            tally.refuses(f"stream {stream}, {name}", call, OverflowError, f"stream is {stream}")
    tally.refuses("negative extents", lambda: runtime.empty((-2, -3), "int32"), ValueError, "(-2, -3)")
    tally.refuses("a stepped target", lambda: ulyx.target_intersection(range(0, 9, 3), range(5)), ValueError, "step")
    bound = plan.bind_seq_to_heads(q, k, v, out)
    bound()
    out[1].free()
    tally.refuses("a bound exchange into freed memory", bound, ValueError, "freed")
    runtime.destroy()


# ---- Objects that are no tensors ------------------------------------------------------------------------------------


class Interface:
    """Anything as an array interface."""

    def __init__(self, **fields: Any) -> None:
        self.__array_interface__ = {"version": 3, "typestr": "<f4", "shape": (5, 3, 2), "data": (4096, False), **fields}


class Pointing:
    """A data_ptr, and of what else torch has what is given."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def data_ptr(self) -> int:
        return 4096


class Torchlike(Pointing):
    def __init__(self, **changed: Any) -> None:
        attributes = {"shape": (5, 3, 2), "stride": lambda: (6, 2, 1), "dtype": "torch.float32", "device": "cpu"}
        super().__init__(**{**attributes, "element_size": lambda: 4, **changed})


def raising() -> Any:
    raise RuntimeError("no storage")


class Raising:
    @property
    def __cuda_array_interface__(self) -> dict:
        raise RuntimeError("requires grad")


class ElsewhereDlpack:
    """On a device of another kind."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 7, 0

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("asked although it is on a device that ulyx does not read")


NO_TENSORS = {
    "None": (None, "NoneType is no tensor"),
    "a string": ("abc", "str is no tensor"),
    "bytes": (b"abc", "bytes is no tensor"),
    "a number": (3.5, "float is no tensor"),
    "a list": ([1.0, 2.0], "list is no tensor"),
    "nested lists": ([[[1.0]]], "list is no tensor"),
    "a dict": ({}, "dict is no tensor"),
    "an array.array": (array.array("f", [1.0]), "array is no tensor"),
    "a class": (Array, "Array is a class"),
    "a pointer alone": (Pointing(), "Pointing does not say where it lies: AttributeError", "device"),
    "a number for data_ptr": (SimpleNamespace(data_ptr=4096), "SimpleNamespace does not say where it lies"),
    "no storage": (Torchlike(stride=raising), "Torchlike does not say where it lies: RuntimeError: no storage"),
    "extents that are no integers": (Torchlike(shape=("a", 3, 2)), "does not say where it lies: TypeError"),
    "a negated view": (Torchlike(is_neg=lambda: True), "resolve_neg"),
    "an interface without shape": (SimpleNamespace(__array_interface__={}), "KeyError: 'shape'"),
    "an interface that raises": (Raising(), "Raising does not say where it lies: RuntimeError: requires grad"),
    "objects": (Interface(typestr="|O8"), "'|O8' are no numbers"),
    "dates": (Interface(typestr="<M8[ns]"), "'<M8[ns]' are no numbers"),
    "big-endian numbers": (Interface(typestr=">f4"), ">f4 is big-endian"),
    "no data": (Interface(data=None), "names no data pointer"),
    "strides of half an element": (Interface(strides=(24, 8, 2)), "(24, 8, 2) bytes are no multiples"),
    "an extent that wraps to 0": (Interface(shape=(2**70, 3, 2)), f"shape is ({2**70}, 3, 2)", "64 bits"),
    "an extent that wraps to what is asked": (Interface(shape=(2**64 + 5, 3, 2)), "64 bits"),
    "an extent of torch's that wraps": (Torchlike(shape=(2**64 + 5, 3, 2)), "64 bits"),
    "a stride that wraps": (Interface(strides=(2**66 + 24, 8, 4)), "64 bits"),
    "a stride of torch's that wraps": (Torchlike(stride=lambda: (2**64 + 6, 2, 1)), "64 bits"),
    "dense strides that wrap": (Interface(shape=(5, 2**40, 2**40)), "64 bits"),
    "two strides for three": (Interface(strides=(24, 8)), "(6, 2), expected one for each of the 3 extents"),
    "two strides of torch for three": (Torchlike(stride=lambda: (6, 2)), "expected one for each of the 3 extents"),
    "a shape in a dict": (Interface(shape={5: 0, 3: 0, 2: 0}), "shape is {5: 0,", "expected a sequence"),
    "a shape in a set": (Interface(shape={5, 3, 2}), "expected a sequence"),
    "a word for a pointer": (Interface(data=("x", False)), "does not say where it lies: TypeError"),
    "a pointer that wraps": (Interface(data=(2**64 + 4096, False)), "the pointer is", "OverflowError"),
    "a pointer below 0": (Interface(data=(-4096, False)), "the pointer is -4096"),
    "DLPack of another device": (ElsewhereDlpack(), "DLPack device type 7"),
}


def test_plans_reserve_what_they_stage_where_they_are_asked_to(tally: Tally) -> None:
    runtimes, reserved = ulyx.Runtime.create_local(2, config=QUICK), [[], []]
    shape = {"tokens": 64, "heads": 4, "head_dim": 8}

    def on_rank(runtime: ulyx.Runtime) -> None:
        runtime.reserve = reserved[runtime.rank].append
        ulyx.Plan(runtime, **shape)
        ulyx.RowsPlan.reduce_scatter(runtime, 16, total=32, dtype="float32")
        ulyx.Plan(runtime, reserve=True, **shape)
        ulyx.RowsPlan.reduce_scatter(runtime, 16, total=32, dtype="float32", reserve=True)
        ulyx.RowsPlan.all_gather(runtime, 16, total=32, reserve=True)
        ulyx.RowsPlan.all_to_all(runtime, 16, [3, 3], [3, 3], reserve=True)
        try:  # a rank that has no size reserves with the others and is refused with them
            ulyx.Plan(runtime, reserve=True, tokens=-1, heads=4, head_dim=8)
        except ulyx.Error:
            pass

    ulyx.run_local(runtimes, on_rank)
    for rank, found in enumerate(reserved):
        tally.equal(f"rank {rank}: a plan's arena", found[0], ulyx.shape_bytes(2, rank, **shape)["arena"])
        tally.check(f"rank {rank}: an arena of summands", found[1] >= 16 * 16 * 4)
        tally.equal(f"rank {rank}: once a plan that asks", len(found), 5)
        tally.equal(f"rank {rank}: nothing for what has no size", found[-1], 0)


def test_objects_that_are_no_tensors(tally: Tally) -> None:
    def main(runtime: ulyx.Runtime) -> None:
        plan, rows = ulyx.Plan(runtime, **SHAPE), ulyx.RowsPlan.all_gather(runtime, 6, total=5, dtype="float32")
        q, k, v = (Array((5, 3, 2), "float32") for _ in range(3))
        out, o_out = [Array(shape, "float32") for shape in plan.heads_shapes()], Array((5, 3, 2), "float32")
        for name, (given, *words) in NO_TENSORS.items():
            refuses = lambda where, call, what: tally.refuses(
                f"{name} as {where}", call, ulyx.TensorError, what, *words
            )
            if given is not None:  # which says that there is no tensor, where the plan asks for three
                refuses("q", lambda: plan.seq_to_heads(given, k, v, out), "in.q: ")
                refuses("an output", lambda: plan.seq_to_heads(q, k, v, (out[0], given, out[2])), "out.k: ")
            refuses("what comes back", lambda: plan.heads_to_seq(given, o_out), "in: ")
            refuses("rows", lambda: rows.run(given, o_out), "in: ")
            refuses("a tensor that is bound", lambda: plan.bind_heads_to_seq(q, given), "out: ")
        tally.check("TensorErrors are TypeErrors", issubclass(ulyx.TensorError, TypeError))
        tally.check("and ValueErrors", issubclass(ulyx.TensorError, ValueError))
        for given in ("abc", 5, out[0], {1, 2, 3}, iter(out)):
            kind = type(given).__name__
            outputs = lambda: plan.seq_to_heads(q, k, v, given)
            tally.refuses(f"a {kind} for three outputs", outputs, ulyx.MISMATCH, f"out is a {kind}", "q, k and v")
        tally.refuses("two outputs", lambda: plan.seq_to_heads(q, k, v, out[:2]), ulyx.MISMATCH, "q, k and v")
        untouched = [77.0] * 30
        tally.equal("nothing was written", [x.values() for x in (*out, o_out)], [untouched] * 4)

    world(1, main)


def test_tensors_of_another_kind(tally: Tally) -> None:
    def main(runtime: ulyx.Runtime) -> None:
        plan = ulyx.Plan(runtime, **SHAPE)
        o, out = Array((5, 3, 2), "float32"), Array((5, 3, 2), "float32")
        refused = {
            "a meta tensor": (Torchlike(device="meta"), "in is on meta, the runtime's rank on cpu"),
            "complex numbers": (Torchlike(dtype="torch.complex64"), "in has elements of no known type"),
            "another type": (Torchlike(dtype="torch.int64"), "in has elements of int64, the plan's are float32"),
            "a type of a package's": (Interface(typestr="|V4"), "no known type"),
        }
        for name, (given, words) in refused.items():
            tally.refuses(name, lambda: plan.heads_to_seq(given, out), ulyx.MISMATCH, words)
        transposed = Interface(shape=(5, 3, 2), strides=(8, 40, 4), data=(ctypes.addressof(o.data), False))
        transposed.keep = o
        words = ("in: the stride of tokens is 2 elements, the plan's 6",)
        tally.refuses("a transposed view", lambda: plan.heads_to_seq(transposed, out), ulyx.MISMATCH, *words)
        bits = Interface(typestr="<V2", dtype=None)
        bits.dtype = "bfloat16"
        tally.equal("ml_dtypes' bfloat16", ulyx.view(bits).dtype, "bfloat16")

    world(1, main)


def test_memory_that_is_gone(tally: Tally) -> None:
    def main(runtime: ulyx.Runtime) -> tuple:
        plan, given = ulyx.Plan(runtime, **SHAPE), Array((5, 3, 2), "float32")
        out = plan.empty_heads()
        out[1].free()
        gone = lambda: plan.seq_to_heads(given, given, given, out)
        tally.refuses("a freed output", gone, ulyx.TensorError, "out.k: ", "freed")
        tally.refuses("a freed input", lambda: plan.heads_to_seq(out[1], given), ulyx.TensorError, "in: ", "freed")
        return plan, given, out

    [(plan, given, out)] = world(1, main)
    tally.refuses("memory of a destroyed runtime", lambda: ulyx.view(out[0], "x"), ulyx.TensorError, "x: ", "freed")
    late = lambda: plan.seq_to_heads(given, given, given, [given] * 3)
    tally.refuses("a plan of a destroyed runtime", late, ulyx.INVALID_ARGUMENT, "the plan was destroyed")


def test_use_after_destroy(tally: Tally) -> None:
    """Says what happened, and allocates nothing, which is collective, before it does."""
    (runtime,) = ulyx.Runtime.create_local(1)
    given, count = Array((5, 3, 2), "float32"), Array((2,), "int32")
    plan = ulyx.Plan(runtime, sequences=[0, 5], **SHAPE)
    rows = ulyx.RowsPlan.all_gather(runtime, 6, total=5, dtype="float32")
    buffer, bound = runtime.empty((5,), "int8"), plan.bind_heads_to_seq(given, Array((5, 3, 2), "float32"))
    plan.destroy(), rows.destroy()
    calls = {
        "info": lambda: plan.info,
        "cu_seqlens": lambda: plan.store_cu_seqlens(count),
        "seq_to_heads": lambda: plan.seq_to_heads(given, given, given),
        "heads_to_seq": lambda: plan.heads_to_seq(given),
        "rows": lambda: rows.run(given),
        "rows into an output": lambda: rows.run(given, Array((5, 6), "float32")),
        "a bound exchange": bound,
    }
    with mock.patch.object(runtime, "empty", side_effect=AssertionError("allocated")):
        for name, call in calls.items():
            tally.refuses(f"{name} of a destroyed plan", call, ulyx.INVALID_ARGUMENT, "the plan was destroyed")
    runtime.destroy()
    calls = {
        "info": lambda: runtime.info,
        "reserve": lambda: runtime.reserve(1),
        "async_error": runtime.async_error,
        "empty": lambda: runtime.empty((1,), "int8"),
        "abort": runtime.abort,
        "set_logger": lambda: runtime.set_logger(None),
        "log_record": runtime.log_record,
        "close": runtime.close,
        "a plan": lambda: ulyx.Plan(runtime, **SHAPE),
        "a rows plan": lambda: ulyx.RowsPlan.all_gather(runtime, 6, total=5),
        "free": buffer.free,
    }
    for name, call in calls.items():
        tally.refuses(f"{name} of a destroyed runtime", call, ulyx.INVALID_ARGUMENT, "the runtime was destroyed")


def test_arguments_name_themselves(tally: Tally) -> None:
    """Whatever is no integer, no Config and so on: a TypeError itself, not one of ctypes, that begins with the name."""
    (runtime,) = ulyx.Runtime.create_local(1)
    shape, counts, local = {"tokens": 5, "heads": 3, "head_dim": 2}, {0: 4}, ulyx.Runtime.create_local
    name = bytes(128)
    integers = {
        "arena_bytes": runtime.reserve,
        "n_ranks": lambda x: ulyx.Runtime.create(x, 0, name),
        "rank": lambda x: ulyx.Runtime.create(1, x, name),
        "n_ranks ": local,
        "n_ranks of a shape": lambda x: ulyx.shape_times(x, "seq_to_heads", **shape),
        "n_ranks of bytes": lambda x: ulyx.shape_bytes(x, 0, **shape),
        "rank ": lambda x: ulyx.shape_bytes(1, x, **shape),
        "total": lambda x: ulyx.balanced_ranges(x, 2),
        "parts": lambda x: ulyx.balanced_ranges(4, x),
        "shape[1]": lambda x: runtime.empty((2, x), "float32"),
        "devices[0]": lambda x: local(1, [x]),
        "segments[0][1]": lambda x: ulyx.localize_segments([(0, x, 0)], range(5)),
        "the stride of kOut[2]": lambda x: ulyx.Plan(runtime, strides={"kOut": (0, 6, x)}, **shape),
    }
    for what, call in integers.items():
        begins = what.split(" of ")[0].strip() if what.startswith("n_ranks") else what.strip()
        for value in ("2", None, 1.5):
            tally.refuses(f"{what} of {value!r}", lambda: call(value), TypeError, f"{begins} is {value!r}, expected")
        tally.refuses(f"{what} of 2**64", lambda: call(2**64), OverflowError, f"{begins} is {2**64}")
    wrong = {
        "config": (5, "x", {}, 0, ulyx.Config),
        "library": ("x", 0, "", ulyx.load().c),
        "strides": (5, "x", [], 0),
        "logger": (5, "x", 0),
        "devices": (5, "0", {0: 0}, {0}),
        "token_counts": (counts, {5}, counts.keys(), iter([5])),
        "cu_seqlens": ({0: 0, 5: 5}, {0, 5}),
        "shape": ({2: 0}, {2}),
        "send_counts": ({1: 0}, {1}),
        "segments": ({(0, 1, 0): 1}, 5),
        "segments[0]": ({0: 0, 1: 0, 2: 0}, {0, 1, 2}, 5, "abc"),
        "the stride of qIn": ({0: 0, 6: 0, 2: 0}, {0, 6, 2}),
        "runtimes": ({0: runtime}, {runtime}, runtime),
        "path": (5, [], b"x"),
        "transport": (5, ["nccl"]),
        "operation": (5, None),
        "seq_order": (0, None),
    }
    calls = {
        "config": lambda x: local(1, config=x),
        "library": lambda x: local(1, library=x),
        "strides": lambda x: ulyx.Plan(runtime, strides=x, **shape),
        "logger": runtime.set_logger,
        "devices": lambda x: local(1, x),
        "token_counts": lambda x: ulyx.Plan(runtime, token_counts=x, heads=3, head_dim=2),
        "cu_seqlens": lambda x: ulyx.Plan(runtime, sequences=x, **shape),
        "shape": lambda x: runtime.empty(x, "int8"),
        "send_counts": lambda x: ulyx.RowsPlan.all_to_all(runtime, 1, x, [1]),
        "segments": lambda x: ulyx.localize_segments(x, range(5)),
        "segments[0]": lambda x: ulyx.localize_segments([x], range(5)),
        "the stride of qIn": lambda x: ulyx.Plan(runtime, strides={"qIn": x}, **shape),
        "runtimes": lambda x: ulyx.run_local(x, lambda rank: None),
        "path": ulyx.load,
        "transport": lambda x: local(1, config=ulyx.Config(transport=x)),
        "operation": lambda x: ulyx.shape_times(1, x, **shape),
        "seq_order": lambda x: ulyx.Plan(runtime, seq_order=x, **shape),
    }
    for what, values in wrong.items():
        for value in values:
            tally.refuses(f"{what} of {value!r:.30}", lambda: calls[what](value), TypeError, f"{what} is ", "expected")
    for call in (ulyx.unique_id, lambda x: ulyx.balanced_ranges(4, 2, x), lambda x: ulyx.Sequences([0, 5], x)):
        tally.refuses("a word for a library", lambda: call("x"), TypeError, "library is 'x'")
    tally.refuses("more ranks than are made here", lambda: local(2**31 - 1), ulyx.INVALID_ARGUMENT, "64")
    tally.refuses("more parts than items", lambda: ulyx.balanced_ranges(4, 2**31 - 1), ulyx.INVALID_ARGUMENT)
    wide = lambda: ulyx.target_intersection(range(2**64), range(9))
    tally.refuses("a range that wraps", wide, OverflowError, "target.stop")
    runtime.destroy()


def test_arguments_of_another_kind(tally: Tally) -> None:
    def main(runtime: ulyx.Runtime) -> None:
        plan, o, out = ulyx.Plan(runtime, **SHAPE), Array((5, 3, 2), "float32"), Array((5, 3, 2), "float32")
        for stream in (None, "s", 1.5, object()):
            on = lambda: plan.heads_to_seq(o, out, stream)
            tally.refuses(f"a stream that is {stream!r:.8}", on, TypeError, "stream is", "cudaStream_t")
        for stream in (SimpleNamespace(cuda_stream=0), SimpleNamespace(ptr=0), 0):
            plan.heads_to_seq(o, out, stream)
        tally.equal("streams of torch and cupy", out.values(), o.values())
        wrong = {
            "all runtimes for one": (lambda: ulyx.Plan([runtime], **SHAPE), "runtime is a list"),
            "no runtime": (lambda: ulyx.RowsPlan.all_gather(None, 4, total=3), "runtime is a NoneType"),
            "half a token": (lambda: ulyx.Plan(runtime, **{**SHAPE, "tokens": 5.5}), "tokens is 5.5"),
            "words for counts": (lambda: ulyx.Plan(runtime, **{**SHAPE, "token_counts": "5"}), "token_counts is '5'"),
            "a count for counts": (lambda: ulyx.Plan(runtime, **{**SHAPE, "head_counts": 3}), "head_counts is 3"),
            "counts of words": (lambda: ulyx.Plan(runtime, **{**SHAPE, "token_counts": ["5"]}), "token_counts[0] is"),
            "strides of one": (lambda: ulyx.Plan(runtime, strides={"qIn": 3}, **SHAPE), "the stride of qIn is 3"),
            "a word for a shape": (lambda: runtime.empty("abc", "int8"), "shape is 'abc'"),
            "a number for a shape": (lambda: runtime.empty(5, "int8"), "shape is 5"),
            "half an extent": (lambda: runtime.empty((2, 1.5), "int8"), "shape[1] is 1.5"),
            "no type": (lambda: runtime.empty((2,), None), "unknown dtype None"),
            "a pair for a range": (lambda: ulyx.target_intersection((2, 5), range(9)), "target is (2, 5)"),
            "a word for an id": (lambda: ulyx.Runtime.create(1, 0, "i" * 128), "the unique id is a str"),
        }
        for name, (call, words) in wrong.items():
            tally.refuses(name, call, TypeError, words)
        two = lambda: ulyx.Plan(runtime, strides={"qIn": (0, 3)}, **SHAPE)
        tally.refuses("strides of two", two, ValueError, "the stride of qIn is (0, 3)", "three")

    world(1, main)


def test_outputs_with_strides_are_never_made(tally: Tally) -> None:
    """Every rank refuses before it allocates, also one where dense happens to fit or that has no heads: allocating is
    collective, and it would wait for the others."""
    shape = {"tokens": 6, "heads": 3, "head_counts": [2, 1, 0], "head_dim": 2, "dtype": "float32"}

    def main(runtime: ulyx.Runtime) -> None:
        plan = ulyx.Plan(runtime, strides={"kOut": (0, 4, 2), "oOut": (0, 8, 2)}, **shape)
        given = [Array(extents, "float32") for extents in plan.seq_shapes()]
        o = Array(plan.o_heads_shape(), "float32")
        rows = ulyx.RowsPlan.all_gather(runtime, 2, total=6, dtype="float32", out_stride=3)
        with mock.patch.object(runtime, "empty", side_effect=AssertionError("allocated")):
            for name, call, words in (
                ("seq_to_heads", lambda: plan.seq_to_heads(*given), "kOut"),
                ("empty_heads", plan.empty_heads, "kOut"),
                ("heads_to_seq", lambda: plan.heads_to_seq(o), "oOut"),
                ("empty_seq", plan.empty_seq, "oOut"),
                ("rows", lambda: rows.run(Array((2, 2), "float32")), "out_stride is 3"),
                ("empty rows", rows.empty, "out_stride is 3"),
            ):
                name = f"{name} with strides, rank {runtime.rank}"
                tally.refuses(name, call, ulyx.MISMATCH, words, "pass", "so")
        inputs = ulyx.Plan(runtime, strides={"qIn": (0, 6, 2)}, **shape)
        tally.equal("inputs with strides are no hindrance", len(inputs.seq_to_heads(*given)), 3)
        dense = ulyx.RowsPlan.all_gather(runtime, 2, total=6, dtype="float32", out_stride=2)
        tally.equal("nor is a dense stride", dense.run(Array((2, 2), "float32")).shape, (6, 2))

    world(3, main)


def test_numpy_arrays_that_are_refused(tally: Tally) -> None:
    if np is None:
        tally.skip("numpy arrays that are refused", "no numpy")
        return

    def main(runtime: ulyx.Runtime) -> None:
        plan, out = ulyx.Plan(runtime, **SHAPE), np.full((5, 3, 2), 77, np.float32)
        for name, given, code, *words in (
            ("Fortran order", np.asfortranarray(np.zeros((5, 3, 2), np.float32)), ulyx.MISMATCH, "stride"),
            ("a broadcast", np.broadcast_to(np.float32(1), (5, 3, 2)), ulyx.MISMATCH, "repeats memory"),
            ("objects", np.zeros((5, 3, 2), object), ulyx.TensorError, "are no numbers"),
            ("records", np.zeros((5, 3, 2), "i2,i2"), ulyx.MISMATCH, "no known type"),
            ("texts", np.zeros((5, 3, 2), "U1"), ulyx.MISMATCH, "no known type"),
            ("DLPack of doubles", OnlyDlpack(np.zeros((5, 3, 2))), ulyx.MISMATCH, "float64"),
            ("a scalar", np.float32(1), ulyx.MISMATCH, "0 dimensions"),
        ):
            tally.refuses(f"{name} in numpy", lambda: plan.heads_to_seq(given, out), code, "in", *words)
        fixed = np.zeros((5, 3, 2), np.float32)
        fixed.setflags(write=False)
        tally.refuses("a fixed array", lambda: plan.heads_to_seq(out, fixed), ulyx.MISMATCH, "out is read-only")
        tally.check("nothing was written into numpy", (out == 77).all())

    world(1, main)
