#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times the same exchanges as PyTorch programs make them, to compare ulyx with.

Four ways of attention's exchanges, each eager and as a CUDA graph of many:

  seq_to_heads             q, k and v stacked per token, one slice a peer made contiguous, one ragged
                           all_to_all_single, the sources concatenated; q, k and v are views of the result
  seq_to_heads_contiguous  the same, and each of q, k and v made contiguous, as attention kernels want them
  seq_to_heads_tuned       where tokens and heads divide by the ranks (N/A elsewhere): each of q, k and v permuted so
                           that a peer's heads lie together, one all_to_all_single of equal parts into memory that is
                           there already, which then holds the result, contiguous: nothing stacked or concatenated
  heads_to_seq             attention's output, one slice a peer, one ragged all_to_all_single, the heads of all
                           ranks concatenated

and with --rows two of rows that are split over the ranks, in their place:

  all_gather_rows          own rows padded to the most that a rank has, all_gather, the padding cut off and the
                           rows of all ranks concatenated
  reduce_scatter_rows      partial sums of all rows, one ragged all_to_all_single, summed over the sources

Data is a function of global coordinates and every result is compared with it, bit for bit. A time is the median
over samples of the mean of one sample's exchanges, then the maximum over ranks.

Runs under torchrun, or by itself with --ranks processes on this machine (default 2). --device cpu checks the
data over gloo on a machine without GPUs; its times mean nothing.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import sys
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

ANCHOR_SHAPES = "512x8x64,4096x24x128,32760x12x128,75600x40x128"
ANCHOR_ROWS = "37800+37800x1280,50001+25599x1280"
Q, K, V, O, ROWS = range(5)


@dataclass(frozen=True)
class Shape:
    tokens: int
    heads: int
    dim: int


    def row(self):
        return {"tokens": self.tokens, "heads": self.heads, "dim": self.dim}


@dataclass(frozen=True)
class RowsShape:
    counts: tuple  # rows of each rank
    width: int

    def row(self):
        return {"tokens": sum(self.counts), "counts": list(self.counts), "dim": self.width}


@dataclass(frozen=True)
class Part:
    """One rank's tokens and heads: the remainder goes to the lowest ranks."""

    tokens: range
    heads: range


def balanced(total, parts):
    """`total` items in `parts` contiguous ranges; boundary i lies after i shares and min(i, remainder) items."""
    share, remainder = divmod(total, parts)
    bounds = [i * share + min(i, remainder) for i in range(parts + 1)]
    return [range(bounds[i], bounds[i + 1]) for i in range(parts)]


def ranges_of(counts):
    bounds = [sum(counts[:i]) for i in range(len(counts) + 1)]
    return [range(bounds[i], bounds[i + 1]) for i in range(len(counts))]


def parts_of(shape, n_ranks):
    """Who has what; a row is a token of one head."""
    if isinstance(shape, RowsShape):
        if len(shape.counts) != n_ranks:
            sys.exit(f"error: {len(shape.counts)} counts of rows for {n_ranks} ranks")
        return [Part(rows, range(1)) for rows in ranges_of(shape.counts)]
    if shape.tokens < n_ranks or shape.heads < n_ranks:
        sys.exit(f"error: {shape.tokens} tokens and {shape.heads} heads do not give each of {n_ranks} ranks some")
    return [Part(t, h) for t, h in zip(balanced(shape.tokens, n_ranks), balanced(shape.heads, n_ranks))]


def pattern(tensor, tokens, heads, dim, dtype, device):
    """[tokens, heads, dim] whose 16-bit words are a function of their global coordinates."""
    t = torch.arange(tokens.start, tokens.stop, dtype=torch.int64, device=device).view(-1, 1, 1)
    h = torch.arange(heads.start, heads.stop, dtype=torch.int64, device=device).view(1, -1, 1)
    d = torch.arange(dim, dtype=torch.int64, device=device).view(1, 1, -1)
    word = (t * 7919 + h * 104729 + d * 31 + tensor * 1299709) * 40503 >> 7
    return word.to(torch.int16).view(dtype)


def same_bits(a, b):
    return torch.equal(a.contiguous().view(torch.int16), b.contiguous().view(torch.int16))


def ragged_all_to_all(pieces, received_sizes):
    """Sends pieces[peer] to each peer and returns what came, one flat tensor, sources in rank order."""
    sent = torch.cat([piece.reshape(-1) for piece in pieces])
    received = sent.new_empty(sum(received_sizes))
    dist.all_to_all_single(received, sent, received_sizes, [piece.numel() for piece in pieces])
    return received


class Way:
    @staticmethod
    def applies(shape, n_ranks):
        return True


class SeqToHeads(Way):
    name = "seq_to_heads"

    def __init__(self, shape, parts, rank, dtype, device):
        self.shape, self.parts, self.me = shape, parts, parts[rank]
        every = range(shape.heads)
        self.inputs = [pattern(x, self.me.tokens, every, shape.dim, dtype, device) for x in (Q, K, V)]
        width = 3 * len(self.me.heads) * shape.dim
        self.received_sizes = [len(source.tokens) * width for source in parts]

    def run(self):
        stacked = torch.stack(self.inputs, dim=1)  # [own tokens, 3, all heads, dim]
        pieces = [stacked[:, :, p.heads.start : p.heads.stop].contiguous() for p in self.parts]
        received = ragged_all_to_all(pieces, self.received_sizes)
        by_source = [
            chunk.view(len(source.tokens), 3, len(self.me.heads), self.shape.dim)
            for source, chunk in zip(self.parts, received.split(self.received_sizes))
        ]
        return torch.cat(by_source).unbind(dim=1)

    def moved(self, source, target):
        return len(source.tokens) * len(target.heads) * self.shape.dim * 3 * 2

    def is_right(self, outputs):
        every = range(self.shape.tokens)
        return all(
            same_bits(out, pattern(x, every, self.me.heads, self.shape.dim, out.dtype, out.device))
            for x, out in zip((Q, K, V), outputs)
        )


class SeqToHeadsContiguous(SeqToHeads):
    name = "seq_to_heads_contiguous"

    def run(self):
        return tuple(out.contiguous() for out in super().run())

    def is_right(self, outputs):
        return all(out.is_contiguous() for out in outputs) and super().is_right(outputs)


class SeqToHeadsTuned(SeqToHeads):
    name = "seq_to_heads_tuned"

    @staticmethod
    def applies(shape, n_ranks):
        return shape.tokens % n_ranks == 0 and shape.heads % n_ranks == 0

    def __init__(self, shape, parts, rank, dtype, device):
        super().__init__(shape, parts, rank, dtype, device)
        size = (shape.tokens, len(self.me.heads), shape.dim)
        self.outputs = tuple(torch.empty(size, dtype=dtype, device=device) for _ in (Q, K, V))

    def run(self):
        for given, output in zip(self.inputs, self.outputs):
            by_peer = given.view(len(self.me.tokens), len(self.parts), len(self.me.heads), self.shape.dim)
            # Equal parts in rank order are the tokens in order: what arrives needs no more copies.
            dist.all_to_all_single(output.view(-1), by_peer.transpose(0, 1).contiguous().view(-1))
        return self.outputs

    def is_right(self, outputs):
        return all(out.is_contiguous() for out in outputs) and super().is_right(outputs)


class HeadsToSeq(Way):
    name = "heads_to_seq"

    def __init__(self, shape, parts, rank, dtype, device):
        self.shape, self.parts, self.me = shape, parts, parts[rank]
        self.input = pattern(O, range(shape.tokens), self.me.heads, shape.dim, dtype, device)
        self.received_sizes = [len(self.me.tokens) * len(source.heads) * shape.dim for source in parts]

    def run(self):
        pieces = [self.input[p.tokens.start : p.tokens.stop].contiguous() for p in self.parts]
        received = ragged_all_to_all(pieces, self.received_sizes)
        by_source = [
            chunk.view(len(self.me.tokens), len(source.heads), self.shape.dim)
            for source, chunk in zip(self.parts, received.split(self.received_sizes))
        ]
        return torch.cat(by_source, dim=1)

    def moved(self, source, target):
        return len(target.tokens) * len(source.heads) * self.shape.dim * 2

    def is_right(self, output):
        every = range(self.shape.heads)
        return same_bits(output, pattern(O, self.me.tokens, every, self.shape.dim, output.dtype, output.device))


class AllGatherRows(Way):
    name = "all_gather_rows"

    def __init__(self, shape, parts, rank, dtype, device):
        self.shape, self.parts, self.me = shape, parts, parts[rank]
        self.input = pattern(ROWS, self.me.tokens, range(1), shape.width, dtype, device)[:, 0]

    def run(self):
        padded = self.input.new_zeros(max(self.shape.counts), self.shape.width)
        padded[: len(self.input)].copy_(self.input)
        gathered = [torch.empty_like(padded) for _ in self.parts]
        dist.all_gather(gathered, padded)
        return torch.cat([rows[:count] for rows, count in zip(gathered, self.shape.counts)])

    def moved(self, source, target):
        return len(source.tokens) * self.shape.width * 2

    def is_right(self, output):
        every = range(sum(self.shape.counts))
        return same_bits(output, pattern(ROWS, every, range(1), self.shape.width, output.dtype, output.device)[:, 0])


def addends(rank, rows, width, dtype, device):
    """Integers so small that a sum over a few ranks is exact, whatever its order."""
    r = torch.arange(rows.start, rows.stop, dtype=torch.int64, device=device).view(-1, 1)
    e = torch.arange(width, dtype=torch.int64, device=device).view(1, -1)
    return (((r * 7919 + e * 31 + rank * 104729) * 40503 >> 7) % 31 - 15).to(dtype)


class ReduceScatterRows(Way):
    name = "reduce_scatter_rows"

    def __init__(self, shape, parts, rank, dtype, device):
        self.shape, self.parts, self.me = shape, parts, parts[rank]
        self.input = addends(rank, range(sum(shape.counts)), shape.width, dtype, device)
        self.received_sizes = [len(self.me.tokens) * shape.width] * len(parts)

    def run(self):
        pieces = [self.input[p.tokens.start : p.tokens.stop].contiguous() for p in self.parts]
        received = ragged_all_to_all(pieces, self.received_sizes)
        return received.view(len(self.parts), len(self.me.tokens), self.shape.width).sum(dim=0)

    def moved(self, source, target):
        return len(target.tokens) * self.shape.width * 2

    def is_right(self, output):
        ranks = range(len(self.parts))
        every = [addends(r, self.me.tokens, self.shape.width, torch.int64, output.device) for r in ranks]
        return same_bits(output, sum(every).to(output.dtype))


WAYS = (SeqToHeads, SeqToHeadsContiguous, SeqToHeadsTuned, HeadsToSeq)
WAYS_OF_ROWS = (AllGatherRows, ReduceScatterRows)


def remote_bytes(way, parts):
    """Of the busiest rank's busier direction; what is padding does not count."""
    n = len(parts)
    sent = [sum(way.moved(parts[r], parts[p]) for p in range(n) if p != r) for r in range(n)]
    received = [sum(way.moved(parts[p], parts[r]) for p in range(n) if p != r) for r in range(n)]
    return max(sent + received)


def median_us_of_gpu(sample, exchanges, samples):
    """Everything is enqueued first: a sample is what the device took between two events."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(samples + 1)]
    dist.barrier()
    torch.cuda.synchronize()
    events[0].record()
    for event in events[1:]:
        sample()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) * 1e3 / exchanges for a, b in zip(events, events[1:]))


def median_us_of_cpu(sample, exchanges, samples):
    times_us = []
    for _ in range(samples):
        dist.barrier()
        start = time.perf_counter()
        sample()
        times_us.append((time.perf_counter() - start) * 1e6 / exchanges)
    return statistics.median(times_us)


def maximum_over_ranks(value, device):
    held = torch.tensor([value], dtype=torch.float64, device=device)
    dist.all_reduce(held, op=dist.ReduceOp.MAX)
    return held.item()


def poison(outputs):
    """So that what an earlier exchange left cannot pass for the result of a later one."""
    for output in outputs if isinstance(outputs, tuple) else (outputs,):
        output.view(torch.int16).fill_(-1)


def time_eager(way, args):
    output = None

    def sample():
        nonlocal output
        for _ in range(args.per_sample):
            output = way.run()

    for _ in range(args.warmup):
        sample()
    poison(output)
    median_us = median_us_of_gpu if args.device == "cuda" else median_us_of_cpu
    us = median_us(sample, args.per_sample, args.samples)
    return us, way.is_right(output)


def time_graph(way, args):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what a first call sets up must not be captured
        way.run()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(args.graph_exchanges):
            output = way.run()
    poison(output)
    for _ in range(2):
        graph.replay()
    us = median_us_of_gpu(graph.replay, args.graph_exchanges, args.samples)
    right = way.is_right(output)
    torch.cuda.synchronize()
    del output
    graph.reset()
    return us, right


def measure_way(way, parts, args, device):
    eager_us, right = time_eager(way, args)
    graph_us = None
    if args.device == "cuda":
        graph_us, graph_right = time_graph(way, args)
        graph_us = maximum_over_ranks(graph_us, device)
        right = right and graph_right
    return {
        "remote_bytes": remote_bytes(way, parts),
        "eager_us": maximum_over_ranks(eager_us, device),
        "graph_us": graph_us,
        "right": maximum_over_ranks(0.0 if right else 1.0, device) == 0.0,
    }


NOT_MEASURED = {"remote_bytes": None, "eager_us": None, "graph_us": None, "right": None}


def measure(args, rank, n_ranks, device):
    rows = []
    for shape in args.rows or args.shapes:
        parts = parts_of(shape, n_ranks)
        for kind in WAYS_OF_ROWS if args.rows else WAYS:
            measured = NOT_MEASURED
            if kind.applies(shape, n_ranks):
                measured = measure_way(kind(shape, parts, rank, args.dtype, device), parts, args, device)
            rows.append({"way": kind.name, **shape.row(), "ranks": n_ranks, **measured})
            if rank == 0:
                print_row(rows[-1])
            if args.device == "cuda":
                torch.cuda.empty_cache()
    return rows


def print_header(args, n_ranks):
    where = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if args.device == "cuda" else "none"
    print(f"# PyTorch {torch.__version__}, NCCL {nccl}, {n_ranks} ranks, {where}, {args.type}")
    print("# time: median over samples, maximum over ranks; graph: one exchange of a replayed CUDA graph")
    print(f"# {'way':<24}{'tokens':>8}{'heads':>7}{'dim':>6}{'remote MB':>11}{'eager us':>11}{'graph us':>11}  data")


def print_row(row):
    def number(value, decimals):
        return "N/A" if value is None else f"{value:.{decimals}f}"

    megabytes = None if row["remote_bytes"] is None else row["remote_bytes"] / 1e6
    data = {None: "N/A", True: "OK", False: "WRONG"}[row["right"]]
    print(
        f"  {row['way']:<24}{row['tokens']:>8}{row.get('heads', 'N/A'):>7}{row['dim']:>6}{number(megabytes, 3):>11}"
        f"{number(row['eager_us'], 1):>11}{number(row['graph_us'], 1):>11}  {data}",
        flush=True,
    )


def run_rank(args, rank, n_ranks, local_rank, init_method):
    """One rank, from its process group to its results; returns the exit status."""
    device = torch.device("cpu")
    if args.device == "cuda":
        device = torch.device("cuda", local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if args.device == "cuda" else "gloo",
        init_method=init_method,
        rank=rank,
        world_size=n_ranks,
        device_id=device if args.device == "cuda" else None,
    )
    try:
        if rank == 0:
            print_header(args, n_ranks)
        rows = measure(args, rank, n_ranks, device)
        if rank == 0 and args.json:
            with open(args.json, "w", encoding="utf-8") as file:
                json.dump({"torch": torch.__version__, "type": args.type, "results": rows}, file, indent=1)
                file.write("\n")
        return 1 if any(row["right"] is False for row in rows) else 0
    finally:
        if args.device == "cpu":
            # Gloo's destructor holds the interpreter while it joins its workers, and one that still has the last
            # collective's tensor to release needs the interpreter.
            time.sleep(0.2)
        dist.destroy_process_group()


def run_spawned(rank, args, port):
    sys.exit(run_rank(args, rank, args.ranks, rank, f"tcp://127.0.0.1:{port}"))


def spawn(args):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    processes = [context.Process(target=run_spawned, args=(rank, args, port)) for rank in range(args.ranks)]
    done = False
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # not without ending the ranks
    for process in processes:
        process.start()
    try:
        # A rank that died leaves the others waiting for it.
        while any(p.is_alive() for p in processes) and all(p.exitcode in (None, 0, 1) for p in processes):
            time.sleep(0.1)
        done = True
    finally:
        for process in processes:
            if not done or any(p.exitcode not in (None, 0, 1) for p in processes):
                process.terminate()
            process.join()
    return max(abs(process.exitcode) for process in processes)


def shapes_from(text):
    shapes = []
    for item in text.split(","):
        numbers = item.split("x")
        if len(numbers) != 3 or not all(n.isdigit() and int(n) > 0 for n in numbers):
            raise argparse.ArgumentTypeError(f"'{item}' is not TOKENSxHEADSxDIM")
        shapes.append(Shape(*map(int, numbers)))
    return shapes


def rows_from(text):
    shapes = []
    for item in text.split(","):
        counts, _, width = item.partition("x")
        numbers = counts.split("+") + [width]
        if not all(n.isdigit() for n in numbers) or int(width) == 0 or sum(map(int, numbers[:-1])) == 0:
            raise argparse.ArgumentTypeError(f"'{item}' is not ROWS+ROWS+...xWIDTH, a count a rank")
        shapes.append(RowsShape(tuple(map(int, numbers[:-1])), int(width)))
    return shapes


def parse_arguments():
    def positive(text):
        if not text.isdigit() or int(text) == 0:
            raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
        return int(text)

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=shapes_from, default=shapes_from(ANCHOR_SHAPES), help=f"[{ANCHOR_SHAPES}]")
    parser.add_argument(
        "--rows",
        type=rows_from,
        nargs="?",
        const=rows_from(ANCHOR_ROWS),
        metavar="R+R+...xWIDTH,...",
        help=f"rows instead: the counts of the ranks, and the elements of a row [{ANCHOR_ROWS}]",
    )
    parser.add_argument("--type", choices=("bfloat16", "float16"), default="bfloat16")
    parser.add_argument("--ranks", type=positive, default=2, help="processes to start, without torchrun [2]")
    parser.add_argument("--samples", type=positive, default=30, help="timed samples [30]")
    parser.add_argument("--per-sample", type=positive, default=5, help="eager exchanges of a sample [5]")
    parser.add_argument("--warmup", type=positive, default=3, help="samples before them [3]")
    parser.add_argument("--graph-exchanges", type=positive, default=20, help="exchanges in the graph, 20 at least [20]")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", metavar="PATH", help="write the results here too")
    args = parser.parse_args()
    if args.graph_exchanges < 20:
        parser.error("--graph-exchanges must be at least 20: fewer show the launch and not the exchange")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no GPU (--device cpu only checks the data)")
    args.dtype = getattr(torch, args.type)
    return args


def main():
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # NVLink multicast is left alone
    args = parse_arguments()
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        rank, n_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        return run_rank(args, rank, n_ranks, int(os.environ.get("LOCAL_RANK", rank)), "env://")
    if args.device == "cuda" and torch.cuda.device_count() < args.ranks:
        sys.exit(f"error: {args.ranks} ranks need a GPU each, but there are {torch.cuda.device_count()}")
    return spawn(args)


if __name__ == "__main__":
    sys.exit(main())
