"""The payload of lossless floats: what both implementations share (docs/reference/floats.md, "Payload")."""

from __future__ import annotations

import struct
from typing import NamedTuple

from oscar.coding.asc.params import DIRECTORY_BYTES, LANES, MAX_BLOCK_LOG2, PREFIX_BYTES
from oscar.errors import FrameError

RAW, CODED = 0, 1  # mode bytes
HEAD = struct.Struct("<BBII")  # mode, first reference, non-zero values, bytes of the exponents
WIDTH = 10  # bits of exponents (-256 to 256) and of changes of references (-255 to 255)
MANTISSA_BITS = 7  # of the upper half of a float: all of bfloat16's, the top ones of float32's
MOST_IN_BYTE = (1 << MAX_BLOCK_LOG2) // DIRECTORY_BYTES + 1  # values for a byte: those of a block of zeros
FIELD = 255  # largest exponent field
PACKED = (
    256  # mantissas that are packed together: eight runs, one of which rides in the top bits of the others
)


class Sections(NamedTuple):
    """Where the parts of a coded payload begin, by byte; the last one ends with the payload."""

    packed: int
    low: int  # the lower halves of float32
    exponents: int
    references: int


def packed_bytes(count: int) -> int:
    """Return the bytes that `count` mantissas of 7 bits take."""
    return 7 * (PACKED // 8) * (count // PACKED) + 7 * (-(-(count % PACKED) // 8))


def rows_of(count: int) -> int:
    """Return the rows of `count` values."""
    return -(-count // LANES)


def max_bytes(count: int, size: int) -> int:
    """Return the most bytes of a payload of `count` values of `size` bytes: they and the mode."""
    return 1 + count * size if count else 0


def least_bytes(count: int) -> int:
    """Return the fewest bytes in which ASC has `count` values: those of constant blocks."""
    return PREFIX_BYTES + DIRECTORY_BYTES * -(-count >> MAX_BLOCK_LOG2)


def sections(payload: memoryview, count: int, size: int) -> tuple[int, int, Sections]:
    """Return a coded payload's first reference, its non-zero values and its parts; raises FrameError."""
    if len(payload) < HEAD.size:
        raise damaged(f"at least {HEAD.size} bytes", f"{len(payload)}")
    mode, first, kept, exponents = HEAD.unpack_from(payload)
    low = HEAD.size + packed_bytes(kept)
    begin = low + (size - 2) * kept
    if (
        mode != CODED
        or kept > count
        or exponents < least_bytes(count)
        or len(payload) < begin + exponents + least_bytes(rows_of(count))
    ):
        raise damaged(f"a head that fits {count} values in {len(payload)} bytes", bytes(payload[:10]).hex())
    return first, kept, Sections(HEAD.size, low, begin, begin + exponents)


def damaged(expected: str, actual: str) -> FrameError:
    """Return the error for a payload that no encoder writes."""
    return FrameError(f"floats: expected {expected}, got {actual}: damaged on the way")
