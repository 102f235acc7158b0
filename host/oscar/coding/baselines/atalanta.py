"""Baseline: Atalanta (APack), arithmetic-coded range symbols and raw offsets, its table sent in each frame.

This is a model written from the published description (Delmas Lascorz, Mahmoud and Moshovos, "APack", 2022;
"Atalanta", ASPLOS 2024), for comparison only: the method is patented (US 11,928,566), and OSCAR's own coder
uses none of its table format. Two searches fill the table: the released one, and exact dynamic programming,
the best that any search could do.

Values are offset binary in the fewest bits w that hold the frame. Payload: u8 w (0: raw block), then one bit
stream, low bits first::

    4 bits         ranges k - 1 (empty ranges are not sent)
    k rows         start, w bits; 1 bit, set if 5 bits of offset length follow, where that is not what the
                   distance to the next start (the end of the space) gives; probability x 1024, 10 bits, but
                   not in the last row, which gets the rest
    coded ranges   16-bit HIGH / LOW, renormalised bit by bit, ended by two bits; the decoder finds the end
    offsets        offset-length bits each

That makes a table of 38 bytes at w = 8 and 16 ranges. The published 28 bytes (10 + 4 bits each) leave the
starts out, which a decoder needs. One known value costs nothing; `VALUES_PER_BYTE` bounds it.
"""

from __future__ import annotations

import numpy as np

from oscar.array import Array
from oscar.coding.baselines.atalanta_kernels import (
    PROBABILITY_BITS,
    RANGES,
    TOTAL,
    decode,
    encode,
    optimal_search,
    released_search,
)
from oscar.coding.baselines.blocks import (
    BlockCodec,
    bit_length,
    check_density,
    check_length,
    damaged,
    frozen,
    get,
    histogram,
    padded,
    put,
    quantise,
    raw_bytes,
    signed_bits,
)

MAX_GROUPS = 1536  # candidate starts of the exact search; its time grows with the square: 10-20 ms here
Partition = tuple[Array, Array, Array]  # start, offset length, mass of each range


class Atalanta(BlockCodec):
    """Atalanta with the released table search: equal ranges, then sweeps of each boundary till < 1 % gain."""

    code = 7

    def search(self, distinct: Array, counts: Array, space: int) -> Partition:
        """Return the ranges for a frame's histogram (offset-binary values, ascending)."""
        return released_search(distinct, counts, space)

    def _code(self, values: Array, width: int) -> bytes | None:
        space = signed_bits(values)
        bias = 1 << (space - 1)
        distinct, counts = histogram(values)
        start, length, mass = self.search(distinct + bias, counts, space)
        frequencies = _frequencies(mass)
        out = np.zeros(raw_bytes(values.size, width), np.uint8)  # what does not fit does not pay
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
    """Atalanta with the best table there is: dynamic programming over all partitions into at most 16 ranges.

    Exact up to MAX_GROUPS distinct values, for ideal probabilities of 1 / 1024 or more. Beyond that,
    neighbouring values are tied together into that many groups of about equal mass, except where the released
    search starts a range. Should rounding to 10 bits make the released table the smaller one, that is taken.
    """

    code = 8

    def search(self, distinct: Array, counts: Array, space: int) -> Partition:
        """Return the ranges of least estimated size, rows of the table included."""
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
    """Return the probabilities x 1024 that code the ranges best."""
    frequencies = np.zeros(mass.size, np.int64)
    quantise(mass, TOTAL, frequencies)
    return frequencies


def _size(partition: Partition, space: int) -> float:
    """Return the bits that a partition codes its values in, table and rounded probabilities included."""
    start, length, mass = partition
    frequencies = _frequencies(mass)
    table = _write_table(np.zeros(128, np.uint8), space, start, length, frequencies)
    return table + float((mass * (length + PROBABILITY_BITS - np.log2(frequencies))).sum())


def _cumulative(frequencies: Array) -> Array:
    """Return the running sums, from 0 to the total."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(frequencies)))


def _implied(start: Array, space: int) -> list[int]:
    """Return the offset length that each distance to the next start gives."""
    ends = [*start[1:].tolist(), 1 << space]
    return [bit_length(end - begin - 1) for begin, end in zip(start.tolist(), ends, strict=True)]


def _write_table(out: Array, space: int, start: Array, length: Array, frequencies: Array) -> int:
    """Write the table after the mode byte; return the bit after it, or -1 when `out` is too small."""
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
    """Return the bit after the table, starts, offset lengths and frequencies; raises FrameError."""
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
