"""Compiled rounding to a power-of-two grid: the passes of WorkerQuantiser.quantise in one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

NORMAL_EXPONENTS = range(-126, 127)  # of which 2^e and 2^-e are normal float32: products are rounded once


@njit(cache=True, nogil=True)
def round_to_grid(tensor: Any, factor: Any, step: Any, limit: Any, out: Any, keep: Any) -> int:
    """Write the nearest integers of `tensor * factor` to `out`; return how many saturated at `limit`.

    tensor: float32, flat; factor, step, limit: float32, step = 1 / factor; out: int32; keep: float32,
    receives what rounding and clipping lost, or has no values.
    """
    clipped = 0
    for i in range(tensor.size):
        rounded = np.rint(tensor[i] * factor)
        bounded = min(max(rounded, -limit), limit)
        clipped += rounded != bounded
        out[i] = np.int32(bounded)
    if keep.size:
        for i in range(tensor.size):
            keep[i] = tensor[i] - np.float32(out[i]) * step
    return clipped
