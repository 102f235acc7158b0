"""Lossless floats against zstd level 1 on byte planes: bits, and speed each way, on gradients and weights.

bfloat16 and float32 of a model in training, whole. Speed is of one core, on the caller's arrays: the split
and the coder, without a frame's CRC. zstd gets ready-made planes, one a byte of the value, and codes each by
itself; what makes them is not timed. All are timed in turns within one run; the best of the turns counts.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import zstandard

from oscar.array import Array
from oscar.coding.floats.codec import FloatCoder
from oscar.coding.plain import Bf16
from oscar.errors import OscarError
from oscar.tables import Row, Table
from oscar_lab.sources import add_source, default_model, open_source
from oscar_studies.workloads import WORKLOADS, exact_mean

BARS = {"transformer": 1.5, "cnn": 1.72}  # times smaller than bfloat16, of gradients
SPEED = 2.0  # GB/s of bfloat16 each way

TABLE = Table(
    "model <12", "of <10", "dtype <9", "values >9,d", "bits >7.3f", "zstd_bits:zstd-1 >7.3f",
    "ratio:smaller >8.3f",
    "encode:encode GB/s >12.2f", "decode:decode GB/s >12.2f", "zstd_encode:zstd enc >9.2f",
    "zstd_decode:zstd dec >9.2f",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    add_source(parser)
    parser.add_argument(
        "--models",
        nargs="+",
        choices=list(WORKLOADS),
        default=None,
        help="default: transformer and cnn, if any",
    )
    parser.add_argument("--iterations", type=int, default=10, help="of training before the sample is taken")
    parser.add_argument("--turns", type=int, default=20, help="times everything is timed")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Print a row for each model, gradients and weights, and dtype; return the rows and what bars say."""
    if args.turns < 1 or args.iterations < 1:
        raise ValueError(f"expected 1 turn and 1 iteration at least, got {args.turns} and {args.iterations}")
    os.environ["OSCAR_THREADS"] = "1"
    models = args.models or list(dict.fromkeys(default_model(name) for name in BARS))
    print(f"# one core; best of {args.turns} turns; after {args.iterations} iterations")
    print(TABLE.heading)
    rows: list[Row] = []
    for model in models:
        for of, values in _samples(args, model):
            for dtype, bits in _forms(values):
                row: Row = {"model": model, "of": of, "dtype": dtype, **measure(bits, args.turns)}
                rows.append(row)
                print(TABLE.line(row), flush=True)
    return {"rows": rows, "bars": list(_bars(rows))}


def _samples(args: argparse.Namespace, model: str) -> Iterator[tuple[str, Array]]:
    """Yield a worker's gradients, and the weights where the workload has some of torch."""
    workload = open_source(args, model)
    for _ in range(args.iterations):
        gradients = workload.gradients()
        workload.apply(exact_mean(gradients))
    yield "gradients", np.concatenate([tensor.ravel() for tensor in gradients[0]]).astype(np.float32)
    network = getattr(workload, "model", None)
    if network is not None:
        weights = [parameter.detach().numpy().ravel() for parameter in network.parameters()]
        yield "weights", np.concatenate(weights).astype(np.float32)


def _forms(values: Array) -> Iterator[tuple[str, Array]]:
    yield "bfloat16", np.frombuffer(Bf16().pack(values, 32), "<u2").astype(np.uint16)
    yield "float32", values.view(np.uint32)


def measure(bits: Array, turns: int) -> Row:
    """Return bits a value and GB/s of the codec and of zstd; raises OscarError if a bit is lost."""
    coder, planes = FloatCoder(), bits.view(np.uint8).reshape(bits.size, -1).T
    ready = [np.ascontiguousarray(plane).tobytes() for plane in planes]
    press, expand = zstandard.ZstdCompressor(level=1), zstandard.ZstdDecompressor()
    payload = bytes(coder.encode(bits))
    pressed = [press.compress(plane) for plane in ready]
    again = coder.decode(memoryview(payload), bits.size, bits.dtype.type)
    if again.tobytes() != bits.tobytes():
        raise OscarError("a float came back with other bits: a bug of ours, please report it")
    timed: dict[str, Callable[[], Any]] = {
        "encode": lambda: coder.encode(bits),
        "decode": lambda: coder.decode(memoryview(payload), bits.size, bits.dtype.type, again),
        "zstd_encode": lambda: [press.compress(plane) for plane in ready],
        "zstd_decode": lambda: [expand.decompress(plane) for plane in pressed],
    }
    best = dict.fromkeys(timed, float("inf"))
    for _ in range(turns):
        for name, work in timed.items():
            start = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - start)
    zstd_bits = 8 * sum(map(len, pressed)) / bits.size
    sizes = {
        "bits": 8 * len(payload) / bits.size,
        "zstd_bits": zstd_bits,
        "ratio": bits.nbytes / len(payload),
    }
    return {"values": bits.size, **sizes, **{name: bits.nbytes / best[name] / 1e9 for name in best}}


def _bars(rows: list[Row]) -> Iterator[str]:
    """Print and yield what each bar says."""
    for row in rows:
        name = f"{row['model']}, {row['of']}, {row['dtype']}"
        said = [("not larger than zstd-1", row["bits"] <= row["zstd_bits"])]
        if row["dtype"] == "bfloat16":
            said.append((f"{SPEED} GB/s each way", min(row["encode"], row["decode"]) >= SPEED))
            if row["of"] == "gradients" and row["model"] in BARS:
                said.append((f"{BARS[row['model']]}x smaller", row["ratio"] >= BARS[row["model"]]))
        for bar, met in said:
            line = f"# {name}: {bar}: {'met' if met else 'MISSED'}"
            print(line)
            yield line
