"""The loops of grids: values to integers, and sums to means, by the step of each value's tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from oscar.kernels import njit

MOST_FLOAT = float(np.finfo(np.float32).max)

# The kernels loop over slices. LLVM then knows that indices count from 0, and vectorises only such loops.


@njit(cache=True, nogil=True)
def quantise_all(values: Any, offsets: Any, factors: Any, limit: Any, out: Any) -> int:
    """Write clip(rint(value * factor)) of all values, factors by tensor; return how many were clipped."""
    clipped, low = 0, -limit
    for t in range(len(factors)):
        here, rounded = values[offsets[t] : offsets[t + 1]], out[offsets[t] : offsets[t + 1]]
        factor, beyond = factors[t], np.int32(0)
        for j in range(len(here)):
            x = np.rint(here[j] * factor)
            y = limit if x > limit else x
            y = low if y < low else y
            beyond += np.int32(y != x)
            rounded[j] = np.int32(y)
        clipped += beyond
    return clipped


@njit(cache=True, nogil=True)
def _owner(index: Any, offsets: Any, t: int) -> int:
    """Return the tensor that holds value `index`. The guess `t`, the last value's tensor, mostly fits."""
    if offsets[t] <= index < offsets[t + 1]:
        return t
    return np.searchsorted(offsets, index, side="right") - 1


@njit(cache=True, nogil=True)
def quantise_at(values: Any, indices: Any, offsets: Any, factors: Any, limit: Any, out: Any) -> int:
    """Do what `quantise_all` does for the values at `indices` only."""
    clipped, low, t = 0, -limit, 0
    for i in range(len(indices)):
        j = indices[i]
        t = _owner(j, offsets, t)
        x = np.rint(values[j] * factors[t])
        clipped += (x > limit) | (x < low)
        out[i] = np.int32(min(max(x, low), limit))
    return clipped


@njit(cache=True, nogil=True)
def beyond_at(values: Any, indices: Any, offsets: Any, edges: Any, out: Any) -> None:
    """Add to `out`, by tensor, the energy that the values at `indices` have beyond their edge."""
    t = 0
    for i in range(len(indices)):
        t = _owner(indices[i], offsets, t)
        beyond = abs(np.float64(values[indices[i]])) - edges[t]
        if beyond > 0.0:
            out[t] += beyond * beyond


@njit(cache=True, nogil=True)
def scale_all(sums: Any, offsets: Any, steps: Any, nodes: float, out: Any) -> None:
    """Write sum / nodes * step of all values, within float32."""
    for t in range(len(steps)):
        here, means = sums[offsets[t] : offsets[t + 1]], out[offsets[t] : offsets[t + 1]]
        step = steps[t]
        for j in range(len(here)):
            means[j] = np.float32(min(max(here[j] / nodes * step, -MOST_FLOAT), MOST_FLOAT))


@njit(cache=True, nogil=True)
def scale_at(sums: Any, indices: Any, offsets: Any, steps: Any, nodes: float, out: Any) -> None:
    """Do what `scale_all` does for the values at `indices` only."""
    t = 0
    for i in range(len(indices)):
        t = _owner(indices[i], offsets, t)
        out[i] = np.float32(min(max(sums[i] / nodes * steps[t], -MOST_FLOAT), MOST_FLOAT))
