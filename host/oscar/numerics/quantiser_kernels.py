"""The quantiser's passes over all values, compiled; each gives the bits of the NumPy expression it names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic

from oscar.kernels import njit, part

FLOAT32_MAX = np.finfo(np.float32).max
MOST_SHIFT = 8  # octaves that a value's step may be apart from its tensor's
NORMAL_EXPONENTS = range(-126, 127)  # of which 2^e and 2^-e are normal float32: products are rounded once
PIECE = 4096  # values that stay in the first-level cache, with their draws of stochastic rounding
COUNTS = PIECE // 4 + 1  # of the generator, four draws each; a piece may begin within one


@intrinsic
def _floats_at(typing: Any, address: Any) -> Any:
    """Return a uint64 address as a pointer to float32."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.FloatType().as_pointer())

    return types.CPointer(types.float32)(types.uint64), codegen


@njit(cache=True, nogil=True)
def to_grids(
    addresses: Any, edges: Any, first: int, last: int, grids: Any, limit: Any, residual: Any, shifts: Any,
    places: Any, granule: int, noise: Any, out: Any, keep: Any, tallies: Any, weights: Any,
) -> int:  # fmt: skip
    """Write the integers of the values `first` to `last` of all, tensor by tensor, as `to_grid` does.

    Returns the number of a tensor with NaN or Inf, after which nothing was done, or -1.

    addresses: uint64, of each tensor's float32. edges: int64, where tensors begin among all values, and the
    end. grids: float32 [tensor, 2], 1 / step and step; zeros: the tensor has no step, `out` is left as it is,
    and `keep` gets all its values. residual, shifts, keep: of all values, or no values. tallies: int64
    [tensor, 2], weights: float64 [tensor, 2], the first and the last two numbers that `to_grid` returns.
    """
    t = np.searchsorted(edges, first, side="right") - 1
    while t < len(tallies) and edges[t] < last:
        low, high = max(first, edges[t]), min(last, edges[t + 1])
        if low < high:
            tensor = carray(_floats_at(addresses[t] + np.uint64(4 * (low - edges[t]))), (high - low,))
            held = residual[low:high] if residual.size else residual
            left = keep[low:high] if keep.size else keep
            if grids[t, 0]:
                own = shifts[low:high] if shifts.size else shifts
                grid = grids[t, 0], grids[t, 1], limit
                tally = to_grid(tensor, held, own, grid, low, places, granule, noise, out, left)
                tallies[t, 0], tallies[t, 1], weights[t, 0], weights[t, 1] = tally
                if tally[0] < 0:
                    return t
            elif held.size:
                add_bounded(tensor, held, left)
            elif left.size:
                left[:] = tensor
        t += 1
    return -1


@part
def to_grid(
    tensor: Any, residual: Any, shifts: Any, grid: Any, at: int, places: Any, granule: int, noise: Any,
    out: Any, keep: Any,
) -> tuple[int, int, float, float]:  # fmt: skip
    """Write the integers of a tensor to `out` in plan order; return how many saturated, or -1, and energies.

    The energies are sums of squares: of the integers, of what saturation cut off where values have no steps
    of their own, and of the tensor without its residual.

    -1: some value is NaN or Inf, and what was written means nothing. Such a value saturates, so only values
    near one that does are looked at again.

    tensor: float32, flat; its values are those from `at` on of all. residual: float32, added to it within the
    range of float32, or no values. shifts: int8, by which the step of each value is above the tensor's, in
    octaves, or no values. grid: float32 1 / step, step, limit. places, granule: ChunkPlan.places.
    noise: of stochastic rounding, uint64: the generator's key (2) and the last word of its counter; none: to
    nearest. out: int32 or int16, of all values; keep: float32, receives what rounding and clipping lost,
    as long as the tensor, or no values.
    """
    clipped, energy, low, lost, whole = 0, 0, 0, 0.0, 0.0
    edge = np.float64(grid[1]) * np.float64(grid[2])
    counts = COUNTS if noise.size else 0
    words, draws = np.empty((4, counts), np.uint64), np.empty(4 * counts, np.float64)
    while low < tensor.size:
        block = (at + low) // granule
        high = min(tensor.size, (block + 1) * granule - at)
        high = min(high, low + PIECE)
        first = places[block] + at + low - block * granule
        integers = out[first : first + high - low]
        left = keep[low:high] if keep.size else keep
        held = residual[low:high] if residual.size else residual
        if shifts.size:
            drawn = uniform(noise, at + low, high - low, words, draws) if noise.size else draws
            beyond, squares = round_each(
                tensor[low:high], held, shifts[low:high], grid, drawn, integers, left
            )
        elif noise.size:
            drawn = uniform(noise, at + low, high - low, words, draws)
            beyond, squares = _round_by(tensor[low:high], held, grid, drawn, integers, left)
        elif residual.size:
            beyond, squares = _round_with(tensor[low:high], held, grid, integers, left)
        else:
            beyond, squares = _round(tensor[low:high], grid, integers, left)
        if beyond:
            if not all_finite(tensor[low:high]):
                return -1, 0, 0.0, 0.0
            lost += energy_beyond(tensor[low:high], held, edge)
        clipped += beyond
        energy += squares
        whole += _energy(tensor[low:high])
        low = high
    return clipped, energy, lost, whole


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})  # a statistic: its last bits may differ
def _energy(values: Any) -> float:
    energy = 0.0
    for i in range(values.size):
        energy += np.float64(values[i]) * np.float64(values[i])
    return energy


@njit(cache=True, nogil=True)
def _round(tensor: Any, grid: Any, out: Any, keep: Any) -> tuple[int, int]:
    factor, step, limit = grid
    clipped, energy = 0, 0
    for i in range(tensor.size):
        rounded = np.rint(tensor[i] * factor)
        bounded = min(max(rounded, -limit), limit)
        clipped += rounded != bounded
        integer = np.int32(bounded)
        out[i] = integer
        energy += np.int64(integer * integer)
    if keep.size:
        for i in range(tensor.size):
            keep[i] = tensor[i] - np.float32(out[i]) * step
    return clipped, energy


@part
def _round_with(tensor: Any, residual: Any, grid: Any, out: Any, keep: Any) -> tuple[int, int]:
    factor, step, limit = grid
    clipped, energy = 0, 0
    for i in range(tensor.size):
        value = min(max(tensor[i] + residual[i], -FLOAT32_MAX), FLOAT32_MAX)
        rounded = np.rint(value * factor)
        bounded = min(max(rounded, -limit), limit)
        clipped += rounded != bounded
        integer = np.int32(bounded)  # of -0.0 as of 0.0
        out[i] = integer
        keep[i] = value - np.float32(integer) * step
        energy += np.int64(integer * integer)
    return clipped, energy


@part
def _round_by(tensor: Any, residual: Any, grid: Any, draws: Any, out: Any, keep: Any) -> tuple[int, int]:
    factor, step, limit = grid
    clipped, energy = 0, 0
    for i in range(tensor.size):
        value = tensor[i]
        if residual.size:
            value = min(max(value + residual[i], -FLOAT32_MAX), FLOAT32_MAX)
        rounded = np.floor(np.float64(value * factor) + draws[i])
        bounded = min(max(rounded, -np.float64(limit)), np.float64(limit))
        clipped += rounded != bounded
        integer = np.int32(bounded)
        out[i] = integer
        energy += np.int64(integer * integer)
        if keep.size:
            keep[i] = value - np.float32(integer) * step
    return clipped, energy


@njit(cache=True, nogil=True)
def power(exponent: Any) -> Any:
    """Return 2^exponent as float32, of -126 to 127."""
    return np.int32((np.int32(127) + np.int32(exponent)) << 23).view(np.float32)


@part
def round_each(
    tensor: Any, residual: Any, shifts: Any, grid: Any, draws: Any, out: Any, keep: Any
) -> tuple[int, int]:
    """Write the integers of a piece to `out` and what they lost to `keep`; return what `to_grid` does.

    shifts: int8, of each value. grid: float32 2^-e, 2^e, and the limit; residual, keep: as of `to_grid`.
    draws: float64, of stochastic rounding; none: to nearest.
    """
    factor, step, limit = grid
    clipped, energy = 0, 0
    for i in range(tensor.size):
        value = tensor[i]
        if residual.size:
            value = min(max(value + residual[i], -FLOAT32_MAX), FLOAT32_MAX)
        scaled = value * (factor * power(-shifts[i]))
        if draws.size:
            drawn = np.floor(np.float64(scaled) + draws[i])
            held = min(max(drawn, -np.float64(limit)), np.float64(limit))
            clipped += drawn != held
            integer = np.int32(held)
        else:
            rounded = np.rint(scaled)
            bounded = min(max(rounded, -limit), limit)
            clipped += rounded != bounded
            integer = np.int32(bounded)  # of -0.0 as of 0.0
        out[i] = integer
        energy += np.int64(integer * integer)
        if keep.size:
            keep[i] = value - np.float32(integer) * (step * power(shifts[i]))
    return clipped, energy


@njit(cache=True, nogil=True)
def uniform(noise: Any, at: int, size: int, words: Any, draws: Any) -> Any:
    """Return the draws `at` to `at + size` of a numpy.random.Generator, without those before them.

    noise: of Philox(key=noise[:2], counter=[0, 0, 0, noise[2]]), uint64. words: uint64 [4, COUNTS]; draws:
    float64 [4 * COUNTS], of which a part is returned; size: up to PIECE.
    """
    first = at >> 2
    end = ((at + size + 3) >> 2) - first
    a, b, c, d = words[0][:end], words[1][:end], words[2][:end], words[3][:end]
    for i in range(a.size):
        a[i], b[i], c[i], d[i] = np.uint64(first + i + 1), np.uint64(0), np.uint64(0), noise[2]
    _philox(a, b, c, d, noise[0], noise[1])
    for i in range(a.size):
        for word in range(4):
            draws[4 * i + word] = (words[word, i] >> np.uint64(11)) * 2.0**-53
    return draws[at & 3 : (at & 3) + size]


@part
def _philox(a: Any, b: Any, c: Any, d: Any, key: Any, other: Any) -> None:
    """Do the ten rounds of Philox 4x64 (Salmon et al., "Parallel random numbers", 2011), in vectors."""
    for _ in range(10):
        for i in range(a.size):
            high, low = _product(np.uint64(0xD2E7470EE14C6C93), a[i])
            upper, lower = _product(np.uint64(0xCA5A826395121157), c[i])
            a[i], b[i], c[i], d[i] = upper ^ b[i] ^ key, lower, high ^ d[i] ^ other, low
        key += np.uint64(0x9E3779B97F4A7C15)
        other += np.uint64(0xBB67AE8584CAA73B)


@njit(cache=True, nogil=True)
def _product(x: Any, y: Any) -> Any:
    """Return the upper and the lower 64 bits of a product of uint64, from products of halves."""
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    low = (x & mask) * (y & mask)
    middle = (x >> half) * (y & mask) + (low >> half)
    other = (x & mask) * (y >> half) + (middle & mask)
    return (x >> half) * (y >> half) + (middle >> half) + (other >> half), other << half | low & mask


@njit(cache=True, nogil=True)
def all_finite(values: Any) -> bool:
    """Return np.isfinite(values).all() of flat float32."""
    good = True
    for i in range(values.size):
        good &= np.abs(values[i]) <= FLOAT32_MAX
    return good


@njit(cache=True, nogil=True)
def hold_within(values: Any, most: Any) -> None:
    """Cut flat float32 to magnitudes of `most`, in place; NaN becomes 0. Most calls only read."""
    good = True
    for i in range(values.size):
        good &= np.abs(values[i]) <= most
    if good:
        return
    for i in range(values.size):
        x = values[i]
        values[i] = x if np.abs(x) <= most else most if x > most else -most if x < -most else np.float32(0)


@njit(cache=True, nogil=True)
def add_bounded(tensor: Any, residual: Any, out: Any) -> None:
    """Write tensor + residual (float32), at most the largest float32 in magnitude, to `out`."""
    for i in range(tensor.size):
        out[i] = min(max(tensor[i] + residual[i], -FLOAT32_MAX), FLOAT32_MAX)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})  # a statistic: its last bits may differ
def energy_beyond(tensor: Any, residual: Any, edge: float) -> float:
    """Return the sum of squares, in float64, of what magnitudes have beyond `edge`, a float64.

    residual: is added as in `add_bounded`, or no values.
    """
    lost = 0.0
    for i in range(tensor.size):
        value = tensor[i]
        if residual.size:
            value = min(max(value + residual[i], -FLOAT32_MAX), FLOAT32_MAX)
        beyond = np.abs(np.float64(value)) - edge
        beyond = beyond if beyond > 0.0 else 0.0
        lost += beyond * beyond
    return lost


@njit(cache=True, nogil=True)
def _energies_at(addresses: Any, at: Any, residual: Any, edges: Any, out: Any) -> None:
    for t in range(out.size):
        low, high = at[t], at[t + 1]
        if edges[t] < np.inf and low < high:
            held = residual[low:high] if residual.size else residual
            out[t] = energy_beyond(carray(_floats_at(addresses[t]), (high - low,)), held, edges[t])


def energies_beyond(tensors: Sequence[Any], edges: Sequence[float], residual: Any = None) -> list[float]:
    """Return `energy_beyond` of each flat float32 tensor and its edge; one beyond Inf is not read.

    residual: float32, flat, of all tensors, or None.
    """
    flat, addresses = addresses_of(tensors)
    at, out = np.cumsum([0, *(tensor.size for tensor in flat)]), np.zeros(len(flat))
    held = np.empty(0, np.float32) if residual is None else residual
    _energies_at(addresses, at, held, np.array(edges, float), out)
    return out.tolist()


def addresses_of(tensors: Sequence[Any]) -> tuple[list[np.ndarray], np.ndarray]:
    """Return flat tensors as contiguous float32, to hold while kernels run, and their addresses, uint64."""
    flat = [np.ascontiguousarray(tensor, np.float32) for tensor in tensors]
    return flat, np.array([tensor.__array_interface__["data"][0] for tensor in flat], np.uint64)


def all_normal(exponents: Sequence[int | None], apart: int) -> bool:
    """Return True if 2^e and 2^-e are normal float32 for all e up to `apart` from one of `exponents`."""
    return all(
        e is None or (e - apart in NORMAL_EXPONENTS and e + apart in NORMAL_EXPONENTS) for e in exponents
    )


def grids_of(exponents: Sequence[int | None]) -> np.ndarray:
    """Return 1 / step and step of each tensor, float32 [tensors, 2]; zeros without a step."""
    grids = [(0, 0) if e is None else (2.0**-e, 2.0**e) for e in exponents]
    return np.array(grids, np.float32).reshape(-1, 2)
