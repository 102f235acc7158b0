"""A bandit that chooses the quantiser's coarseness by what iterations take (docs/how-to/tune.md, "A bandit").

Costs along the arms fall and then rise: coarser steps send less and lose more. So only neighbours of the best
arm known are tried, as in OSUB (Combes and Proutiere, 2014). Where the cost of the arm in use changes, all
that is known is forgotten, as in M-UCB (Cao et al., 2019). Nothing is drawn: equal times give equal choices.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar

from oscar.errors import ConfigError
from oscar.state import Reader, Saved, Stateful

ARMS = 0.125, 0.25, 0.5, 1.0, 2.0, 4.0
EPOCH = 8  # iterations with one arm before the next choice
SETTLE = 2  # of them, in which steps and tables adapt and which do not count
CHANGED = 1.2  # times a cost that is another one
SURE = 2  # epochs in a row in which it is
AGAIN = 24  # epochs after which a neighbour of the best arm is tried again
MOST_S = 1e6

Share = Callable[[float], float]


def loss_factor(coarseness: float) -> float:
    """Return an upper bound on the factor by which rounding this coarsely multiplies the iterations.

    A step of c sigma adds noise of c^2 / 12 of the gradient's energy, and a stochastic gradient method whose
    noise is so much larger takes 1 + c^2 / 12 times the iterations (QSGD, Alistarh et al., 2017).
    """
    return 1 + coarseness**2 / 12


def check_arms(arms: Sequence[float]) -> tuple[float, ...]:
    """Return arms; raises ValueError unless there are two or more coarsenesses that rise."""
    given = tuple(float(arm) for arm in arms)
    good = len(given) >= 2 and all(math.isfinite(arm) and 2**-20 <= arm <= 2**20 for arm in given)
    if not good or any(b <= a for a, b in pairwise(given)):
        raise ValueError(
            f"arms: expected two or more coarsenesses of 2^-20 to 2^20 that rise, got {list(arms)}"
        )
    return given


def _read_arm(bandit: Any, saved: Saved) -> int:
    return saved.integer(0, len(bandit.arms) - 1)


def _read_costs(bandit: Any, saved: Saved) -> list[float | None]:
    return [None if item.missing else item.number(0, math.inf) for item in saved.items(len(bandit.arms))]


def _read_ages(bandit: Any, saved: Saved) -> list[int]:
    return [item.integer() for item in saved.items(len(bandit.arms))]


def _read_times(bandit: Any, saved: Saved) -> list[float]:
    items = saved.items()
    if len(items) >= EPOCH:
        raise saved.refuse(f"fewer than {EPOCH} times", f"{len(items)}")
    return [item.number(0, MOST_S) for item in items]


class Bandit(Stateful):
    """Chooses one of `arms`, a coarseness each; begins with the one nearest to `first`.

    `add` takes an iteration's seconds. Replicas that are given the same times, those that `share` returns,
    choose the same arms.
    """

    STATE: ClassVar[dict[str, Reader]] = {
        "arm": _read_arm,
        "costs": _read_costs,
        "ages": _read_ages,
        "times": _read_times,
        "doubts": lambda bandit, saved: saved.integer(0, SURE),
    }

    def __init__(self, arms: Sequence[float], first: float) -> None:
        self.arms = check_arms(arms)
        self.arm = min(range(len(self.arms)), key=lambda at: abs(math.log(self.arms[at] / first)))
        self.costs: list[float | None] = [None] * len(self.arms)  # seconds with the bound on loss
        self.ages = [0] * len(self.arms)  # epochs since each was tried
        self.times: list[float] = []  # of this epoch
        self.doubts = 0

    @property
    def coarseness(self) -> float:
        """Of the arm in use."""
        return self.arms[self.arm]

    @property
    def begins(self) -> bool:
        """Whether the epoch has no time yet; its first call may use another arm than the one before."""
        return not self.times

    def add(self, seconds: float, share: Share = float) -> None:
        """Take what an iteration with the arm in use took; at the end of an epoch choose the next.

        share: returns what rank 0 gave it, on every rank; called once an epoch. Raises ConfigError on all
        ranks for a time that is none.
        """
        self.times.append(min(max(seconds, 0.0), MOST_S) if math.isfinite(seconds) else MOST_S)
        if len(self.times) == EPOCH:
            took = share(statistics.median(self.times[SETTLE:]))
            if not 0 <= took <= MOST_S:
                raise ConfigError(f"expected seconds of iterations from rank 0, got {took!r}")
            self.times = []
            self._learn(took * loss_factor(self.coarseness))
            self.arm = self._next()

    def _learn(self, cost: float) -> None:
        known = self.costs[self.arm]
        self.ages = [age + 1 for age in self.ages]
        self.ages[self.arm] = 0
        if known is None:
            self.costs[self.arm] = cost
            return
        self.doubts = 0 if known / CHANGED <= cost <= known * CHANGED else self.doubts + 1
        if self.doubts == SURE:
            self.costs, self.doubts = [None] * len(self.arms), 0
            self.costs[self.arm] = cost
        elif not self.doubts:
            self.costs[self.arm] = known + (cost - known) / 4

    def _next(self) -> int:
        """Return the arm that doubts are about, a neighbour of the best one that is due, or the best one."""
        if self.doubts:
            return self.arm
        known = [(cost, at) for at, cost in enumerate(self.costs) if cost is not None]
        best = min(known)[1]
        beside = [at for at in (best - 1, best + 1) if 0 <= at < len(self.arms)]
        for at in beside:
            if self.costs[at] is None:
                return at
        due = max(beside, key=lambda at: self.ages[at])
        return due if self.ages[due] >= AGAIN else best
