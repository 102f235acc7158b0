"""SIDCo: each worker fits a distribution to its magnitudes, then to their tail, to find its threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from oscar.array import Array
from oscar.schemes.sparse.sparsifier import Choice, SparseOptions, SparseWorker, Sparsifier, check_one
from oscar.schemes.sparse.thresholds import above, moments
from oscar.state import Reader, natural

Fit = Literal["exponential", "pareto"]
FIRST = 0.25  # share of its values that a stage passes to the next one
WINDOW = 5  # iterations after which the number of stages may change
SLACK = 0.2  # relative error of the mean count in a window, from which on the stages change


@dataclass(frozen=True)
class SidcoOptions(SparseOptions):
    """Options of the scheme `sidco`: SparseOptions and the fit.

    fit: "exponential" or "pareto" (generalised Pareto). Choose "pareto" for gradients with heavy tails.
    stages: largest number of stages. Raise it for low densities.
    controller: "corrected" counts the values that a stage passed on. "released" trusts the fit.
    """

    fit: str = "exponential"
    stages: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one("fit", self.fit, get_args(Fit))
        if self.stages < 1:
            raise ValueError(f"expected 1 stage at least, got {self.stages}")


def fitted(count: int, total: float, energy: float, ratio: float, fit: str) -> float:
    """Return the value that a share of `ratio` exceeds, for `count` values with this sum and sum of squares.

    This is the quantile of the exponential or generalised Pareto distribution with the same moments.
    """
    if count == 0 or total <= 0 or ratio <= 0:
        return 0.0
    mean, log_ratio = total / count, math.log(ratio)
    variance = energy / count - mean * mean
    if fit == "exponential" or variance <= 0:
        return -mean * log_ratio
    square = mean * mean / variance
    scale, shape = mean / 2 * (square + 1), (square - 1) / 2
    if abs(shape * log_ratio) < 1e-9:
        return -scale * log_ratio
    return -scale * math.expm1(min(shape * log_ratio, 700.0)) / shape


def threshold_of(acc: Array, count: int, stages: int, fit: str, *, trusting: bool) -> float:
    """Return a threshold that about `count` magnitudes reach.

    trusting: assume that a stage passes on a share of FIRST; otherwise count its values.
    """
    threshold, left = 0.0, float(acc.size)
    for stage in range(stages):
        result, total, energy = moments(acc, threshold)
        if result == 0:
            break
        left = left if trusting else float(result)
        last = stage == stages - 1 or left * FIRST <= count
        threshold = max(0.0, threshold + fitted(result, total, energy, count / left if last else FIRST, fit))
        left *= FIRST
        if last:
            break
    return threshold


class Sidco(Sparsifier):
    """Each worker chooses its values above a fitted threshold, without sorting and without messages.

    stages: number of stages in use. seen: positions chosen in this window by all workers.
    """

    name: ClassVar[str] = "sidco"
    Options = SidcoOptions
    STATE: ClassVar[dict[str, Reader]] = Sparsifier.STATE | {
        "stages": lambda scheme, saved: saved.integer(1, scheme.options.stages),
        "seen": natural,
    }

    def _setup(self) -> None:
        super()._setup()
        self.stages, self.seen = 1, 0

    def choose(self, worker: SparseWorker, acc: Array) -> Choice:
        """See Sparsifier.choose."""
        o = self.options
        trusting = o.controller == "released"
        threshold = threshold_of(acc, self.count, self.stages, o.fit, trusting=trusting)
        return above(acc, threshold)
        yield  # a generator without messages

    def observe(self, counts: Array, united: Array) -> None:
        """Remove a stage if too many values were chosen, add one if too few: the published rule."""
        self.seen += int(counts.sum())
        if (self.iteration + 1) % WINDOW:
            return
        share = self.seen / max(1, WINDOW * self.nodes * self.count)
        step = -1 if share > 1 + SLACK else 1 if share < 1 - SLACK else 0
        self.stages = min(max(1, self.stages + step), self.options.stages)
        self.seen = 0
