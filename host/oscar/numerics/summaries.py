"""The size of a tensor as integers that add exactly, for other nodes (docs/reference/protocol.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from oscar.numerics.quantiser import QuantiserParams, Scale


def summarise(tensors: Sequence[np.ndarray], params: QuantiserParams) -> list[tuple[int, int]]:
    """Return what one node tells the others of tensors without a step: (mantissa, exponent) of size.

    The size is the mean square ("sigma") or the largest magnitude ("max"); the mantissa has 24 bits, so
    that adding the nodes' summaries is exact in integers, whatever their order.
    """
    return [summary_of(_size_of(array, params.scale)) for array in tensors]


def summary_of(size: float) -> tuple[int, int]:
    """Return the summary (mantissa, exponent) of a tensor's size."""
    mantissa, exponent = math.frexp(size)
    return int(math.ldexp(mantissa, 24)), exponent - 24


def _size_of(array: np.ndarray, scale: Scale) -> float:
    if array.size == 0:
        return 0.0
    if scale == "sigma":
        return float(np.mean(np.square(array, dtype=np.float64)))
    return float(np.abs(array).max())
