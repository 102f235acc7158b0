"""Compiled parts of the Atalanta baseline (atalanta.py): two table searches and the coder.

A partition has three arrays with an entry for each range that holds a value: `start` (offset binary),
`length` (bits of an offset), `mass` (number of values). `distinct` are the frame's values, ascending, and
`counts` how often each occurs. A cost is an ideal code length in bits: the entropy of the range plus its
offset bits, without the term that all partitions share (log2 of the number of values, for each of them).
"""

from __future__ import annotations

import numpy as np

from oscar.array import Array
from oscar.coding.plain import get, put
from oscar.kernels import njit, part
from oscar_studies.codecs.blocks import bit_length

RANGES = 16
PROBABILITY_BITS = 10
TOTAL = 1 << PROBABILITY_BITS
HALF = 1 << 15  # half of the 16-bit interval of the coder
QUARTER = 1 << 14
GAIN = 0.01  # the released search ends with the first round that gains a smaller share


@part
def range_cost(mass: int, length: int) -> float:
    """Return the cost of one range."""
    return mass * (length - np.log2(mass)) if mass > 0 else 0.0


@part
def _move_cost(below: Array, edges: Array, at: Array, i: int, edge: int, j: int) -> float:
    """Return the cost of the two ranges at boundary i if it lies at `edge`, just below distinct value j."""
    left = range_cost(below[j] - below[at[i - 1]], bit_length(edge - edges[i - 1] - 1))
    return left + range_cost(below[at[i + 1]] - below[j], bit_length(edges[i + 1] - edge - 1))


@part
def _sweep(distinct: Array, below: Array, edges: Array, at: Array, i: int) -> float:
    """Move boundary i down, then up, between its neighbours; keep the best place and return its gain.

    Places at an occupied value and just past one are tried. Without missing values these are all places.
    """
    start = best = _move_cost(below, edges, at, i, edges[i], at[i])
    edge, place = edges[i], at[i]
    middle = at[i]
    for turn in range(2):
        first, last, stride = (middle, at[i - 1] - 1, -1) if turn == 0 else (middle, at[i + 1], 1)
        for j in range(first, last, stride):
            if j >= distinct.size:
                continue
            for past in range(2):
                candidate = distinct[j] + past
                if edges[i - 1] < candidate < edges[i + 1]:
                    cost = _move_cost(below, edges, at, i, candidate, j + past)
                    if cost < best:
                        best, edge, place = cost, candidate, j + past
    edges[i], at[i] = edge, place
    return start - best


@njit(cache=True, nogil=True)
def released_search(distinct: Array, counts: Array, space: int) -> tuple[Array, Array, Array]:
    """Search as the released code is described: equal ranges of the value space, then sweeps."""
    below = np.zeros(distinct.size + 1, np.int64)  # number of values below each distinct one
    for j in range(distinct.size):
        below[j + 1] = below[j] + counts[j]
    ranges = min(RANGES, 1 << space)
    edges = np.empty(ranges + 1, np.int64)
    at = np.empty(ranges + 1, np.int64)
    for i in range(ranges + 1):
        edges[i] = i * ((1 << space) // ranges)
        at[i] = np.searchsorted(distinct, edges[i])
    cost = below[-1] * np.log2(below[-1])
    for i in range(ranges):
        cost += range_cost(below[at[i + 1]] - below[at[i]], bit_length(edges[i + 1] - edges[i] - 1))
    while True:  # ends, since every further round lowers the cost and partitions are finite
        gain = 0.0
        for i in range(1, ranges):
            gain += _sweep(distinct, below, edges, at, i)
        cost -= gain
        if gain <= GAIN * max(0.0, cost + gain):  # rounding may leave a cost below 0
            break
    start = np.empty(ranges, np.int64)
    length = np.empty(ranges, np.int64)
    mass = np.empty(ranges, np.int64)
    used = 0
    for i in range(ranges):  # an empty range needs no row
        if at[i + 1] > at[i]:
            start[used], length[used] = edges[i], bit_length(edges[i + 1] - edges[i] - 1)
            mass[used] = below[at[i + 1]] - below[at[i]]
            used += 1
    return start[:used], length[:used], mass[:used]


@part
def floored_cost(mass: int, length: int, least: float) -> float:
    """Return the cost of a range whose probability is at least that of `least` values."""
    if mass >= least:
        return range_cost(mass, length)
    return mass * (length - np.log2(least)) + (least - mass) / np.log(2.0)


@njit(cache=True, nogil=True)
def optimal_search(first: Array, last: Array, counts: Array, row_bits: float) -> tuple[Array, Array, Array]:
    """Return the partition into at most 16 ranges of least cost, with `row_bits` added for each range.

    Group j covers the values first[j] to last[j], one value unless there are too many. It is enough to try
    ranges that
    start at an occupied value and are just wide enough for their last one: shrinking a range to the values it
    holds changes no mass and can only shorten its offsets. best[b][k] is the least cost of the first b groups
    in k ranges: the least over a of best[a][k - 1] + cost(a .. b). The cost of a .. b is computed once for
    all k.

    Ranges below the least probability pay for the difference, and for what it takes from the others (to first
    order).
    """
    groups = first.size
    below = np.zeros(groups + 1, np.int64)
    for j in range(groups):
        below[j + 1] = below[j] + counts[j]
    best = np.full((groups + 1, RANGES + 1), np.inf)
    best[0, 0] = 0.0
    row = np.empty(RANGES)
    least = below[-1] / TOTAL
    # A table of costs by mass, if it has fewer entries than costs are needed: it saves logarithms.
    costs = np.zeros(below[-1] + 1 if groups * groups > below[-1] else 0)
    for mass in range(1, costs.size):
        costs[mass] = floored_cost(mass, 0, least)
    for b in range(1, groups + 1):
        row[:] = np.inf
        length = 0
        for a in range(b - 1, -1, -1):
            while last[b - 1] - first[a] >= 1 << length:
                length += 1
            mass = below[b] - below[a]
            cost = mass * length + (costs[mass] if mass < costs.size else floored_cost(mass, 0, least))
            for k in range(RANGES):
                row[k] = min(row[k], best[a, k] + cost)
        best[b, 1:] = row
    ranges = 1
    for k in range(2, RANGES + 1):
        if best[groups, k] + k * row_bits < best[groups, ranges] + ranges * row_bits:
            ranges = k
    start = np.empty(ranges, np.int64)
    lengths = np.empty(ranges, np.int64)
    masses = np.empty(ranges, np.int64)
    b = groups
    for k in range(
        ranges - 1, -1, -1
    ):  # walk back, finding each choice again instead of having stored them all
        pick, cheapest = b - 1, np.inf
        for a in range(b - 1, -1, -1):
            cost = floored_cost(below[b] - below[a], bit_length(last[b - 1] - first[a]), least)
            if best[a, k] + cost < cheapest:
                pick, cheapest = a, best[a, k] + cost
        start[k], lengths[k] = first[pick], bit_length(last[b - 1] - first[pick])
        masses[k] = below[b] - below[pick]
        b = pick
    return start, lengths, masses


@part
def _emit(out: Array, pos: int, bit: int, pending: int) -> int:
    """Write a bit and the `pending` opposite ones that underflow delayed; return the next bit, or -1."""
    if pos < 0 or pos + pending >= 8 * out.size:
        return -1
    out[pos >> 3] |= bit << (pos & 7)
    for i in range(pos + 1, pos + 1 + pending):
        out[i >> 3] |= (1 - bit) << (i & 7)
    return pos + 1 + pending


@njit(cache=True, nogil=True)
def encode(
    values: Array, bias: int, start: Array, length: Array, cumulative: Array, out: Array, pos: int
) -> int:
    """Code the range of each value, then the offsets; return the bit behind them, or -1 if `out` is full."""
    low, high, pending = 0, 2 * HALF - 1, 0
    symbols = np.empty(values.size, np.uint8)
    for i in range(values.size):
        s = np.searchsorted(start, values[i] + bias, side="right") - 1
        symbols[i] = s
        span = high - low + 1
        high = low + ((span * cumulative[s + 1]) >> PROBABILITY_BITS) - 1
        low += (span * cumulative[s]) >> PROBABILITY_BITS
        while True:
            if high < HALF:
                pos = _emit(out, pos, 0, pending)
                pending = 0
            elif low >= HALF:
                pos = _emit(out, pos, 1, pending)
                pending = 0
                low -= HALF
                high -= HALF
            elif low >= QUARTER and high < HALF + QUARTER:
                pending += 1
                low -= QUARTER
                high -= QUARTER
            else:
                break
            low = 2 * low
            high = 2 * high + 1
        if pos < 0:
            return -1
    # Two bits name a quarter inside [low, high] whatever follows, so the offsets may follow at once.
    pos = _emit(out, pos, 0 if low < QUARTER else 1, pending + 1)
    for i in range(values.size):
        s = symbols[i]
        pos = put(out, pos, values[i] + bias - start[s], length[s])
    return pos


@njit(cache=True, nogil=True)
def decode(
    data: Array, pos: int, bias: int, start: Array, length: Array, cumulative: Array, out: Array
) -> int:
    """Fill int32 `out` with the values coded from bit `pos` on; return the bit behind them.

    Returns -1 if the data ends before the values do, or if a value is not in -bias .. bias - 1.
    """
    lookup = np.empty(TOTAL, np.uint8)
    for s in range(start.size):
        lookup[cumulative[s] : cumulative[s + 1]] = s
    bits = 8 * data.size
    low, high, code = 0, 2 * HALF - 1, 0
    for i in range(16):  # may read into the offsets; bits behind the end are 0
        code = 2 * code + get(data, pos + i, 1)
    ahead = pos + 16
    for i in range(out.size):
        span = high - low + 1
        s = lookup[((code - low + 1) * TOTAL - 1) // span]
        out[i] = s
        high = low + ((span * cumulative[s + 1]) >> PROBABILITY_BITS) - 1
        low += (span * cumulative[s]) >> PROBABILITY_BITS
        while True:
            if high < HALF:
                pass
            elif low >= HALF:
                low -= HALF
                high -= HALF
                code -= HALF
            elif low >= QUARTER and high < HALF + QUARTER:
                low -= QUARTER
                high -= QUARTER
                code -= QUARTER
            else:
                break
            low = 2 * low
            high = 2 * high + 1
            code = 2 * code
            if ahead < bits:
                code += (data[ahead >> 3] >> (ahead & 7)) & 1
            ahead += 1
        if ahead - 14 > bits:
            return -1
    pos = ahead - 14  # each doubling consumed one bit, and two bits ended the stream
    for i in range(out.size):
        s = out[i]
        value = start[s] + get(data, pos, length[s]) - bias
        pos += length[s]
        if pos > bits or value >= bias:
            return -1
        out[i] = value
    return pos
