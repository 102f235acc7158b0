"""Baseline: Atalanta (APack): arithmetic-coded ranges, raw offsets, and a table in each frame.

A model after the published description (Delmas Lascorz, Mahmoud and Moshovos, "APack", 2022; "Atalanta",
ASPLOS 2024), for comparison only. The method is patented (US 11,928,566), and OSCAR's coder uses none of its
table format. Two searches fill the table: the released one, and exact dynamic programming, which no search
can beat.

Values are offset binary in the fewest bits w that hold the frame. Payload: u8 w (0: raw block), then one bit
stream, low bits first::

    4 bits         ranges k - 1 (empty ranges are not sent)
    k rows         start, w bits; 1 bit: whether 5 bits of offset length follow (if not, the length follows
    from the
                   distance to the next start or the end of the space); probability x 1024, 10 bits, not in
                   the last row, which gets the rest
    coded ranges   16-bit HIGH / LOW, renormalised bit by bit, ended by two bits; the decoder finds the end
    offsets        offset-length bits each

The table has 38 bytes at w = 8 and 16 ranges. The published 28 bytes (10 + 4 bits a row) omit the starts,
which a decoder needs. A single known value costs nothing; `VALUES_PER_BYTE` bounds its size from below.
"""

from __future__ import annotations

import numpy as np

from oscar.array import Array
from oscar.coding.codec import Codec, framed
from oscar.coding.plain import BlockCodec, damaged, frozen, get, put, raw_bytes
from oscar_studies.codecs.atalanta_kernels import (
    PROBABILITY_BITS,
    RANGES,
    TOTAL,
    decode,
    encode,
    optimal_search,
    released_search,
)
from oscar_studies.codecs.blocks import (
    bit_length,
    check_density,
    check_length,
    histogram,
    padded,
    quantise,
    signed_bits,
)

# Most candidate starts of the exact search. Its time grows with the square: 10 to 20 ms for these.
MAX_GROUPS = 1536
Partition = tuple[Array, Array, Array]  # start, offset length, mass of each range


class Atalanta(BlockCodec):
    """Atalanta with the released table search: equal ranges, then sweeps until one gains < 1 %."""

    code = 7

    def search(self, distinct: Array, counts: Array, space: int) -> Partition:
        """Return the ranges for a frame's histogram of ascending offset-binary values; space: their bits."""
        return released_search(distinct, counts, space)

    def _code(self, values: Array, width: int) -> bytes | None:
        space = signed_bits(values)
        bias = 1 << (space - 1)
        distinct, counts = histogram(values)
        start, length, mass = self.search(distinct + bias, counts, space)
        frequencies = _frequencies(mass)
        out = np.zeros(raw_bytes(values.size, width), np.uint8)  # a larger payload does not pay
        out[0] = space
        pos = _write_table(out, space, start, length, frequencies)
        end = encode(values, bias, start, length, _cumulative(frequencies), out, pos)
        return None if end < 0 else padded(out[: (end + 7) // 8].tobytes(), values.size)

    def _open(self, payload: memoryview, count: int, width: int) -> Array:
        check_density(payload, count)
        space = payload[0]
        if space > width:
            raise damaged(f"payload has values of {space} bits in a frame of {width}")
        data = frozen(payload)
        pos, start, length, frequencies = _read_table(data, space)
        values = np.empty(count, np.int32)
        end = decode(data, pos, 1 << (space - 1), start, length, _cumulative(frequencies), values)
        if end < 0:
            raise damaged(f"payload of {len(payload)} bytes does not hold {count} values of {space} bits")
        check_length(payload, count, (end + 7) // 8)
        return values


class AtalantaDp(Atalanta):
    """Atalanta with the best possible table, from dynamic programming over partitions into at most 16 ranges.

    Exact up to MAX_GROUPS distinct values, for ideal probabilities of 1 / 1024 or more. Beyond that,
    neighbouring values are tied into that many groups of about equal mass, but not across the starts of the
    released search. If rounding to 10 bits makes the released table's frame smaller, the released table is
    used.
    """

    code = 8

    def search(self, distinct: Array, counts: Array, space: int) -> Partition:
        """Return the ranges of least estimated size, including the table's rows."""
        released = released_search(distinct, counts, space)
        cuts = np.arange(distinct.size)
        if distinct.size > MAX_GROUPS:
            share = (np.cumsum(counts) - counts) * (MAX_GROUPS - RANGES) // int(counts.sum())
            starts = np.searchsorted(distinct, released[0])
            cuts = np.union1d(np.flatnonzero(np.diff(share, prepend=-1)), starts)
        last = np.append(cuts[1:], distinct.size) - 1
        row_bits = float(space + 1 + PROBABILITY_BITS)
        best = optimal_search(distinct[cuts], distinct[last], np.add.reduceat(counts, cuts), row_bits)
        return min(best, released, key=lambda partition: _size(partition, space))


def _frequencies(mass: Array) -> Array:
    """Return the probabilities x 1024 that code the ranges in the fewest bits."""
    frequencies = np.zeros(mass.size, np.int64)
    quantise(mass, TOTAL, frequencies)
    return frequencies


def _size(partition: Partition, space: int) -> float:
    """Return the bits of a frame with this partition, including table and rounding of probabilities."""
    start, length, mass = partition
    frequencies = _frequencies(mass)
    table = _write_table(np.zeros(128, np.uint8), space, start, length, frequencies)
    return table + float((mass * (length + PROBABILITY_BITS - np.log2(frequencies))).sum())


def _cumulative(frequencies: Array) -> Array:
    """Return the running sums, from 0 to the total."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(frequencies)))


def _implied(start: Array, space: int) -> list[int]:
    """Return the offset length that follows from the distance of each start to the next."""
    ends = [*start[1:].tolist(), 1 << space]
    return [bit_length(end - begin - 1) for begin, end in zip(start.tolist(), ends, strict=True)]


def _write_table(out: Array, space: int, start: Array, length: Array, frequencies: Array) -> int:
    """Write the table behind the mode byte; return the bit after it, or -1 if `out` is too small."""
    pos = put(out, 8, start.size - 1, 4)
    for i, implied in enumerate(_implied(start, space)):
        pos = put(out, pos, int(start[i]), space)
        explicit = int(length[i] != implied)
        pos = put(out, pos, explicit, 1)
        if explicit:
            pos = put(out, pos, int(length[i]), 5)
        if i < start.size - 1:
            pos = put(out, pos, int(frequencies[i]), PROBABILITY_BITS)
    return pos


def _read_table(data: Array, space: int) -> tuple[int, Array, Array, Array]:
    """Return the bit after the table, the starts, offset lengths and frequencies; raises FrameError."""
    ranges = get(data, 8, 4) + 1
    pos = 12
    start, length, frequencies = (np.zeros(ranges, np.int64) for _ in range(3))
    for i in range(ranges):
        start[i] = get(data, pos, space)
        explicit = get(data, pos + space, 1)
        pos += space + 1
        length[i] = get(data, pos, 5) if explicit else -1
        pos += 5 * explicit
        if i < ranges - 1:
            frequencies[i] = get(data, pos, PROBABILITY_BITS)
            pos += PROBABILITY_BITS
    frequencies[-1] = TOTAL - frequencies.sum()
    if pos > 8 * data.size or (np.diff(start) <= 0).any() or (frequencies <= 0).any():
        raise damaged(
            f"table of {ranges} ranges must start them in ascending order and share {TOTAL} among them, "
            f"got starts {start.tolist()} and shares {frequencies.tolist()}"
        )
    return pos, start, np.where(length < 0, _implied(start, space), length), frequencies


def atalanta() -> Codec:
    """Return Atalanta with the search for groups that its authors released."""
    return framed("atalanta", Atalanta(), lossless=True)


def atalanta_dp() -> Codec:
    """Return Atalanta with optimal groups."""
    return framed("atalanta-dp", AtalantaDp(), lossless=True)
