"""Weights that changed a little: oscar.delta against zstd level 1 of the XOR, oscar.floats, ZipNN and a copy.

bfloat16 copies of a model's float32 weights, before and after one step of Adam. The model has been trained
before, at a higher learning rate, so that Adam's averages are those of a training. A row that is `drawn` has
Gaussian weights instead, each moved by up to the learning rate. Speed is of one core, whole calls, the base's
digest and the CRCs included; zstd's has the XOR in it, too. All are timed in turns within one run; the best
of the turns counts. ZipNN, which has no differences, codes all weights; it is left out where it is missing.
"""

from __future__ import annotations

import argparse
import importlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import zstandard

from oscar import delta
from oscar.array import Array
from oscar.coding.floats.codec import FloatCoder
from oscar.coding.plain import Bf16
from oscar.errors import MissingExtraError, OscarError, install
from oscar.tables import Row, Table
from oscar_studies.workloads import exact_mean, make_workload

BITS, CHANGED, SPEED = 0.22, 0.0235, 2.0  # goal at that share of changes; GB/s of bfloat16 each way
SIGMA = 0.02  # of drawn weights
WARMUP_RATE = 1e-3

TABLE = Table(
    "weights <12", "rate:learning rate >13.0e", "values >11,d", "changed:changed % >9.3f", "bits:delta >7.3f",
    "zstd_bits:zstd-1 >7.3f", "floats_bits:floats >7.3f", "zipnn_bits:ZipNN >7.3f", "times:copy/delta >10.1f",
    "encode:encode GB/s >12.2f", "decode:decode GB/s >12.2f", "zstd_encode:zstd enc >9.2f",
    "zstd_decode:zstd dec >9.2f",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--model", default="transformer", choices=["transformer", "cnn", "embedding"])
    parser.add_argument("--warmup", type=int, default=30, help="steps of training before")
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-6, 3e-6, 7e-6, 3e-5, 1e-3])
    parser.add_argument("--drawn", type=float, nargs="*", default=[1e-6, 1e-5], help="rates of drawn weights")
    parser.add_argument("--drawn-values", type=int, default=1 << 24)
    parser.add_argument("--turns", type=int, default=10, help="times everything is timed")
    parser.add_argument("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Print a row for each learning rate; return the rows and what the goals say."""
    if min(args.turns, args.warmup, args.drawn_values) < 1 or min([*args.rates, *args.drawn]) <= 0:
        raise ValueError("expected 1 turn, step and value at least, and learning rates above 0")
    os.environ["OSCAR_THREADS"] = "1"
    print(f"# one core; best of {args.turns} turns; Adam, after {args.warmup} steps at {WARMUP_RATE:g}")
    print(TABLE.heading)
    rows: list[Row] = []
    for name, rate, base, new in _samples(args):
        row: Row = {"weights": name, "rate": rate, **measure(new, base, args.turns)}
        rows.append(row)
        print(TABLE.line(row), flush=True)
    return {"rows": rows, "goals": list(_goals(rows))}


def _samples(args: argparse.Namespace) -> Iterator[tuple[str, float, Array, Array]]:
    """Yield name, learning rate, weights before and after a step, as bits of bfloat16."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        raise MissingExtraError(f"a training needs torch: {install('torch')}") from None
    workload: Any = make_workload(args.model, nodes=2, seed=args.seed)
    parameters = list(workload.model.parameters())
    adam = torch.optim.Adam(parameters, lr=WARMUP_RATE)

    def step(rate: float) -> None:
        adam.param_groups[0]["lr"] = rate
        for parameter, mean in zip(parameters, exact_mean(workload.gradients()), strict=True):
            parameter.grad = torch.from_numpy(np.array(mean, np.float32))
        adam.step()

    for _ in range(args.warmup):
        step(WARMUP_RATE)
    for rate in args.rates:
        step(rate)  # the last step was of another rate
        base = _halves(parameters)
        step(rate)
        yield args.model, rate, base, _halves(parameters)
    random = np.random.default_rng(args.seed)
    for rate in args.drawn:
        weights = random.normal(0, SIGMA, args.drawn_values).astype(np.float32)
        moved = weights + random.uniform(-rate, rate, weights.size).astype(np.float32)
        yield "drawn", rate, _bits(weights), _bits(moved)


def _halves(parameters: list[Any]) -> Array:
    return _bits(np.concatenate([parameter.detach().numpy().ravel() for parameter in parameters]))


def _bits(values: Array) -> Array:
    return np.frombuffer(Bf16().pack(values, 32), "<u2").astype(np.uint16)


def measure(new: Array, base: Array, turns: int) -> Row:
    """Return bits a weight and GB/s of oscar.delta and its rivals.

    Args:
        new: bits of bfloat16 weights, uint16.
        base: those before, as many.
        turns: times everything is timed.

    Raises:
        OscarError: a weight came back with other bits.
    """
    press, expand = zstandard.ZstdCompressor(level=1), zstandard.ZstdDecompressor()
    data, pressed = delta.encode(new, base), press.compress((new ^ base).tobytes())
    for decoded in (delta.decode(data, base), _expanded(expand, pressed, base)):
        if not np.array_equal(decoded, new):
            raise OscarError("a weight came back with other bits: a bug of ours, please report it")
    timed: dict[str, Callable[[], Any]] = {
        "encode": lambda: delta.encode(new, base),
        "decode": lambda: delta.decode(data, base),
        "zstd_encode": lambda: press.compress((new ^ base).data),
        "zstd_decode": lambda: _expanded(expand, pressed, base),
    }
    best = dict.fromkeys(timed, float("inf"))
    for _ in range(turns):
        for name, work in timed.items():
            start = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - start)
    zipnn = _zipnn(new)
    return {
        "values": new.size,
        "changed": 100 * float(np.mean(new != base)),
        "bits": 8 * len(data) / new.size,
        "zstd_bits": 8 * len(pressed) / new.size,
        "floats_bits": 8 * len(FloatCoder().encode(new)) / new.size,
        "zipnn_bits": None if zipnn is None else 8 * zipnn / new.size,
        "times": new.nbytes / len(data),
        **{name: new.nbytes / seconds / 1e9 for name, seconds in best.items()},
    }


def _expanded(expand: Any, pressed: bytes, base: Array) -> Array:
    return np.frombuffer(expand.decompress(pressed), np.uint16) ^ base


def _zipnn(weights: Array) -> int | None:
    """Return the bytes that ZipNN makes of bfloat16 weights; None where it is not installed."""
    try:
        zipnn: Any = importlib.import_module("zipnn")
    except ImportError:
        return None
    return len(zipnn.ZipNN(bytearray_dtype="bfloat16", threads=1).compress(bytearray(weights.tobytes())))


def _goals(rows: list[Row]) -> Iterator[str]:
    """Print and yield what each goal says."""
    for row in rows:
        name = f"{row['weights']} at {row['rate']:g}"
        goals = [("smaller than zstd-1 of the XOR", row["bits"] <= row["zstd_bits"])]
        if row["changed"] <= 100 * CHANGED:
            goals.append((f"{BITS} bits a weight", row["bits"] <= BITS))
            goals.append((f"{SPEED} GB/s each way", min(row["encode"], row["decode"]) >= SPEED))
        for goal, met in goals:
            line = f"# {name}: {goal}: {'met' if met else 'MISSED'}"
            print(line)
            yield line
