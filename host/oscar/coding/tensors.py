"""Tensors of NumPy and PyTorch as flat arrays and back; torch is never imported here, only used where it is.

bfloat16 has no NumPy dtype: its bits travel as uint16.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.errors import OscarError
from oscar.numerics.tensors import on_host

FLOATS = ("float32", "bfloat16", "float16", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16")
DTYPES = FLOATS + INTEGERS  # a message names a dtype by its place here: append only


def bits_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype that holds values of the dtype `name`: its own, or uint16 for bfloat16."""
    return np.dtype("uint16" if name == "bfloat16" else name)


def flat_bits(tensor: Any) -> tuple[Array, str, tuple[int, ...]]:
    """Return a tensor's values, flat and contiguous in native byte order, the name of its dtype, its shape.

    tensor: array of NumPy (ml_dtypes' bfloat16 too) or tensor of PyTorch, on any device. Copied only where it
    has to be. Raises TypeError for what is neither, for a dtype that is not in DTYPES, and for a tensor of
    PyTorch that is not dense, or is distributed.
    """
    if not (hasattr(tensor, "shape") and hasattr(tensor, "dtype")):
        raise TypeError(
            f"expected an array of NumPy or a tensor of PyTorch, got {type(tensor).__name__}; "
            "make one first, as numpy.asarray(..., dtype=...) does"
        )
    name = str(tensor.dtype).removeprefix("torch.")
    if hasattr(tensor, "detach"):
        if name not in DTYPES:
            raise _not_carried(name)
        plain = on_host(tensor)
        plain = plain.view(sys.modules["torch"].int16) if name == "bfloat16" else plain
        array = plain.numpy()
    else:
        array = np.asarray(tensor)
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
        name = array.dtype.name
    if name not in DTYPES:
        raise _not_carried(name)
    return array.reshape(-1).view(bits_dtype(name)), name, tuple(tensor.shape)


def _not_carried(name: str) -> TypeError:
    return TypeError(f"expected a tensor of one of {', '.join(DTYPES)}, got {name}; convert it first")


def from_bits(flat: Array, name: str, shape: tuple[int, ...], *, as_torch: bool) -> Any:
    """Return the tensor with these values: of PyTorch, or of NumPy, where bfloat16 becomes float32.

    Raises OscarError if PyTorch is asked for and not imported.
    """
    if as_torch:
        torch: Any = sys.modules.get("torch")
        if torch is None:
            raise OscarError("as_torch makes tensors of PyTorch, which is not imported: import torch first")
        signed = flat.view(np.int16) if flat.dtype == np.uint16 else flat  # old releases have no uint16
        return torch.from_numpy(signed).view(getattr(torch, name)).reshape(shape)
    if name == "bfloat16":
        flat = (flat.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return flat.reshape(shape)
