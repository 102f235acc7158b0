"""Best policies there are, for a few tensors: all of them, or a mixed-integer programme."""

from __future__ import annotations

from typing import Any

import numpy as np

from oscar.errors import ConfigError
from oscar.kernels import njit
from oscar.planning.synthesis.model import MilpModel
from oscar.planning.tuning.policy import Policy, PolicyProblem
from oscar.planning.tuning.select import Finder, Selection
from oscar.planning.tuning.select import select as select_among
from oscar.timeline.engine import BEFORE, COMPUTE, Step
from oscar.timeline.lanes import policy_time
from oscar_studies.espresso import SELECTORS

MOST = 12  # tensors of the programme
LIMIT_S, GAP = 120.0, 1e-7
FROM, AT, END = "from", "at", "end"


def brute(problem: PolicyProblem, *, groups: bool = True) -> tuple[Policy, int]:
    """Return the best of all policies, and how many there are; groups: of all groupings, too."""
    stops, options, tried = _exhaust(problem.case, groups)
    return Policy(tuple(stops.tolist()), tuple(options.tolist())), tried


@njit(cache=True, nogil=True)
def _exhaust(case: Any, groups: bool) -> tuple[Any, Any, int]:
    tensors, number = case.ready.shape[0], case.queue.shape[0]
    starts = np.empty((tensors, case.queue.shape[1]))
    stops, options = np.zeros(tensors, np.int64), np.zeros(tensors, np.int64)
    best_stops, best_options, best, tried = stops[:0], options[:0], np.inf, 0
    borders = 1 << (tensors - 1)
    for cuts in range(0 if groups else borders - 1, borders):
        count = 0
        for border in range(tensors):
            if border == tensors - 1 or cuts >> border & 1:
                stops[count] = border + 1
                count += 1
        for code in range(number**count):
            for group in range(count):
                options[group] = code % number
                code //= number
            tried += 1
            seconds = policy_time(case, stops, options, count, starts, best)
            if seconds < best:
                best, best_stops, best_options = seconds, stops[:count].copy(), options[:count].copy()
    return best_stops, best_options, tried


def milp(problem: PolicyProblem) -> tuple[Policy, int]:
    """Return the best policy by HiGHS (extra `schedule`), where groups follow each other on every lane.

    A policy is a path over the borders between tensors; an arc is a group with an option. A variable for each
    border and lane is when the lane has done all groups before it. Raises ConfigError for more than MOST
    tensors, and for options with steps after the network, whose order on a lane is not that of groups.
    """
    tensors = len(problem.sizes)
    steps = [step for option in problem.options for step in option.steps]
    if tensors > MOST or any(step.priority != BEFORE for step in steps):
        raise ConfigError(
            f"expected up to {MOST} tensors, whose options have no steps after the network; take joint"
        )
    unit = min(problem.time(Policy.uniform(tensors, o)) for o in range(len(problem.options)))
    if not np.isfinite(unit):
        raise ConfigError("expected an option that all tensors can take, for a first bound")
    model = _programme(problem, unit)
    result = model.solve({END: 1.0}, LIMIT_S, GAP)
    if result is None:
        raise ConfigError(f"expected a policy within {LIMIT_S:g} s, got none")
    stops, options, at = [], [], 0
    while at < tensors:
        at, option = next(
            (name[2], name[3])
            for name in model.index
            if isinstance(name, tuple) and name[:2] == (FROM, at) and model.value(result, name) > 0.5
        )
        stops.append(at)
        options.append(option)
    return Policy(tuple(stops), tuple(options)), 0


def _programme(problem: PolicyProblem, unit: float) -> MilpModel:
    model, tensors = MilpModel(), len(problem.sizes)
    lanes = sorted({COMPUTE} | {step.lane for option in problem.options for step in option.steps})
    model.variable(END, 1.0)
    for border in range(tensors + 1):
        for lane in lanes:
            model.variable((AT, border, lane), 1.0 if border else 0.0)
    ins: dict[int, dict[object, float]] = {at: {} for at in range(tensors + 1)}
    outs: dict[int, dict[object, float]] = {at: {} for at in range(tensors + 1)}
    for begin in range(tensors):
        for stop in range(begin + 1, tensors + 1):
            for number, option in enumerate(problem.options):
                if problem.mask[number, begin:stop].any():
                    continue
                name = FROM, begin, stop, number
                model.variable(name, 1.0, whole=True)
                outs[begin][name] = ins[stop][name] = 1.0
                took = problem.ready_s[stop - 1] - (problem.ready_s[begin - 1] if begin else 0.0)
                own = option.seconds(problem.counted(begin, stop, number))
                _arc(model, name, lanes, took / unit, [s._replace(seconds=s.seconds / unit) for s in own])
    for border in range(tensors + 1):
        flow = {**outs[border], **dict.fromkeys(ins[border], -1.0)}
        wanted = float(border == 0) - float(border == tensors)
        model.row(flow, wanted, wanted)
    for lane in lanes:
        model.row({END: 1.0, (AT, tensors, lane): -1.0}, 0.0)
    return model


def _arc(
    model: MilpModel, name: tuple[str, int, int, int], lanes: list[int], took: float, steps: list[Step]
) -> None:
    """Let a group take its lanes one after another, if its arc is on the path: else rows hold by 2 units."""
    _, begin, stop, _ = name

    def after(lane: int, border: int, other: int, seconds: float) -> None:
        slack = 1.0 + seconds
        terms = {(AT, stop, lane): 1.0, (AT, border, other): -1.0, name: -slack}
        model.row(terms, seconds - slack)

    same = sum(step.seconds for step in steps if step.lane == COMPUTE)
    after(COMPUTE, begin, COMPUTE, took + same)
    before = COMPUTE
    used = {COMPUTE}
    for step in steps:
        if step.lane != COMPUTE:
            after(step.lane, begin, step.lane, step.seconds)
            after(step.lane, stop, before, step.seconds)
            before = step.lane
            used.add(step.lane)
    for lane in set(lanes) - used:
        after(lane, begin, lane, 0.0)


EVERY: dict[str, Finder] = {**SELECTORS, "brute": brute, "milp": milp}


def select(problem: PolicyProblem, name: str = "joint") -> Selection:
    """Return what a selector or an oracle finds; see oscar.planning.tuning.select."""
    return select_among(problem, name, among=EVERY)
