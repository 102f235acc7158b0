"""Sizes of the tensors of a flat gradient, and bounds of a residual that follow from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from oscar.array import Array
from oscar.kernels import njit

MATTERS = 1e-3  # share of the gradient's energy from which a tensor's sudden change is acted on

# The kernels loop over slices. LLVM then knows that indices count from 0, and vectorises only such loops.


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _energies(values: Any, offsets: Any, out: Any) -> None:
    for t in range(len(out)):
        here, total = values[offsets[t] : offsets[t + 1]], 0.0
        for j in range(len(here)):
            total += np.float64(here[j]) * np.float64(here[j])
        out[t] = total


@njit(cache=True, nogil=True)
def _shrink(values: Any, bounds: Any) -> float:
    lost = 0.0
    for j in range(len(values)):
        low, high = min(bounds[j], np.float32(0)), max(bounds[j], np.float32(0))
        x = values[j]
        values[j] = min(max(x, low), high) if x == x else np.float32(0)
        lost += (np.float64(x) - np.float64(values[j])) ** 2 if abs(x) <= np.float32(3e38) else 0.0
    return lost


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _growth(values: Any, before: Any) -> float:
    total = 0.0
    for j in range(len(values)):
        moved = np.float64(values[j]) - np.float64(before[j])
        total += moved * moved
    return total


def energies(values: Array, offsets: Array) -> Array:
    """Return every tensor's sum of squares, float64, of flat float32 `values`."""
    out = np.empty(len(offsets) - 1)
    _energies(values, offsets, out)
    return out


def root_mean_squares(values: Array, offsets: Array) -> Array:
    """Return every tensor's root mean square, float64; 0 for an empty tensor."""
    root: Array = np.sqrt(energies(values, offsets) / np.maximum(np.diff(offsets), 1))
    return root


def shrink(values: Array, bounds: Array | None) -> float:
    """Bring each value, in place, into the interval from 0 to its bound; return the energy that this took.

    values, bounds: flat float32 of one size. None: all bounds are 0.
    """
    return float(_shrink(values, np.zeros_like(values) if bounds is None else bounds))


def growth(values: Array, before: Array | None) -> float:
    """Return the root mean square by which flat float32 `values` differ from those before; None: from 0."""
    if before is None:
        return float(root_mean_squares(values, np.array([0, values.size]))[0])
    return float(np.sqrt(_growth(values, before) / max(1, values.size)))
