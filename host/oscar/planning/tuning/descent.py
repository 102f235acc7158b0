"""Local search over groups and options, compiled: flips, merges, splits and moved borders while they gain."""

from __future__ import annotations

from typing import Any

import numpy as np

from oscar.kernels import njit
from oscar.timeline.lanes import policy_time

GAIN = 1.0 - 1e-9  # a gain of less is rounding
FINE = 32  # tensors of a group that is split at every border


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
        best, count, more = _splits(case, stops, options, count, starts, best, deep=False)
        tried += more
        if best >= before * GAIN:
            best, count, more = _splits(case, stops, options, count, starts, best, deep=True)
            tried += more
            if best >= before * GAIN:
                break
    return best, count, tried


@njit(cache=True, nogil=True)
def _flips(case: Any, stops: Any, options: Any, count: int, starts: Any, best: float) -> tuple[float, int]:
    tried = 0
    for group in range(count):
        for option in range(case.queue.shape[0]):
            kept = options[group]
            if option != kept:
                options[group] = option
                seconds = policy_time(case, stops, options, count, starts, best)
                tried += 1
                if seconds < best * GAIN:
                    best = seconds
                else:
                    options[group] = kept
    return best, tried


@njit(cache=True, nogil=True)
def _moves(case: Any, stops: Any, options: Any, count: int, starts: Any, best: float) -> tuple[float, int]:
    """Move the border behind each group by 1, 2, 4, ... tensors."""
    tried = 0
    for group in range(count - 1):
        way = 1
        while abs(way) < stops.shape[0]:
            kept = stops[group]
            if (stops[group - 1] if group else 0) < kept + way < stops[group + 1]:
                stops[group] = kept + way
                seconds = policy_time(case, stops, options, count, starts, best)
                tried += 1
                if seconds < best * GAIN:
                    best = seconds
                else:
                    stops[group] = kept
            way = -way if way > 0 else -2 * way
    return best, tried


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _splits(
    case: Any, stops: Any, options: Any, count: int, starts: Any, best: float, deep: bool
) -> tuple[float, int, int]:
    """Split each group where it gains most; deep: one half takes another option."""
    tried, group = 0, 0
    while group < count:
        begin, end, kept = stops[group - 1] if group else 0, stops[group], options[group]
        if count == stops.shape[0] or end - begin < 2:
            group += 1
            continue
        stops[group + 1 : count + 1] = stops[group:count].copy()
        options[group + 1 : count + 1] = options[group:count].copy()
        cut, left, right = -1, kept, kept
        for border in range(begin + 1, end, 1 + (end - begin) // FINE):  # moves do the rest
            stops[group] = border
            for choice in range(2 * case.queue.shape[0] if deep else 1):
                options[group], options[group + 1] = kept, kept
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
        options[group] = kept
        group += 1
    return best, count, tried
