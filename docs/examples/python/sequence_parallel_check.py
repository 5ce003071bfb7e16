# SPDX-License-Identifier: MIT
"""Makes every call of SequenceParallelContext and compares what comes of it with a reference.

    torchrun --nproc-per-node 4 sequence_parallel_check.py      # a GPU a rank, torch tensors
    python3 sequence_parallel_check.py --ranks 4                # threads on the CPU, numpy arrays and torch tensors

The reference moves whole shards and cuts them: over torch.distributed on GPUs, through memory between threads. With
--against FILE it is the SequenceParallelContext of that file, whose torch.distributed calls need GPUs. Where there is
no GPU, torchrun gives the same as threads. Exits non-zero where a rank has found a difference.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Sequence

import ulyx
from sequence_parallel import SequenceParallelContext, destroy_runtimes, runtime_of_group

Gather = Callable[[Any], list]  # a tensor of each rank -> all of them, in rank order
DTYPES = {"numpy": ("float32", "float16", "int32"), "torch": ("bfloat16", "float32", "float16", "int32")}

# ---- The reference --------------------------------------------------------------------------------------------------


def gather_between_threads(n_ranks: int) -> list[Gather]:
    """One for each rank."""
    met, shown = threading.Barrier(n_ranks, timeout=60), [None] * n_ranks

    def of_rank(rank: int) -> Gather:
        def gather(part: Any) -> list:
            shown[rank] = part
            met.wait()
            parts = list(shown)
            met.wait()  # nobody shows the next tensor before all have seen this one
            return parts

        return gather

    return [of_rank(rank) for rank in range(n_ranks)]


def gather_over_torch(part: Any) -> list:
    """Every rank broadcasts its own."""
    import torch
    import torch.distributed as dist

    shapes = [None] * dist.get_world_size()
    dist.all_gather_object(shapes, tuple(part.shape))
    parts = [torch.empty(shape, dtype=part.dtype, device=part.device) for shape in shapes]
    parts[dist.get_rank()] = part.contiguous()
    for rank, tensor in enumerate(parts):
        dist.broadcast(tensor, src=rank)
    return parts


def cuts(total: int, parts: int) -> list[slice]:
    bounds = [part * (total // parts) + min(part, total % parts) for part in range(parts + 1)]
    return [slice(*pair) for pair in zip(bounds, bounds[1:])]


class Reference:
    """The same methods by their definition: the whole of everything, then this rank's cut of it."""

    def __init__(self, package: Any, gather: Gather, rank: int, n_ranks: int, tokens: int, heads: int) -> None:
        self._package, self._gather = package, gather
        self._tokens, self._all_tokens = cuts(tokens, n_ranks), range(tokens)
        self._own, self._own_heads = self._tokens[rank], cuts(heads, n_ranks)[rank]
        self._rank = rank

    def _whole(self, part: Any, axis: int) -> Any:
        return self._package.concatenate(self._gather(part), axis)

    def seq_to_heads(self, q: Any, k: Any, v: Any) -> tuple[Any, ...]:
        return tuple(self._whole(tensor, 1)[:, :, self._own_heads] for tensor in (q, k, v))

    def heads_to_seq(self, output: Any) -> Any:
        return self._whole(output, 2)[0, self._own]

    def all_gather_rows(self, local_rows: Any) -> Any:
        return self._whole(local_rows, 0)

    def all_gather_target_rows(self, local_rows: Any, target_start: int, target_stop: int) -> Any:
        return self._whole(local_rows, 0)

    def reduce_scatter_rows(self, partial_full_rows: Any) -> Any:
        parts = self._gather(partial_full_rows)
        return self._package.stack(parts)[:, self._own].sum(0) if len(parts) > 1 else parts[0]

    def target_counts(self, target_start: int, target_stop: int) -> tuple[int, ...]:
        wanted = set(range(target_start, target_stop))
        return tuple(len(wanted.intersection(self._all_tokens[tokens])) for tokens in self._tokens)

    def target_intersection(self, target_start: int, target_stop: int) -> tuple[int, int]:
        own = list(self._all_tokens[self._own])
        here = [place for place, token in enumerate(own) if target_start <= token < target_stop]
        return (here[0], here[-1] + 1) if here else (0, 0)

    def localize_segments(self, segments: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        local = [(self.target_intersection(start, stop), row) for start, stop, row in segments]
        return [(*bounds, row) for bounds, row in local if bounds != (0, 0)]


# ---- The calls ------------------------------------------------------------------------------------------------------


class Numpy:
    """What the calls need of a package; random numbers are small and whole, so that sums are exact in any order."""

    def __init__(self, rank: int) -> None:
        import numpy

        self.package, self._random = numpy, numpy.random.default_rng(rank)

    def random(self, dtype: str, *shape: int) -> Any:
        return self._random.integers(-30, 31, shape).astype(dtype)

    def transposed(self, tensor: Any) -> Any:
        """The same numbers, heads before tokens in memory."""
        return self.package.ascontiguousarray(tensor.swapaxes(1, 2)).swapaxes(1, 2)

    def copy(self, tensor: Any) -> Any:
        return tensor.copy()

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        scores = self.package.einsum("bqhd,bkhd->bhqk", q, k) / 1000
        weights = self.package.exp(scores - scores.max(-1, keepdims=True))
        return self.package.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), v)


class Torch(Numpy):
    def __init__(self, rank: int, device: str = "cpu") -> None:
        import torch

        self.package, self._device = torch, device
        self._generator = torch.Generator().manual_seed(rank)

    def random(self, dtype: str, *shape: int) -> Any:
        whole = self.package.randint(-30, 31, shape, generator=self._generator)
        return whole.to(self._device, getattr(self.package, dtype))

    def transposed(self, tensor: Any) -> Any:
        return tensor.transpose(1, 2).contiguous().transpose(1, 2)

    def copy(self, tensor: Any) -> Any:
        return tensor.clone()

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        scores = self.package.einsum("bqhd,bkhd->bhqk", q, k) / 1000
        return self.package.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)


def calls_of(context: SequenceParallelContext, tools: Numpy, dtype: str) -> dict[str, Callable[[Any], Any]]:
    """Every method with arguments of this rank's; each is called on the context and on the reference."""
    tokens, heads, dim = context.sequence_length, context.heads, context.head_dim
    local, own_heads = context.local_token_length, context.local_head_count
    q, k, v, again = (tools.random(dtype, 1, local, heads, dim) for _ in range(4))
    o = tools.random(dtype, 1, tokens, own_heads, dim)
    fused = tools.random(dtype, 1, local, heads, 3 * dim)
    views = [fused[..., part * dim : (part + 1) * dim] for part in range(3)]
    rows, wide, sums = (tools.random(dtype, *shape) for shape in ((local, 5), (local, 2, 3), (tokens, 2, 3)))
    calls: dict[str, Callable[[Any], Any]] = {
        "seq_to_heads": lambda c: c.seq_to_heads(q, k, v),
        "seq_to_heads of others": lambda c: c.seq_to_heads(again, q, k),
        "seq_to_heads of views": lambda c: c.seq_to_heads(*views),
        "heads_to_seq": lambda c: c.heads_to_seq(o),
        "heads_to_seq of a transposed output": lambda c: c.heads_to_seq(tools.transposed(o)),
        "all_gather_rows": lambda c: c.all_gather_rows(rows),
        "all_gather_rows of more dimensions": lambda c: c.all_gather_rows(wide),
        "all_gather_rows of one number a row": lambda c: c.all_gather_rows(rows[:, 0]),
        "reduce_scatter_rows": lambda c: c.reduce_scatter_rows(sums),
        "localize_segments": lambda c: c.localize_segments([(0, 3, 7), (3, 3, 8), (2, tokens, 9)]),
    }
    for start, stop in ((0, tokens), (tokens // 3, tokens // 2 + 1), (0, 1), (tokens - 1, tokens + 9)):
        span = f"[{start}, {stop})"
        part = rows[slice(*context.target_intersection(start, stop))]
        calls |= {
            f"target_intersection{span}": lambda c, at=(start, stop): c.target_intersection(*at),
            f"target_counts{span}": lambda c, at=(start, stop): c.target_counts(*at),
            f"rows of target{span}": lambda c, at=(start, stop), x=part: c.all_gather_target_rows(x, *at),
        }
    return calls


def refusals_of(context: SequenceParallelContext, tools: Numpy) -> dict[str, Callable[[Any], Any]]:
    """Calls that every rank refuses with a ValueError."""
    tokens, local, heads, dim = context.sequence_length, context.local_token_length, context.heads, context.head_dim
    q, other = tools.random("float32", 1, local, heads, dim), tools.random("float16", 1, local, heads, dim)
    o, rows = tools.random("float32", 1, tokens, context.local_head_count + 1, dim), tools.random("float32", tokens, 5)
    return {
        "too few tokens": lambda c: c.seq_to_heads(q[:, 1:], q[:, 1:], q[:, 1:]),
        "no batch": lambda c: c.seq_to_heads(q[0], q[0], q[0]),
        "another shape of v": lambda c: c.seq_to_heads(q, q, q[..., 1:]),
        "another type of k": lambda c: c.seq_to_heads(q, other, q),
        "too many heads": lambda c: c.heads_to_seq(o),
        "rows of one too many": lambda c: c.all_gather_rows(rows[: local + 1]) if local < tokens else _refuse(),
        "target rows of three dimensions": lambda c: c.all_gather_target_rows(rows[:, :, None], 0, 1),
        "target rows of nobody's": lambda c: c.all_gather_target_rows(rows[:tokens], 0, 0),
        "partial rows of too few tokens": lambda c: c.reduce_scatter_rows(rows[1:]),
    }


def _refuse() -> None:
    raise ValueError("one rank has all rows")


def _equal(one: Any, other: Any) -> bool:
    if hasattr(other, "shape"):
        return tuple(one.shape) == tuple(other.shape) and one.dtype == other.dtype and bool((one == other).all())
    if isinstance(other, tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return one == other


@dataclass
class Findings:
    """What a rank has compared."""

    compared: int = 0
    wrong: list[str] = field(default_factory=list)
    attention: float = 0.0

    def compare(self, name: str, got: Any, expected: Any) -> None:
        """Numbers, shapes and types are to be equal."""
        self.compared += 1
        if not _equal(got, expected):
            self.wrong.append(name)


def check(runtime: ulyx.Runtime, tools: Numpy, reference: Any, shape: Sequence[int], dtypes: Sequence[str]) -> Findings:
    """All calls on one rank, of contexts whose outputs are new and of such that reuse them. Collective."""
    findings = Findings()
    for reuse in (False, True):
        context = SequenceParallelContext.create(*shape, runtime=runtime, reuse_outputs=reuse)
        for dtype in dtypes:
            done = []
            for name, call in calls_of(context, tools, dtype).items():
                expected, got = call(reference), call(context)
                if reuse and hasattr(got, "shape"):
                    got = tools.copy(got)
                elif reuse and got and hasattr(got[0], "shape"):
                    got = tuple(map(tools.copy, got))
                done.append((f"{name}, {dtype}, outputs {'reused' if reuse else 'new'}", got, expected))
            for result in done:  # only now: new outputs must have outlived the calls after them
                findings.compare(*result)
        for name, call in refusals_of(context, tools).items():
            try:
                call(context)
                findings.compare(f"{name} is refused", "not refused", "")
            except ValueError as error:
                findings.compare(f"{name} is refused", bool(str(error)), True)
        q, k, v = (tools.random("float32", 1, context.local_token_length, *shape[1:]) for _ in range(3))
        whole = [reference.all_gather_rows(tensor[0])[None] for tensor in (q, k, v)]
        expected = tools.attention(*whole)[0, slice(*context.local_token_range)]
        exchanged = context.heads_to_seq(tools.attention(*context.seq_to_heads(q, k, v)))
        findings.attention = max(findings.attention, float(abs(exchanged - expected).max()))
        findings.compare("attention over exchanged heads", findings.attention < 1e-3, True)  # of numbers up to 30
        context.destroy()
    return findings


def report(runtime: ulyx.Runtime, package: str, findings: Findings, shape: Sequence[int]) -> str:
    tokens, heads = (cuts(total, runtime.n_ranks)[runtime.rank] for total in shape[:2])
    lines = [
        f"rank {runtime.rank}: tokens [{tokens.start}, {tokens.stop}), heads [{heads.start}, {heads.stop}), {package}: "
        f"{findings.compared} comparisons, {len(findings.wrong)} wrong, "
        f"attention differs by {findings.attention:.1e} from that over the whole"
    ]
    return "\n".join(lines + [f"rank {runtime.rank}: WRONG: {name}" for name in findings.wrong])


# ---- On the CPU and on GPUs -----------------------------------------------------------------------------------------


def check_threads(n_ranks: int, shape: Sequence[int], packages: Sequence[str]) -> bool:
    right, runtimes = True, ulyx.Runtime.create_local(n_ranks)
    for package in packages:
        gathers = gather_between_threads(n_ranks)

        def rank_main(runtime: ulyx.Runtime) -> Findings:
            tools = (Numpy if package == "numpy" else Torch)(runtime.rank)
            reference = Reference(tools.package, gathers[runtime.rank], runtime.rank, n_ranks, *shape[:2])
            return check(runtime, tools, reference, shape, DTYPES[package])

        found = ulyx.run_local(runtimes, rank_main)
        print(*(report(*rank, shape) for rank in zip(runtimes, [package] * n_ranks, found)), sep="\n")
        right = right and not any(findings.wrong for findings in found)
    for runtime in runtimes:
        runtime.destroy()
    return right


def reference_of_file(path: str, shape: Sequence[int]) -> Any:
    """The context that a file of the caller's makes of the same numbers."""
    spec = importlib.util.spec_from_file_location("against", path)
    module = sys.modules["against"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SequenceParallelContext.create(*shape)


def wrong_replays(runtime: ulyx.Runtime, shape: Sequence[int]) -> list[str]:
    """Exchanges by the custom ops, to heads and back, captured as they are and compiled: what replays bring back
    wrong, with other numbers each. Collective, on GPUs."""
    import torch

    tokens, heads, head_dim = shape
    ops, wrong = ulyx.register_torch_ops(), []
    plan = ulyx.Plan(runtime, tokens=tokens, heads=heads, head_dim=head_dim, reserve=True)
    number, (q_out, k_out, v_out), o_out = (
        ops.add(plan),
        [x.torch() for x in plan.empty_heads()],
        plan.empty_seq().torch(),
    )
    q = torch.empty(plan.seq_shapes()[0], dtype=torch.bfloat16, device=f"cuda:{runtime.device}")

    def there_and_back() -> None:
        ops.seq_to_heads(q, q, q, q_out, k_out, v_out, number)
        ops.heads_to_seq(v_out, o_out, number)

    for name, step in (
        ("captured", there_and_back),
        ("compiled and captured", torch.compile(there_and_back, backend="aot_eager", fullgraph=True)),
    ):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()  # what compiles and loads does so outside of the capture
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            step()
        for replay in range(3):
            q.normal_()
            o_out.zero_()
            graph.replay()
            if not torch.equal(o_out.view(-1), q.view(-1)):
                wrong.append(f"replay {replay}, {name}")
        torch.cuda.synchronize()
        del graph  # before its runtime
    ops.remove(number)
    plan.destroy()
    return wrong


def enqueue_cost(runtime: ulyx.Runtime, shape: Sequence[int], stream: int) -> str:
    tokens, heads, head_dim = shape
    plan = ulyx.Plan(runtime, tokens=tokens, heads=heads, head_dim=head_dim, reserve=True)
    given = [runtime.empty(extents, "bfloat16").torch() for extents in plan.seq_shapes()]
    out = [buffer.torch() for buffer in plan.empty_heads()]
    called, bound = (ulyx.enqueue_cost(plan, *given, out, stream, bound=bound) for bound in (False, True))
    return f"rank {runtime.rank}: a seq_to_heads costs the host {called:.1f} us, {bound:.1f} us bound to its tensors"


def check_gpus(shape: Sequence[int], against: str | None) -> bool:
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = f"cuda:{torch.cuda.current_device()}"
    dist.init_process_group("cpu:gloo,cuda:nccl")
    try:
        runtime = runtime_of_group()
        tools = Torch(runtime.rank, device)
        if against:
            reference = reference_of_file(against, shape)
        else:
            reference = Reference(torch, gather_over_torch, runtime.rank, runtime.n_ranks, *shape[:2])
        findings = check(runtime, tools, reference, shape, DTYPES["torch"])
        findings.wrong += wrong_replays(runtime, shape)
        print(report(runtime, f"torch on {runtime.info.transport}", findings, shape), flush=True)
        print(enqueue_cost(runtime, shape, torch.cuda.current_stream().cuda_stream), flush=True)
        destroy_runtimes()
    finally:
        dist.destroy_process_group()
    return not findings.wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4, help="threads on the CPU; torchrun sets the number otherwise")
    parser.add_argument("--tokens", type=int, default=1001)
    parser.add_argument("--heads", type=int, default=7)
    parser.add_argument("--head-dim", type=int, default=16)
    parser.add_argument("--loopback", action="store_true", help="threads on the CPU under torchrun, too")
    parser.add_argument("--against", metavar="FILE", help="compare with this file's SequenceParallelContext, on GPUs")
    given = parser.parse_args()
    n_ranks, shape = int(os.environ.get("WORLD_SIZE", given.ranks)), (given.tokens, given.heads, given.head_dim)
    if min(shape) < 1 or not 1 <= n_ranks <= min(shape[:2]):
        parser.error(f"{n_ranks} ranks need as many tokens and heads at least, and a head dim")

    packages = [name for name in ("numpy", "torch") if importlib.util.find_spec(name)]
    on_gpus = "WORLD_SIZE" in os.environ and not given.loopback and "torch" in packages
    if "torch" in packages:
        on_gpus = ulyx.import_torch().cuda.is_available() and on_gpus
    if on_gpus:
        return not check_gpus(shape, given.against)
    if given.against:
        parser.error("--against needs GPUs and torchrun: its collectives are between processes, threads have none")
    if not packages:
        parser.error("needs numpy or torch")
    if int(os.environ.get("RANK", 0)) > 0:
        return 0  # rank 0 has all ranks as its threads
    return not check_threads(n_ranks, shape, packages)


if __name__ == "__main__":
    sys.exit(main())
