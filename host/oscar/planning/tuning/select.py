"""Choosing a policy: as published, as released, groups and options together, and oracles."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from oscar.planning.tuning.descent import descend
from oscar.planning.tuning.espresso import published, released
from oscar.planning.tuning.oracles import brute, milp
from oscar.planning.tuning.policy import Policy, Problem

CUTS = 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48  # groups of first guesses
SWEEPS, ENOUGH = 40, 10_000


@dataclass(frozen=True)
class Selection:
    """A policy, the seconds of an iteration with it, and how many policies were tried for it in what time."""

    policy: Policy
    time_s: float
    tried: int
    took_s: float


Finder = Callable[[Problem], tuple[Policy, int]]


def select(problem: Problem, name: str = "joint") -> Selection:
    """Return what a selector of SELECTORS finds; raises ValueError for another name."""
    if name not in SELECTORS:
        raise ValueError(f"expected a selector of {', '.join(SELECTORS)}, got {name!r}")
    problem.case  # noqa: B018 - made once for all selectors
    began = time.perf_counter()
    policy, tried = SELECTORS[name](problem)
    took = time.perf_counter() - began
    return Selection(policy, problem.time(policy), tried, took)


def joint(problem: Problem) -> tuple[Policy, int]:
    """Return the best end of local searches from every uniform policy; never worse than any of these.

    Searches begin where an option does best: each tensor alone, or in some groups of equal values; then where
    it does second best and so on, until ENOUGH policies have been tried.
    """
    tensors, tried = len(problem.sizes), 0
    guesses = []
    for option in range(len(problem.options)):
        own = [_guess(problem, option, borders) for borders in _borders(problem)]
        guesses.append(sorted(own, key=problem.time))
        tried += len(own)
    best, found = np.inf, guesses[0][0]
    stops, options = np.zeros(tensors, np.int64), np.zeros(tensors, np.int64)
    for place, starts in enumerate(zip(*guesses, strict=True)):
        for start in starts:
            if place and tried >= ENOUGH:
                return found, tried
            count = len(start.stops)
            stops[:count], options[:count] = start.stops, start.options
            seconds, count, more = descend(problem.case, stops, options, count, SWEEPS)
            tried += more
            if seconds < best:
                best = seconds
                found = Policy(tuple(stops[:count].tolist()), tuple(options[:count].tolist()))
    return found, tried


def _borders(problem: Problem) -> list[tuple[int, ...]]:
    """Return groupings to begin with: every tensor alone, and groups of about equal values."""
    tensors, ends = len(problem.sizes), np.cumsum(problem.sizes)
    found = {tuple(range(1, tensors + 1)): None}
    for count in CUTS:
        cuts = np.searchsorted(ends, ends[-1] * np.arange(1, count) / count) + 1
        found[tuple(sorted({*cuts.tolist(), tensors} - {tensors + 1}))] = None
    return list(found)


def _guess(problem: Problem, option: int, borders: tuple[int, ...]) -> Policy:
    """Return the policy of one option in these groups; what cannot take it takes the first that it can."""
    stops: list[int] = []
    options: list[int] = []
    begin = 0
    for stop in borders:
        able = np.flatnonzero(~problem.mask[:, begin:stop].any(axis=1))
        whole = [stop] if able.size else range(begin + 1, stop + 1)
        for at in whole:
            first = begin if able.size else at - 1
            able_here = np.flatnonzero(~problem.mask[:, first:at].any(axis=1))
            stops.append(at)
            options.append(option if option in able_here else int(able_here[0]))
        begin = stop
    return Policy(tuple(stops), tuple(options))


SELECTORS: dict[str, Finder] = {
    "joint": joint,
    "espresso": published,
    "espresso-released": released,
    "brute": brute,
    "milp": milp,
}
