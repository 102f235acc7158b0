"""Time of an iteration under a policy: the compiled twin of `graph.iteration`, for searches over policies.

A case holds curves: seconds of a step by the values of its group, on a grid of powers of two, straight lines
between them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oscar.kernels import njit
from oscar.timeline.engine import BACKWARD, COMPUTE, Floats, Step

Ints = NDArray[np.int64]
GRID: Floats = np.array([2.0**k for k in range(41)])  # values at which curves are told
CERTAIN = 1.0 - 1e-9  # of work that is left, whose sum is rounded


class LaneCase(NamedTuple):
    """What a policy is judged by; T tensors in the order of the backward pass, O options of up to S steps.

    ready [T]: seconds. ends [O, T + 1]: values before each tensor, and all, as an option counts them. refused
    [O, T + 1]: how many of the tensors before each an option cannot take. queue [O, S + 1]: of each step, -1
    for none; the first column is the backward pass. lane [queues]: of each queue. curve [O, S, GRID]:
    seconds.
    """

    ready: Floats
    ends: Ints
    refused: Ints
    queue: Ints
    lane: Ints
    curve: Floats


Case = LaneCase  # its name before; kernels that numba kept in a cache then are read by it


def seconds_at(curve: Floats, values: float) -> float:
    """Return the seconds of a curve for so many values, 1 at the least."""
    return float(_at(curve, float(values)))


@njit(cache=True, nogil=True)
def _at(curve: Any, values: float) -> float:
    part, power = math.frexp(max(values, 1.0))
    k = min(power - 1, curve.shape[0] - 2)
    beyond = 2.0 * part - 1.0 if k == power - 1 else values / 2.0**k - 1.0
    return curve[k] + (curve[k + 1] - curve[k]) * beyond


@njit(cache=True, nogil=True)
def policy_time(case: Any, stops: Any, options: Any, count: int, starts: Any, limit: float) -> float:
    """Return the seconds of an iteration; the first `count` of stops and options are its groups.

    starts [groups, S + 1]: on return, when each step starts. Infinite where a tensor cannot take an option,
    and where it would be `limit` or more.
    """
    queues, width = case.lane.shape[0], case.queue.shape[1]
    seconds = np.empty((count, width))
    order = np.empty((queues, count * width, 2), np.int32)  # steps of each queue: group, step
    length, head = np.zeros(queues, np.int64), np.zeros(queues, np.int64)
    work = np.zeros(case.lane[-1] + 1)  # that is left on each lane
    begin, before, left = 0, 0.0, 0
    for group in range(count):
        stop, option = stops[group], options[group]
        if case.refused[option, begin] != case.refused[option, stop]:
            return np.inf
        seconds[group, 0] = case.ready[stop - 1] - before
        values = float(case.ends[option, stop] - case.ends[option, begin])
        for step in range(width):
            queue = case.queue[option, step]
            if queue >= 0:
                if step > 0:
                    seconds[group, step] = _at(case.curve[option, step - 1], values)
                order[queue, length[queue], 0] = group
                order[queue, length[queue], 1] = step
                length[queue] += 1
                left += 1
                work[case.lane[queue]] += seconds[group, step]
        begin, before = stop, case.ready[stop - 1]
    return _play(case.lane, seconds, order, length, head, left, work, starts, limit)


@njit(cache=True, nogil=True)
def _play(
    lane: Any,
    seconds: Any,
    order: Any,
    length: Any,
    head: Any,
    left: int,
    work: Any,
    starts: Any,
    limit: float,
) -> float:
    """Start the earliest step again and again; queues are sorted by lane, then by priority."""
    count = seconds.shape[0]
    ready, at = np.full(count, np.inf), np.zeros(count, np.int64)
    ready[0] = 0.0
    free = np.zeros(lane[-1] + 1)
    total = 0.0
    while left > 0:
        best, chosen = np.inf, -1
        for queue in range(lane.shape[0]):
            if head[queue] == length[queue]:
                continue
            group = order[queue, head[queue], 0]
            if at[group] == order[queue, head[queue], 1]:
                start = max(ready[group], free[lane[queue]])
                if start < best:
                    best, chosen = start, queue
        group, step = order[chosen, head[chosen]]
        end = best + seconds[group, step]
        starts[group, step] = best
        free[lane[chosen]] = end
        work[lane[chosen]] -= seconds[group, step]
        if end + work[lane[chosen]] * CERTAIN >= limit:
            return np.inf
        ready[group], at[group] = end, step + 1
        if step == 0 and group + 1 < count:
            ready[group + 1] = end
        head[chosen] += 1
        left -= 1
        total = max(total, end)
    return total if total < limit else np.inf


def make_case(
    ready: Floats,
    sizes: Ints,
    options: list[list[Step]],
    curves: list[list[Floats]],
    refused: NDArray[np.bool_],
) -> LaneCase:
    """Return a case; options: steps whose seconds are those of `curves`. refused: bool [options, tensors].

    sizes: values of each tensor, int64 [options, tensors], as each option counts them.
    """
    places = {(step.lane, step.priority) for steps in options for step in steps} | {(COMPUTE, BACKWARD)}
    number = {place: at for at, place in enumerate(sorted(places))}
    width = max((len(steps) for steps in options), default=0)
    queue = np.full((len(options), width + 1), -1, np.int64)
    curve = np.zeros((len(options), max(1, width), GRID.size))
    queue[:, 0] = number[COMPUTE, BACKWARD]
    for at, (steps, own) in enumerate(zip(options, curves, strict=True)):
        for place, (step, seconds) in enumerate(zip(steps, own, strict=True)):
            queue[at, place + 1] = number[step.lane, step.priority]
            curve[at, place] = seconds
    lane = np.array([lane for lane, _ in sorted(places)], np.int64)
    none = np.zeros((len(options), 1), np.int64)
    ends = np.concatenate([none, np.cumsum(sizes, axis=1, dtype=np.int64)], axis=1)
    counts = np.concatenate([none, np.cumsum(refused, axis=1)], axis=1)
    return LaneCase(ready, ends, counts.astype(np.int64), queue, lane, curve)
