"""The type of a NumPy array whose dtype and shape a docstring tells, and flat arrays cut into tensors."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def sizes_of(shapes: Sequence[tuple[int, ...]]) -> list[int]:
    """Return the number of values of each shape."""
    return [math.prod(map(int, shape)) for shape in shapes]


def split(flat: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Return views [tensor] of `flat` in `shapes`; raises ValueError unless they fill it."""
    sizes = sizes_of(shapes)
    if sum(sizes) != flat.size:
        raise ValueError(f"expected tensors of {flat.size} values in all, got {sum(sizes)} in {len(sizes)}")
    bounds = np.cumsum([0, *sizes])
    return [flat[bounds[t] : bounds[t + 1]].reshape(shape) for t, shape in enumerate(shapes)]
