"""What a tuner chooses from, a policy that it may choose, and how long an iteration takes with it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from oscar.errors import ConfigError
from oscar.files import write_text
from oscar.timeline.engine import CODEC, COMPUTE, PORT, Floats, Step, Timeline, check_ready, iteration
from oscar.timeline.lanes import GRID, Ints, LaneCase, make_case, policy_time, seconds_at
from oscar.yaml_core import read

SAME, OTHER = "same", "other"  # processors: the training's own, and another one beside it
THREAD = "thread"  # another one that codes and sends group after group, as the DDP hook's thread does
FORMAT = 1
MOST = {"nodes": 1024, "gbps": 1e9, "latency_us": 1e9, "compute_ms": 1e6}  # that times are modelled of


@dataclass(frozen=True, eq=False)
class Option:
    """A way to reduce a group of tensors.

    steps: lanes and priorities.
    curves: seconds of each step on the grid of values.
    least: values that a tensor needs for it.
    """

    name: str
    steps: tuple[Step, ...]
    curves: tuple[Floats, ...]
    least: int = 0

    @property
    def compresses(self) -> bool:
        """Whether any processor works for it."""
        return f" {THREAD} " in self.name or any(step.lane in (COMPUTE, CODEC) for step in self.steps)

    def seconds(self, values: int) -> list[Step]:
        """Return its steps for so many values."""
        pairs = zip(self.steps, self.curves, strict=True)
        return [step._replace(seconds=seconds_at(curve, values)) for step, curve in pairs]

    def on_other(self) -> Option:
        """Return it with all work of the training's processor on the other one."""
        steps = tuple(step._replace(lane=CODEC) if step.lane == COMPUTE else step for step in self.steps)
        return Option(self.name.replace(SAME, OTHER), steps, self.curves, self.least)

    def dominates(self, other: Option) -> bool:
        """Whether it takes the same lanes in the same order and is never slower, for no larger tensors."""
        lanes = [step[:2] for step in self.steps] == [step[:2] for step in other.steps]
        pairs = zip(self.curves, other.curves, strict=False)
        return lanes and self.least <= other.least and all((a <= b).all() for a, b in pairs)


def pruned(options: Sequence[Option]) -> list[Option]:
    """Return the options that no other dominates; of equals the first."""
    frontier: list[Option] = []
    for option in options:
        if not any(rival.dominates(option) for rival in frontier):
            frontier = [rival for rival in frontier if not option.dominates(rival)] + [option]
    return frontier


@dataclass(frozen=True)
class Policy:
    """Groups of tensors in the order of the backward pass: the tensor after each, its option's number."""

    stops: tuple[int, ...]
    options: tuple[int, ...]

    @classmethod
    def uniform(cls, tensors: int, option: int) -> Policy:
        """Return the policy in which every tensor is alone and takes the same option."""
        return cls(tuple(range(1, tensors + 1)), (option,) * tensors)

    @property
    def groups(self) -> list[tuple[int, int, int]]:
        """First tensor, the one after the last, and option of each group."""
        return list(zip((0, *self.stops), self.stops, self.options, strict=False))


@dataclass(frozen=True, eq=False)
class PolicyProblem:
    """Tensors in the order of the backward pass, and the options there are.

    Attributes:
        ready_s: When each gradient is there.
        refused: By an option's name the tensors that cannot take it, with the reason.
        counts: By an option's name the values that each tensor counts as; for other options, its values.

    Raises:
        ConfigError: For times that fall, options that no tensor can take, and no option at all.
    """

    sizes: tuple[int, ...]
    ready_s: Floats
    options: tuple[Option, ...]
    refused: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ready_s", check_ready(self.ready_s))
        if len(self.sizes) != self.ready_s.size or min(self.sizes) < 0:
            raise ConfigError(
                f"expected a size of 0 or more for each of {self.ready_s.size} ready times, got {self.sizes}"
            )
        names = [option.name for option in self.options]
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"expected options with names of their own, got {names}")
        if (nothing := np.flatnonzero(self.mask.all(axis=0))).size:
            raise ConfigError(f"expected an option that tensor {nothing[0]} can take, got none of {names}")

    @cached_property
    def left_out(self) -> dict[str, dict[int, str]]:
        """Of each option the tensors that cannot take it, and why."""
        result = {}
        for option in self.options:
            reasons = dict(self.refused.get(option.name, {}))
            for at, size in enumerate(self.sizes):
                if size < option.least:
                    reasons.setdefault(at, f"{size} values, at least {option.least} needed")
            if reasons:
                result[option.name] = dict(sorted(reasons.items()))
        return result

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """What each option cannot take, bool [options, tensors]."""
        out = np.zeros((len(self.options), len(self.sizes)), bool)
        for number, option in enumerate(self.options):
            out[number, list(self.left_out.get(option.name, ()))] = True
        return out

    @cached_property
    def case(self) -> LaneCase:
        """The problem as the kernel takes it."""
        steps, curves = [list(o.steps) for o in self.options], [list(o.curves) for o in self.options]
        sizes = np.array([self.counts.get(o.name, self.sizes) for o in self.options], np.int64)
        return make_case(self.ready_s, sizes, steps, curves, self.mask)

    def counted(self, begin: int, stop: int, option: int) -> int:
        """Return the values of a group, as an option counts them."""
        return sum(self.counts.get(self.options[option].name, self.sizes)[begin:stop])

    def time(self, policy: Policy) -> float:
        """Return the seconds of an iteration; infinite where a tensor cannot take its option."""
        return self.played(policy)[0]

    def played(self, policy: Policy) -> tuple[float, Floats]:
        """Return the seconds of an iteration, and when groups' steps start, float64 [groups, steps + 1]."""
        starts = np.zeros((len(policy.stops), self.case.queue.shape[1]))
        stops, options = arrays(policy)
        return float(policy_time(self.case, stops, options, len(stops), starts, np.inf)), starts

    def steps(self, begin: int, stop: int, option: int) -> list[Step]:
        """Return the steps of a group."""
        key = begin, stop, option
        if key not in self._steps:
            self._steps[key] = self.options[option].seconds(self.counted(begin, stop, option))
        return self._steps[key]

    @cached_property
    def _steps(self) -> dict[tuple[int, int, int], list[Step]]:
        return {}

    def timeline(self, policy: Policy) -> Timeline:
        """Return the iteration task by task."""
        return iteration(self.ready_s, policy.stops, [self.steps(*group) for group in policy.groups]).run()

    def bubble(self, policy: Policy) -> int:
        """Return the last group before which the port waits; what comes before it is hidden anyway."""
        _, starts = self.played(policy)
        busy, last = 0.0, 0
        for number, group in enumerate(policy.groups):
            for at, step in enumerate(self.steps(*group)):
                if step.lane == PORT:
                    start = float(starts[number, at + 1])
                    last = number if start > busy else last
                    busy = max(busy, start + step.seconds)
        return last

    def uniform(self) -> dict[str, float]:
        """Return the seconds of every uniform policy, by its option; of those that all tensors can take."""
        count = len(self.sizes)
        times = {o.name: self.time(Policy.uniform(count, at)) for at, o in enumerate(self.options)}
        return {name: seconds for name, seconds in times.items() if np.isfinite(seconds)}


def arrays(policy: Policy) -> tuple[Ints, Ints]:
    """Return stops and options as the kernel takes them."""
    return np.array(policy.stops, np.int64), np.array(policy.options, np.int64)


def line(per_value_s: float, once_s: float = 0.0) -> Floats:
    """Return the curve of a straight line."""
    return np.asarray(per_value_s * GRID + once_s)


def __getattr__(name: str) -> Any:
    """Return a public class by its old name, with a warning; the next release drops it."""
    if name != "Problem":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{__name__}.Problem is now PolicyProblem", DeprecationWarning, stacklevel=2)
    return PolicyProblem


@dataclass(frozen=True)
class PolicyFile:
    """A policy, by names.

    tensors: name and values of each, in the order of the backward pass. groups: the tensor after the last
    of each, and the name of its option. made: how it was found, for readers.
    """

    tensors: tuple[tuple[str, int], ...]
    groups: tuple[tuple[int, str], ...]
    made: Mapping[str, Any]

    @classmethod
    def of(
        cls, names: Sequence[str], problem: PolicyProblem, policy: Policy, made: Mapping[str, Any]
    ) -> PolicyFile:
        """Return the file of a policy; names: of the problem's tensors."""
        options = (problem.options[option].name for option in policy.options)
        tensors = tuple(zip(names, problem.sizes, strict=True))
        return cls(tensors, tuple(zip(policy.stops, options, strict=True)), dict(made))

    def number(self, key: str, most: float) -> float:
        """Return a number of how the policy was found; raises ConfigError without it, and above `most`."""
        value = self.made.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise ConfigError(f"expected a policy that says its {key}, got {value!r}; run oscar tune again")
        if value > most:
            raise ConfigError(f"expected {key} up to {most:g}, got {value:g}; run oscar tune again")
        return float(value)

    @property
    def ready_ms(self) -> Floats | None:
        """When each gradient is ready, in an iteration as it was when the policy was found; None if unsaid.

        Raises ConfigError for times that are none.
        """
        result = self.made.get("ready_ms")
        if result is None:
            return None
        try:
            times = check_ready(result)
        except ConfigError:
            raise
        except (TypeError, ValueError):
            raise ConfigError(f"expected ready_ms with a time for each tensor, got {result!r}") from None
        if times.size != len(self.tensors) or not times[0] >= 0 or not times[-1] > 0:
            raise ConfigError(
                f"expected ready_ms with a time for each of {len(self.tensors)} tensors, got {result!r}"
            )
        return times

    def check(self, tensors: Sequence[tuple[str, int]]) -> None:
        """Raise ConfigError unless it is for these tensors, with the first that differs."""
        if len(tensors) != len(self.tensors):
            raise ConfigError(
                f"expected a policy for {len(tensors)} tensors, got one for {len(self.tensors)}"
            )
        for at, (has, asked) in enumerate(zip(self.tensors, tensors, strict=True)):
            if has != tuple(asked):
                raise ConfigError(
                    f"expected a policy for this model, got one whose tensor {at} is {has[0]} of {has[1]} "
                    f"values, not {asked[0]} of {asked[1]}; run oscar tune"
                )

    def policy(self, problem: PolicyProblem) -> Policy:
        """Return the policy of a problem; raises ConfigError for options that it does not have."""
        known = [name for name, _ in self.tensors]
        names_of = known + ["unknown"] * (len(problem.sizes) - len(known))
        self.check(list(zip(names_of, problem.sizes, strict=False)))
        names = {option.name: at for at, option in enumerate(problem.options)}
        if unknown := sorted({name for _, name in self.groups} - names.keys()):
            raise ConfigError(f"expected options among {', '.join(names)}, got {', '.join(unknown)}")
        return Policy(tuple(s for s, _ in self.groups), tuple(names[name] for _, name in self.groups))

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        head = {"format": FORMAT, "made": dict(self.made)}
        lines = ["# A policy of `oscar tune`: which gradients are compressed, how and in which groups.\n"]
        lines.append(yaml.safe_dump(head, sort_keys=False, default_flow_style=None))
        lines.append("groups: # the tensor after the last of each, and its option\n")
        lines += map(_item, self.groups)
        lines.append("tensors: # in the order of the backward pass: name, values\n")
        lines += map(_item, self.tensors)
        write_text(path, "".join(lines))


def load_policy(path: Path) -> PolicyFile:
    """Return the policy in a file; raises ConfigError for what is none."""
    tree = read(path)
    try:
        if tree["format"] != FORMAT:
            raise ConfigError(f"{path}: expected a policy of format {FORMAT}, got {tree['format']!r}")
        tensors = tuple((_text(name), _count(size)) for name, size in tree["tensors"])
        groups = tuple((_count(stop), _text(option)) for stop, option in tree["groups"])
    except KeyError as error:
        raise ConfigError(f"{path}: expected a policy as oscar tune writes it, got no key {error}") from None
    except (TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path}: expected a policy as oscar tune writes it, got {error}") from None
    stops = [stop for stop, _ in groups]
    if not stops or stops != sorted(set(stops)) or stops[0] < 1 or stops[-1] != len(tensors):
        raise ConfigError(f"{path}: expected groups that cover {len(tensors)} tensors in order, got {stops}")
    made = tree.get("made") or {}
    if not isinstance(made, dict):
        raise ConfigError(f"{path}: expected made to say how it was found, key by key, got {made!r}")
    return PolicyFile(tensors, groups, made)


def _item(pair: tuple[Any, Any]) -> str:
    return "  - " + str(yaml.safe_dump(list(pair), default_flow_style=True, width=10_000))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} for a name")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"{value!r} for a number of 0 or more")
    return value
