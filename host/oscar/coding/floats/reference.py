"""The split of floats and its inverse in plain integers: the authority that the compiled twin is held to."""

from __future__ import annotations

from collections.abc import Sequence

from oscar.coding.asc.params import LANES
from oscar.coding.floats.layout import FIELD, PACKED, damaged


def split(bits: Sequence[int], size: int) -> tuple[list[int], list[int], list[int]]:
    """Return the exponents and references of floats, and the mantissas of those that are not zero.

    bits: of floats of `size` bytes. Exponents are signed, relative to the reference of their row.
    """
    low = 8 * size - 16  # bits of the lower half
    exponents, references, mantissas = [], [], []
    reference = 0
    for at in range(0, len(bits), LANES):
        row = bits[at : at + LANES]
        if any(row):
            reference = max(x >> (low + 7) & FIELD for x in row)
        references.append(reference)
        for x in row:
            depth = reference + 1 - (x >> (low + 7) & FIELD) if x else 0
            exponents.append(-depth if x >> (low + 15) else depth)
            if x:
                mantissas.append(x & ((1 << (low + 7)) - 1))
    return exponents, references, mantissas


def join(
    exponents: Sequence[int], references: Sequence[int], mantissas: Sequence[int], size: int
) -> list[int]:
    """Undo `split`; raises FrameError for exponents that are no fields."""
    low, following = 8 * size - 16, iter(mantissas)
    out = []
    for i, exponent in enumerate(exponents):
        field = references[i // LANES] + 1 - abs(exponent)
        if exponent and not 0 <= field <= FIELD:
            raise damaged(f"exponent fields of 0 to {FIELD}", f"{field}")
        out.append((exponent < 0) << (low + 15) | field << (low + 7) | next(following) if exponent else 0)
    return out


def pack(mantissas: Sequence[int]) -> bytes:
    """Return mantissas of 7 bits, 256 in 224 bytes."""
    out = bytearray()
    for at in range(0, len(mantissas), PACKED):
        part = list(mantissas[at : at + PACKED])
        run = -(-len(part) // 8)
        part += [0] * (8 * run - len(part))
        out += bytes(
            part[r * run + i] | (part[7 * run + i] >> r & 1) << 7 for r in range(7) for i in range(run)
        )
    return bytes(out)


def unpack(data: bytes, count: int) -> list[int]:
    """Undo `pack`; raises FrameError if what fills up the last run is not 0."""
    out: list[int] = []
    for at in range(0, count, PACKED):
        packed = min(PACKED, count - at)
        run = -(-packed // 8)
        part = data[at // PACKED * 224 : at // PACKED * 224 + 7 * run]
        last = [sum((part[r * run + i] >> 7) << r for r in range(7)) for i in range(run)]
        whole = [x & 127 for x in part] + last
        if any(whole[packed:]):
            raise damaged("zeros after the last mantissa", bytes(whole[packed:]).hex())
        out += whole[:packed]
    return out
