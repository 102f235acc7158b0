"""MergeComp's search in a training under DDP: groups of a model's tensors, by steps that are timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from oscar.adapters.torch.state import OscarState
from oscar.config import BY_NETWORK, BY_TIME, Config
from oscar.errors import ConfigError
from oscar.planning.tuning.merge import ITERATIONS, WARMUPS, Merged, Stops, averaged, merge
from oscar.planning.tuning.options import FP32
from oscar.planning.tuning.policy import THREAD
from oscar.planning.tuning.policy_file import PolicyFile


def one_method(model: Any, config: Config, stops: Sequence[int] | None = None) -> PolicyFile:
    """Return the policy that reduces a model by the method and schedule of `config`, in these groups.

    A schedule that is left to the network is direct.

    Args:
        model: Its parameters that take gradients are in the policy.
        config: Names the method and the schedule.
        stops: The tensor after the last of each group, in the order of the backward pass. None makes a group
            of every tensor, which is layer-wise compression.
    """
    named = [(name, each.numel()) for name, each in model.named_parameters() if each.requires_grad]
    tensors = tuple((name.removeprefix("module."), size) for name, size in named)[::-1]
    stops = range(1, len(tensors) + 1) if stops is None else stops
    processor = () if config.method == FP32.name else (THREAD,)
    chosen = config.schedule.name not in (BY_NETWORK, BY_TIME)
    option = " ".join((config.method, *processor, config.schedule.name if chosen else "direct"))
    return PolicyFile(tensors, tuple((stop, option) for stop in stops), {})


def merge_groups(
    state: OscarState,
    model: Any,
    step: Callable[[], object],
    *,
    most: int = 2,
    warmups: int = WARMUPS,
    iterations: int = ITERATIONS,
    report: Callable[[Stops, float], None] | None = None,
) -> Merged:
    """Search groups of the state's method while a model trains, and go on with the best; collective.

    The times of rank 0 decide on all ranks. No gradient is lost. Two groups take about ten groupings.

    Args:
        state: Made with a policy for this model, for example that of `one_method`.
        model: The model that trains.
        step: Trains on one batch.
        most: The largest number of groups.
        warmups: Steps before the timed ones, for each grouping.
        iterations: Timed steps for each grouping.
        report: Called with each grouping and its seconds, on every rank.

    Raises:
        ConfigError: The state has no policy.
    """
    if state.policy is None:
        raise ConfigError("expected a state that was made with a policy and its model, got one without")

    def in_groups(stops: Stops) -> float:
        state.regroup(one_method(model, state.config, stops))
        seconds = averaged(lambda _: timed(step), warmups, iterations)(stops)
        if report is not None:
            report(stops, seconds)
        return seconds

    merged = merge(len(state.policy.tensors), in_groups, state.share, most=most)
    state.regroup(one_method(model, state.config, merged.stops))
    return merged


def timed(step: Callable[[], object]) -> float:
    """Return the seconds of a step."""
    began = time.perf_counter()
    step()
    return time.perf_counter() - began
