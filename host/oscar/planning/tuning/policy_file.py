"""Policies in YAML files: for which tensors, in which groups, with which options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from oscar.errors import ConfigError
from oscar.files import write_text
from oscar.planning.tuning.policy import Policy, PolicyProblem
from oscar.timeline.engine import Floats, check_ready
from oscar.yaml_core import read

FORMAT = 1
MOST = {"nodes": 1024, "gbps": 1e9, "latency_us": 1e9, "compute_ms": 1e6}  # that times are modelled of


@dataclass(frozen=True)
class PolicyFile:
    """A policy, by names.

    tensors: name and values of each, in the order of the backward pass. groups: the tensor behind the last
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
        lines.append("groups: # the tensor behind the last of each, and its option\n")
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
