"""Pseudo-gradients of SparseLoCo and DiLoCo, coded by oscar.pseudo: bits against their entropy, and speed.

One replica trains; every round its weights' change since the last is the pseudo-gradient. SparseLoCo adds
what was not sent (times .95), takes the 64 largest of each 4,096, and two levels and a sign for each: the
levels split at the chunk's median or at half its largest. The entropy counts exactly: log2 of the ways to
choose each chunk's positions, and the order-0 entropy of the codes. Scales are not counted. DiLoCo's rows are
dense floats. GB/s are of the float32 tensor that the message stands for, one core, best of the turns.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from oscar import pseudo
from oscar.array import Array
from oscar.errors import OscarError
from oscar.tables import Row, Table
from oscar_lab.sources import add_source, default_model, open_source
from oscar_studies.workloads import WORKLOADS, exact_mean

CHUNK, KEPT, DECAY = 4096, 64, 0.95
BAR, SPEED = 1.03, 4.0  # times the entropy; GB/s
TABLE = Table(
    "message <30", "rounds >7", "bits >8.4f", "entropy >8.4f", "over >7.3f", "encode:encode GB/s >12.2f",
    "decode:decode GB/s >12.2f",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    add_source(parser)
    parser.add_argument("--model", choices=list(WORKLOADS), default=None, help="default: transformer")
    parser.add_argument("--rounds", type=int, default=4, help="pseudo-gradients")
    parser.add_argument("--steps", type=int, default=15, help="of the optimiser in a round")
    parser.add_argument(
        "--coarseness", type=float, nargs="+", default=[0.5, 1.0], help="of DiLoCo's dense floats"
    )
    parser.add_argument("--turns", type=int, default=20, help="times the last round's messages are timed")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Print a row for each kind of message, means over the rounds; return the rows."""
    if min(args.turns, args.rounds, args.steps) < 1:
        raise ValueError(
            f"expected 1 turn, round and step at least, got {args.turns}, {args.rounds}, {args.steps}"
        )
    os.environ["OSCAR_THREADS"] = "1"
    changes = list(_changes(args))
    print(f"# {changes[0].size} values, {args.rounds} rounds of {args.steps} steps; top {KEPT} of {CHUNK}")
    print(TABLE.heading)
    rows: list[Row] = []
    messages: list[tuple[Any, dict[str, Any]]]
    for level in ("median", "half maximum"):
        streams = list(_streams(changes, level))
        entropy = sum(_entropy(positions, codes, changes[0].size) for positions, codes in streams)
        messages = [(stream, {"shape": changes[0].size}) for stream in streams]
        rows.append(_row(f"sparse, split at {level}", messages, changes[0].size, entropy, args.turns))
        print(TABLE.line(rows[-1]), flush=True)
    for coarseness in args.coarseness:
        messages = [(change, {"coarseness": coarseness}) for change in changes]
        rows.append(_row(f"dense, c = {coarseness:g}", messages, changes[0].size, 0.0, args.turns))
        print(TABLE.line(rows[-1]), flush=True)
    for row in rows[:2]:
        for bar, met in (
            (f"at most {BAR} of the entropy", row["over"] <= BAR),
            (f"{SPEED} GB/s each way", min(row["encode"], row["decode"]) >= SPEED),
        ):
            print(f"# {row['message']}: {bar}: {'met' if met else 'MISSED'}")
    return {"rows": rows}


def _changes(args: argparse.Namespace) -> Iterator[Array]:
    """Yield the change of all weights in each round, float32."""
    workload = open_source(args, args.model or default_model("transformer"))
    network = getattr(workload, "model", None)
    if network is None:
        raise OscarError("pseudo-gradients need weights: choose a workload of torch, such as transformer")

    def weights() -> Array:
        return np.concatenate([parameter.detach().numpy().ravel() for parameter in network.parameters()])

    before = weights()
    for _ in range(args.rounds):
        for _ in range(args.steps):
            workload.apply(exact_mean(workload.gradients()))
        now = weights()
        yield before - now
        before = now


def _streams(changes: list[Array], level: str) -> Iterator[tuple[Array, Array]]:
    """Yield positions and codes of each round: -2, -1, 1, 2, split by magnitude at `level`."""
    size = changes[0].size
    held = np.zeros(-(-size // CHUNK) * CHUNK, np.float32)
    for change in changes:
        held[:size] = DECAY * held[:size] + change
        chunks = held.reshape(-1, CHUNK)
        order = np.sort(np.argpartition(-np.abs(chunks), KEPT, axis=1)[:, :KEPT], axis=1)
        values = np.take_along_axis(chunks, order, 1)
        sizes = np.abs(values)
        edge = np.median(sizes, axis=1) if level == "median" else sizes.max(axis=1) / 2
        upper = sizes > edge[:, None]
        codes = (np.where(values < 0, -1, 1) * (1 + upper)).astype(np.int8)
        below, above = (
            np.where(part.any(1), (sizes * part).sum(1) / np.maximum(1, part.sum(1)), 0)[:, None]
            for part in (~upper, upper)
        )
        sent = np.sign(codes) * np.where(upper, above, below)
        np.put_along_axis(chunks, order, values - sent, 1)  # what is left waits
        positions = (order + CHUNK * np.arange(len(chunks))[:, None]).ravel()
        inside = positions < size
        yield positions[inside], codes.ravel()[inside]


def _entropy(positions: Array, codes: Array, size: int) -> float:
    """Return the bits of a stream by exact counts."""
    counts = np.bincount(positions // CHUNK)
    lengths = [min(CHUNK, size - CHUNK * chunk) for chunk in range(counts.size)]
    ways = sum(math.log2(math.comb(n, int(k))) for n, k in zip(lengths, counts, strict=True))
    each = np.unique(codes, return_counts=True)[1]
    return ways + float((each * np.log2(codes.size / each)).sum())


def _row(name: str, messages: list[tuple[Any, dict[str, Any]]], size: int, entropy: float, turns: int) -> Row:
    """Return a row: mean sizes of all messages, times of the last one."""
    data = [pseudo.encode(tensor, **how) for tensor, how in messages]
    tensor, how = messages[-1]
    encode = decode = float("inf")
    for _ in range(turns):
        start = time.perf_counter()
        pseudo.encode(tensor, **how)
        middle = time.perf_counter()
        pseudo.decode(data[-1])
        encode, decode = min(encode, middle - start), min(decode, time.perf_counter() - middle)
    total = 8 * sum(map(len, data))
    values = size * len(messages)
    return {
        "message": name, "rounds": len(messages), "bits": total / values, "entropy": entropy / values or None,
        "over": total / entropy if entropy else None, "encode": 4 * size / encode / 1e9,
        "decode": 4 * size / decode / 1e9,
    }  # fmt: skip
