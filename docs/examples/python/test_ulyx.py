# SPDX-License-Identifier: MIT
"""Tests of ulyx.py over loopback threads, and of the modules named below; numpy and torch are used where found.

    ULYX_LIBRARY=build/cpu/libulyx.so python3 docs/examples/python/test_ulyx.py [MODULE...]

Ends with one line, '<n> passed, <m> failed, <k> skipped', and exits non-zero where one failed.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import subprocess
import sys
import traceback
from typing import Any, Iterator, Sequence
from unittest import mock

sys.dont_write_bytecode = True  # the sources may lie where nothing should be written
import ulyx  # noqa: E402
from support import RANKS, Array, OnlyDlpack, Tally, buffer_values, np, row_values, rows_of_seq, world  # noqa: E402

# ---- Exchanges ----------------------------------------------------------------------------------------------------


def element(which: int, batch: int, token: int, head: int, dim: int, wrap: int) -> int:
    """What a place of q (0), k (1), v (2) or o (3) of the whole holds: another number for nearly every place."""
    return ((((which * 7 + batch) * 1009 + token) * 53 + head) * 31 + dim) % wrap


def rows_of_heads(info: ulyx.PlanInfo) -> range:
    return range(info.tokens + info.replicated_tokens)


def contents(
    parts: Sequence[tuple[int, range, int]], info: ulyx.PlanInfo, tokens: Sequence[int], seq_first: bool, wrap: int
) -> list[int]:
    """A tensor in memory order; `parts` are (which, heads, dim), several where it is packed."""
    batches = range(info.batch)
    places: Iterator = (
        ((b, t) for t in tokens for b in batches) if seq_first else ((b, t) for b in batches for t in tokens)
    )
    return [
        element(which, b, t, head, dim, wrap)
        for b, t in places
        for which, heads, dims in parts
        for head in heads
        for dim in range(dims)
    ]


def sides(info: ulyx.PlanInfo, heads: range, kv_heads: range, packed: bool) -> list[list[tuple[int, range, int]]]:
    parts = [(0, heads, info.head_dim), (1, kv_heads, info.head_dim), (2, kv_heads, info.value_dim)]
    return [parts] if packed else [[part] for part in parts]


EXCHANGES: dict[str, dict[str, Any]] = {
    "balanced": {"tokens": 11, "heads": 6, "head_dim": 3},
    "a batch": {"tokens": 7, "heads": 5, "head_dim": 2, "batch": 3},
    "grouped": {"tokens": 13, "heads": 12, "kv_heads": 3, "head_dim": 4},
    "one key/value head": {"tokens": 9, "heads": 7, "kv_heads": 1, "head_dim": 2},
    "another value dim": {"tokens": 8, "heads": 6, "kv_heads": 2, "head_dim": 3, "value_dim": 5},
    "packed in": {"tokens": 10, "heads": 8, "kv_heads": 4, "head_dim": 2, "packed_in": True},
    "packed out": {"tokens": 10, "heads": 8, "kv_heads": 4, "head_dim": 2, "packed_out": True},
    "packed": {"tokens": 10, "heads": 6, "head_dim": 2, "value_dim": 3, "packed_in": True, "packed_out": True},
    "sequence first": {"tokens": 7, "heads": 5, "head_dim": 2, "batch": 2, "seq_order": "seq_first"},
    "sequence first on both sides": {
        "tokens": 7,
        "heads": 5,
        "head_dim": 2,
        "batch": 2,
        "seq_order": "seq_first",
        "heads_order": "seq_first",
    },
    "joint": {"tokens": 8, "heads": 6, "kv_heads": 2, "head_dim": 2, "batch": 2, "replicated_tokens": 3},
    "joint, packed, last": {
        "tokens": 9,
        "heads": 5,
        "head_dim": 2,
        "packed_in": True,
        "packed_out": True,
        "replicated_tokens": 4,
        "replicated_last": True,
    },
    "int8": {"tokens": 11, "heads": 5, "head_dim": 3, "dtype": "int8"},
    "int64": {"tokens": 6, "heads": 5, "head_dim": 1, "dtype": "int64"},
    "bfloat16 in 16-bit carriers": {"tokens": 12, "heads": 5, "head_dim": 4, "dtype": "bfloat16"},
}
WRAPS = {"int8": 113, "int32": 2**31 - 1, "int64": 2**62, "bfloat16": 65521}


def check_exchange(tally: Tally, name: str, runtime: ulyx.Runtime, shape: dict[str, Any]) -> None:
    shape = {"dtype": "int32", **shape}
    plan = ulyx.Plan(runtime, **shape)
    info, dtype, wrap = plan.info, shape["dtype"], WRAPS[shape["dtype"]]
    in_first, out_first = shape.get("seq_order") == "seq_first", shape.get("heads_order") == "seq_first"
    packed_in, packed_out = shape.get("packed_in", False), shape.get("packed_out", False)

    whole = sides(info, range(info.heads), range(info.kv_heads), packed_in)
    given = [
        Array(tensor, dtype, contents(parts, info, rows_of_seq(info), in_first, wrap))
        for tensor, parts in zip(plan.seq_shapes(), whole)
    ]
    own = sides(info, info.head_range, info.kv_head_range, packed_out)
    expected = [contents(parts, info, rows_of_heads(info), out_first, wrap) for parts in own]

    named = [Array(tensor, dtype) for tensor in plan.heads_shapes()]
    plan.seq_to_heads(*given, out=named[0] if packed_out else named)
    tally.equal(f"{name}: what heads get", [array.values() for array in named], expected)
    made = plan.seq_to_heads(*given)
    made = [made] if packed_out else made
    tally.equal(f"{name}: in memory of the runtime's", [buffer_values(buffer) for buffer in made], expected)

    o = [(3, info.head_range, info.value_dim)]
    back = plan.heads_to_seq(
        Array(plan.o_heads_shape(), dtype, contents(o, info, rows_of_heads(info), out_first, wrap))
    )
    o = [(3, range(info.heads), info.value_dim)]
    tally.equal(f"{name}: and back", buffer_values(back), contents(o, info, rows_of_seq(info), in_first, wrap))


def test_exchanges(tally: Tally) -> None:
    for n_ranks in RANKS:
        for name, shape in EXCHANGES.items():
            world(n_ranks, lambda runtime: check_exchange(tally, f"{name} at {n_ranks} ranks", runtime, shape))
        tokens, heads = [0, 5, 1, 0, 9][-n_ranks:], [3, 0, 2, 4, 0][:n_ranks]
        ragged = {"token_counts": tokens, "head_counts": heads, "heads": sum(heads), "head_dim": 3}
        world(n_ranks, lambda runtime: check_exchange(tally, f"counts at {n_ranks} ranks", runtime, ragged))
        joint = {**ragged, "replicated_tokens": 2, "replicated_last": True}
        world(n_ranks, lambda runtime: check_exchange(tally, f"joint counts at {n_ranks} ranks", runtime, joint))


def test_plan_info(tally: Tally) -> None:
    def main(runtime: ulyx.Runtime) -> ulyx.PlanInfo:
        with ulyx.Plan(runtime, tokens=10, heads=6, kv_heads=3, head_dim=2, dtype="float32") as plan:
            return plan.info

    infos = world(3, main)
    tally.equal("tokens of a rank", infos[1].token_range, range(4, 7))
    tally.equal("tokens of every rank", infos[2].token_ranges, [range(0, 4), range(4, 7), range(7, 10)])
    tally.equal("heads of every rank", infos[0].head_ranges, [range(0, 2), range(2, 4), range(4, 6)])
    tally.equal("key/value heads", [info.kv_head_range for info in infos], [range(0, 1), range(1, 2), range(2, 3)])
    tally.equal(
        "what 0 sends to 2, 2 has from 0", infos[0].seq_to_heads_send_bytes[2], infos[2].seq_to_heads_recv_bytes[0]
    )
    tally.equal("bytes to a peer", infos[0].heads_to_seq_send_bytes[1], 3 * 2 * 2 * 4)
    tally.equal("one signature", len({info.signature for info in infos}), 1)
    tally.equal("a choice", infos[0].seq_to_heads.transport, "loopback")
    needed = ulyx.shape_bytes(3, 0, tokens=10, heads=6, kv_heads=3, head_dim=2, dtype="float32")
    tally.equal("bytes of q and k", (needed["qIn"], needed["kIn"]), (4 * 6 * 2 * 4, 4 * 3 * 2 * 4))


def test_layouts(tally: Tally) -> None:
    grouped = {"tokens": 16, "heads": 28, "kv_heads": 4, "head_dim": 2, "dtype": "float32"}
    maps = world(8, lambda runtime: ulyx.Plan(runtime, **grouped).kv_head_of_head)
    expected = [[head // 7 for head in heads] for heads in ulyx.balanced_ranges(28, 8)]
    tally.equal("28 heads over 4", maps, [[head - of_all[0] for head in of_all] for of_all in expected])

    joint = {"tokens": 10, "heads": 3, "head_dim": 4, "replicated_tokens": 6, "dtype": "float32"}
    for last, rows in ((False, [(0, 6), (0, 6)]), (True, [(4, 10), (10, 16)])):
        infos = world(3, lambda runtime: ulyx.Plan(runtime, replicated_last=last, **joint).info)
        seen = [(rows.start, rows.stop) for rows in (infos[0].seq_replicated, infos[0].heads_replicated)]
        tally.equal(f"rows of replicated tokens, last {last}", seen, rows)
        tally.equal("replicated tokens stay to the heads", infos[1].seq_to_heads_send_bytes[0], 3 * 3 * 4 * 4)
        tally.equal("and come back from every rank", infos[1].heads_to_seq_send_bytes[0], (4 + 6) * 4 * 4)
    times = ulyx.shape_times(3, "heads_to_seq", **joint)
    tally.equal("remote bytes of the times", times.remote_bytes, 2 * (4 + 6) * 4 * 4)
    tally.check("times", 0 < times.limit_us <= min(times.direct_us, times.copy_engine_us), times)
    tally.refuses("times of no operation", lambda: ulyx.shape_times(3, "both", **joint), ValueError, "both")

    def bounds(runtime: ulyx.Runtime) -> None:
        for given in ([0, 3, 3, 16], ulyx.Sequences([0, 3, 3, 16])):
            plan = ulyx.Plan(runtime, sequences=given, **joint)
            del given  # the plan outlives them
            tally.equal("sequences", (plan.info.sequence_count, plan.info.longest_sequence), (3, 13))
            tally.equal("cu_seqlens", plan.store_cu_seqlens(Array((4,), "int32")).values(), [0, 3, 3, 16])
        out = Array((3,), "int32")
        tally.refuses("too few bounds", lambda: plan.store_cu_seqlens(out), ulyx.MISMATCH, "(3,)", "(4,)")
        floats = Array((4,), "float32")
        tally.refuses("bounds that are no int32", lambda: plan.store_cu_seqlens(floats), ulyx.MISMATCH, "int32")
        plain, one = ulyx.Plan(runtime, **joint), Array((1,), "int32")
        tally.refuses("bounds of nothing", lambda: plain.store_cu_seqlens(one), ulyx.INVALID_USAGE, "sequences")

    world(2, bounds)
    tally.refuses("bounds that fall", lambda: ulyx.Sequences([0, 5, 3]), ulyx.INVALID_ARGUMENT)
    short = {**joint, "sequences": [0, 10]}
    tally.refuses("other tokens", lambda: ulyx.shape_bytes(2, 0, **short), ulyx.INVALID_ARGUMENT, "10", "6 replicated")


def test_strides(tally: Tally) -> None:
    """A view into a larger buffer: rows of 8 heads, of which 5 are exchanged."""

    class View(Array):
        def __init__(self, tokens: int, heads: int, step: int) -> None:
            super().__init__((tokens, step, 2), "int32", range(tokens * step * 2))
            self.__array_interface__ |= {"shape": (1, tokens, heads, 2), "strides": (0, step * 8, 8, 4)}

    def main(runtime: ulyx.Runtime) -> None:
        wide = {name: (0, 16, 2) for name in ("qIn", "kIn", "vIn")}
        plan = ulyx.Plan(runtime, tokens=6, heads=5, head_dim=2, dtype="int32", strides=wide)
        own = View(3, 5, 8)
        q, _, _ = plan.seq_to_heads(own, own, own)
        expected = [
            (token % 3) * 16 + head * 2 + dim for token in range(6) for head in plan.info.head_range for dim in (0, 1)
        ]
        tally.equal("a view with strides", buffer_values(q), expected)

    world(2, main)


# ---- Rows ---------------------------------------------------------------------------------------------------------


def check_rows(tally: Tally, runtime: ulyx.Runtime) -> None:
    n, me, width = runtime.n_ranks, runtime.rank, 6
    counts = [(3 * rank + 2) % 5 for rank in range(n)]
    total, start = sum(counts), sum(counts[:me])
    own, name = range(start, start + counts[me]), f"at {n} ranks"

    plan = ulyx.RowsPlan.all_gather(runtime, width, counts=counts, dtype="int32")
    tally.equal(f"all-gather {name}: rows", (plan.in_rows, plan.out_rows), (counts[me], total))
    got = plan.run(Array((counts[me], 2, 3), "int32", row_values(own, width)))
    tally.equal(f"all-gather {name}", buffer_values(got), row_values(range(total), width))

    target = range(1, max(total - 1, 1))
    local = ulyx.target_intersection(target, own)
    plan = ulyx.RowsPlan.all_gather_target(runtime, width, target, counts=counts, dtype="int32")
    out = Array((len(target), width), "int32")
    plan.run(Array((len(local), width), "int32", row_values([own.start + row for row in local], width)), out)
    tally.equal(f"all-gather of a target {name}", out.values(), row_values(target, width))

    plan = ulyx.RowsPlan.reduce_scatter(runtime, width, total=n + 2, dtype="float32")
    mine = ulyx.balanced_ranges(n + 2, n)[me]
    got = plan.run(Array((n + 2, width), "float32", row_values(range(n + 2), width, me + 1)))
    tally.equal(f"reduce-scatter {name}", buffer_values(got), row_values(mine, width, n * (n + 1) // 2))

    send, receive = [(2 * me + peer) % 3 for peer in range(n)], [(2 * peer + me) % 3 for peer in range(n)]
    plan = ulyx.RowsPlan.all_to_all(runtime, 1, send, receive, dtype="int64")
    given = [100 * me + peer for peer in range(n) for _ in range(send[peer])]
    got = plan.run(Array((sum(send), 1), "int64", given))
    tally.equal(
        f"all-to-all {name}", buffer_values(got), [100 * peer + me for peer in range(n) for _ in range(receive[peer])]
    )

    plan = ulyx.RowsPlan.all_gather(runtime, width, counts=counts, dtype="int32", in_stride=width + 2)
    wide = Array((counts[me], width + 2), "int32", row_values(own, width + 2))
    wide.__array_interface__ |= {"shape": (counts[me], width), "strides": (4 * (width + 2), 4)}
    expected = [row * (width + 2) + column for row in range(total) for column in range(width)]
    tally.equal(f"all-gather of rows with gaps {name}", buffer_values(plan.run(wide)), expected)


def test_rows(tally: Tally) -> None:
    for n_ranks in RANKS:
        world(n_ranks, lambda runtime: check_rows(tally, runtime))


# ---- Refusals -----------------------------------------------------------------------------------------------------


def test_refused_shapes(tally: Tally) -> None:
    def differ(runtime: ulyx.Runtime) -> None:
        heads = 6 if runtime.rank == 0 else 8
        tally.refuses(
            "ranks that differ",
            lambda: ulyx.Plan(runtime, tokens=9, heads=heads, head_dim=2),
            ulyx.MISMATCH,
            "shape.heads",
            "6 on rank 0",
            "8 on rank",
        )
        ulyx.Plan(runtime, tokens=9, heads=6, head_dim=2)  # the next call works

    world(3, differ)

    def main(runtime: ulyx.Runtime) -> None:
        tally.refuses(
            "too few tokens", lambda: ulyx.Plan(runtime, tokens=1, heads=6, head_dim=2), ulyx.INVALID_ARGUMENT, "1", "2"
        )
        tally.refuses(
            "kv_heads that do not divide",
            lambda: ulyx.Plan(runtime, tokens=9, heads=6, kv_heads=4, head_dim=2),
            ulyx.INVALID_ARGUMENT,
            "6",
            "4",
        )
        tally.refuses(
            "too many counts",
            lambda: ulyx.Plan(runtime, token_counts=[1, 2, 3], heads=6, head_dim=2),
            ValueError,
            "3",
            "2",
        )
        tally.refuses(
            "an unknown type",
            lambda: ulyx.Plan(runtime, tokens=9, heads=6, head_dim=2, dtype="bf17"),
            TypeError,
            "bf17",
        )

    world(2, main)


def test_runtimes(tally: Tally) -> None:
    runtimes = ulyx.Runtime.create_local(3, config=ulyx.Config(timeout_ms=300))
    info = runtimes[2].info
    tally.equal("info", (info.rank, info.n_ranks, info.transport, info.device), (2, 3, "loopback", -1))
    tally.check("the reason of a transport", "CPU" in info.transport_reason, info.transport_reason)
    tally.equal("no error found later", runtimes[0].async_error(), None)
    runtimes[0].reserve(1 << 20)
    alone = lambda: ulyx.Plan(runtimes[0], tokens=9, heads=6, head_dim=2)
    lines: list[tuple[int, str]] = []
    runtimes[0].set_logger(lambda level, line: lines.append((level, line)))
    tally.refuses("a rank whose peers do not come", alone, ulyx.TIMEOUT, "300 ms")
    tally.check("a logger hears of an error", len(lines) == 1 and lines[0][0] == ulyx.LOG_ERROR, lines)
    lines.clear()
    runtimes[0].log_record()
    tally.check("and of the record", lines[0][0] == ulyx.LOG_RECORD and "rank 0 of 3" in lines[0][1], lines)
    runtimes[0].set_logger(None)
    tally.refuses("a record that nobody hears", runtimes[0].log_record, ulyx.INVALID_USAGE, "no logger")
    aborted, other = ulyx.Runtime.create_local(2)
    aborted.abort()
    lost = lambda: ulyx.Plan(aborted, tokens=9, heads=6, head_dim=2)
    tally.refuses("use of an aborted runtime", lost, ulyx.REMOTE_ERROR, "rank 0 was aborted")
    for runtime in (aborted, other):
        runtime.destroy()
    runtimes[1].close()
    tally.check("closed", runtimes[1].info.closed)
    tally.refuses("use of a closed runtime", lambda: runtimes[1].reserve(0), ulyx.CLOSED)
    for runtime in runtimes:
        runtime.destroy()
        runtime.destroy()
    gone = lambda: runtimes[0].info
    tally.refuses("use of a destroyed runtime", gone, ulyx.INVALID_ARGUMENT, "the runtime was destroyed")
    unknown = ulyx.Config(transport="pigeon")
    tally.refuses(
        "an unknown transport", lambda: ulyx.Runtime.create_local(1, config=unknown), ValueError, "pigeon", "nccl"
    )
    impossible = ulyx.Config(transport="nccl")
    tally.refuses(
        "a transport that the CPU has not", lambda: ulyx.Runtime.create_local(1, config=impossible), ulyx.Error
    )
    tally.refuses("no ranks", lambda: ulyx.Runtime.create_local(0), ulyx.INVALID_ARGUMENT, "0")
    tally.refuses("a short unique id", lambda: ulyx.Runtime.create(2, 0, b"short"), ValueError, "128", "5")
    try:
        tally.equal("a unique id", len(ulyx.unique_id()), 128)
    except ulyx.Error as error:
        tally.equal("no unique id without NCCL", error.code, ulyx.UNSUPPORTED)

    with ulyx.Runtime.create_local(1)[0] as runtime:
        plan = ulyx.Plan(runtime, tokens=2, heads=1, head_dim=1)
        buffer = runtime.empty((2, 3, 4), "float32")
        tally.equal("strides in bytes and in elements", (buffer.strides, buffer.stride()), ((48, 16, 4), (12, 4, 1)))
        tally.check("no interface of a GPU", not hasattr(buffer, "__cuda_array_interface__"))
        tally.equal("nothing at all", runtime.empty((0, 4), "int8").tobytes(), b"")
        buffer.free()
        tally.refuses("memory after it was freed", buffer.tobytes, ValueError, "freed")
        kept = runtime.empty((1,), "int8")
    tally.refuses("memory after its runtime", kept.data_ptr, ValueError, "freed")
    tally.refuses("a plan after its runtime", lambda: plan.info, ulyx.INVALID_ARGUMENT, "the plan was destroyed")


# ---- Library ------------------------------------------------------------------------------------------------------


def longer(struct: type) -> type:
    return type(struct.__name__, (struct,), {"_fields_": [("more", ctypes.c_int64)]})


def shorter(struct: type) -> type:
    base = ulyx._Struct
    return type(struct.__name__, (base,), {"_magic_": struct._magic_, "_fields_": struct._fields_[:-2]})


def test_struct_sizes(tally: Tally) -> None:
    path = ulyx.load().path
    # What is under test is the library's word, so ctypes must not judge before it.
    untyped = {
        name: [
            (
                argument
                if argument in (ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ulyx.CRange, ulyx.CUniqueId)
                else ctypes.c_void_p
            )
            for argument in arguments
        ]
        for name, arguments in ulyx._PROTOTYPES.items()
    }
    with mock.patch.dict(ulyx._PROTOTYPES, untyped):
        ulyx.Library(path)
        names = "CConfig CRuntimeInfo CShape CShapeBytes CShapeTimes CRowsShape CPlanInfo CTensor"
        for name in names.split():
            for change in (longer, shorter):
                struct = change(getattr(ulyx, name))
                with mock.patch.object(ulyx, name, struct):
                    tally.refuses(
                        f"a {change.__name__} {name}",
                        lambda: ulyx.Library(path),
                        ImportError,
                        name,
                        f"{ctypes.sizeof(struct)} bytes here",
                    )
    with mock.patch.object(ulyx, "VERSION", (0, 99)):
        tally.refuses("another version", lambda: ulyx.Library(path), ImportError, "(0, 99)", "(0, 1, 0)")
    tally.refuses("no library there", lambda: ulyx.load(path + ".missing"), OSError)
    check = "import sys, ulyx; assert not {'torch', 'numpy', 'cupy'} & set(sys.modules)"
    alone = subprocess.run([sys.executable, "-B", "-c", check], cwd=os.path.dirname(os.path.abspath(__file__)))
    tally.equal("importing ulyx imports no other package", alone.returncode, 0)


def header_fields(header: str, name: str) -> list[tuple[str, int]]:
    """(field, bytes) of a struct as the header declares it."""
    sizes = {"size_t": 8, "unsigned int": 4, "int": 4, "int64_t": 8, "uint64_t": 8, "double": 8, "ulyxRange_t": 16}
    sizes["ulyxSequences_t"] = 8
    sizes |= {"ulyxStrides_t": 24, "ulyxChoice_t": 24, "ulyxTensor_t": ctypes.sizeof(ulyx.CTensor)}
    body = re.search(rf"typedef struct {name} {{(.*?)\n}} {name}_t;", header, re.DOTALL).group(1)
    found = []
    for declaration in re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL).split(";")[:-1]:
        kind, names = re.fullmatch(r"\s*((?:const |unsigned )?\w+\*?) ([\w\[\], ]+)", declaration).groups()
        for field, count in re.findall(r"(\w+)(?:\[(\w+)\])?", names):
            size = 8 if "*" in kind else sizes.get(kind, 1)
            found.append((field, size * int({"ULYX_UNIQUE_ID_BYTES": "128"}.get(count, count) or 1)))
    return found


def test_struct_fields(tally: Tally) -> None:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../include/ulyx.h")
    if not os.path.exists(path):
        tally.skip("fields of the structs", "no include/ulyx.h beside the examples")
        return
    with open(path) as file:
        header = file.read()
    names = "Range Strides Shape ShapeBytes ShapeTimes Config UniqueId RuntimeInfo Choice PlanInfo"
    for name in (names + " Tensor Qkv Segment RowsShape").split():
        struct = getattr(ulyx, "C" + name)
        mirrored = [(field, ctypes.sizeof(kind)) for field, kind in struct._fields_]
        tally.equal(f"fields of ulyx{name}_t", mirrored, header_fields(header, "ulyx" + name))


# ---- numpy --------------------------------------------------------------------------------------------------------


def test_numpy(tally: Tally) -> None:
    if np is None:
        tally.skip("numpy arrays", "no numpy")
        return

    def main(runtime: ulyx.Runtime) -> None:
        whole = np.arange(3 * 2 * 11 * 6 * 4, dtype=np.float32).reshape(3, 2, 11, 6, 4)
        plan = ulyx.Plan(runtime, tokens=11, heads=6, head_dim=4, batch=2, dtype=np.float32)
        own, heads = (slice(r.start, r.stop) for r in (plan.info.token_range, plan.info.head_range))
        given = [np.ascontiguousarray(x[:, own]) for x in whole]
        out = [np.asarray(buffer) for buffer in plan.seq_to_heads(*given)]
        tally.check("numpy arrays", all((x == y[:, :, heads]).all() for x, y in zip(out, whole)))
        again = [np.zeros(shape, np.float32) for shape in plan.heads_shapes()]
        plan.seq_to_heads(*map(OnlyDlpack, given), out=[OnlyDlpack(array) for array in again])
        tally.check("DLPack", all((x == y[:, :, heads]).all() for x, y in zip(again, whole)))
        tally.check("and back", (np.asarray(plan.heads_to_seq(again[0])) == given[0]).all())
        reversed_heads = given[0][:, :, ::-1]
        tally.refuses(
            "strides of another order",
            lambda: plan.seq_to_heads(reversed_heads, *given[1:], out=again),
            ulyx.MISMATCH,
            "stride",
            "-4",
        )

    world(1, main)

    def no_refusals(runtime: ulyx.Runtime) -> None:
        bits = np.arange(7 * 5 * 2, dtype=np.uint16).reshape(7, 5, 2)
        plan = ulyx.Plan(runtime, tokens=7, heads=5, head_dim=2, dtype="bfloat16")
        own, heads = (slice(r.start, r.stop) for r in (plan.info.token_range, plan.info.head_range))
        q, _, _ = plan.seq_to_heads(bits[own], bits[own], bits[own])
        tally.check("bfloat16 as uint16", (np.asarray(q)[0] == bits[:, heads]).all())

    for n_ranks in RANKS:
        world(n_ranks, no_refusals)


def joint_attention(tally: Tally, runtime: ulyx.Runtime, last: bool) -> None:
    """28 query heads over 4 key/value heads, text on every rank, two sequences: as over the whole."""
    image, text, heads, kv_heads, dim = 19, 5, 28, 4, 4
    random = np.random.default_rng(7)
    whole = [random.standard_normal((image + text, n, dim)).astype(np.float32) for n in (heads, kv_heads, kv_heads)]
    bounds = np.array([0, 11, image + text])

    def attention(q: Any, k: Any, v: Any, kv_head_of_head: Sequence[int], bounds: Any) -> Any:
        k, v, out = k[:, kv_head_of_head], v[:, kv_head_of_head], np.empty_like(q)
        for start, stop in zip(bounds[:-1], bounds[1:]):
            scores = np.exp(np.einsum("qhd,khd->hqk", q[start:stop], k[start:stop]))
            out[start:stop] = np.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), v[start:stop])
        return out

    plan = ulyx.Plan(
        runtime,
        tokens=image,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        dtype=np.float32,
        replicated_tokens=text,
        replicated_last=last,
        sequences=bounds,
    )
    own = np.arange(image + text)[rows_of_seq(plan.info)]
    q, k, v = map(np.asarray, plan.seq_to_heads(*(x[own] for x in whole)))
    cu_seqlens = plan.store_cu_seqlens(np.zeros(3, np.int32))
    tally.equal("cu_seqlens in numpy", cu_seqlens.tolist(), bounds.tolist())
    back = np.asarray(plan.heads_to_seq(attention(q[0], k[0], v[0], plan.kv_head_of_head, cu_seqlens)))
    expected = attention(*whole, [head // 7 for head in range(heads)], bounds)[own]
    tally.check(f"joint attention at {runtime.n_ranks} ranks", np.abs(back[0] - expected).max() < 1e-5)
    text_rows = plan.info.seq_replicated
    tally.equal("text", own[text_rows.start : text_rows.stop].tolist(), list(plan.info.heads_replicated))


def test_joint_attention(tally: Tally) -> None:
    if np is None:
        tally.skip("joint attention in numpy", "no numpy")
        return
    for last in (False, True):
        world(8, lambda runtime: joint_attention(tally, runtime, last))


def test_run_local_names_the_cause(tally: Tally) -> None:
    runtimes = ulyx.Runtime.create_local(2, config=ulyx.Config(timeout_ms=300))

    def main(runtime: ulyx.Runtime) -> None:
        plan = ulyx.Plan(runtime, tokens=4, heads=2, head_dim=1, dtype="float32")
        given = [Array(shape, "float64" if runtime.rank == 1 else "float32") for shape in plan.seq_shapes()]
        plan.seq_to_heads(*given, plan.empty_heads())

    tally.refuses(
        "the rank that made the others wait", lambda: ulyx.run_local(runtimes, main), ulyx.MISMATCH, "float64"
    )
    for runtime in runtimes:
        runtime.destroy()


def test_enqueue_cost(tally: Tally) -> None:
    def main(runtime: ulyx.Runtime) -> float:
        plan = ulyx.Plan(runtime, tokens=4, heads=2, head_dim=1, dtype="int32")
        given = [Array(shape, "int32") for shape in plan.seq_shapes()]
        out = plan.empty_heads()
        bound = ulyx.enqueue_cost(plan, *given, out, calls=20, warmup=2, bound=True)
        again = plan.bind_seq_to_heads(*given, out)
        given[0].data[0] = 5
        again()
        whose = 0 if plan.info.head_range.start == 0 else None
        tally.check("a bound exchange moves what memory holds now", whose is None or buffer_values(out[0])[0] == 5)
        return max(bound, ulyx.enqueue_cost(plan, *given, out, calls=20, warmup=2))

    costs = world(2, main)
    tally.check("the cost of an enqueue", all(0 < cost < 1e6 for cost in costs), costs)


MODULES = ("test_ulyx", "test_tensors", "test_sequence_parallel", "test_torch")


def main() -> int:
    for variable in ("ULYX_TRANSPORT", "ULYX_TIMEOUT_MS", "ULYX_AGREE_PLANS", "WORLD_SIZE", "RANK"):
        os.environ.pop(variable, None)
    tally = Tally()
    for module in sys.argv[1:] or MODULES:
        for name, test in list(vars(importlib.import_module(module)).items()):
            if not name.startswith("test_"):
                continue
            try:
                test(tally)
            except Exception:  # the others still run
                tally.check(name, False, traceback.format_exc())
    print(f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped")
    return tally.failed > 0


if __name__ == "__main__":
    sys.exit(main())
