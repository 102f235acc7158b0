"""What a worker may hand in: floating-point tensors whose values are all finite."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oscar.errors import GradientError
from oscar.numerics.quantiser_kernels import all_finite


def check_tensors(
    tensors: Sequence[np.ndarray], node: int, *, remedy: str = "skip this iteration or lower the loss scale"
) -> list[np.ndarray]:
    """Return `tensors` as contiguous flat float32 arrays (copied only where needed).

    Raises GradientError on NaN or Inf, TypeError on anything but floating-point arrays.
    """
    flat = []
    for index, tensor in enumerate(tensors):
        array = np.asarray(tensor)
        if array.dtype.kind != "f":
            raise TypeError(
                f"node {node}, tensor {index}: expected float32, got {array.dtype}; convert it first"
            )
        with np.errstate(over="ignore"):
            array = np.ascontiguousarray(array, dtype=np.float32).reshape(-1)
        if not all_finite(array):
            bad = int(np.flatnonzero(~np.isfinite(array))[0])
            count = int((~np.isfinite(array)).sum())
            raise GradientError(
                f"node {node}, tensor {index}: {count} of {array.size} values are NaN, Inf or too large, "
                f"the first at flat index {bad} ({array[bad]})",
                advice=f"; {remedy}",
            )
        flat.append(array)
    return flat
