"""Dtypes of gradients: which ones are coded, and why the others are not. All integrations share these rules.

Gradients are coded as float32. A dtype is coded where float32 has all its values. Others are sent
uncompressed by integrations that can do so, and refused by the rest.
"""

from __future__ import annotations

from typing import Any

CODED = ("float32", "float16", "bfloat16")
RANGE = "float32, in which gradients are coded, has neither its range nor its precision"
NO_CODEC = "complex numbers have no codec"


def name_of(dtype: Any) -> str:
    """Return the name of a dtype of NumPy or torch, such as "float32"."""
    return str(dtype).rpartition(".")[2]


def why_uncoded(dtype: Any) -> str | None:
    """Return why gradients of `dtype` are not coded; None: they are. dtype: of NumPy or torch.

    Raises TypeError for a dtype that gradients cannot have: integers, bool and anything else that is neither
    floating-point nor complex.
    """
    name = name_of(dtype)
    if name in CODED:
        return None
    if name.startswith("complex"):
        return f"{name}: {NO_CODEC}"
    if name.startswith(("float", "bfloat", "longdouble")):
        return f"{name}: {RANGE}" if name == "float64" else f"{name} has no codec"
    raise TypeError(f"expected floating-point gradients, got {name}; convert them, or leave this tensor out")
