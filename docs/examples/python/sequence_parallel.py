# SPDX-License-Identifier: MIT
"""Ulysses sequence parallelism for an attention layer, on ulyx.py.

    torchrun --nproc-per-node 4 sequence_parallel.py     # a GPU a rank, torch tensors
    python3 sequence_parallel.py --ranks 4               # threads on the CPU, numpy arrays

Both run a toy attention over a ragged sequence and compare it with the same attention over the whole.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import time
from typing import Any, Callable, Optional, Sequence

import ulyx


class SequenceParallelContext:
    """One rank's shard of a sequence [seq_len, num_heads, head_dim] and the exchanges of its attention layers.

    Replicated tokens (joint attention's text), which every rank holds besides, are in the tensors of the exchanges and
    not in seq_len, ranges or rows.

    Outputs are symmetric memory, made at the first use and written again by the next call of the same method: the
    stream orders that on GPUs, so keep one beyond the next layer only as a copy. `wrap` turns an ulyx.Buffer into what
    the model computes with. The constructor and every method that moves data are collective.
    """

    def __init__(
        self,
        runtime: ulyx.Runtime,
        *,
        seq_len: int,
        num_heads: int,
        head_dim: int,
        num_kv_heads: int = 0,
        dtype: Any = "bfloat16",
        token_counts: Optional[Sequence[int]] = None,
        head_counts: Optional[Sequence[int]] = None,
        replicated_tokens: int = 0,
        replicated_last: bool = False,
        sequences: Optional[ulyx.Sequences | Sequence[int]] = None,
        wrap: Callable[[ulyx.Buffer], Any] = lambda buffer: buffer,
    ) -> None:
        self.runtime = runtime
        self.plan = ulyx.Plan(
            runtime,
            tokens=seq_len,
            heads=num_heads,
            kv_heads=num_kv_heads,
            head_dim=head_dim,
            dtype=dtype,
            token_counts=token_counts,
            head_counts=head_counts,
            replicated_tokens=replicated_tokens,
            replicated_last=replicated_last,
            sequences=sequences,
        )
        self.info = self.plan.info
        self._wrap = wrap
        self._outputs: dict[Any, Any] = {}
        self._rows: dict[Any, ulyx.RowsPlan] = {}

    rank = property(lambda self: self.info.rank)
    world_size = property(lambda self: self.info.n_ranks)
    seq_len = property(lambda self: self.info.tokens)
    num_heads = property(lambda self: self.info.heads)
    head_dim = property(lambda self: self.info.head_dim)
    local_token_range = property(lambda self: self.info.token_range)
    local_token_count = property(lambda self: len(self.info.token_range))
    local_head_range = property(lambda self: self.info.head_range)
    local_head_count = property(lambda self: len(self.info.head_range))
    local_kv_head_range = property(lambda self: self.info.kv_head_range)
    kv_head_of_head = property(lambda self: self.info.kv_head_of_head)
    replicated_rows_of_seq = property(lambda self: self.info.seq_replicated)
    replicated_rows_of_heads = property(lambda self: self.info.heads_replicated)

    def seq_to_heads(self, q: Any, k: Any, v: Any, stream: int = 0) -> tuple[Any, Any, Any]:
        """[own tokens, heads, dim] of each -> [1, seq_len, own heads, dim]."""
        out = self._output("heads", lambda: tuple(self._wrap(buffer) for buffer in self.plan.empty_heads()))
        return self.plan.seq_to_heads(q, k, v, out, stream)

    def heads_to_seq(self, o: Any, stream: int = 0) -> Any:
        """[1, seq_len, own heads, dim] -> [1, own tokens, heads, dim]."""
        out = self._output("seq", lambda: self._wrap(self.plan.empty_seq()))
        return self.plan.heads_to_seq(o, out, stream)

    def all_gather_rows(self, rows: Any, target: Optional[range] = None, stream: int = 0) -> Any:
        """One row a token, [own tokens, ...] -> [seq_len, row elements]; with a target (a span of tokens) its rows."""
        width = math.prod(rows.shape[1:])
        total = {"counts": [len(tokens) for tokens in self.info.token_ranges], "dtype": rows.dtype}
        if target is None:
            return self._run_rows(
                ("all_gather", width, rows.dtype),
                rows,
                stream,
                lambda: ulyx.RowsPlan.all_gather(self.runtime, width, **total),
            )
        return self._run_rows(
            ("target", target, width, rows.dtype),
            rows,
            stream,
            lambda: ulyx.RowsPlan.all_gather_target(self.runtime, width, target, **total),
        )

    def reduce_scatter_rows(self, rows: Any, stream: int = 0) -> Any:
        """Partial sums [seq_len, ...] -> sums over ranks [own tokens, row elements]. Adds in fp32, in rank order."""
        width = math.prod(rows.shape[1:])
        counts = [len(tokens) for tokens in self.info.token_ranges]
        return self._run_rows(
            ("reduce_scatter", width, rows.dtype),
            rows,
            stream,
            lambda: ulyx.RowsPlan.reduce_scatter(self.runtime, width, counts=counts, dtype=rows.dtype),
        )

    def localize_segments(self, segments: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """(start, stop, row) of the whole sequence -> those of this rank's tokens, counted from its first."""
        return ulyx.localize_segments(segments, self.local_token_range, self.runtime.library)

    def target_intersection(self, target: range) -> range:
        """The tokens of `target` on this rank, counted from its first."""
        return ulyx.target_intersection(target, self.local_token_range, self.runtime.library)

    def _output(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._outputs:
            self._outputs[key] = make()
        return self._outputs[key]

    def _run_rows(self, key: Any, rows: Any, stream: int, make: Callable[[], ulyx.RowsPlan]) -> Any:
        plan = self._rows.get(key)
        if plan is None:
            plan = self._rows[key] = make()
        return plan.run(rows, self._output(key, lambda: self._wrap(plan.empty())), stream)


# ---- Joining a world ------------------------------------------------------------------------------------------------


def share_through_file(path: str, rank: int, timeout_s: float = 60.0) -> bytes:
    """The unique id, through a file that does not exist yet and that all ranks see. Rank 0 may delete it once the
    runtime is created."""
    if rank == 0:
        made = ulyx.unique_id()
        with open(path + ".part", "wb") as file:
            file.write(made)
        os.rename(path + ".part", path)
        return made
    give_up = time.monotonic() + timeout_s
    while not os.path.exists(path):
        if time.monotonic() > give_up:
            raise TimeoutError(f"rank 0 has not written {path} within {timeout_s:g} s")
        time.sleep(0.01)
    with open(path, "rb") as file:
        return file.read()


def share_through_torch(rank: int) -> bytes:
    """The unique id, through torch.distributed, whose process group (gloo is enough) is initialised."""
    import torch.distributed

    box = [ulyx.unique_id() if rank == 0 else None]
    torch.distributed.broadcast_object_list(box, src=0)
    return box[0]


def join(id_file: Optional[str] = None) -> ulyx.Runtime:
    """This process's rank of a world that torchrun started, on the current CUDA device."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    shared = share_through_file(id_file, rank) if id_file else share_through_torch(rank)
    runtime = ulyx.Runtime.create(world_size, rank, shared)
    if id_file and rank == 0:
        os.remove(id_file)
    return runtime


# ---- The demonstration ----------------------------------------------------------------------------------------------


def report(context: SequenceParallelContext, difference: float) -> str:
    tokens, heads = context.local_token_range, context.local_head_range
    return (
        f"rank {context.rank}: tokens [{tokens.start}, {tokens.stop}), heads [{heads.start}, {heads.stop}): "
        f"largest difference from attention over the whole {difference:.1e}"
    )


def demonstrate_numpy(runtime: ulyx.Runtime, tokens: int, heads: int, head_dim: int) -> str:
    import numpy as np

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = np.einsum("qhd,khd->hqk", q, k) / head_dim**0.5
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), v)

    whole = np.random.default_rng(0).standard_normal((3, tokens, heads, head_dim)).astype(np.float32)
    context = SequenceParallelContext(
        runtime, seq_len=tokens, num_heads=heads, head_dim=head_dim, dtype="float32", wrap=np.asarray
    )
    own = slice(context.local_token_range.start, context.local_token_range.stop)
    q, k, v = context.seq_to_heads(*whole[:, own])
    back = context.heads_to_seq(attention(q[0], k[0], v[0])[None])
    expected = attention(*whole)[own]
    return report(context, float(np.abs(back[0] - expected).max(initial=0.0)))


def demonstrate_torch(runtime: ulyx.Runtime, tokens: int, heads: int, head_dim: int) -> str:
    import torch

    def attention(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1).contiguous()

    whole = torch.randn(3, tokens, heads, head_dim, generator=torch.Generator().manual_seed(0))
    whole = whole.to(f"cuda:{runtime.device}", torch.bfloat16)
    context = SequenceParallelContext(
        runtime, seq_len=tokens, num_heads=heads, head_dim=head_dim, dtype=whole.dtype, wrap=ulyx.Buffer.torch
    )
    own = slice(context.local_token_range.start, context.local_token_range.stop)
    stream = torch.cuda.current_stream().cuda_stream
    q, k, v = context.seq_to_heads(*whole[:, own], stream=stream)
    back = context.heads_to_seq(attention(q[0], k[0], v[0])[None], stream)
    difference = (back[0] - attention(*whole)[own]).abs().float()
    return report(context, difference.max().item() if difference.numel() else 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4, help="threads on the CPU; torchrun sets the number of GPUs")
    parser.add_argument("--tokens", type=int, default=1001)
    parser.add_argument("--heads", type=int, default=7)
    parser.add_argument("--head-dim", type=int, default=16)
    parser.add_argument("--id-file", help="share the unique id through this file, not torch.distributed")
    arguments = parser.parse_args()
    if min(arguments.ranks, arguments.tokens, arguments.heads, arguments.head_dim) < 1:
        parser.error("ranks, tokens, heads and head-dim are 1 or more")
    if "WORLD_SIZE" not in os.environ:
        if arguments.ranks > min(arguments.tokens, arguments.heads):
            parser.error(f"{arguments.ranks} ranks need as many tokens and heads at least")
        if importlib.util.find_spec("numpy") is None:
            parser.error("needs numpy on the CPU, or torchrun")
    shape = (arguments.tokens, arguments.heads, arguments.head_dim)
    if "WORLD_SIZE" in os.environ:
        import torch

        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        if not arguments.id_file:
            torch.distributed.init_process_group("gloo")
        with join(arguments.id_file) as runtime:
            print(demonstrate_torch(runtime, *shape), flush=True)
        if not arguments.id_file:
            torch.distributed.destroy_process_group()
        return
    runtimes = ulyx.Runtime.create_local(arguments.ranks)
    print("\n".join(ulyx.run_local(runtimes, lambda runtime: demonstrate_numpy(runtime, *shape))))
    for runtime in runtimes:
        runtime.destroy()


if __name__ == "__main__":
    main()
