"""The type of a NumPy array whose dtype and shape a docstring tells."""

from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
