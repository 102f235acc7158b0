"""A policy put to use: the groups that a reducer asks for, and the problem that it solves elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from oscar.coding.costs import machine
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.planning.tuning.options import FP32, changes_of, measured, options
from oscar.planning.tuning.policy import OTHER, SAME, THREAD, Policy, PolicyFile, PolicyProblem
from oscar.planning.tuning.profile import FORWARD, ReadyTimes, even
from oscar.reducers.grouped import Group
from oscar.timeline.engine import Floats
from oscar.timeline.link import LinkModel


def groups_of(policy: PolicyFile, tensors: Sequence[tuple[str, int]], config: Config) -> list[Group]:
    """Return the groups of a policy; tensors: name and values of each, in the model's order.

    Of an option its method and schedule are taken; on which processor it runs is a matter of where the
    reducer does. Raises ConfigError for a policy of another model, with the first tensor that differs, and
    for an option that is not such a method.
    """
    policy.check(list(tensors)[::-1])
    last = len(tensors) - 1
    stops = [0, *(stop for stop, _ in policy.groups)]
    return [
        Group(tuple(last - at for at in range(first, stop))[::-1], _config(option, config))
        for (first, stop), (_, option) in zip(pairwise(stops), policy.groups, strict=True)
    ]


def _config(option: str, config: Config) -> Config:
    choice, schedule = split_option(option)
    try:
        return config.variant(schedule={"name": schedule}, policy=None, **changes_of(choice, config))
    except ConfigError as error:
        raise ConfigError(f"option {option!r} of the policy: {error}") from None


def split_option(option: str) -> tuple[str, str]:
    """Return the method and the schedule that an option names; raises ConfigError for another one."""
    parts = option.split(" ")
    if len(parts) == 3 and parts[1] in (SAME, OTHER, THREAD):
        return parts[0], parts[2]
    if len(parts) == 2 and parts[0] == FP32.name:
        return parts[0], parts[1]
    raise ConfigError(
        f"expected options such as `fp32 ring` or `asc same direct`, got {option!r}: a policy of a preset "
        "is for models of time alone; run oscar tune"
    )


def problem_of(policy: PolicyFile, nodes: int, link: LinkModel, compute_s: float) -> PolicyProblem:
    """Return the problem that a policy would solve between `nodes`: options are those that it names.

    Gradients become ready as `ready_of` says. Methods cost what they cost on this machine at their defaults.
    """
    choices, schedules = zip(*(split_option(option) for _, option in policy.groups), strict=True)
    prices = [measured(choice, nodes) for choice in dict.fromkeys((FP32.name, *choices))]
    priced = options(prices, nodes, link, list(dict.fromkeys(schedules)), dominated=True)
    sizes = tuple(size for _, size in policy.tensors)
    return PolicyProblem(sizes, ready_of(policy, compute_s), tuple(priced))


def ready_of(policy: PolicyFile, compute_s: float) -> Floats:
    """Return when a policy's gradients become ready, of an iteration that computes for so long.

    In the course that it was found for, or where it does not say, at an even rate of values.
    """
    result = policy.ready_ms
    if result is None:
        return even(policy.tensors, compute_s, FORWARD).ready(policy.tensors)
    return result * (compute_s / result[-1])


def made_of(
    config: Config,
    times: ReadyTimes,
    problem: PolicyProblem,
    policy: Policy,
    processors: Sequence[str] = (SAME, OTHER),
    selector: str = "joint",
) -> dict[str, Any]:
    """Return how a policy was found, for its file: what readers ask for, and what retuning begins with."""
    return {
        "selector": selector,
        "processors": list(processors),
        "nodes": config.nodes,
        "gbps": config.link.gbps,
        "latency_us": config.link.latency_us,
        "compute_ms": round(times.ready_s[-1] * 1e3, 6),
        "gradients": times.made,
        "ready_ms": [round(seconds * 1e3, 6) for seconds in problem.ready_s.tolist()],
        "time_ms": round(problem.time(policy) * 1e3, 6),
        "machine": machine(),
    }
