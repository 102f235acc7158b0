"""Ways to damage a frame; each changes a bytearray in place, `other` is a second valid frame."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable

from oscar.coding.frame import HEADER_BYTES


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


def _edit_block(r: random.Random, f: bytearray, other: bytes) -> None:
    """Change the first block's header or a start state, where the structure of the payload is."""
    if len(f) < HEADER_BYTES + 6:
        return _set_bytes(r, f, other)
    where = r.choice((0, 2, 24, 48 + 24 * r.randrange(12)))
    width = {0: 2, 2: 22}.get(where, 24)
    head = int.from_bytes(f[HEADER_BYTES : HEADER_BYTES + 48], "little")
    value = (head >> where) & ((1 << width) - 1)
    value = r.choice(
        (0, 1, value + 1, value - 1, value + 8, 4095, 4096, r.randrange(400), r.getrandbits(width))
    )
    head = head & ~(((1 << width) - 1) << where) | (value & ((1 << width) - 1)) << where
    end = min(len(f), HEADER_BYTES + 48)
    f[HEADER_BYTES:end] = (head & ((1 << (8 * (end - HEADER_BYTES))) - 1)).to_bytes(
        end - HEADER_BYTES, "little"
    )
    return None


def _edit_payload(r: random.Random, f: bytearray, other: bytes) -> None:
    if len(f) <= HEADER_BYTES:
        return _extend(r, f, other)
    start = r.randrange(HEADER_BYTES, len(f))
    end = min(len(f), start + r.randrange(1, 33))
    f[start:end] = r.choice(
        (bytes(end - start), b"\xff" * (end - start), r.randbytes(end - start), b"", f[start:end] * 2)
    )
    return None


MUTATIONS: tuple[Callable[[random.Random, bytearray, bytes], None], ...] = (
    _flip_bits, _flip_bits, _set_bytes, _truncate, _extend, _splice, _edit_header, _edit_block, _edit_payload,
)  # fmt: skip


def reseal(frame: bytearray) -> None:
    """Make length and CRC-32 of a mutated frame right again."""
    if len(frame) >= HEADER_BYTES:
        struct.pack_into("<I", frame, 16, len(frame) - HEADER_BYTES)
        crc = zlib.crc32(memoryview(frame)[HEADER_BYTES:], zlib.crc32(memoryview(frame)[:20]))
        struct.pack_into("<I", frame, 20, crc)
