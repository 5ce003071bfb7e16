# SPDX-License-Identifier: MIT
"""Tests of torch tensors and of the custom ops, on the CPU; those of CUDA graphs run where torch has a GPU. Run by
test_ulyx.py."""

from __future__ import annotations

import shutil
import sys
import time
from types import SimpleNamespace
from typing import Any, Callable
from unittest import mock

import sequence_parallel_check
import ulyx
from support import Tally, torch, world

NO_TORCH = "no torch" if torch is None else f"torch {torch.__version__} has no custom_op, 2.4 has"
HAS_OPS = torch is not None and hasattr(torch.library, "custom_op")
PATIENT = ulyx.Config(timeout_ms=300_000)  # a rank may compile while the others wait for it


# ---- Tensors --------------------------------------------------------------------------------------------------------


def own(runtime: ulyx.Runtime, plan: ulyx.Plan, whole: Any) -> Any:
    """This rank's tokens of [batch, tokens, heads, dim]."""
    return whole[:, plan.info.token_range.start : plan.info.token_range.stop].contiguous()


def heads_of(heads: range, whole: Any) -> Any:
    return whole[:, :, heads.start : heads.stop]


def test_torch_tensors(tally: Tally) -> None:
    if torch is None:
        tally.skip("torch tensors", NO_TORCH)
        return

    def main(runtime: ulyx.Runtime) -> None:
        for name in ulyx.DATA_TYPES:
            dtype = getattr(torch, name, None)
            if dtype is None:
                continue  # of a newer torch
            plan = ulyx.Plan(runtime, tokens=11, heads=6, kv_heads=3, head_dim=4, batch=2, dtype=dtype)
            bytes_of = torch.Generator().manual_seed(1)
            size = ulyx.DATA_TYPES[name].bytes
            shapes = [(2, 11, heads, 4 * size) for heads in (6, 3, 3)]
            bits = [torch.randint(0, 2, shape, generator=bytes_of, dtype=torch.uint8) for shape in shapes]
            given = [own(runtime, plan, whole).view(dtype) for whole in bits]
            made = plan.seq_to_heads(*given)
            heads = (plan.info.head_range, plan.info.kv_head_range, plan.info.kv_head_range)
            expected = [heads_of(part, whole) for part, whole in zip(heads, bits)]
            found = [buffer.torch() for buffer in made]
            tally.equal(f"torch.{name} of Buffers", {tensor.dtype for tensor in found}, {dtype})
            same = [torch.equal(tensor.view(torch.uint8), whole) for tensor, whole in zip(found, expected)]
            tally.equal(f"torch.{name} to heads", same, [True] * 3)
            out = [
                torch.zeros(tuple(tensor.shape), dtype=torch.uint8).repeat(1, 1, 1, size).view(dtype) for tensor in made
            ]
            plan.seq_to_heads(*given, out=out)
            same = [torch.equal(tensor.view(torch.uint8), whole) for tensor, whole in zip(out, expected)]
            tally.equal(f"torch.{name} to heads in tensors of torch", same, [True] * 3)
            back = plan.heads_to_seq(found[0]).torch()
            tally.check(f"torch.{name} and back", torch.equal(back.view(torch.uint8), given[0].view(torch.uint8)))

    for n_ranks in (1, 3):
        world(n_ranks, main)


def test_empty_is_memory_of_torch(tally: Tally) -> None:
    if torch is None:
        tally.skip("empty as torch tensors", NO_TORCH)
        return

    def main(runtime: ulyx.Runtime) -> None:
        buffer = runtime.empty((3, 4), torch.bfloat16)
        tensor = buffer.torch()
        tally.equal("empty in bfloat16", (tensor.dtype, tuple(tensor.shape)), (torch.bfloat16, (3, 4)))
        tensor.fill_(1.5)
        tally.equal("one memory", buffer.tobytes(), b"\xc0\x3f" * 12)
        tally.equal("one address", tensor.data_ptr(), buffer.data_ptr())
        tally.equal("no elements", tuple(runtime.empty((0, 4), torch.bfloat16).torch().shape), (0, 4))

    world(1, main)


def test_torch_tensors_that_are_refused(tally: Tally) -> None:
    if torch is None:
        tally.skip("torch tensors that are refused", NO_TORCH)
        return

    def main(runtime: ulyx.Runtime) -> None:
        plan, out = ulyx.Plan(runtime, tokens=5, heads=3, head_dim=2, dtype="float32"), torch.full((5, 3, 2), 77.0)
        negated = torch.zeros(5, 3, 2, dtype=torch.complex64).conj().imag
        for name, given, code, *words in (
            ("transposed", torch.zeros(3, 5, 2).transpose(0, 1), ulyx.MISMATCH, "the stride of tokens is 2"),
            ("expanded", torch.zeros(1, 3, 2).expand(5, 3, 2), ulyx.MISMATCH, "repeats memory"),
            ("meta", torch.zeros(5, 3, 2, device="meta"), ulyx.MISMATCH, "in is on meta", "cpu"),
            ("double", torch.zeros(5, 3, 2, dtype=torch.float64), ulyx.MISMATCH, "float64", "float32"),
            ("complex", torch.zeros(5, 3, 2, dtype=torch.complex64), ulyx.MISMATCH, "no known type"),
            ("sparse", torch.zeros(5, 3, 2).to_sparse(), ulyx.TensorError, "in: Tensor does not say where it lies"),
            ("negated", negated, ulyx.TensorError, "in: ", "resolve_neg"),
            ("too long", torch.zeros(6, 3, 2), ulyx.MISMATCH, "[1, 6, 3, 2], the plan's [1, 5, 3, 2]"),
        ):
            tally.refuses(f"a tensor that is {name}", lambda: plan.heads_to_seq(given, out), code, *words)
        q = torch.zeros(5, 3, 2)
        three = lambda: plan.seq_to_heads(q, q, q, torch.zeros(3, 5, 3, 2))
        tally.refuses("one tensor for three outputs", three, ulyx.MISMATCH, "out is a Tensor")
        tally.check("nothing was written into torch", bool((out == 77).all()))

    world(1, main)


# ---- Custom ops -----------------------------------------------------------------------------------------------------


def test_schemas(tally: Tally) -> None:
    """What is registered, of a stand-in for torch: ops write what their schema says, on the stream of their tensors."""
    stand_in = mock.MagicMock(__version__="2.4")
    stand_in.cuda.current_stream.return_value.cuda_stream = 5
    with mock.patch.dict(sys.modules, {"torch": stand_in}):
        stand_in.library.custom_op.side_effect = lambda *_, **__: time.sleep(0.01) or mock.MagicMock()
        found = world(5, lambda runtime: ulyx.register_torch_ops("ulyx_stand_in"))
        tally.equal("all threads register once", [other is found[0] for other in found], [True] * 5)
        ops, (exchange, back) = found[0], stand_in.library.custom_op.call_args_list

        def main(runtime: ulyx.Runtime) -> None:
            plan, tensor = ulyx.Plan(runtime, tokens=2, heads=1, head_dim=1), SimpleNamespace(
                is_cuda=True, device="cuda"
            )
            number = ops.add(plan)
            with mock.patch.object(plan, "seq_to_heads") as called:
                exchange.args[1](tensor, 1, 2, 3, 4, 5, number)
                exchange.args[1](tensor, None, None, 3, None, None, number)
            unpacked, packed = mock.call(tensor, 1, 2, (3, 4, 5), 5), mock.call(tensor, None, None, 3, 5)
            tally.equal("to heads", called.call_args_list, [unpacked, packed])
            with mock.patch.object(plan, "heads_to_seq") as called:
                back.args[1](tensor, 6, number)
            tally.equal("and back", called.call_args_list, [mock.call(tensor, 6, 5)])

        world(1, main)
    for call in (exchange, back):
        written = tuple(word.split()[1].rstrip(",") for word in call.kwargs["schema"].split("Tensor") if "!)" in word)
        name = f"{call.args[0]}: the schema writes what mutates_args names"
        tally.equal(name, written, tuple(call.kwargs["mutates_args"]))
    old = SimpleNamespace(library=SimpleNamespace(), __version__="2.3.1")
    with mock.patch.dict(sys.modules, {"torch": old}):
        tally.refuses("an old torch", lambda: ulyx.register_torch_ops("ulyx_old"), ImportError, "2.3.1", "2.4")


def test_names_of_ops(tally: Tally) -> None:
    for name in (None, 5, [], b"ulyx", {}):
        tally.refuses(f"{name!r} for ops", lambda: ulyx.register_torch_ops(name), TypeError, f"namespace is {name!r}")
    for name in ("", "a b", "a::b", "a.b", "5", "a-b", "\u00fc", "class", "a\n"):
        word = lambda: ulyx.register_torch_ops(name)
        tally.refuses(f"{name!r} for ops", word, ValueError, f"namespace is {name!r}", "identifier")
    own = {"aten", "prim", "prims", "c10d", "inductor", "load_library", "loaded_libraries", "_dir", "__class__"}
    if not HAS_OPS:
        tally.skip("the names that torch has", NO_TORCH)
    else:
        own |= {name.split("::")[0] for name in torch._C._dispatch_get_all_op_names()}
        own |= {name for name in dir(torch.ops) if not name.startswith("ulyx")} | set(dir(type(torch.ops)))
    for name in sorted(own):
        if not name.startswith("ulyx"):
            word = lambda: ulyx.register_torch_ops(name)
            tally.refuses(f"{name!r} for ops", word, ValueError, f"namespace is {name!r}", "torch")


def test_numbers_of_plans(tally: Tally) -> None:
    def main(runtime: ulyx.Runtime) -> None:
        ops, first, second = ulyx.TorchOps(), *(ulyx.Plan(runtime, tokens=2, heads=1, head_dim=1) for _ in range(2))
        numbers = [ops.add(first), ops.add(second)]
        tally.equal("numbers", [ops[number] for number in numbers], [first, second])
        ops.remove(numbers[0])
        tally.refuses("a removed number", lambda: ops[numbers[0]], LookupError, "no plan has number 0")
        tally.refuses("removal of nothing", lambda: ops.remove(numbers[0]), LookupError, "number 0")
        tally.check("numbers are never given again", ops.add(first) not in numbers)
        tally.refuses("a number from the end", lambda: ops[-1], LookupError, "number -1")
        tally.refuses("no plan", lambda: ops.add(first.handle), TypeError, "plan is a int")

    world(1, main)


# ---- The ops in torch -----------------------------------------------------------------------------------------------


def attention(q: Any, k: Any, v: Any) -> Any:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return ((q @ k.transpose(2, 3)).softmax(-1) @ v).transpose(1, 2).contiguous()


def layer(exchange: Callable[..., None], back: Callable[..., None], x: Any, outs: Any, plan: int) -> Any:
    """x is [1, own tokens, heads, dim]; what the ops write is used at once and after the next op."""
    q_out, k_out, v_out, o_out = outs
    exchange(x, x + 1, x * 2, q_out, k_out, v_out, plan)
    back(attention(q_out, k_out, v_out), o_out, plan)
    return x + o_out, q_out * 2


def layer_of_the_whole(x: Any) -> Any:
    return x + attention(x, x + 1, x * 2), x * 2


def outputs_of(plan: ulyx.Plan) -> list:
    return [buffer.torch() for buffer in (*plan.empty_heads(), plan.empty_seq())]


def check_layers(tally: Tally, runtime: ulyx.Runtime, name: str, compiled: Callable, ops: ulyx.TorchOps) -> None:
    """A layer of plans, one after another, each twice: numbers of plans vary, outputs are written again."""
    for tokens in (9, 12):
        plan = ulyx.Plan(runtime, tokens=tokens, heads=5, head_dim=4, dtype="float32")
        number, outs, where = ops.add(plan), outputs_of(plan), f"{name}, {tokens} tokens, rank {runtime.rank}"
        for seed in (1, 2):
            whole = torch.randn(1, tokens, 5, 4, generator=torch.Generator().manual_seed(seed))
            rows, heads = plan.info.token_range, plan.info.head_range
            x, q = compiled(ops.seq_to_heads, ops.heads_to_seq, own(runtime, plan, whole), outs, number)
            all_x, all_q = layer_of_the_whole(whole)
            close = torch.allclose(x, all_x[:, rows.start : rows.stop], atol=1e-5)
            tally.check(f"what comes back, {where}", close and torch.allclose(q, heads_of(heads, all_q)))
            tally.check(f"outputs are written in place, {where}", torch.equal(outs[0], heads_of(heads, whole)))
        ops.remove(number)
        gone = lambda: compiled(ops.seq_to_heads, ops.heads_to_seq, own(runtime, plan, whole), outs, number)
        tally.refuses(f"a plan that was removed, {where}", gone, LookupError, f"number {number}")


def can_compile(backend: str) -> str:
    """'' or why not."""
    if not HAS_OPS:
        return NO_TORCH
    if backend == "inductor" and not (shutil.which("g++") or shutil.which("clang++")):
        return "no C++ compiler"
    return ""


def test_opcheck(tally: Tally) -> None:
    """Schema, fake tensors and functionalisation as torch's own checks want them."""
    if not HAS_OPS:
        tally.skip("torch.library.opcheck", NO_TORCH)
        return
    ops = ulyx.register_torch_ops()

    def main(runtime: ulyx.Runtime) -> None:
        plan = ulyx.Plan(runtime, tokens=5, heads=3, head_dim=2, dtype="float32")
        packed = ulyx.Plan(runtime, tokens=5, heads=3, head_dim=2, dtype="float32", packed_in=True, packed_out=True)
        made = [torch.randn(1, 5, 3, 2) for _ in range(6)]
        wide = [torch.randn(1, 5, 9, 2) for _ in range(2)]
        half = [wide[0], None, None, wide[1], None, None]
        for name, op, arguments, of in (
            ("seq_to_heads", ops.seq_to_heads, made, plan),
            ("seq_to_heads of packed sides", ops.seq_to_heads, half, packed),
            ("heads_to_seq", ops.heads_to_seq, made[:2], plan),
        ):
            number = ops.add(of)
            for check, result in torch.library.opcheck(op, (*arguments, number)).items():
                tally.equal(f"{check} of {name}", result, "SUCCESS")
            op(*arguments, number)
            ops.remove(number)
        tally.check("packed sides in torch", torch.equal(*wide))
        number = ops.add(plan)
        three = lambda: ops.seq_to_heads(*made[:4], None, None, number)
        tally.refuses("one output of an unpacked side", three, ulyx.MISMATCH, "out is a Tensor")

    world(1, main)


def test_layers(tally: Tally) -> None:
    for backend in ("", "eager", "aot_eager", "inductor"):
        if can_compile(backend):
            tally.skip(f"a layer in torch, {backend or 'not compiled'}", can_compile(backend))
            continue
        ops = ulyx.register_torch_ops()
        for n_ranks in (1, 3) if backend != "inductor" else (2,):
            torch.compiler.reset()

            def main(runtime: ulyx.Runtime) -> None:
                compiled = torch.compile(layer, backend=backend, fullgraph=True) if backend else layer
                check_layers(tally, runtime, f"{backend or 'not compiled'} at {n_ranks} ranks", compiled, ops)

            world(n_ranks, main, PATIENT)


def test_layers_in_one_graph(tally: Tally) -> None:
    """Outputs of a layer's own, each written once: the order that inductor keeps, too."""

    def layers(x: Any, outs: Any, plan: int) -> Any:
        for own_outs in outs:
            ops.seq_to_heads(x, x + 1, x * 2, *own_outs[:3], plan)
            ops.heads_to_seq(attention(*own_outs[:3]), own_outs[3], plan)
            x = x + own_outs[3]
        return x

    for backend in ("aot_eager", "inductor"):
        if can_compile(backend):
            tally.skip(f"layers in one graph by {backend}", can_compile(backend))
            continue
        ops = ulyx.register_torch_ops()

        def main(runtime: ulyx.Runtime) -> None:
            torch.compiler.reset()
            plan = ulyx.Plan(runtime, tokens=6, heads=3, head_dim=4, dtype="float32")
            x, number = torch.randn(1, 6, 3, 4), ops.add(plan)
            found = torch.compile(layers, backend=backend, fullgraph=True)(
                x, [outputs_of(plan) for _ in range(2)], number
            )
            expected = layer_of_the_whole(layer_of_the_whole(x)[0])[0]
            tally.check(f"two layers in one graph by {backend}", torch.allclose(found, expected, atol=1e-5))

        world(1, main, PATIENT)


def test_a_captured_graph(tally: Tally) -> None:
    """On the first GPU; several ranks are captured by sequence_parallel_check.py."""
    if not HAS_OPS or not torch.cuda.is_available():
        tally.skip("a CUDA graph of the ops", NO_TORCH if not HAS_OPS else "no GPU")
        return
    (runtime,) = ulyx.Runtime.create_local(1, devices=[torch.cuda.current_device()])
    with runtime:
        wrong = sequence_parallel_check.wrong_replays(runtime, (64, 4, 32))
        tally.equal("replays of a captured graph", wrong, [])
