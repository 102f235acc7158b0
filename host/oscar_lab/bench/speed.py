"""Speed of ASC against constriction's ANS coder and zstd level 1, on sums of real gradients.

The sample is the sum of the first four workers, as half-way round a ring of eight, after a few iterations.
ASC has learnt its tables from the iterations before: the timed frame is new to them in every turn.
Everything is timed in turns within one run, so that all see the same machine; the minimum over the turns is
what ratios are taken from. ASC is timed as it is used: whole calls on arrays, 24 contexts, frame, CRC-32 and
table updates included. constriction codes the same values by one static table of these very values, which is
ready beforehand, in memory; zstd gets ready-made byte planes. Both are favoured: what else they would need is
not timed. What gzip, LZ4 and Snappy make of the same planes is printed too: published FPGA kernels code with
those.
"""

from __future__ import annotations

import argparse
import statistics
import time
import zlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import zstandard

from oscar.coding.asc import AscParams, Decoder, Encoder
from oscar.coding.asc.compiled.coder import CompiledCoder
from oscar.cores import processors
from oscar.errors import OscarError
from oscar.tables import Row, Table
from oscar_lab.sources import add_source, default_model, open_source, peer
from oscar_studies.integers import integers
from oscar_studies.workloads import WORKLOADS, Workload

BARS = {"asc encode": 1.5, "asc decode": 5.0, "two threads": 1.8}
WORKERS = 4  # terms of the sums
WIDTH = 8 + (WORKERS - 1).bit_length()  # of their sums, as a node knows it
SETTLE = 3  # iterations whose frames are coded before the timed one
_constriction = partial(peer, "constriction")
_cramjam = partial(peer, "cramjam")


TABLE = Table(
    "operation <26", "best:Mvalues/s >9.1f", "median >7.1f", "ratio:/constriction >13.2f",
    "bits:bits/value >10.3f",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    add_source(parser)
    parser.add_argument(
        "--model", choices=list(WORKLOADS), default=None, help="default: transformer, else numpy-lm"
    )
    parser.add_argument("--iterations", type=int, default=10, help="of training before the sample is taken")
    parser.add_argument("--values", type=int, default=1 << 21, help="at most so many values of the sample")
    parser.add_argument("--turns", type=int, default=30, help="times everything is timed")


@dataclass(frozen=True)
class Operation:
    """What is timed, for how many values; `prepare` runs before it and `check` after it, untimed."""

    timed: Callable[[], Any]
    values: int
    prepare: Callable[[], Any] | None = None
    check: Callable[[Any], bool] | None = None


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Time all operations, print a table and the ratios, and return them.

    A row has millions of values per second, and the ratio of the best to constriction's best.
    """
    if args.turns < 1 or args.iterations <= SETTLE:
        raise ValueError(
            f"expected 1 turn and {SETTLE + 1} iterations at least, got {args.turns} and {args.iterations}"
        )
    _constriction(), _cramjam()  # fail now where one is missing
    workload = open_source(args, args.model or default_model("transformer"))
    *before, last = samples(workload, args.iterations, args.values)
    values = last.values
    print(f"# {workload.name}: {values.size} sums of {WORKERS} workers, {values.min()} to {values.max()}")
    print(f"# {AscParams()}; {args.turns} turns; one thread unless said")
    asc, peers = _Asc(before, last), _Peers(values)
    times = take_turns({**asc.operations(), **peers.operations()}, args.turns)
    bits = {"asc encode": asc.bits(), **peers.bits}
    reference = {word: min(times[f"constriction {word}"]) for word in ("encode", "decode")}
    rows: list[Row] = []
    for name, seconds in times.items():
        word = name.split()[-1]
        ratio = reference[word] / min(seconds) if len(name.split()) == 2 and word in reference else None
        row = {"operation": name, "best": 1e-6 / min(seconds), "median": 1e-6 / statistics.median(seconds)}
        rows.append(row | {"ratio": ratio, "bits": bits.get(name)})
    ratios = {row["operation"]: row["ratio"] for row in rows if row["ratio"] is not None}
    ratios["two threads"] = min(times["asc both ways, 1 thread"]) / min(times["asc both ways, 2 threads"])
    print(TABLE.heading, *map(TABLE.line, rows), sep="\n")
    for name, bar in BARS.items():
        print(f"# {name}: {ratios[name]:.2f}x, bar {bar}: {'met' if ratios[name] >= bar else 'MISSED'}")
    sizes = peers.sizes()
    print(
        f"# these byte planes, bits/value: {', '.join(f'{name} {size:.2f}' for name, size in sizes.items())}"
    )
    return {
        "workload": workload.name,
        "values": int(values.size),
        "turns": args.turns,
        "rows": rows,
        "ratios": ratios,
        "sizes": sizes,
        "bars": BARS,
    }


def take_turns(operations: dict[str, Operation], turns: int) -> dict[str, list[float]]:
    """Time all operations in turns; return seconds per value. Raises OscarError where a check fails."""
    times: dict[str, list[float]] = {name: [] for name in operations}
    for _ in range(turns):
        for name, operation in operations.items():
            if operation.prepare:
                operation.prepare()
            start = time.perf_counter()
            result = operation.timed()
            times[name].append((time.perf_counter() - start) / operation.values)
            if operation.check and not operation.check(result):
                raise OscarError(f"{name}: expected the values that were coded, got others: this is a bug")
    return times


class Sample(NamedTuple):
    """What a link codes in an iteration: sums of WORKERS workers, one worker's integers, and the classes."""

    values: np.ndarray
    local: np.ndarray
    classes: np.ndarray


def samples(workload: Workload, iterations: int, limit: int) -> list[Sample]:
    """Return the samples of the last SETTLE + 1 iterations, each of `limit` values at most."""
    last = deque(integers(workload, iterations), SETTLE + 1)
    return [
        Sample(
            np.add.reduce(one.values[:WORKERS], dtype=np.int16)[:limit],
            one.values[-1][:limit].astype(np.int16),
            one.classes[:limit],
        )
        for one in last
    ]


class _Link:
    """Two ends of a link that stay in step, and the array that a node keeps for what comes."""

    def __init__(self, before: list[Sample], last: Sample, threads: int = 1) -> None:
        coder = CompiledCoder(AscParams(), threads)
        self.encoder, self.decoder = Encoder(coder=coder), Decoder(coder=coder)
        self.out = np.empty_like(last.values)
        for self.values, _, self.classes in (*before, last):
            learnt = self.encoder.snapshot(), self.decoder.snapshot()
            self.both()
        self.learnt = learnt  # before the last frame
        self.forget()

    def forget(self) -> None:
        """Take both ends back to where the timed frame is new to them."""
        self.encoder.restore(self.learnt[0])
        self.decoder.restore(self.learnt[1])

    def encode(self) -> None:
        self.frame = self.encoder.encode(self.values, step=WORKERS - 1, context=self.classes, width=WIDTH)

    def encode_anew(self) -> None:
        self.forget()
        self.encode()

    def decode(self) -> np.ndarray:
        return self.decoder.decode(self.frame, step=WORKERS - 1, context=self.classes, out=self.out)

    def both(self) -> bool:
        self.encode()
        return np.array_equal(self.decode(), self.values)


class _Asc:
    """Links that have learnt: two with coders of their own, one on all cores, and the one behind a node."""

    def __init__(self, before: list[Sample], last: Sample) -> None:
        self.local, self.classes = last.local, last.classes
        self.total = np.empty_like(last.local)
        self.links = [_Link(before, last) for _ in range(2)]
        self.wide = _Link(before, last, processors())
        self.behind = Encoder(coder=CompiledCoder(AscParams(), 1))
        for one in before:
            self.behind.encode(one.values + one.local, step=WORKERS, context=one.classes, width=WIDTH + 1)
        self.learnt = self.behind.snapshot()
        self.links[0].encode()
        self.size = len(self.links[0].frame)

    def new_frame(self) -> None:
        """Make the frame that comes to a node, new to all that code it."""
        self.links[0].encode_anew()
        self.behind.restore(self.learnt)

    def hop(self) -> np.ndarray:
        """What a node does at a step of reduce-scatter: decode, add its own values, encode for the next."""
        link, total = self.links[0], self.total
        total[:] = self.local
        link.decoder.decode(link.frame, step=WORKERS - 1, context=self.classes, out=total, add=True)
        self.behind.encode(total, step=WORKERS, context=self.classes, width=WIDTH + 1)
        return total

    def bits(self) -> float:
        """Bits per value of the timed frame."""
        return 8 * self.size / self.local.size

    def operations(self) -> dict[str, Operation]:
        """Return what is timed, by name."""
        link, wide, pool, size = self.links[0], self.wide, ThreadPoolExecutor(2), self.local.size

        def both(map_: Callable[..., Any]) -> Operation:
            def forget() -> None:
                for one in self.links:
                    one.forget()

            return Operation(lambda: list(map_(_Link.both, self.links)), 2 * size, forget, all)

        return {
            "asc encode": Operation(
                link.encode, size, link.forget, lambda _: bool((link.decode() == link.values).all())
            ),
            "asc decode": Operation(
                link.decode, size, link.encode_anew, lambda y: np.array_equal(y, link.values)
            ),
            "asc decode, add, encode": Operation(
                self.hop, size, self.new_frame, lambda y: np.array_equal(y, link.values + self.local)
            ),
            f"asc encode, {processors()} threads": Operation(
                wide.encode, size, wide.forget, lambda _: bool((wide.decode() == wide.values).all())
            ),
            f"asc decode, {processors()} threads": Operation(
                wide.decode, size, wide.encode_anew, lambda y: np.array_equal(y, wide.values)
            ),
            "asc both ways, 1 thread": both(map),
            "asc both ways, 2 threads": both(pool.map),
        }


class _Peers:
    """constriction with one table for the whole sample, and zstd on the byte planes it does best on."""

    def __init__(self, values: np.ndarray) -> None:
        stream, low = _constriction().stream, int(values.min())
        self.coder = stream.stack.AnsCoder
        self.symbols = (values - low).astype(np.int32)
        counts = np.bincount(self.symbols).astype(np.float32) + np.float32(0.1)
        self.model = stream.model.Categorical(counts / counts.sum(), perfect=False)
        fold = ((values << 1) ^ (values >> 31)).view(np.uint32)
        planes = (int(fold.max()).bit_length() + 7) // 8
        self.planes = np.ascontiguousarray(fold.view(np.uint8).reshape(-1, 4)[:, :planes].T).tobytes()
        self._encode()
        self._compress()
        self.bits = {
            "constriction encode": 32 * self.coded.get_compressed().size / values.size,
            "zstd-1 encode": 8 * len(self.compressed) / values.size,
        }

    def _encode(self) -> None:
        self.coded = self.coder()
        self.coded.encode_reverse(self.symbols, self.model)

    def _decode(self) -> np.ndarray:
        return self.coded.decode(self.model, self.symbols.size)

    def _compress(self) -> None:
        self.compressed = zstandard.ZstdCompressor(level=1).compress(self.planes)

    def _decompress(self) -> bytes:
        return zstandard.ZstdDecompressor().decompress(self.compressed)

    def sizes(self) -> dict[str, float]:
        """Return bits per value of the byte planes by the compressors that FPGA kernels are published for."""
        cramjam = _cramjam()
        made = {
            "LZ4": cramjam.lz4.compress_block(self.planes, store_size=False),
            "Snappy": cramjam.snappy.compress_raw(self.planes),
            "gzip-6": zlib.compress(self.planes, 6),
            "zstd-1": self.compressed,
        }
        return {name: 8 * len(bytes(data)) / self.symbols.size for name, data in made.items()}

    def operations(self) -> dict[str, Operation]:
        """Return what is timed, by name."""
        size = self.symbols.size
        return {
            "constriction encode": Operation(self._encode, size),
            "constriction decode": Operation(
                self._decode, size, self._encode, lambda y: np.array_equal(y, self.symbols)
            ),
            "zstd-1 encode": Operation(self._compress, size),
            "zstd-1 decode": Operation(self._decompress, size, check=self.planes.__eq__),
        }
