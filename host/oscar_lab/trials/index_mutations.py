"""Mutated index streams: each is refused or decodes to a set of the space; no crash, hang or over-read.

Half of them get a new CRC-32, so that they reach the codecs themselves. The rest is as in `mutate`.
"""

from __future__ import annotations

import argparse
import random
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.index import INDEX_CODECS, IndexCodec, Popular, Popularity
from oscar.coding.index.base import COUNT_BYTES, SEAL_BYTES
from oscar.errors import ConfigError
from oscar_lab.trials import mutate
from oscar_lab.trials._mutate_subjects import FrameSubject
from oscar_lab.trials._mutations import BYTES, Mutation

SPACES = (0, 0), (1, 1), (9, 4), (300, 30), (300, 290), (3000, 40), (70_000, 900)  # size, hits


def _reseal(intact: bytes, stream: bytearray) -> None:
    """Make the seal of a mutated stream right again; its history is that of the intact one."""
    if len(stream) >= SEAL_BYTES:
        history = zlib.crc32(intact[:-SEAL_BYTES]) ^ int.from_bytes(intact[-SEAL_BYTES:], "little")
        crc = zlib.crc32(memoryview(stream)[:-SEAL_BYTES]) ^ history
        stream[-SEAL_BYTES:] = crc.to_bytes(SEAL_BYTES, "little")


def _edit_head(r: random.Random, stream: bytearray, other: bytes) -> None:
    """Change kind or count, or what a codec's own bytes begin with."""
    at = r.randrange(min(len(stream), 3 + COUNT_BYTES))
    stream[at] = r.choice((0, 1, 127, 128, 255, stream[at] ^ 1, stream[at] ^ 2, (stream[at] + 1) & 255))


def _edit_end(r: random.Random, stream: bytearray, other: bytes) -> None:
    """Insert or take away bytes before the seal, so that a sealed stream is too long or too short."""
    end = max(0, len(stream) - SEAL_BYTES)
    if r.random() < 0.5:
        stream[end:end] = r.choice((bytes(r.randrange(1, 9)), r.randbytes(r.randrange(1, 9))))
    else:
        del stream[max(0, end - r.randrange(1, 9)) : end]


def _edit_body(r: random.Random, stream: bytearray, other: bytes) -> None:
    """Change bytes behind what says which codec, count and history it is."""
    for _ in range(r.choice((1, 1, 3))):
        stream[r.randrange(min(5, len(stream) - 1), len(stream))] = r.choice((0, 255, r.randrange(256)))


def _expects(decode: Callable[[Array], Array], size: int) -> Callable[[Any], Array]:
    """Return a decode that raises where it returns no ascending int64 positions of the space."""

    def checked(stream: Any) -> Array:
        result = decode(np.frombuffer(stream, np.uint8))
        inside = result.dtype == np.int64 and not (result.size and (result[0] < 0 or result[-1] >= size))
        if not inside or (np.diff(result) <= 0).any():
            raise RuntimeError(f"no ascending positions of 0 to {size - 1}: {result[:20]}")
        return result

    return checked


def _subject(
    name: str, end: Callable[[], IndexCodec], classes: Array | None, pair: list[Array]
) -> FrameSubject:
    """Return two streams that are valid at the same time, and two ends that expect them."""
    size = int(pair[0][0])
    sets = [part[1:] for part in pair]

    def decode(codec: IndexCodec, stream: Array) -> Array:
        token = codec.snapshot() if isinstance(codec, Popular) else None
        try:
            return codec.decode(stream, size, classes)
        finally:
            if isinstance(codec, Popular):
                codec.restore(token)

    streams = [end().encode(positions, size, classes).tobytes() for positions in sets]
    ends = [_expects(partial(decode, end()), size) for _ in range(2)]
    return FrameSubject(name, (streams[0], streams[1]), ends[0], ends[1], sets, partial(_reseal, streams[0]))


def _popular_end(history: list[Array], size: int, classes: Array) -> Popular:
    codec = Popular()
    for positions in history:
        codec.encode(positions, size, classes)
    return codec


def _subjects(seed: int) -> Iterator[FrameSubject]:
    draw = np.random.default_rng(seed)
    for size, hits in SPACES:
        sets = [np.sort(draw.permutation(size)[:hits]) for _ in range(6)]
        popularity = Popularity(size)
        for positions in sets[:3]:
            popularity.observe(positions)
        pair = [np.concatenate([[size], positions]) for positions in sets[4:]]
        for name, make in INDEX_CODECS.items():
            end: Callable[[], IndexCodec] = make
            if name == "popular":
                end = partial(_popular_end, sets[:4], size, popularity.classes)
            try:
                yield _subject(f"{name} {hits} of {size}", end, popularity.classes, pair)
            except ConfigError:  # its extra is not installed
                continue


class IndexJudge(mutate.FrameJudge):
    """Judges chunks of mutated index streams."""

    make_subjects = staticmethod(lambda seed: list(_subjects(seed)))
    mutations: tuple[Mutation, ...] = (*BYTES, _edit_head, _edit_end, _edit_body, _edit_body)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `run` reads to a parser."""
    mutate.declare(parser, count=1_000_000, of="mutated streams")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Judge `args.count` mutated streams and print a table; "ok" tells whether nothing was wrong."""
    return mutate.attack(IndexJudge, args, "index_mutations")


if __name__ == "__main__":
    reader = argparse.ArgumentParser(description=__doc__)
    add_arguments(reader)
    sys.exit(not run(reader.parse_args())["ok"])
