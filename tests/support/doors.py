"""The table of inputs.md, and a tensor for each of its rows, so that each cell can be tried."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "inputs.md"
SIZE = (48, 64)  # values enough for torchft to code them


def table() -> dict[str, dict[str, str]]:
    """Return the cells of the table of what each entry point takes, by row and column."""
    lines = PAGE.read_text().partition("## What each takes")[2].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    head, _, *body = rows
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in body}


def values(dtype: str = "float32") -> np.ndarray:
    """Return small integers, 1 to 7, which all dtypes hold."""
    return (np.arange(SIZE[0] * SIZE[1]) % 7 + 1).reshape(SIZE).astype(dtype)


def arrays() -> dict[str, list[np.ndarray]]:
    """Return by row the arrays of NumPy that it is about; rows about torch alone have none."""
    return {
        "float32": [values()],
        "float16": [values("float16")],
        "float64": [values("float64")],
        "float64, all below 1.2e-38": [values("float64") * 1e-50],
        "float64, beyond 3.4e+38": [values("float64") * 1e60],
        "complex64, complex128": [values("complex64"), values("complex128")],
        "int8, uint8, int32, int64": [values(name) for name in ("int8", "uint8", "int32", "int64")],
        "int16": [values("int16")],
        "bool": [values("bool")],
        "not contiguous": [values().T],
    }


def tensors(torch: Any, place: Callable[[Any], Any] = lambda tensor: tensor) -> dict[str, list[Any]]:
    """Return by row the tensors of PyTorch that it is about, but for DTensor and CUDA."""
    whole = torch.from_numpy(values())
    return {
        **{row: [place(torch.from_numpy(one)) for one in held] for row, held in arrays().items()},
        "bfloat16": [whole.bfloat16()],
        "float8": [whole.to(torch.float8_e4m3fn)],
        "with `requires_grad`": [whole.clone().requires_grad_()],
        "sparse, COO": [whole.to_sparse()],
        "sparse, CSR": [whole.to_sparse_csr()],
        "on `meta`": [whole.to("meta")],
    }
