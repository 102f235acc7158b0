"""CRC-32 (IEEE) as arithmetic: its step in plain integers, and any linear function of bits over GF(2)."""

from collections.abc import Sequence

from myhdl import always_comb, block

from oscar_hdl.streams.bundles import word

POLY = 0xEDB88320  # bit 31 is x^0: the reflected form, in which the low bit of a byte goes first
ONES = 0xFFFFFFFF


def _byte(state: int) -> int:
    for _ in range(8):
        state = (state >> 1) ^ (POLY if state & 1 else 0)
    return state


BYTES = [_byte(n) for n in range(256)]


def step(state: int, data: int, bits: int) -> int:
    """Return `state` moved on by `bits` of data, lowest first; neither is inverted."""
    whole = bits & ~7
    for i in range(0, whole, 8):
        state = (state >> 8) ^ BYTES[(state ^ data >> i) & 255]
    for i in range(whole, bits):
        state ^= data >> i & 1
        state = (state >> 1) ^ (POLY if state & 1 else 0)
    return state


def unstep(state: int, bits: int) -> int:
    """Return the state from which so many zeros lead to `state`."""
    for _ in range(bits):
        state = ((state ^ POLY) << 1 | 1) if state >> 31 else state << 1
    return state


@block
def linear_map(x, y, columns: Sequence[int], *, at: int = 0):
    """Give y as the xor of columns[i] for each bit at + i of x that is 1; combinational.

    x: any width; y: as wide as the columns. A tree of functions of four bits.
    """
    bits = len(columns)
    if bits < 1 or at + bits > len(x):
        raise ValueError(f"expected 1 to {len(x) - at} columns for bits {at} on, got {bits}")
    if bits <= 4:
        TABLE = tuple(_sum(columns, value) for value in range(1 << bits))
        LOW, HIGH = at, at + bits

        @always_comb
        def look():
            y.next = TABLE[int(x[HIGH:LOW])]

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
