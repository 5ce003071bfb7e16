# SPDX-License-Identifier: MIT
"""A SequenceParallelContext of torch.distributed and all_to_all_single, replaced method for method by ulyx.py.

    context = SequenceParallelContext.create(sequence_length, heads, head_dim, group=group)
    q, k, v = context.seq_to_heads(q, k, v)     # [1, own tokens, all heads, dim] -> [1, all tokens, own heads, dim]
    rows = context.heads_to_seq(o)              # [1, all tokens, own heads, dim] -> [own tokens, all heads, dim]

Shapes, defaults and refusals are those that such a class has. sequence_parallel_check.py runs all of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Sequence

import ulyx

Bounds = tuple[int, int]  # a first item and the one after the last


def balanced_ranges(total: int, parts: int) -> tuple[Bounds, ...]:
    """`total` items in order over `parts` ranges, none empty; the first ones have one more."""
    try:
        return tuple((whole.start, whole.stop) for whole in ulyx.balanced_ranges(total, parts))
    except ulyx.Error as error:
        raise ValueError(error.message) from None


def range_lengths(ranges: Sequence[Bounds]) -> tuple[int, ...]:
    return tuple(stop - start for start, stop in ranges)


def localize_segments(
    segments: Sequence[tuple[int, int, int]], shard_start: int, shard_stop: int
) -> list[tuple[int, int, int]]:
    """(start, stop, row) of the whole sequence -> those of a shard's tokens, counted from its first."""
    return ulyx.localize_segments(segments, range(shard_start, shard_stop))


# ---- Runtimes of process groups -------------------------------------------------------------------------------------

_runtimes: dict[Any, ulyx.Runtime] = {}


def runtime_of_group(group: Any = None) -> ulyx.Runtime:
    """The runtime over a process group's ranks, made at its first use on the current CUDA device, collectively. The
    group (gloo is enough; None: all ranks) carries the unique id and nothing later."""
    ulyx.import_torch()
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError("torch.distributed has no process group: call init_process_group first, or give a runtime")
    group = dist.group.WORLD if group is None else group
    if group not in _runtimes:
        rank, box = dist.get_rank(group), [None]
        if rank == 0:
            box = [ulyx.unique_id()]
        dist.broadcast_object_list(box, src=dist.get_global_rank(group, 0), group=group)
        _runtimes[group] = ulyx.Runtime.create(dist.get_world_size(group), rank, box[0])
    return _runtimes[group]


def destroy_runtimes() -> None:
    """Frees what runtime_of_group made, with all contexts on it. Collective; before destroy_process_group."""
    while _runtimes:
        _runtimes.popitem()[1].destroy()


# ---- The context ----------------------------------------------------------------------------------------------------


def _dense(tensor: Any) -> Any:
    """The exchange reads dense tensors: a view with gaps is copied, as stacking and slicing did with every tensor."""
    if hasattr(tensor, "contiguous"):
        return tensor.contiguous()
    if type(tensor).__module__ == "numpy":
        import numpy

        return numpy.ascontiguousarray(tensor)
    return tensor


def _new(like: Any, shape: Sequence[int]) -> Any:
    """A tensor of the kind, type and device of `like`."""
    if hasattr(like, "new_empty"):
        return like.new_empty(shape)
    import numpy

    return numpy.empty(shape, like.dtype)


def _as(like: Any, buffer: ulyx.Buffer) -> Any:
    """The memory of `buffer` as a tensor of the kind of `like`."""
    package = type(like).__module__.partition(".")[0]
    if package == "torch":
        return buffer.torch()
    if package == "numpy":
        import numpy

        return numpy.asarray(buffer)
    return buffer


def _stream(tensor: Any) -> int:
    """What the tensor's package computes on now."""
    if not getattr(tensor, "is_cuda", False):
        return 0
    import torch

    return torch.cuda.current_stream(tensor.device).cuda_stream


def _expect_rows(what: str, rows: int, expected: int) -> None:
    if rows != expected:
        raise ValueError(f"{what} has {rows} rows, expected {expected}")


@dataclass(frozen=True)
class SequenceParallelContext:
    """Which tokens and heads of [1, tokens, heads, head_dim] a rank owns, and the exchanges between these ownerships.

    Beside what it replaces it has a `runtime`, and `reuse_outputs`. With the latter an output is symmetric memory, made
    at a method's first call and written again by its next one of the same shape: a copy less on the way, for results
    that are used up before. Without, every result is a new tensor. A world of one rank hands back what it is given.

    Methods that move data are collective, run on torch's current stream and make their plan at their first call of a
    type or shape.
    """

    group: Any
    rank: int
    world_size: int
    token_ranges: tuple[Bounds, ...]
    head_ranges: tuple[Bounds, ...]
    head_dim: int
    runtime: ulyx.Runtime = field(compare=False, repr=False)
    reuse_outputs: bool = False
    _made: dict = field(default_factory=dict, init=False, compare=False, repr=False)
    _buffers: list = field(default_factory=list, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if (self.rank, self.world_size) != (self.runtime.rank, self.runtime.n_ranks):
            raise ValueError(
                f"rank {self.rank} of {self.world_size}, but the runtime is rank {self.runtime.rank} of "
                f"{self.runtime.n_ranks}"
            )

    @classmethod
    def create(
        cls,
        sequence_length: int,
        heads: int,
        head_dim: int,
        *,
        group: Any = None,
        runtime: Optional[ulyx.Runtime] = None,
        reuse_outputs: bool = False,
    ) -> "SequenceParallelContext":
        """Tokens and heads balanced over the ranks of `group`, or over those of `runtime`. Moves nothing, but for the
        first runtime of a group."""
        runtime = runtime or runtime_of_group(group)
        return cls(
            group=group,
            rank=runtime.rank,
            world_size=runtime.n_ranks,
            token_ranges=balanced_ranges(sequence_length, runtime.n_ranks),
            head_ranges=balanced_ranges(heads, runtime.n_ranks),
            head_dim=head_dim,
            runtime=runtime,
            reuse_outputs=reuse_outputs,
        )

    sequence_length = property(lambda self: self.token_ranges[-1][1])
    heads = property(lambda self: self.head_ranges[-1][1])
    token_lengths = property(lambda self: range_lengths(self.token_ranges))
    head_lengths = property(lambda self: range_lengths(self.head_ranges))
    local_token_range = property(lambda self: self.token_ranges[self.rank])
    local_head_range = property(lambda self: self.head_ranges[self.rank])
    local_token_length = property(lambda self: self.token_lengths[self.rank])
    local_head_count = property(lambda self: self.head_lengths[self.rank])

    def localize_segments(self, segments: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        return localize_segments(segments, *self.local_token_range)

    # ---- Attention

    def seq_to_heads(self, q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
        """Own tokens of all heads -> all tokens of own heads."""
        given, expected = {"q": q, "k": k, "v": v}, (1, self.local_token_length, self.heads, self.head_dim)
        for name, tensor in given.items():
            if tuple(tensor.shape) != expected:
                raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {expected}")
            kinds = [(x.dtype, getattr(x, "device", None)) for x in (tensor, q)]
            if kinds[0] != kinds[1]:
                raise ValueError(f"{name} is {kinds[0][0]} on {kinds[0][1]}, q is {kinds[1][0]} on {kinds[1][1]}")
        if self.world_size == 1:
            return q, k, v
        plan, shape = self._exchange(q.dtype), (1, self.sequence_length, self.local_head_count, self.head_dim)
        out = tuple(self._output((name, q.dtype), q, shape) for name in given)
        return plan.seq_to_heads(_dense(q), _dense(k), _dense(v), out, _stream(q))

    def heads_to_seq(self, output: Any) -> Any:
        """All tokens of own heads -> own tokens of all heads, without the batch."""
        expected = (1, self.sequence_length, self.local_head_count, self.head_dim)
        if tuple(output.shape) != expected:
            raise ValueError(f"output has shape {tuple(output.shape)}, expected {expected}")
        if self.world_size == 1:
            return output[0]
        shape = (self.local_token_length, self.heads, self.head_dim)
        out = self._output(("o", output.dtype), output, shape)
        return self._exchange(output.dtype).heads_to_seq(_dense(output), out, _stream(output))

    # ---- Spans of tokens

    def target_intersection(self, target_start: int, target_stop: int) -> Bounds:
        """The tokens of a span on this rank, counted from its first; (0, 0) if there are none."""
        span = self._span(target_start, target_stop)
        local = ulyx.target_intersection(span, range(*self.local_token_range), self.runtime.library)
        return local.start, local.stop

    def target_counts(self, target_start: int, target_stop: int) -> tuple[int, ...]:
        """How many tokens of a span each rank has."""
        span = self._span(target_start, target_stop)
        owned = (ulyx.target_intersection(span, range(*tokens), self.runtime.library) for tokens in self.token_ranges)
        return tuple(map(len, owned))

    def _span(self, start: int, stop: int) -> range:
        """Cut to the sequence: what lies outside is nobody's."""
        start, stop = (min(max(bound, 0), self.sequence_length) for bound in (start, stop))
        return range(start, max(start, stop))

    # ---- Rows, one a token

    def all_gather_rows(self, local_rows: Any) -> Any:
        """[own tokens, ...] -> [tokens, ...]."""
        _expect_rows(f"rank {self.rank}'s part", local_rows.shape[0], self.local_token_length)
        if self.world_size == 1:
            return local_rows
        return self._run_rows("all_gather", local_rows, self.sequence_length, ulyx.RowsPlan.all_gather)

    def all_gather_target_rows(self, local_rows: Any, target_start: int, target_stop: int) -> Any:
        """The own rows of a span, [rows, features] -> all its rows."""
        if len(local_rows.shape) != 2:
            raise ValueError(f"target rows have {len(local_rows.shape)} dimensions, expected 2: [rows, features]")
        counts, span = self.target_counts(target_start, target_stop), self._span(target_start, target_stop)
        _expect_rows(f"rank {self.rank}'s part of the target", local_rows.shape[0], counts[self.rank])
        if self.world_size == 1:
            return local_rows

        def make(runtime: ulyx.Runtime, width: int, **rows: Any) -> ulyx.RowsPlan:
            return ulyx.RowsPlan.all_gather_target(runtime, width, span, **rows)

        return self._run_rows(span, local_rows, len(span), make)

    def reduce_scatter_rows(self, partial_full_rows: Any) -> Any:
        """Partial sums [tokens, ...] -> [own tokens, ...], summed over the ranks."""
        _expect_rows("the partial sum", partial_full_rows.shape[0], self.sequence_length)
        if self.world_size == 1:
            return partial_full_rows
        local = self.local_token_length
        if ulyx.dtype_name(partial_full_rows.dtype) in ("float16", "bfloat16", "float32"):
            return self._run_rows("reduce_scatter", partial_full_rows, local, ulyx.RowsPlan.reduce_scatter)

        # ulyx adds no integers: every rank's summands are brought here, and their package adds them.
        def make(
            runtime: ulyx.Runtime, width: int, counts: Sequence[int], dtype: Any, reserve: bool
        ) -> ulyx.RowsPlan:
            each = [local] * self.world_size
            return ulyx.RowsPlan.all_to_all(runtime, width, counts, each, dtype=dtype, reserve=reserve)

        parts = self._run_rows("all_to_all", partial_full_rows, local * self.world_size, make)
        return parts.reshape((self.world_size, local, *parts.shape[1:])).sum(0)

    # ---- What is made once

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _exchange(self, dtype: Any) -> ulyx.Plan:
        def make() -> ulyx.Plan:
            return ulyx.Plan(
                self.runtime,
                token_counts=self.token_lengths,
                heads=self.heads,
                head_counts=self.head_lengths,
                head_dim=self.head_dim,
                dtype=dtype,
                reserve=True,
            )

        return self._once(("exchange", dtype), make)

    def _output(self, key: Any, like: Any, shape: Sequence[int]) -> Any:
        if not self.reuse_outputs:
            return _new(like, shape)

        def make() -> Any:
            self._buffers.append(self.runtime.empty(shape, like.dtype))
            return _as(like, self._buffers[-1])

        return self._once(("output", key, shape), make)

    def _run_rows(self, kind: Any, rows: Any, out_rows: int, make: Callable[..., ulyx.RowsPlan]) -> Any:
        rows, shape, width = _dense(rows), (out_rows, *rows.shape[1:]), math.prod(rows.shape[1:])
        key = (kind, width, rows.dtype)

        def make_plan() -> ulyx.RowsPlan:
            return make(self.runtime, width, counts=self.token_lengths, dtype=rows.dtype, reserve=True)

        plan = self._once(key, make_plan)
        return plan.run(rows, self._output(key, rows, shape), _stream(rows))

    def destroy(self) -> None:
        """Gives back plans and reused outputs before the runtime does; results of reuse_outputs end with it.
        Collective."""
        for made in self._made.values():
            if isinstance(made, (ulyx.Plan, ulyx.RowsPlan)):
                made.destroy()
        for buffer in self._buffers:
            buffer.free()
        self._made.clear()
        self._buffers.clear()
