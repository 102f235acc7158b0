"""Rows that a worker hits: bits of their index by codec, and ASC over these rows against the whole tensor.

The integers are those of a quantiser with a step of sigma / 8, of the model's first tensor. Every worker
tells all others which rows are not zero; `popular` has seen all iterations before. ASC codes one worker's
frame of the whole tensor, and its frame of the rows it hits: both links have coded all iterations before.
Time of rows has everything in it that the whole tensor does not need: to find them, gather them, code their
index, put them back. What is decoded is compared with what was coded.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.asc import AscParams
from oscar.coding.index import INDEX_CODECS
from oscar.coding.registry import asc_codec
from oscar.errors import OscarError
from oscar.schemes.sparse.partitions import Grains
from oscar.schemes.sparse.sparsifier import unite
from oscar.schemes.sparse.values import GatheredIndex
from oscar.tables import Row, Table
from oscar_lab.sources import add_source, open_source
from oscar_studies.integers import IntegerGradients, integers

BITS = 8
INDEX_BAR = 4.0  # bits a row
BYTES_BAR, TIME_BAR = 0.85, 0.25  # of rows by ASC, against the whole tensor

INDEX = Table("codec <9", "rows >6.0f", "bytes >8.0f", "bits:bits/row >9.2f", "us:encode + decode us >18.1f")
CODED = Table(
    "what <7", "values >9", "bytes >8", "encode_ms:encode ms >10.3f", "decode_ms:decode ms >10.3f",
    "bytes_ratio:bytes / whole >14.3f", "time_ratio:time / whole >14.3f",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    add_source(parser)
    parser.add_argument("--model", default="embedding", help="a workload whose first tensor is sparse")
    parser.add_argument("--iterations", type=int, default=15, help="of training; the last one is measured")
    parser.add_argument("--turns", type=int, default=15, help="times codecs are timed; the best one counts")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure the index codecs and ASC, print a row for each; ok: all bars hold."""
    if args.turns < 1 or args.iterations < 2:
        raise ValueError(f"expected 1 turn and 2 iterations at least, got {args.turns} and {args.iterations}")
    workload = open_source(args, args.model)
    shape = workload.tensor_shapes[0]
    values = int(np.prod(shape))
    grains = Grains.of(np.array([0, values]), [shape[-1]])
    every = [_first(one, values) for one in integers(workload, args.iterations)]
    print(f"# {workload.name}, {len(every[0].values)} workers, first tensor {shape}; {args.turns} turns")
    index = [_index(name, every, grains, args.turns) for name in INDEX_CODECS]
    print(INDEX.heading)
    for row in index:
        print(INDEX.line(row))
    coded = _coded(every, grains, args.turns)
    print(f"\n{CODED.heading}")
    for row in coded:
        print(CODED.line(row))
    bits, rows = next(row["bits"] for row in index if row["codec"] == "popular"), coded[-1]
    met = bits <= INDEX_BAR and rows["bytes_ratio"] <= BYTES_BAR and rows["time_ratio"] <= TIME_BAR
    print(
        f"# bars: popular at most {INDEX_BAR:g} bits a row; rows at most {BYTES_BAR:g} of the bytes and "
        f"{TIME_BAR:g} of the time: {'met' if met else 'MISSED'}"
    )
    return {"index": index, "coded": coded, "ok": met}


def _first(one: IntegerGradients, values: int) -> IntegerGradients:
    """Return the first tensor of an iteration."""
    return IntegerGradients(
        [mine[:values] for mine in one.values], np.ascontiguousarray(one.classes[:values])
    )


def _index(name: str, every: Sequence[IntegerGradients], grains: Grains, turns: int) -> Row:
    """Return a table row: an index codec on the rows hit in the last iteration, mean over workers."""
    sets = [[grains.hit(mine) for mine in one.values] for one in every]
    nodes = len(sets[0])
    index = GatheredIndex(name, grains.size, nodes)
    for mine in sets[:-1]:
        index.decode([index.encode(rank, positions) for rank, positions in enumerate(mine)])
        index.observe(unite(mine, grains.size))
    best = float("inf")
    for _ in range(turns):
        began = time.perf_counter()
        streams = [index.encode(rank, positions) for rank, positions in enumerate(sets[-1])]
        result = index.decode(streams)
        best = min(best, time.perf_counter() - began)
    _same(name, result, sets[-1])
    count, size = sum(map(len, result)), sum(map(len, streams))
    each = {"rows": count / nodes, "bytes": size / nodes, "us": 1e6 * best / nodes}
    return {"codec": name, "bits": 8 * size / max(1, count)} | each


@dataclass
class _Link:
    """Both ends of a link by ASC; the best seconds of its last frame, and the frame's bytes."""

    encode_s: float = float("inf")
    decode_s: float = float("inf")
    size: int = 0
    codec: Any = field(default_factory=lambda: asc_codec(AscParams()))

    def __post_init__(self) -> None:
        self.encoder, self.decoder = self.codec.make_encoder(), self.codec.make_decoder()

    def code(
        self, turns: int, make: Callable[[], Any], take: Callable[[Any], Array], expected: Array
    ) -> None:
        """Code a frame `turns` times from one state. make: returns (frame, and more); take: decodes it."""
        before = self.encoder.snapshot(), self.decoder.snapshot()
        self.encode_s = self.decode_s = float("inf")
        for _ in range(turns):
            self.encoder.restore(before[0])
            self.decoder.restore(before[1])
            began = time.perf_counter()
            sent = make()
            between = time.perf_counter()
            came = take(sent)
            self.encode_s = min(self.encode_s, between - began)
            self.decode_s = min(self.decode_s, time.perf_counter() - between)
        _same("ASC", [came], [expected])
        self.size = sum(map(len, sent))


def _coded(every: Sequence[IntegerGradients], grains: Grains, turns: int) -> list[Row]:
    """Return the first worker's last frame of the whole tensor, and that of its rows with their index."""
    whole, part, nodes = _Link(), _Link(), len(every[0].values)
    index = GatheredIndex("popular", grains.size, nodes)
    own, classes = every[0].values[0], every[0].classes

    def make_whole() -> tuple[bytes]:
        return (whole.encoder.encode(own, step=0, context=classes, width=BITS),)

    def take_whole(sent: tuple[bytes]) -> Array:
        result: Array = whole.decoder.decode(sent[0], step=0, context=classes)
        return result

    def make_rows() -> tuple[Array, bytes]:
        hit = grains.hit(own)
        at = grains.values_of(hit)
        stream = index.encode(0, hit)
        return stream, part.encoder.encode(own[at], step=0, context=classes[at], width=BITS)

    def take_rows(sent: tuple[Array, bytes]) -> Array:
        at = grains.values_of(index.decode_one(0, sent[0]))
        out = np.zeros(own.size, np.int32)
        out[at] = part.decoder.decode(sent[1], step=0, context=classes[at])
        return out

    for number, one in enumerate(every):
        own, classes = one.values[0], one.classes
        best = turns if number == len(every) - 1 else 1
        whole.code(best, make_whole, take_whole, own)
        part.code(best, make_rows, take_rows, own)
        sets = [grains.hit(mine) for mine in one.values]
        index.decode([index.encode(rank, mine) for rank, mine in enumerate(sets)])
        index.observe(unite(sets, grains.size))
    rows = grains.count(grains.hit(own))
    return [_row("whole", own.size, whole, whole), _row("rows", rows, part, whole)]


def _row(what: str, values: int, link: _Link, whole: _Link) -> Row:
    time_ratio = (link.encode_s + link.decode_s) / (whole.encode_s + whole.decode_s)
    times = {"encode_ms": 1e3 * link.encode_s, "decode_ms": 1e3 * link.decode_s, "time_ratio": time_ratio}
    return {"what": what, "values": values, "bytes": link.size, "bytes_ratio": link.size / whole.size} | times


def _same(what: str, result: Sequence[Array], expected: Sequence[Array]) -> None:
    if not all(map(np.array_equal, result, expected)):
        raise OscarError(f"{what}: expected what was coded, got another: this is a bug; please report it")
