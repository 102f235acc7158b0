"""Choosing anew in mid-training: the link that groups' times show, and a policy where another one gains."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from oscar.coding.costs import MOST_SECONDS, FrameCost
from oscar.collective.ring import Ring
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.planning.tuning.apply import groups_of, ready_of, split_option
from oscar.planning.tuning.options import (
    FP32,
    SCHEDULES,
    SPARSE,
    MethodPrice,
    check_processors,
    default_choices,
    measured,
    options,
)
from oscar.planning.tuning.policy import MOST, OTHER, SAME, Option, PolicyFile, PolicyProblem
from oscar.planning.tuning.select import Selection, select
from oscar.state import Saved
from oscar.timeline.engine import PORT, Floats, check_ready
from oscar.timeline.link import LEAST_RATE, MOST_RATE, LinkModel

GAIN = 1.05  # by which another policy has to be faster: less is within the error of the model
FAST_BPS, SLOW_BPS, MOST_LATENCY_S = 1e12, 1e4, 1.0  # beyond these a link is not told from one that has them
LEAST_SLOWER = 0.1
BACK = 1.02  # times as fast as now was a policy that is gone back to
FAR = 1.3  # the gain where many more bytes are sent, or less, than were seen to cost what they do
LONGEST_S = 1e9  # of an iteration that was saved
OTHER_LINK = 1.5  # a rate that differs by this is another link


class Seen(NamedTuple):
    """What reducing a group took: seconds of waiting for others, and of all else."""

    option: str
    values: int
    waited_s: float
    coding_s: float


@dataclass(frozen=True)
class Fit:
    """What explains what was seen: a link, and how many times as long as foreseen methods compute.

    once_s: beyond that, for each group.
    """

    link: LinkModel
    slower: float = 1.0
    once_s: float = 0.0

    def priced(self, price: MethodPrice) -> MethodPrice:
        """Return what a method costs here."""
        encode, decode, around = (
            replace(cost, per_value_s=self.slower * cost.per_value_s, once_s=self.slower * cost.once_s)
            for cost in (price.frame.encode, price.frame.decode, price.around)
        )
        if price.coded:
            around = replace(around, once_s=around.once_s + self.once_s)
        else:  # it is cast once
            encode = replace(encode, once_s=encode.once_s + self.once_s)
        return replace(price, frame=FrameCost(encode, decode), around=around)


@dataclass(frozen=True)
class Retuned:
    """What was decided, and what for: seconds of an iteration with the policy of before, and with it."""

    policy: PolicyFile
    fit: Fit
    before_s: float
    time_s: float


class Retuner:
    """Selects policies for one model and one number of nodes, for link and coding as they are seen to be.

    policy: the one to begin with, which says computing time and link. Methods are those that it names, and
    what a tuner takes where nothing is said. Raises ConfigError for a policy that says too little, or that
    names a method which is priced on gradients.

    The model proposes and measurements decide: a policy that was tried and was slower is left, and not
    proposed again until the link has changed.
    """

    def __init__(self, policy: PolicyFile, config: Config, *, gain: float = GAIN) -> None:
        if not gain >= 1:
            raise ConfigError(f"expected a gain of 1 or more for another policy, got {gain:g}")
        self.nodes, self.gain = config.nodes, gain
        self._config = config
        self._methods = default_choices(config.method)
        self._processors = list(check_processors(policy.made.get("processors") or (SAME, OTHER)))
        self.check(policy)
        self.know(policy)
        self._ready = ready_of(policy, policy.number("compute_ms", MOST["compute_ms"]) * 1e-3)
        self._priced: dict[str, MethodPrice] = {}
        self._names = policy.tensors
        self._tried: dict[Any, tuple[PolicyFile, float]] = {}  # what iterations took, on a link such as this
        self._tried_bps = 0.0
        self.expected_s: float | None = None  # of an iteration, on the link as it was seen last
        gbps, latency_us = (policy.number(key, MOST[key]) for key in ("gbps", "latency_us"))
        self.fit = Fit(LinkModel.of(gbps=gbps, latency_us=latency_us))

    def check(self, policy: PolicyFile) -> None:
        """Raise ConfigError for a policy that cannot be retuned."""
        methods = [*self._methods, *(split_option(option)[0] for _, option in policy.groups)]
        if bad := [method for method in methods if method in SPARSE]:
            raise ConfigError(
                f"expected methods whose bytes do not depend on what is zero, got {bad[0]}: "
                "leave it out of --methods, or leave retuning out"
            )
        schedules = [split_option(option)[1] for _, option in policy.groups]
        if bad := [schedule for schedule in schedules if schedule not in SCHEDULES]:
            raise ConfigError(f"expected schedules of {', '.join(SCHEDULES)} to choose from, got {bad[0]}")

    def know(self, policy: PolicyFile) -> None:
        """Choose from what a policy names, too: its methods and processors."""
        for _, option in policy.groups:
            method, _ = split_option(option)
            if method not in self._methods:
                self._methods.append(method)
            if method != FP32.name and option.split(" ")[1] not in self._processors:
                self._processors.append(option.split(" ")[1])

    @property
    def _prices(self) -> list[MethodPrice]:
        """Measured at first use, by those that choose alone."""
        for method in self._methods:
            if method not in self._priced:
                self._priced[method] = measured(method, self.nodes, self._config, native=False)
        return [self._priced[method] for method in self._methods]

    def retune(
        self,
        policy: PolicyFile,
        seen: Sequence[Seen],
        took_s: float | None = None,
        compute_s: float | None = None,
    ) -> Retuned | None:
        """Return a policy that was faster than this one, or one that is thought to be `gain` times as fast.

        seen: what this policy's groups took. took_s: what its iterations took, and compute_s: until their
        last gradient was there, where they are known.
        """
        if compute_s:
            self._ready = self._ready * (compute_s / self._ready[-1])
        seen = [one._replace(option=self._as_priced(one.option)) for one in seen]
        self.fit = fitted(seen, self._prices, self.nodes, self.fit)
        sizes = tuple(size for _, size in self._names)
        problems = problems_of(
            sizes, self._ready, [self.fit.priced(price) for price in self._prices], self.nodes,
            self.fit.link, self._processors,
        )  # fmt: skip
        self.expected_s = before = self._time(policy, problems)
        rate = self.fit.link.bandwidth_bps
        if not 1 / OTHER_LINK < rate / max(self._tried_bps, SLOW_BPS) < OTHER_LINK:
            self._tried, self._tried_bps = {}, rate  # what was tried on another link says nothing
        if took_s is not None:
            self._tried[_kind(policy)] = policy, took_s
            best, best_s = min(self._tried.values(), key=lambda one: one[1])
            if best_s * BACK < took_s:
                self.expected_s = self._time(best, problems)
                return Retuned(best, self.fit, took_s, best_s)
        problem, result = better_of(problems)
        names = [name for name, _ in policy.tensors]
        link = self.fit.link
        made = {
            **policy.made,
            "gbps": link.bandwidth_bps * 1e-9,
            "latency_us": link.latency_s * 1e6,
            "time_ms": result.time_s * 1e3,
        }
        other = PolicyFile.of(names, problem, result.policy, made)
        far = (_kind(other) == FP32.name) != (_kind(policy) == FP32.name)
        gain = max(self.gain, FAR) if far else self.gain
        if before < gain * result.time_s or _kind(other) in self._tried:
            return None
        self.expected_s = result.time_s
        return Retuned(other, self.fit, before, result.time_s)

    def _time(self, policy: PolicyFile, problems: tuple[PolicyProblem, PolicyProblem]) -> float:
        """Return the seconds of an iteration with a policy; where all is plain, DDP's buckets do as well."""
        mixed, plain = problems
        if _kind(policy) == FP32.name:
            return select(plain).time_s
        groups = tuple((stop, self._as_priced(option)) for stop, option in policy.groups)
        return mixed.time(replace(policy, groups=groups).policy(mixed))

    def _as_priced(self, option: str) -> str:
        """Return the option that has its price: methods that send no frames are priced by bytes alone."""
        method, _ = split_option(option)
        by_bytes = any(price.name == method and price.around_ring for price in self._prices)
        return " ".join([*option.split(" ")[:-1], Ring.name]) if by_bytes else option

    def state_dict(self) -> dict[str, Any]:
        """Return what was seen: the link, when gradients are ready, and what tried policies took."""
        link = self.fit.link
        fit = link.bandwidth_bps, link.latency_s, self.fit.slower, self.fit.once_s
        return {
            "fit": [float(number) for number in fit],
            "ready_s": self._ready.copy(),
            "expected_s": None if self.expected_s is None else float(self.expected_s),
            "tried_bps": float(self._tried_bps),
            "tried": [
                [[*map(list, policy.groups)], json.dumps(dict(policy.made)), float(took_s)]
                for policy, took_s in self._tried.values()
            ],
        }

    def load_state_dict(self, state: Any) -> None:
        """Take over what `state_dict` returned; raises ConfigError, and changes nothing, where it is none."""
        saved = Saved.of(state).only(*self.state_dict())
        rate, *rest = saved["fit"].items(4)
        bounds = MOST_SECONDS, MOST_RATE, MOST_SECONDS
        latency_s, slower, once_s = (one.number(0.0, most) for one, most in zip(rest, bounds, strict=True))
        link = replace(self.fit.link, bandwidth_bps=rate.number(LEAST_RATE, MOST_RATE), latency_s=latency_s)
        ready = saved["ready_s"].array(float, (len(self._names),), low=0)
        try:
            check_ready(ready)
        except ConfigError as error:
            raise saved["ready_s"].refuse("times that never fall", str(error)) from None
        if not ready[-1] > 0:
            raise saved["ready_s"].refuse("a last time above 0", "0")
        expected = saved["expected_s"]
        expected_s = None if expected.missing else expected.number(0.0, LONGEST_S)
        tried_bps = saved["tried_bps"].number(0.0, MOST_RATE)
        tried = [self._read_tried(one) for one in saved["tried"].items()]
        self.fit, self._ready, self.expected_s = Fit(link, slower, once_s), ready, expected_s
        self._tried, self._tried_bps = {_kind(policy): (policy, took) for policy, took in tried}, tried_bps
        for policy, _ in tried:
            self.know(policy)

    def _read_tried(self, saved: Saved) -> tuple[PolicyFile, float]:
        """Return a policy that was tried, and what an iteration took."""
        groups, made, took_s = saved.items(3)
        pairs = [one.items(2) for one in groups.items()]
        # How a policy was found is kept as JSON.
        try:
            result = json.loads(made.text())
        except (ValueError, RecursionError):
            result = None
        if not isinstance(result, dict):
            raise made.refuse("how a policy was found, as JSON")
        policy = PolicyFile(
            self._names, tuple((stop.integer(1), option.text()) for stop, option in pairs), result
        )
        stops = [stop for stop, _ in policy.groups]
        if not stops or stops != sorted(set(stops)) or stops[-1] != len(self._names):
            raise groups.refuse(f"groups that cover {len(self._names)} tensors in order", f"{stops}")
        try:
            self.check(policy)
            groups_of(policy, self._names[::-1], self._config)
        except ConfigError as error:
            raise groups.refuse("options that can be chosen", str(error)) from None
        return policy, took_s.number(0.0, LONGEST_S)


def _kind(policy: PolicyFile) -> Any:
    """Return what tells policies apart: groups and options; those that go by torch's AllReduce are one."""
    plain = all(split_option(option)[0] == FP32.name for _, option in policy.groups)
    return FP32.name if plain else policy.groups


def problems_of(
    sizes: tuple[int, ...], ready_s: Floats, prices: Sequence[MethodPrice], nodes: int, link: LinkModel,
    processors: Sequence[str],
) -> tuple[PolicyProblem, PolicyProblem]:  # fmt: skip
    """Return two problems: one for groups that OSCAR reduces, one for all tensors by torch's own AllReduce.

    prices: of methods, fp32 among them: OSCAR's fp32 is priced, torch's is not.
    """
    mixed = options(prices, nodes, link, processors=processors, dominated=True)
    plain = options([FP32], nodes, link)
    return PolicyProblem(sizes, ready_s, tuple(mixed)), PolicyProblem(sizes, ready_s, tuple(plain))


def better_of(problems: tuple[PolicyProblem, PolicyProblem]) -> tuple[PolicyProblem, Selection]:
    """Return the problem that has the faster policy, and that policy; plain where they are equal."""
    mixed, plain = ((problem, select(problem)) for problem in problems)
    return mixed if mixed[1].time_s < plain[1].time_s else plain


def fitted(seen: Sequence[Seen], prices: Sequence[MethodPrice], nodes: int, before: Fit) -> Fit:
    """Return what explains best, as least squares, what groups took.

    Waiting is the link's: so many hops, and so many bits. The rest is coding, and something once for each
    group. Where groups do not tell the two apart, the first stays as it was in `before`.
    """
    if not seen:
        return before
    probe = replace(before.link, bandwidth_bps=FAST_BPS, latency_s=1.0)  # seconds are hops
    known = {link: _by_name(seen, prices, nodes, link) for link in (before.link, probe)}
    hops, bits, coding = [], [], []
    for group in seen:
        name = " ".join(split_option(group.option))
        steps, hop = (known[link][name].seconds(group.values) for link in (before.link, probe))
        hops.append(round(sum(step.seconds for step in hop if step.lane == PORT)))
        port_s = sum(step.seconds for step in steps if step.lane == PORT)
        bits.append(max(0.0, port_s - hops[-1] * before.link.latency_s) * before.link.bandwidth_bps)
        coding.append(sum(step.seconds for step in steps if step.lane != PORT))
    waited, rest = (np.array([getattr(one, name) for one in seen]) for name in ("waited_s", "coding_s"))
    latency_s, bit_s = _two(np.array(hops, float), np.array(bits), waited, before.link.latency_s)
    rate = min(FAST_BPS, max(SLOW_BPS, 1 / max(bit_s, 1 / FAST_BPS)))
    link = replace(before.link, bandwidth_bps=rate, latency_s=min(MOST_LATENCY_S, latency_s))
    if not any(coding):
        return replace(before, link=link)
    once_s, slower = _two(np.ones(len(seen)), np.array(coding), rest, before.once_s)
    return Fit(link, max(LEAST_SLOWER, slower), once_s)


def _by_name(
    seen: Sequence[Seen], prices: Sequence[MethodPrice], nodes: int, link: LinkModel
) -> dict[str, Option]:
    """Return options by method and schedule, with coding on a lane of its own."""
    schedules = list(dict.fromkeys(split_option(one.option)[1] for one in seen))
    result = options(prices, nodes, link, schedules, processors=[OTHER], dominated=True)
    return {" ".join(split_option(option.name)): option for option in result}


def _two(first: Floats, second: Floats, took: Floats, known: float) -> tuple[float, float]:
    """Return x and y of 0 or more for which x first + y second is nearest to what was taken.

    Where these do not tell x from y, x is `known`.
    """
    rows = np.stack([first, second], axis=1)
    if np.linalg.matrix_rank(rows / np.maximum(rows.max(axis=0), 1e-30), tol=1e-3) > 1:
        both = np.linalg.lstsq(rows, took, rcond=None)[0]
        if (both >= 0).all():
            return float(both[0]), float(both[1])
    left = float((took - first * known) @ second)
    if left > 0:
        return known, left / float(second @ second)
    return max(0.0, float(took @ first)) / max(float(first @ first), 1e-30), 0.0
