"""MergeComp's search for groups of tensors, on step times that are measured (Wang et al., 2021).

For y = 1, 2, ... groups the best borders are searched, until one more group gains nothing. The last border
is found by halving: of two neighbours the slower one and all beyond it are dropped. Those before it are tried
one after another, which is why y is 2 in practice. Where times fall and then rise along the last border, the
result is the best there is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

from oscar.coding.costs import check_seconds
from oscar.config import BY_NETWORK, BY_TIME, Config
from oscar.errors import ConfigError
from oscar.planning.tuning.options import FP32
from oscar.planning.tuning.policy import THREAD, PolicyFile

if TYPE_CHECKING:  # it needs torch, and the search does not
    from oscar.adapters.torch import OscarState

WARMUPS, ITERATIONS = 5, 20  # of each measurement, as published
Stops = tuple[int, ...]  # the tensor after the last of each group, in the order of the backward pass
StepTime = Callable[[Stops], float]
Share = Callable[[float], float]


@dataclass(frozen=True)
class Merged:
    """Groups, the seconds of a step with them, and the best seconds of every number of groups tried.

    Attributes:
        measured: Number of groupings that were timed.
    """

    stops: Stops
    time_s: float
    by_groups: tuple[float, ...]
    measured: int


def merge(
    tensors: int, step_s: StepTime, share: Share = float, *, most: int = 2, apart: int | None = None
) -> Merged:
    """Return the best groups that the search finds; collective, and equal on all ranks.

    Args:
        step_s: Measures a step with these groups.
        share: Returns what rank 0 gave it, on every rank; all that is decided is decided on that.
        most: Largest number of groups.
        apart: Tensors between the neighbours that are compared, an eighth of all unless it is given, and
            less in the end: noise hides what one tensor changes.

    Raises:
        ValueError: On all ranks, for a time that is none.
    """
    apart = max(1, tensors // 8) if apart is None else apart
    if min(tensors, most, apart) < 1:
        raise ValueError(f"expected tensors, groups and a distance from 1, got {tensors}, {most} and {apart}")
    search = _Search(tensors, step_s, share, apart)
    best: Stops = (tensors,)
    times = [search.time(best)]
    for groups in range(2, min(most, tensors) + 1):
        result = min(search.candidates(groups), key=search.time)
        times.append(search.time(result))
        if times[-1] >= times[-2]:
            break
        best = result
    return Merged(best, search.time(best), tuple(times), len(search.known))


def averaged(run: StepTime, warmups: int = WARMUPS, iterations: int = ITERATIONS) -> StepTime:
    """Return a measurement that is the mean over some steps, after others that do not count."""

    def step_s(stops: Stops) -> float:
        took = [run(stops) for _ in range(warmups + iterations)]
        return sum(took[warmups:]) / iterations

    return step_s


@dataclass
class _Search:
    tensors: int
    step_s: StepTime
    share: Share
    apart: int
    known: dict[Stops, float] = field(default_factory=dict)

    def time(self, stops: Stops) -> float:
        """Return what rank 0 measured; each grouping once."""
        if stops not in self.known:
            seconds = self.share(self.step_s(stops))
            check_seconds(f"groups {stops}", seconds)
            self.known[stops] = seconds
        return self.known[stops]

    def candidates(self, groups: int) -> Iterator[Stops]:
        """Yield what halving measures, for all other borders."""
        for before in combinations(range(1, self.tensors - 1), groups - 2):
            yield from self._halve(before)

    def _halve(self, before: Stops) -> Iterable[Stops]:
        low, high = (before[-1] if before else 0) + 1, self.tensors - 1
        tried = []
        while low < high:
            middle = (low + high) // 2
            beyond = middle + max(1, min(self.apart, (high - low) // 4))
            pair = [(*before, border, self.tensors) for border in (middle, beyond)]
            tried += pair
            if self.time(pair[0]) <= self.time(pair[1]):
                high = beyond - 1
            else:
                low = middle + 1
        return [*tried, (*before, low, self.tensors)]


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
