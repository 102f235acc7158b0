"""Choosing a policy, groups and options together; and why it is as it is.

Local search is compiled: flips, merges, splits and moved borders while they gain. Reasons say what each
group's next best option would cost, and what bounds the iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oscar.coding.costs import clock
from oscar.kernels import njit, part
from oscar.planning.tuning.policy import Policy, PolicyProblem
from oscar.timeline.engine import COMPUTE, LANES, PORT
from oscar.timeline.lanes import policy_time

CUTS = 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48  # groups of first guesses
SWEEPS, ENOUGH = 40, 10_000
GAIN = 1.0 - 1e-9  # a gain of less is rounding
FINE = 32  # tensors of a group that is split at every border


@dataclass(frozen=True)
class Selection:
    """A policy, the seconds of an iteration with it, how many were tried, and the processor's seconds."""

    policy: Policy
    time_s: float
    tried: int
    took_s: float


Finder = Callable[[PolicyProblem], tuple[Policy, int]]


def select(
    problem: PolicyProblem, name: str = "joint", *, among: Mapping[str, Finder] | None = None
) -> Selection:
    """Return what the selector `name` finds; raises ValueError for another name.

    Args:
        among: The selectors there are; None for SELECTORS. `oscar tune` has those of
            oscar_studies.espresso, too.
    """
    known = SELECTORS if among is None else among
    if name not in known:
        raise ValueError(f"expected a selector of {', '.join(known)}, got {name!r}")
    problem.case  # noqa: B018 - made once for all selectors
    began = clock()
    policy, tried = known[name](problem)
    took = clock() - began
    return Selection(policy, problem.time(policy), tried, took)


def joint(problem: PolicyProblem) -> tuple[Policy, int]:
    """Return the best end of local searches from every uniform policy; never worse than any of these.

    Searches begin where an option does best: each tensor alone, or in some groups of equal values; then where
    it does second best and so on, until ENOUGH policies have been tried.
    """
    # Groupings to begin with: every tensor alone, and groups of about equal values.
    groupings = list(dict.fromkeys(_cut(problem, count) for count in (len(problem.sizes), *CUTS)))
    guesses, tried = [], 0
    for option in range(len(problem.options)):
        policies = [_guess(problem, option, borders) for borders in groupings]
        guesses.append(sorted(policies, key=problem.time))
        tried += len(policies)
    ends: list[tuple[float, Policy]] = []
    for place, starts in enumerate(zip(*guesses, strict=True)):
        for start in starts:
            if not place or tried < ENOUGH:
                seconds, policy, more = _descended(problem, start, regroup=True)
                ends.append((seconds, policy))
                tried += more
    return simplified(problem, min(ends, key=lambda end: end[0])[1]), tried


def fixed(problem: PolicyProblem, groups: int) -> Policy:
    """Return the best policy of so many groups that local search finds, or of fewer for fewer tensors.

    It begins with groups of equal values, each option in all of them.
    """
    borders = _cut(problem, groups)
    starts = [_guess(problem, option, borders) for option in range(len(problem.options))]
    return min((_descended(problem, start, regroup=False) for start in starts), key=lambda end: end[0])[1]


def simplified(problem: PolicyProblem, policy: Policy) -> Policy:
    """Return a policy that is no slower, with fewer groups or fewer that are compressed, if there is one."""
    raw = [at for at, option in enumerate(problem.options) if not option.compresses]
    best, at = problem.time(policy), 0
    while at < len(policy.stops):
        stops, options = policy.stops, policy.options
        trials = [
            Policy(stops, (*options[:at], o, *options[at + 1 :])) for o in raw if options[at] not in raw
        ]
        if at + 1 < len(stops):
            rest = stops[:at] + stops[at + 1 :]
            trials += [Policy(rest, (*options[:at], o, *options[at + 2 :])) for o in options[at : at + 2]]
        better = next((trial for trial in trials if problem.time(trial) <= best), None)
        policy, at = (policy, at + 1) if better is None else (better, at)
    return policy


def _descended(problem: PolicyProblem, start: Policy, *, regroup: bool) -> tuple[float, Policy, int]:
    tensors, count = len(problem.sizes), len(start.stops)
    stops, options = np.zeros(tensors, np.int64), np.zeros(tensors, np.int64)
    stops[:count], options[:count] = start.stops, start.options
    seconds, count, tried = descend(problem.case, stops, options, count, SWEEPS, regroup)
    return seconds, Policy(tuple(stops[:count].tolist()), tuple(options[:count].tolist())), tried


def _cut(problem: PolicyProblem, count: int) -> tuple[int, ...]:
    """Return the stops of up to `count` groups of about equal values, or of single tensors."""
    tensors, ends = len(problem.sizes), np.cumsum(problem.sizes)
    if count >= tensors:
        return tuple(range(1, tensors + 1))
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, count) / count) + 1
    return tuple(sorted({*np.minimum(cuts, tensors).tolist(), tensors}))


def _guess(problem: PolicyProblem, option: int, borders: tuple[int, ...]) -> Policy:
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


SELECTORS: dict[str, Finder] = {"joint": joint}


@dataclass(frozen=True)
class Reason:
    """A group: its first tensor and the one after its last, its option, and the next best with its loss."""

    begin: int
    stop: int
    values: int
    option: str
    ready_s: float
    end_s: float
    second: str | None
    loss_s: float

    @property
    def text(self) -> str:
        """One line."""
        who = (
            f"tensors {self.begin} to {self.stop - 1}"
            if self.stop - self.begin > 1
            else f"tensor {self.begin}"
        )
        when = f"ready at {self.ready_s * 1e3:.2f} ms, reduced at {self.end_s * 1e3:.2f} ms"
        line = f"{who}, {self.values:,} values: {self.option}; {when}"
        return (
            line if self.second is None else f"{line}; {self.second} would cost {self.loss_s * 1e3:+.3f} ms"
        )


def reasons(problem: PolicyProblem, policy: Policy) -> list[Reason]:
    """Return a reason for each group."""
    total, starts = problem.played(policy)
    result = []
    for at, (begin, stop, option) in enumerate(policy.groups):
        values = sum(problem.sizes[begin:stop])
        last = problem.steps(begin, stop, option)
        others = {}
        for other, rival in enumerate(problem.options):
            if other != option:
                changed = Policy(policy.stops, (*policy.options[:at], other, *policy.options[at + 1 :]))
                others[rival.name] = problem.time(changed) - total
        second = min(others, key=others.__getitem__) if others else None
        end = float(starts[at, len(last)]) + last[-1].seconds
        loss = others[second] if second else 0.0
        ready = float(problem.ready_s[stop - 1])
        result.append(Reason(begin, stop, values, problem.options[option].name, ready, end, second, loss))
    return result


def verdict(problem: PolicyProblem, policy: Policy) -> str:
    """Return in one line what bounds the iteration, and what compression does for it."""
    timeline = problem.timeline(policy)
    total, backward = timeline.total_s, float(problem.ready_s[-1])
    use = {name: share for name, share in timeline.use().items() if share > 0}
    lanes = ", ".join(f"{name} {share:.0%}" for name, share in use.items())
    raw = [seconds for name, seconds in problem.uniform().items() if _raw(problem, name)]
    text = f"{total * 1e3:.2f} ms, {(total - backward) * 1e3:.2f} ms after the backward pass; busy: {lanes}"
    coded = sum(problem.options[option].compresses for option in policy.options)
    if not raw:
        return text
    gain = min(raw) / total
    if coded:
        return f"{text}; {coded} of {len(policy.stops)} groups compressed, {gain:.2f}x none compressed"
    cheapest = min(
        (s for name, s in problem.uniform().items() if not _raw(problem, name)), default=float("inf")
    )
    if timeline.loads()[PORT] < timeline.loads()[COMPUTE]:
        why = f"the {LANES[PORT]} has time to spare"
    else:
        why = f"coding takes longer than it saves on the {LANES[PORT]}"
    return f"{text}; none compressed: {why}; the best codec for all would take {cheapest * 1e3:.2f} ms"


def _raw(problem: PolicyProblem, name: str) -> bool:
    return not next(option for option in problem.options if option.name == name).compresses


@njit(cache=True, nogil=True)
def descend(
    case: Any, stops: Any, options: Any, count: int, sweeps: int, regroup: bool
) -> tuple[float, int, int]:
    """Improve the policy in the first `count` of stops and options; both have room for all tensors.

    regroup: merge and split; else the number of groups stays.

    Returns its seconds, its groups, and how many policies were tried. A sweep tries all moves and takes each
    that gains; where none does, splits whose halves take other options are tried, too.
    """
    starts = np.empty((stops.shape[0], case.queue.shape[1]))
    best, tried = policy_time(case, stops, options, count, starts, np.inf), 1
    for _ in range(sweeps):
        before = best
        best, more = _flips(case, stops, options, count, starts, best)
        tried += more
        best, more = _moves(case, stops, options, count, starts, best)
        tried += more
        if not regroup:
            if best >= before * GAIN:
                break
            continue
        best, count, more = _merges(case, stops, options, count, starts, best)
        tried += more
        best, count, more = _splits(case, stops, options, count, starts, best, deep=np.bool_(False))
        tried += more
        if best >= before * GAIN:
            best, count, more = _splits(case, stops, options, count, starts, best, deep=np.bool_(True))
            tried += more
            if best >= before * GAIN:
                break
    return best, count, tried


@njit(cache=True, nogil=True)
def _flips(case: Any, stops: Any, options: Any, count: int, starts: Any, best: float) -> tuple[float, int]:
    tried = 0
    for group in range(count):
        for option in range(case.queue.shape[0]):
            before = options[group]
            if option != before:
                options[group] = option
                seconds = policy_time(case, stops, options, count, starts, best)
                tried += 1
                if seconds < best * GAIN:
                    best = seconds
                else:
                    options[group] = before
    return best, tried


@njit(cache=True, nogil=True)
def _moves(case: Any, stops: Any, options: Any, count: int, starts: Any, best: float) -> tuple[float, int]:
    """Move the border after each group by 1, 2, 4, ... tensors."""
    tried = 0
    for group in range(count - 1):
        way = 1
        while abs(way) < stops.shape[0]:
            before = stops[group]
            if (stops[group - 1] if group else 0) < before + way < stops[group + 1]:
                stops[group] = before + way
                seconds = policy_time(case, stops, options, count, starts, best)
                tried += 1
                if seconds < best * GAIN:
                    best = seconds
                else:
                    stops[group] = before
            way = -way if way > 0 else -2 * way
    return best, tried


@part
def _merges(
    case: Any, stops: Any, options: Any, count: int, starts: Any, best: float
) -> tuple[float, int, int]:
    """Merge each group with the next, with every option."""
    tried, group = 0, 0
    while group < count - 1:
        border, one, other = stops[group], options[group], options[group + 1]
        stops[group : count - 1] = stops[group + 1 : count].copy()
        options[group : count - 1] = options[group + 1 : count].copy()
        chosen = -1
        for option in range(case.queue.shape[0]):
            options[group] = option
            seconds = policy_time(case, stops, options, count - 1, starts, best)
            tried += 1
            if seconds < best * GAIN:
                best, chosen = seconds, option
        if chosen >= 0:
            options[group] = chosen
            count -= 1
            continue  # with the next one, too
        stops[group + 1 : count] = stops[group : count - 1].copy()
        options[group + 1 : count] = options[group : count - 1].copy()
        stops[group], options[group], options[group + 1] = border, one, other
        group += 1
    return best, count, tried


@part
def _splits(
    case: Any, stops: Any, options: Any, count: int, starts: Any, best: float, deep: bool
) -> tuple[float, int, int]:
    """Split each group where it gains most; deep: one half takes another option."""
    tried, group = 0, 0
    while group < count:
        begin, end, before = stops[group - 1] if group else 0, stops[group], options[group]
        if count == stops.shape[0] or end - begin < 2:
            group += 1
            continue
        stops[group + 1 : count + 1] = stops[group:count].copy()
        options[group + 1 : count + 1] = options[group:count].copy()
        cut, left, right = -1, before, before
        for border in range(begin + 1, end, 1 + (end - begin) // FINE):  # moves do the rest
            stops[group] = border
            for choice in range(2 * case.queue.shape[0] if deep else 1):
                options[group], options[group + 1] = before, before
                if deep:
                    options[group + choice % 2] = choice // 2
                seconds = policy_time(case, stops, options, count + 1, starts, best)
                tried += 1
                if seconds < best * GAIN:
                    best, cut, left, right = seconds, border, options[group], options[group + 1]
        if cut >= 0:
            stops[group], options[group], options[group + 1] = cut, left, right
            count += 1
            continue  # its first half, again
        stops[group:count] = stops[group + 1 : count + 1].copy()
        options[group:count] = options[group + 1 : count + 1].copy()
        options[group] = before
        group += 1
    return best, count, tried
