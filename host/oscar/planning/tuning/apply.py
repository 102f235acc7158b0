"""A policy put to use: the groups that a reducer asks for, from the names in its file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from oscar.config import Config
from oscar.errors import ConfigError
from oscar.planning.tuning.options import FP32, changes_of
from oscar.planning.tuning.policy import OTHER, SAME
from oscar.planning.tuning.policy_file import PolicyFile
from oscar.reducers.grouped import Group


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
    parts = option.split(" ")
    if len(parts) == 3 and parts[1] in (SAME, OTHER):
        choice, schedule = parts[0], parts[2]
    elif len(parts) == 2 and parts[0] == FP32.name:
        choice, schedule = parts
    else:
        raise ConfigError(
            f"expected options such as `fp32 ring` or `asc same direct`, got {option!r}: a policy of a "
            "preset is for models of time alone; run oscar tune"
        )
    return config.variant(schedule={"name": schedule}, policy=None, **changes_of(choice, config))
