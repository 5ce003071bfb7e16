# SPDX-License-Identifier: MIT
"""Tests of sequence_parallel.py and of its check. Run by test_ulyx.py."""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import sequence_parallel
import sequence_parallel_check
import ulyx
from sequence_parallel import SequenceParallelContext
from support import Array, Tally, buffer_values, np, row_values, world


def values(tensor: Any) -> list:
    return buffer_values(tensor) if isinstance(tensor, ulyx.Buffer) else tensor.values()


def test_every_method(tally: Tally) -> None:
    """On tensors of the standard library."""

    def main(runtime: ulyx.Runtime) -> None:
        for reuse in (False, True):
            context = SequenceParallelContext.create(10, 7, 2, runtime=runtime, reuse_outputs=reuse)
            (start, stop), count = context.local_token_range, context.local_token_length
            whole = (context.rank, context.world_size, context.sequence_length, context.heads, context.head_dim)
            tally.equal("numbers of the whole", whole, (runtime.rank, 3, 10, 7, 2))
            tally.equal("tokens", context.token_ranges, ((0, 4), (4, 7), (7, 10)))
            tally.equal("heads", context.head_ranges, ((0, 3), (3, 5), (5, 7)))
            tally.equal("lengths", (context.token_lengths, context.head_lengths), ((4, 3, 3), (3, 2, 2)))
            tally.equal("own heads", context.local_head_count, context.head_lengths[context.rank])
            own = Array((1, count, 7, 2), "int32", row_values(range(start, stop), 14))
            first, second = (context.seq_to_heads(own, own, own) for _ in range(2))
            heads = range(*context.local_head_range)
            expected = [t * 14 + 2 * h + d for t in range(10) for h in heads for d in (0, 1)]
            tally.equal("heads of all tokens", [values(x) for x in first + second], [expected] * 6)
            tally.equal("outputs are made anew, or reused", first[0] is second[0], reuse)
            tally.equal("shape of the heads side", tuple(first[0].shape), (1, 10, len(heads), 2))
            back = context.heads_to_seq(first[0])
            tally.equal("and back, without the batch", (tuple(back.shape), values(back)), ((count, 7, 2), own.values()))
            rows = Array((count, 7, 2), "int32", own.values())
            gathered = context.all_gather_rows(rows)
            tally.equal("rows of all tokens", values(gathered), row_values(range(10), 14))
            tally.equal("their shape", tuple(gathered.shape), (10, 7, 2))
            tally.equal("tokens of a target", context.target_counts(2, 5), (2, 1, 0))
            local = range(*context.target_intersection(2, 5))
            part = Array((len(local), 14), "int32", row_values([start + token for token in local], 14))
            target = context.all_gather_target_rows(part, 2, 5)
            tally.equal("rows of a target", values(target), row_values(range(2, 5), 14))
            sums = context.reduce_scatter_rows(Array((10, 3), "float32", row_values(range(10), 3)))
            tally.equal("sums", values(sums), row_values(range(start, stop), 3, 3))
            segments = [[(0, 4, 8)], [(0, 1, 8), (1, 3, 9)], [(0, 3, 9)]][context.rank]
            tally.equal("segments", context.localize_segments([(0, 5, 8), (5, 10, 9)]), segments)
            context.destroy()
        tally.equal("a destroyed context has given back its plans", runtime._plans, [])

    world(3, main)


def test_spans_beyond_the_sequence(tally: Tally) -> None:
    def main(runtime: ulyx.Runtime) -> None:
        context = SequenceParallelContext.create(7, 2, 1, runtime=runtime)
        for start, stop, counts in ((-3, 2, (2, 0)), (3, 99, (1, 3)), (5, 2, (0, 0)), (9, 12, (0, 0)), (0, 7, (4, 3))):
            tally.equal(f"counts of [{start}, {stop})", context.target_counts(start, stop), counts)
            first, last = context.target_intersection(start, stop)
            tally.equal(f"length here of [{start}, {stop})", last - first, counts[context.rank])
            if counts[context.rank] == 0:
                tally.equal("nothing here is (0, 0)", (first, last), (0, 0))

    world(2, main)


def test_refusals_of_the_context(tally: Tally) -> None:
    def main(runtime: ulyx.Runtime) -> None:
        context, local = SequenceParallelContext.create(10, 7, 2, runtime=runtime), (5, 7, 2)
        q, long, other = (Array((1, *local), kind) for kind in ("int32", "int64", "int32"))
        short, rows, deep = Array((1, 4, 7, 2), "int32"), Array((4, 3), "int32"), Array((5, 3, 1), "int32")
        for name, call, words in (
            ("too few tokens", lambda: context.seq_to_heads(q, short, q), ("k has shape (1, 4,", "(1, 5, 7, 2)")),
            ("another type", lambda: context.seq_to_heads(q, other, long), ("v is int64", "q is int32")),
            ("the wrong heads", lambda: context.heads_to_seq(q), ("output has shape (1, 5,", "expected (1, 10,")),
            ("too few rows", lambda: context.all_gather_rows(rows), ("4 rows, expected 5",)),
            ("too few target rows", lambda: context.all_gather_target_rows(rows, 0, 10), ("4 rows, expected 5",)),
            (
                "target rows of 3 dimensions",
                lambda: context.all_gather_target_rows(deep, 0, 10),
                ("3 dim", "expected 2"),
            ),
            ("too few partial rows", lambda: context.reduce_scatter_rows(rows), ("4 rows, expected 10",)),
        ):
            tally.refuses(f"{name} in a context", call, ValueError, *words)
        few = lambda: SequenceParallelContext.create(1, 7, 2, runtime=runtime)
        tally.refuses("fewer tokens than ranks", few, ValueError, "1", "2")
        numbers = (context.token_ranges, context.head_ranges, 2, runtime)
        tally.refuses("another rank's numbers", lambda: SequenceParallelContext(None, 7, 2, *numbers), ValueError, "7")

    world(2, main)
    tally.refuses("no parts", lambda: sequence_parallel.balanced_ranges(3, 0), ValueError, "0 parts")
    torch = mock.MagicMock()
    torch.distributed.is_initialized.return_value = False
    with mock.patch.dict(sys.modules, {"torch": torch, "torch.distributed": torch.distributed}):
        alone = lambda: SequenceParallelContext.create(10, 7, 2)
        tally.refuses("no process group", alone, RuntimeError, "init_process_group")


def test_one_rank_hands_back_what_it_is_given(tally: Tally) -> None:
    def main(runtime: ulyx.Runtime) -> None:
        context = SequenceParallelContext.create(5, 3, 2, runtime=runtime)
        q, k, v = (Array((1, 5, 3, 2), "int32") for _ in range(3))
        rows = Array((5, 4), "float64")
        tally.equal("the very tensors", context.seq_to_heads(q, k, v), (q, k, v))
        for call in (context.all_gather_rows, context.reduce_scatter_rows):
            tally.check("the very rows", call(rows) is rows)
        tally.check("the very target rows", context.all_gather_target_rows(rows, 0, 5) is rows)

    world(1, main)


# ---- With numpy -----------------------------------------------------------------------------------------------------


def test_the_check(tally: Tally) -> None:
    if np is None:
        tally.skip("the check of the context in numpy", "no numpy")
        return
    shape = (23, 7, 4)
    for n_ranks in (1, 2, 3, 5):
        gathers = sequence_parallel_check.gather_between_threads(n_ranks)

        def main(runtime: ulyx.Runtime) -> None:
            tools = sequence_parallel_check.Numpy(runtime.rank)
            reference = sequence_parallel_check.Reference(np, gathers[runtime.rank], runtime.rank, n_ranks, *shape[:2])
            found = sequence_parallel_check.check(runtime, tools, reference, shape, ("float32", "float16", "int32"))
            tally.equal(f"every call at {n_ranks} ranks, rank {runtime.rank}", found.wrong, [])
            tally.check("as many as there are", found.compared > 100, found.compared)

        world(n_ranks, main)


def test_the_check_finds_differences(tally: Tally) -> None:
    findings = sequence_parallel_check.Findings()
    for got, expected in (((0, 1), (0, 2)), ((1, 2, 3), (1, 2)), ([(0, 1, 2)], [])):
        findings.compare("numbers", got, expected)
    if np is not None:
        one = np.ones((2, 3), np.float32)
        for other in (one[:1], one.astype(np.float64), one + np.eye(2, 3, dtype=np.float32)):
            findings.compare("arrays", one, other)
            findings.compare("tuples of arrays", (one, one), (one, other))
    tally.equal("differences", len(findings.wrong), findings.compared)
    findings.compare("nothing wrong", (1, 2), (1, 2))
    tally.equal("what is equal", findings.compared - len(findings.wrong), 1)
