"""The type of a NumPy array whose dtype and shape a docstring tells, and flat arrays cut into tensors."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def sizes_of(shapes: Sequence[tuple[int, ...]]) -> list[int]:
    """Return the number of values of each shape."""
    return [math.prod(map(int, shape)) for shape in shapes]


def offsets_of(sizes: Sequence[int]) -> Array:
    """Return where each of `sizes` begins in a flat array, and the end: int64 [sizes + 1]."""
    return np.cumsum([0, *sizes], dtype=np.int64)


def cut(flat: Array, offsets: Array) -> list[Array]:
    """Return views of `flat` from each offset to the next."""
    return [flat[low:high] for low, high in pairwise(offsets.tolist())]


def split(flat: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Return views [tensor] of `flat` in `shapes`; raises ValueError unless they fill it."""
    sizes = sizes_of(shapes)
    if sum(sizes) != flat.size:
        raise ValueError(f"expected tensors of {flat.size} values in all, got {sum(sizes)} in {len(sizes)}")
    parts = cut(flat, offsets_of(sizes))
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
