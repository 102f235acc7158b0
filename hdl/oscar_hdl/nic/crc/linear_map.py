"""A linear function of bits over GF(2): the sum (xor) of a constant for each bit that is 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always_comb, block

from oscar_hdl.streams.bundles import word


@block
def linear_map(x: Any, y: Any, columns: Sequence[int], *, at: int = 0) -> Any:
    """Give y as the xor of columns[i] for each bit at + i of x that is 1; combinational.

    x: any width; y: as wide as the columns. A tree of functions of four bits.
    """
    bits = len(columns)
    if bits < 1 or at + bits > len(x):
        raise ValueError(f"expected 1 to {len(x) - at} columns for bits {at} on, got {bits}")
    if bits <= 4:
        TABLE = tuple(_sum(columns, value) for value in range(1 << bits))
        nibble = x(at + bits, at)

        @always_comb
        def look():
            y.next = TABLE[int(nibble)]

        return look
    half = (bits + 7) // 8 * 4
    low, high = word(len(y)), word(len(y))
    low_map = linear_map(x, low, columns[:half], at=at)
    high_map = linear_map(x, high, columns[half:], at=at + half)

    @always_comb
    def add():
        y.next = low ^ high

    return low_map, high_map, add


def _sum(columns: Sequence[int], value: int) -> int:
    total = 0
    for i, column in enumerate(columns):
        if value >> i & 1:
            total ^= column
    return total
