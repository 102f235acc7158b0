"""Ways to damage a frame; each changes a bytearray in place, `other` is a second valid frame."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Iterator

from oscar.coding.asc.params import (
    DIRECTORY_BYTES,
    FLUSH_BYTES,
    LANES,
    MASK_BYTES,
    PREFIX_BYTES,
    SENT_ROW_BYTES,
)
from oscar.coding.frame import HEADER_BYTES

Mutation = Callable[[random.Random, bytearray, bytes], None]


def _flip_bits(r: random.Random, f: bytearray, other: bytes) -> None:
    for _ in range(r.choice((1, 1, 2, 3, 8))):
        f[r.randrange(len(f))] ^= 1 << r.randrange(8)


def _set_bytes(r: random.Random, f: bytearray, other: bytes) -> None:
    for _ in range(r.choice((1, 1, 2, 5))):
        f[r.randrange(len(f))] = r.choice((0, 1, 127, 128, 255, r.randrange(256)))


def _truncate(r: random.Random, f: bytearray, other: bytes) -> None:
    del f[r.choice((r.randrange(len(f)), max(0, len(f) - r.randrange(1, 9)))) :]


def _extend(r: random.Random, f: bytearray, other: bytes) -> None:
    f += r.choice((r.randbytes(r.randrange(1, 40)), bytes(r.randrange(1, 9)), other))


def _splice(r: random.Random, f: bytearray, other: bytes) -> None:
    cut = r.randrange(len(f))
    if r.random() < 0.5:  # the same offset, so that the second half keeps its meaning
        f[cut:] = other[cut:]
    else:
        f[cut:] = other[r.randrange(len(other)) :]


def _edit_header(r: random.Random, f: bytearray, other: bytes) -> None:
    at, size = r.choice(
        ((0, 1), (1, 1), (2, 2), (4, 2), (6, 1), (7, 1), (8, 2), (10, 2), (12, 4), (12, 4), (16, 4))
    )
    value = int.from_bytes(f[at : at + size], "little")
    top = (1 << (8 * size)) - 1
    value = r.choice(
        (
            0,
            1,
            top,
            top >> 1,
            value + 1,
            value - 1,
            value * 2,
            value ^ 8,
            r.randrange(2048),
            r.getrandbits(32),
        )
    )
    f[at : at + size] = (value & top).to_bytes(size, "little")


def _edit_form(r: random.Random, f: bytearray, other: bytes) -> None:
    """Change one field of what says how an ASC payload is laid out, or of what its first block ends with."""
    place = r.choice(list(_fields(r, f)) or [(0, 0, 8)])
    at, shift, width = place
    size = min((shift + width + 7) // 8, len(f) - at)
    whole, ones = int.from_bytes(f[at : at + size], "little"), (1 << width) - 1
    value = whole >> shift & ones
    other_bit = value ^ 1 << r.randrange(width)
    value = r.choice((0, 1, ones, value + 1, value - 1, value + 8, other_bit, r.getrandbits(width))) & ones
    whole = whole & ~(ones << shift) | value << shift
    f[at : at + size] = (whole & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _fields(r: random.Random, f: bytearray) -> Iterator[tuple[int, int, int]]:
    """Yield fields that lie in the frame: where their bytes begin, the first bit there, the width in bits."""
    at = HEADER_BYTES + PREFIX_BYTES
    if len(f) < at:
        return
    prefix = int.from_bytes(f[HEADER_BYTES:at], "little")
    parts = [
        (HEADER_BYTES, 0, 5),
        (HEADER_BYTES, 5, 5),
        (HEADER_BYTES, 10, 1),
        (HEADER_BYTES, 11, 4),
        (HEADER_BYTES + 1, 7, 1),
    ]
    if prefix >> 10 & 1:
        rows = int.from_bytes(f[at : at + MASK_BYTES], "little").bit_count()
        parts += [(at, r.randrange(32), 1), (at, 0, 32)]
        at += MASK_BYTES
        parts += [(at + r.randrange(SENT_ROW_BYTES * max(1, rows)), r.choice((0, 4)), 4)]
        at += SENT_ROW_BYTES * rows
    blocks = max(1, -(-int.from_bytes(f[12:16], "little") >> (prefix & 31)))
    entry = at + DIRECTORY_BYTES * r.randrange(min(blocks, 8))
    # Type; seeds, first and last group and size of a coded block; bits of a raw one; a constant one's value.
    for shift, width in ((0, 2), (2, 3), (5, 7), (12, 7), (19, 5), (24, 24), (2, 6), (16, 32)):
        parts.append((entry, shift, width))
    end = at + DIRECTORY_BYTES * blocks + int.from_bytes(f[at + 3 : at + DIRECTORY_BYTES], "little")
    lane = r.randrange(LANES)
    parts += [(end - FLUSH_BYTES + lane, 0, 8), (end - 2 * LANES + 2 * lane, 0, 16)]
    yield from (part for part in parts if 0 <= part[0] < len(f))


def _edit_payload(r: random.Random, f: bytearray, other: bytes) -> None:
    if len(f) <= HEADER_BYTES:
        return _extend(r, f, other)
    start = r.randrange(HEADER_BYTES, len(f))
    end = min(len(f), start + r.randrange(1, 33))
    f[start:end] = r.choice(
        (bytes(end - start), b"\xff" * (end - start), r.randbytes(end - start), b"", f[start:end] * 2)
    )
    return None


BYTES: tuple[Mutation, ...] = _flip_bits, _set_bytes, _truncate, _extend, _splice  # of any bytes
MUTATIONS: tuple[Mutation, ...] = (
    _flip_bits, *BYTES, _edit_header, _edit_payload,
    _edit_form, _edit_form, _edit_form,
)  # fmt: skip


def reseal(frame: bytearray) -> None:
    """Make length and CRC-32 of a mutated frame right again."""
    if len(frame) >= HEADER_BYTES:
        struct.pack_into("<I", frame, 16, len(frame) - HEADER_BYTES)
        crc = zlib.crc32(memoryview(frame)[HEADER_BYTES:], zlib.crc32(memoryview(frame)[:20]))
        struct.pack_into("<I", frame, 20, crc)
