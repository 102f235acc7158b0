"""The type of a NumPy array whose dtype and shape a docstring tells, and the sizes of shapes."""

import math
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]


def sizes_of(shapes: Sequence[tuple[int, ...]]) -> list[int]:
    """Return the number of values of each shape."""
    return [math.prod(map(int, shape)) for shape in shapes]
