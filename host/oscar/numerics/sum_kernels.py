"""What follows from the sums of an AllReduce, compiled.

Each kernel gives the bits of the NumPy or integer expression it names. Passes follow each other over PASS
values: one pass by pieces in the first-level cache took up to twice as long: it read seven arrays in turns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from oscar.kernels import njit, part
from oscar.numerics.plans import scatter_range

PIECE = 4096  # values whose squares of differences below 2^10 add up within 32 bits
PASS = 1 << 18  # values of which sums stay in the second-level cache; with fewer, passes are too short
SMALL = 512  # magnitude of sums below which those differences are


class TensorRules(NamedTuple):
    """What `settle_range` must know of each tensor: arrays with an item for each.

    steps: float64. factors: float32 step / nodes where means are a product in float32, else 0. shifts: int64
    [tensor, 2], of the sums and of the last ones to the finer of their steps. known: whether the last sums
    can be compared with.
    """

    steps: Any
    factors: Any
    shifts: Any
    known: Any


@njit(cache=True, nogil=True)
def settle_range(
    reduced: Any, places: Any, granule: int, first: int, last: int, edges: Any, nodes: float, rules: Any,
    sums: Any, mean: Any, before: Any, old: Any, moved: Any, classes: Any, squares: Any,
) -> None:  # fmt: skip
    """Do all that follows from the sums of the values `first` to `last`, tensor by tensor.

    Of all values are: reduced, integers in plan order (places, granule: ChunkPlan.places); sums, which gets
    them in natural order; mean, float32, as `to_means` or `to_shifted_means` has it; before, the last sums,
    int16; old, moved, classes: as of `observe`, or no values. edges: int64, where tensors begin, and the end.
    squares: int64 [tensor, 2], to which those of `squares_of_changes` are added where these are known.
    """
    t = np.searchsorted(edges, first, side="right") - 1
    low = first
    while t < rules.steps.size and low < last:
        high = min(last, edges[t + 1], low + PASS)
        scatter_range(reduced, places, granule, low, high, sums)
        here = sums[low:high]
        if rules.factors[t]:
            to_shifted_means(here, rules.factors[t], mean[low:high])
        else:
            to_means(here, nodes, rules.steps[t], mean[low:high])
        if old.size:
            observe(here, old[low:high], moved[low:high], classes[low:high])
        if rules.known[t]:
            energies = squares_of_changes(here, before[low:high], rules.shifts[t, 0], rules.shifts[t, 1])
            squares[t, 0] += energies[0]
            squares[t, 1] += energies[1]
        t += high == edges[t + 1]
        low = high


@njit(cache=True, nogil=True)
def to_means(sums: Any, nodes: Any, step: Any, out: Any) -> None:
    """Write float32(sums / nodes * step) to `out`, rounded once; nodes, step: float64, the latter 2^e."""
    for i in range(sums.size):
        out[i] = np.float32(np.float64(sums[i]) / nodes * step)


@part
def to_shifted_means(sums: Any, factor: Any, out: Any) -> None:
    """Do what `to_means` does for int16 `sums` and a float32 step / nodes that is a normal power of two."""
    for i in range(sums.size):
        out[i] = np.float32(sums[i]) * factor


@njit(cache=True, nogil=True)
def squares_of_changes(sums: Any, before: Any, left: int, right: int) -> tuple[int, int]:
    """Return the sums of squares of int16 `sums` and of `(sums << left) - (before << right)`.

    Exact for shifts of up to 1 bit and 2^28 values.
    """
    energy, change = np.int64(0), np.int64(0)
    for low in range(0, sums.size, PIECE):
        squares = _piece_squares(sums[low : low + PIECE], before[low : low + PIECE], left, right)
        energy += squares[0]
        change += squares[1]
    return energy, change


@part
def _piece_squares(sums: Any, before: Any, left: int, right: int) -> tuple[int, int]:
    if left == 0 and right == 0:
        energy, change, small = _small_squares(sums, before)
        if small:
            return np.int64(np.uint32(energy)), np.int64(np.uint32(change))
    squares = _squares(sums, before, left, right)
    return np.int64(squares[0]), np.int64(squares[1])


@part
def _small_squares(sums: Any, before: Any) -> tuple[int, int, bool]:
    """Return both sums of squares modulo 2^32, and whether all magnitudes are small enough for that."""
    energy, change, small = np.int32(0), np.int32(0), True
    for i in range(sums.size):
        value, difference = np.int32(sums[i]), np.int32(np.int16(sums[i] - before[i]))
        energy = np.int32(energy + np.int32(value * value))
        change = np.int32(change + np.int32(difference * difference))
        small &= np.uint16(sums[i] + np.int16(SMALL)) < np.uint16(2 * SMALL)
        small &= np.uint16(before[i] + np.int16(SMALL)) < np.uint16(2 * SMALL)
    return energy, change, small


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})  # exact in any order: below 2^53
def _squares(sums: Any, before: Any, left: int, right: int) -> tuple[float, float]:
    energy, change = 0.0, 0.0
    for i in range(sums.size):
        value = np.int32(sums[i])
        difference = np.float64(np.int32(value << left) - np.int32(np.int32(before[i]) << right))
        energy += np.float64(value) * np.float64(value)
        change += difference * difference
    return energy, change


@njit(cache=True, nogil=True)
def observe(sums: Any, mean: Any, out: Any, classes: Any) -> None:
    """Write means, uint16, that moved an eighth of the way to 16 |sums| to `out`, and their bit lengths.

    Magnitudes count as 4095 at most, bit lengths as 15: `classes`, uint8.
    """
    for low in range(0, sums.size, PIECE):
        high = min(sums.size, low + PIECE)
        _move(sums[low:high], mean[low:high], out[low:high])
        find_classes(out[low:high], classes[low:high])


@njit(cache=True, nogil=True)
def _move(sums: Any, mean: Any, out: Any) -> None:
    """Move means in 16 bits, of which vectors hold most: up or down, as a difference has 17."""
    for j in range(sums.size):
        size = np.uint16(min(abs(np.int32(sums[j])), np.int32(4095)) << 4)
        up = np.uint16(np.uint16(max(size, mean[j]) - mean[j]) >> 3)
        fall = np.uint16(max(size, mean[j]) - size)
        down = np.uint16((fall >> 3) + np.uint16((fall & 7) != 0))  # rounded up; fall + 7 may have 17 bits
        out[j] = np.uint16(mean[j] + up - down)


@njit(cache=True, nogil=True)
def rescale(mean: Any, edges: Any, rises: Any, classes: Any) -> None:
    """Shift the means of the values of tensor t, from edges[t] on, down by rises[t] bits, at most to 65535.

    A fall shifts them up. Writes the classes of those that moved.
    """
    for t in range(rises.size):
        here, rise = mean[edges[t] : edges[t + 1]], max(np.int64(-16), min(np.int64(16), rises[t]))
        if rise == 0:
            continue
        for i in range(here.size):
            wide = np.uint32(here[i])
            here[i] = wide >> np.uint32(rise) if rise > 0 else min(wide << np.uint32(-rise), np.uint32(65535))
        find_classes(here, classes[edges[t] : edges[t + 1]])


@njit(cache=True, nogil=True)
def find_classes(mean: Any, out: Any) -> None:
    """Write the bit lengths of means, 15 at most: their exponents as floats, which vectors have at once."""
    for j in range(mean.size):
        bits = np.float32(np.float32(mean[j]) + np.float32(0.5)).view(np.int32)  # 0 gets an exponent, too
        out[j] = min(np.int32(15), np.int32((bits >> 23) - 126))
