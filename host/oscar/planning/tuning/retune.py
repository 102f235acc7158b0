"""Choosing anew in mid-training: the link that groups' times show, and a policy where another one gains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from oscar.config import Config
from oscar.errors import ConfigError
from oscar.planning.tuning.apply import ready_of, split_option
from oscar.planning.tuning.options import (
    SCHEDULES,
    SPARSE,
    MethodPrice,
    check_processors,
    default_choices,
    measured,
    options,
)
from oscar.planning.tuning.policy import OTHER, SAME, Option, Problem
from oscar.planning.tuning.policy_file import PolicyFile
from oscar.planning.tuning.select import select
from oscar.timeline.graph import PORT
from oscar.timeline.link import LinkModel

GAIN = 1.05  # by which another policy has to be faster: less is within the error of the model
FAST_BPS, SLOW_BPS, MOST_LATENCY_S = 1e12, 1e4, 1.0  # beyond these a link is not told from one that has them


class Seen(NamedTuple):
    """What reducing a group took."""

    option: str
    values: int
    seconds: float


@dataclass(frozen=True)
class Retuned:
    """What was decided, on which link: seconds of an iteration with the policy of before, and with it."""

    policy: PolicyFile
    link: LinkModel
    before_s: float
    time_s: float


class Retuner:
    """Selects policies for one model and one number of nodes, for the link as it is seen to be.

    policy: the one to begin with, which says computing time and link. Methods are those that it names, and
    what a tuner takes where nothing is said. Raises ConfigError for a policy that says too little, or that
    names a method which is priced on gradients.
    """

    def __init__(self, policy: PolicyFile, config: Config, *, gain: float = GAIN) -> None:
        if not gain >= 1:
            raise ConfigError(f"expected a gain of 1 or more for another policy, got {gain:g}")
        self.nodes, self.gain = config.nodes, gain
        named = [split_option(option) for _, option in policy.groups]
        methods = dict.fromkeys([*default_choices(config.method), *(method for method, _ in named)])
        if bad := [method for method in methods if method in SPARSE]:
            raise ConfigError(
                f"expected methods whose bytes do not depend on what is zero, got {bad[0]}: "
                "leave it out of --methods, or leave retuning out"
            )
        self._methods, self._config = list(methods), config
        self._schedules = list(dict.fromkeys([*SCHEDULES, *(schedule for _, schedule in named)]))
        self._processors = check_processors(policy.made.get("processors") or (SAME, OTHER))
        self._ready = ready_of(policy, policy.number("compute_ms") * 1e-3)
        self.expected_s: float | None = None  # of an iteration, on the link as it was seen last
        self._sizes = tuple(size for _, size in policy.tensors)
        self.link = LinkModel.of(gbps=policy.number("gbps"), latency_us=policy.number("latency_us"))

    @cached_property
    def _prices(self) -> list[MethodPrice]:
        """Measured at first use, by those that choose alone."""
        return [measured(method, self.nodes, self._config) for method in self._methods]

    def retune(self, policy: PolicyFile, seen: Sequence[Seen]) -> Retuned | None:
        """Return another policy if it is `gain` times as fast as this one on the link that was seen."""
        self.link = fitted(seen, self._prices, self.nodes, self.link)
        problem = Problem(self._sizes, self._ready, tuple(self._options(self.link)))
        before, found = problem.time(policy.policy(problem)), select(problem)
        self.expected_s = before
        if before < self.gain * found.time_s:
            return None
        names = [name for name, _ in policy.tensors]
        made = {
            **policy.made,
            "gbps": self.link.bandwidth_bps * 1e-9,
            "latency_us": self.link.latency_s * 1e6,
            "time_ms": found.time_s * 1e3,
        }
        other = PolicyFile.of(names, problem, found.policy, made)
        self.expected_s = found.time_s
        return Retuned(other, self.link, before, found.time_s)

    def _options(self, link: LinkModel) -> list[Option]:
        named, kinds = self._prices, self._processors
        return options(named, self.nodes, link, self._schedules, processors=kinds, dominated=True)


def fitted(seen: Sequence[Seen], prices: Iterable[MethodPrice], nodes: int, before: LinkModel) -> LinkModel:
    """Return the link, rate and latency, that explains what groups took, as least squares.

    What coding takes according to `prices` is taken off; whatever else takes longer than in the model is the
    link's. Where groups do not tell rate from latency, that of `before` stays.
    """
    if not seen:
        return before
    prices = list(prices)
    known = {schedule: _by_name(prices, nodes, before, schedule) for schedule in _schedules(seen)}
    probe = replace(before, bandwidth_bps=FAST_BPS, latency_s=1.0)
    hops = {schedule: _by_name(prices, nodes, probe, schedule) for schedule in known}
    rows, port_s = [], []
    for one in seen:
        schedule = split_option(one.option)[1]
        steps = known[schedule][one.option].seconds(one.values)
        port = sum(step.seconds for step in steps if step.lane == PORT)
        coding = sum(step.seconds for step in steps if step.lane != PORT)
        each = sum(s.seconds for s in hops[schedule][one.option].seconds(one.values) if s.lane == PORT)
        rows.append((round(each), max(0.0, port - round(each) * before.latency_s) * before.bandwidth_bps))
        port_s.append(max(0.0, one.seconds - coding))
    latency_s, each_bit_s = _least_squares(np.array(rows), np.array(port_s), before)
    rate = min(FAST_BPS, max(SLOW_BPS, 1 / max(each_bit_s, 1 / FAST_BPS)))
    return replace(before, bandwidth_bps=rate, latency_s=min(MOST_LATENCY_S, latency_s))


def _schedules(seen: Sequence[Seen]) -> list[str]:
    return list(dict.fromkeys(split_option(one.option)[1] for one in seen))


def _by_name(prices: Sequence[MethodPrice], nodes: int, link: LinkModel, schedule: str) -> dict[str, Option]:
    return {option.name: option for option in options(prices, nodes, link, [schedule], dominated=True)}


def _least_squares(rows: np.ndarray, port_s: np.ndarray, before: LinkModel) -> tuple[float, float]:
    """Return seconds of a hop and of a bit, neither below 0; rows: hops and bits of each group."""
    hops, bits = rows.T
    if np.linalg.matrix_rank(rows / np.maximum(rows.max(axis=0), 1e-30), tol=1e-3) > 1:
        both = np.linalg.lstsq(rows, port_s, rcond=None)[0]
        if (both >= 0).all():
            return float(both[0]), float(both[1])
    left = port_s - hops * before.latency_s
    if (left @ bits) > 0:
        return before.latency_s, float(left @ bits / max(bits @ bits, 1e-30))
    return float(max(0.0, port_s @ hops) / max(hops @ hops, 1e-30)), 1 / FAST_BPS
