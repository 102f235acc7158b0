"""Rounding to steps, and what saturation takes from a gradient: counted, weighed, and warned of once where it
is lost.

Rounding is in NumPy, for the few tensors that the kernels do not take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oscar.errors import SaturationWarning, warn
from oscar.numerics.quantiser_kernels import energies_beyond


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


ADVICE = "raise quantiser.bits (to 16) or quantiser.coarseness, or set quantiser.error_feedback"
CODEC_ADVICE = "take a codec that holds the sums: asc or int16 instead of int8, bf16 or fp32 instead of fp16"
WARN_SHARE = 1e-4  # of a tensor's energy; a larger loss is warned of


@dataclass(frozen=True)
class Saturation:
    """What one worker lost in one call; energies are sums of squares.

    values: how many saturated; energy: the share of the whole gradient's energy that was cut off, 0 .. 1;
    tensor, worst: the tensor that lost the largest share of its own energy, and that share. tensor is -1
    where the loss is not of one tensor, as in a sketch of all. Losses of one gradient's parts add up.
    """

    values: int = 0
    energy: float = 0.0
    tensor: int = -1
    worst: float = 0.0

    @classmethod
    def of(
        cls,
        values: int,
        lost: Mapping[int, float],
        tensors: Sequence[Any],
        energies_of: Callable[[Sequence[Any]], list[float]] | None = None,
    ) -> Saturation:
        """Return the loss of a gradient [tensor], flat float32, from the energies that its tensors lost.

        The gradient is read for this only where something was lost. energies_of: returns the sums of squares
        of tensors.
        """
        if not any(lost.values()):
            return cls(values)
        none = [0.0] * len(tensors)
        energies = energies_beyond(tensors, none) if energies_of is None else energies_of(tensors)
        shares = {
            t: min(1.0, cut / energies[t]) if energies[t] else float(cut > 0) for t, cut in lost.items()
        }
        tensor = max(shares, key=lambda t: shares[t])
        whole = sum(energies)
        return cls(values, min(1.0, sum(lost.values()) / whole) if whole else 1.0, tensor, shares[tensor])

    def __add__(self, other: Saturation) -> Saturation:
        low, high = sorted((self, other), key=lambda loss: loss.worst)
        worst = high.worst + (low.worst if low.tensor == high.tensor else 0.0)
        energy = min(1.0, self.energy + other.energy)
        return Saturation(self.values + other.values, energy, high.tensor, min(1.0, worst))


class SaturationNotice:
    """Warns once of a loss in the quantiser or scheme, and once of a loss in the codec."""

    def __init__(self) -> None:
        self.told = self.told_of_codec = self.told_of_drop = False

    def tell(self, losses: Mapping[int, Saturation], advice: str) -> None:
        """Warn where a rank's tensor lost more than WARN_SHARE; `advice`: what to set.

        losses: by rank, of workers without error feedback.
        """
        if self.told or not losses:
            return
        rank = max(losses, key=lambda rank: losses[rank].worst)
        loss = losses[rank]
        if loss.worst <= WARN_SHARE:
            return
        what = "its sketch" if loss.tensor < 0 else f"tensor {loss.tensor}"
        warn(
            f"rank {rank}, {what}: saturation cut off {loss.worst:.2%} of the energy, and without error "
            f"feedback that is lost: {advice}. Told once; stats.clipped_energy has every call's share",
            SaturationWarning,
        )
        self.told = True

    def tell_dropped(self, losses: Mapping[int, Saturation]) -> None:
        """Warn once where a rank dropped more of its residual than WARN_SHARE of its gradient's energy."""
        rank = max(losses, key=lambda rank: losses[rank].energy, default=-1)
        if self.told_of_drop or rank < 0 or losses[rank].energy <= WARN_SHARE:
            return
        warn(
            f"rank {rank}: the gradient grew or fell so much from one call to the next that error feedback "
            f"dropped a part of what it carries over, {losses[rank].energy:.2%} of the gradient's energy: a "
            "single spike needs no action; clip gradients that jump often. Reported once",
            SaturationWarning,
        )
        self.told_of_drop = True

    def tell_codec(self, name: str, share: float) -> None:
        """Warn where the codec's frames lost more than WARN_SHARE of their energy; `share`: how much."""
        if self.told_of_codec or share <= WARN_SHARE:
            return
        warn(
            f"codec {name}: saturation cut off {share:.2%} of the energy of what was sent, which no error "
            f"feedback gives back: {CODEC_ADVICE}. Told once; stats.clipped_energy has every call's share",
            SaturationWarning,
        )
        self.told_of_codec = True
