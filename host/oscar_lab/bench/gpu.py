"""Speed of ASC's Triton kernels on a GPU: encode, decode, and a node's hop (decode, add, encode).

Integers are made on the device: Laplace-distributed sums whose scale varies from stretch to stretch of 256,
as that of gradients does, and their position classes. `fine` is like steps of an eighth of a standard
deviation, `coarse` like steps of one, `sparse` like an embedding's gradient, of whose rows few are touched.
Kernels are timed by CUDA events, without transfers to the host; a whole call by the clock of the host, from
tensor to frame in pinned memory or back, with all waiting. Before that, a small frame is held against the
reference.

With --hook instead: steps of a model of --values parameters under DDP, whose ranks share the GPU, without a
hook and with OSCAR's, which codes on the host or on the GPU. A trace says how much of the copies is hidden
behind kernels.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from oscar.coding.asc.params import MAX_BLOCK_LOG2, MIN_BLOCK_LOG2, AscParams
from oscar.coding.asc.reference import ReferenceCoder
from oscar.coding.asc.state import TableState
from oscar.errors import MissingExtraError, OscarError, install
from oscar.tables import Row, Table
from oscar_lab.bench.ddp import run_ranks

STRETCH, WIDTH, CHECKED = 256, 12, 20_000
SCALES = {"fine": 6.0, "coarse": 0.8, "sparse": 6.0}
TOUCHED = 0.13  # of the rows of `sparse`
WARM_UP = 3  # untimed calls: kernels are compiled, and tables learn

TABLE = Table(
    "data <8", "block_log2:block >6", "operation <10", "kernels:Gvalues/s >10.2f", "call:whole calls >12.2f",
    "bits:bits/value >11.3f",
)  # fmt: skip
HOOK_TABLE = Table(
    "hook:coding <12", "step_ms:step ms >10.1f", "times:times none >11.2f", "copy_ms:copies ms >10.1f",
    "hidden:of it hidden >13.0%", "launches >9", "waits >6",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--values", type=int, default=1 << 26, help="of a frame")
    parser.add_argument("--blocks", type=int, nargs="+", default=[12, 13, 14, 15], metavar="LOG2")
    parser.add_argument("--data", nargs="+", choices=list(SCALES), default=list(SCALES))
    parser.add_argument("--turns", type=int, default=20, help="times everything is timed; medians count")
    parser.add_argument("--hook", action="store_true", help="steps under DDP instead of the coder")
    parser.add_argument("--ranks", type=int, default=2, help="with --hook")
    parser.add_argument(
        "--limit-s", type=float, default=540.0, help="with --hook: after which ranks are killed"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Time all operations, print a table, and return it; raises OscarError without a device."""
    if args.turns < 1 or not 1 <= args.values <= 1 << 30:
        raise ValueError(f"expected 1 turn and 1 to 2^30 values, got {args.turns} and {args.values}")
    if not all(MIN_BLOCK_LOG2 <= log2 <= MAX_BLOCK_LOG2 for log2 in args.blocks):
        raise ValueError(f"blocks are {MIN_BLOCK_LOG2} to {MAX_BLOCK_LOG2}, got {args.blocks}")
    if args.hook:
        return _hook(args)
    torch, find_device = _load()
    device = find_device()
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU, interpreted"
    print(f"# {card}; torch {torch.__version__}; {args.values:,} values, {args.turns} turns, medians")
    rows: list[Row] = []
    for data in args.data:
        values, classes = sample(data, args.values, device)
        for log2 in args.blocks:
            check(AscParams(block_log2=log2), values[:CHECKED], classes[:CHECKED])
            fresh = measure(AscParams(block_log2=log2), values, classes, args.turns)
            if not rows:
                print(TABLE.heading)
            for row in fresh:
                rows.append({"data": data, "block_log2": log2, **row})
                print(TABLE.line(rows[-1]), flush=True)
    return {
        "device": card,
        "torch": torch.__version__,
        "values": args.values,
        "turns": args.turns,
        "rows": rows,
    }


def _hook(args: argparse.Namespace) -> dict[str, Any]:
    """Run the ranks of --hook, print their table and return it; without a GPU they run on the CPU."""
    words = ["--values", str(args.values), "--turns", str(args.turns)]
    result = run_ranks(args, ["-m", "oscar_lab.bench._gpu_hook_rank", *words])
    print(
        f"# {result['device']}; torch {result['torch']}; {args.values:,} parameters, {args.ranks} ranks over "
        f"TCP; medians of {args.turns} steps, copies and calls of rank 0 in one more"
    )
    print(HOOK_TABLE.heading)
    for row in result["rows"]:
        row["times"] = row["step_ms"] / result["rows"][0]["step_ms"]
        print(HOOK_TABLE.line(row))
    return result


def _load() -> Any:
    """Return torch and `find_device`; raises MissingExtraError where torch or Triton is missing."""
    try:
        import torch

        from oscar_gpu.coder import find_device
    except ImportError as error:
        raise MissingExtraError(
            f"the coder for GPUs needs torch and triton: {install('gpu')} ({error})"
        ) from error
    return torch, find_device


def sample(data: str, count: int, device: Any) -> tuple[Any, Any]:
    """Return int16 values and uint8 position classes on the device; the same for the same arguments."""
    import torch

    random = torch.Generator(device).manual_seed(1)
    stretches = -(-count // STRETCH)
    scale = SCALES[data] * torch.exp(0.6 * torch.randn(stretches, generator=random, device=device))
    if data == "sparse":
        scale *= torch.rand(stretches, generator=random, device=device) < TOUCHED
    spread = scale.repeat_interleave(STRETCH)[:count]
    sides = torch.rand(count, generator=random, device=device) - 0.5
    sizes = -torch.log1p(-2 * sides.abs().clamp(max=0.4999999)) * spread
    limit = (1 << (WIDTH - 1)) - 1
    values = torch.round(sides.sign() * sizes).clamp(-limit, limit).to(torch.int16)
    classes = torch.log2(1 + spread * 2).round().clamp(0, 15).to(torch.uint8)
    return values, classes


def check(params: AscParams, values: Any, classes: Any) -> None:
    """Raise OscarError unless a frame of these values has the bytes of the reference."""
    from oscar_gpu.coder import TritonCoder

    states = [TableState.initial() for _ in range(2)]
    plain = ReferenceCoder(params)
    frame = plain.encode(values.cpu().numpy(), classes.cpu().numpy(), WIDTH, states[0])
    own = TritonCoder(params, values.device).encode(values, classes, WIDTH, states[1])
    if bytes(own) != frame or not np.array_equal(states[0].hist, states[1].hist):
        raise OscarError("expected the frame of the reference, got another one: this is a bug")


@dataclass(frozen=True)
class _Card:
    """A coder, values on its device, and their frame, coded with the tables of some frames before."""

    coder: Any
    values: Any
    classes: Any
    state: TableState
    frame: memoryview
    data: Any  # the frame on the device
    blocks: Any
    out: Any

    @classmethod
    def of(cls, params: AscParams, values: Any, classes: Any) -> _Card:
        import torch

        from oscar_gpu.coder import TritonCoder
        from oscar_gpu.payload import parse

        coder, state = TritonCoder(params, values.device), TableState.initial()
        for _ in range(WARM_UP):
            coder.encode(values, classes, WIDTH, state)
        frame = coder.encode(values, classes, WIDTH, state.copy())
        data = torch.from_numpy(np.frombuffer(frame, np.uint8).copy()).to(values.device)
        blocks = parse(frame, values.numel(), WIDTH, state.hist)
        card = cls(coder, values, classes, state, frame, data, blocks, torch.zeros_like(values))
        card.whole_decode()
        if not torch.equal(card.out, values):
            raise OscarError("expected the values that were coded, got others: this is a bug")
        return card

    def encode(self) -> None:
        self.coder.start_encode(self.values, self.classes, WIDTH, self.state)

    def decode(self, add: bool = False) -> None:
        self.coder.start_decode(self.data, self.blocks, self.classes, WIDTH, self.out, add)

    def hop(self) -> None:
        """Decode, add and encode; the values stand for the sum, so that every turn codes the same."""
        self.decode(add=True)
        self.encode()

    def whole_encode(self) -> None:
        self.coder.encode(self.values, self.classes, WIDTH, self.state.copy())

    def whole_decode(self, add: bool = False) -> None:
        count, state = self.values.numel(), self.state.copy()
        self.coder.decode(self.frame, count, self.classes, WIDTH, state, self.out, self.out if add else None)

    def whole_hop(self) -> None:
        self.whole_decode(add=True)
        self.whole_encode()


def measure(params: AscParams, values: Any, classes: Any, turns: int) -> list[Row]:
    """Return rows of encode, decode and hop: G values/s of kernels and of whole calls, and bits per value."""
    card = _Card.of(params, values, classes)
    operations = {
        "encode": (card.encode, card.whole_encode),
        "decode": (card.decode, card.whole_decode),
        "hop": (card.hop, card.whole_hop),
    }
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in operations}
    for turn in range(-WARM_UP, turns):
        for name, (kernels, call) in operations.items():
            seconds = by_device(kernels, values.device), by_host(call)
            if turn >= 0:
                for kept, took in zip(times[name], seconds, strict=True):
                    kept.append(took)
    giga = 1e-9 * values.numel()
    bits = {"encode": 8 * len(card.frame) / values.numel()}
    return [
        {
            "operation": name,
            "kernels": giga / statistics.median(kernels),
            "call": giga / statistics.median(calls),
            "bits": bits.get(name),
        }
        for name, (kernels, calls) in times.items()
    ]


def by_device(work: Callable[[], None], device: Any) -> float:
    """Return the seconds between two events around `work`; interpreted, those of the host."""
    import torch

    if device.type != "cuda":
        return by_host(work)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3


def by_host(work: Callable[[], None]) -> float:
    """Return the seconds that a call took, which ends only when its results are there."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
