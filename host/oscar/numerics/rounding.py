"""Rounding to steps, and what bounds cut off, in NumPy: for the few tensors that the kernels do not serve."""

from __future__ import annotations

from typing import Any

import numpy as np


def power_of(exponent: int | None, here: slice, shifts: np.ndarray | None) -> Any:
    """Return the exponents of the steps of the values `here` of a tensor. One number if all are equal."""
    shared = np.int32(exponent or 0)
    return shared if shifts is None else shifts[here].astype(np.int32) + shared


def energy_of(values: np.ndarray) -> float:
    """Return the sum of squares in float64."""
    return float(np.square(values, dtype=np.float64).sum())


def bounded_by(steps: np.float32, power: Any, residual: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the energy that is cut off a residual beyond `steps` of 2^power, and the rest of it."""
    with np.errstate(over="ignore"):  # no residual is beyond Inf
        most = np.ldexp(steps, power)
    bounded = np.clip(residual, -most, most)
    return energy_of(residual - bounded), bounded


def rounded(
    values: np.ndarray, power: Any, limit: int, noise: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 values in steps of 2^power, as int32 within the limit, and before they were bounded.

    noise: draws of stochastic rounding, float64. None rounds to nearest.
    """
    with np.errstate(over="ignore"):
        scaled = np.ldexp(values, -power)
    whole = np.rint(scaled) if noise is None else np.floor(scaled.astype(np.float64) + noise)
    return np.clip(whole, -limit, limit).astype(np.int32), whole
