"""When the gradients of a model become ready: what a tuner needs of a training, measured and in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from oscar.coding.costs import check_seconds
from oscar.errors import ConfigError
from oscar.files import write_text
from oscar.provenance import installed, processor
from oscar.timeline.engine import Floats, check_ready
from oscar.version import __version__
from oscar.yaml_core import read

FORMAT = 1
FORWARD = 1 / 3  # of compute; the backward pass takes 2/3: it computes gradients by inputs and by weights
ITERATIONS = 12  # that are measured; the first is not counted
AGAIN = "measure it again on this machine"
Tensors = Sequence[tuple[str, int]]  # names and values


@dataclass(frozen=True)
class ReadyTimes:
    """When each gradient of an iteration is there, in seconds after its forward pass began.

    Attributes:
        tensors: Name and values of each, in the order in which they become ready.
        made: How it was measured, for readers.
        holds_for: Machine and versions, by name; empty where they are not known (a trace).
    """

    tensors: tuple[tuple[str, int], ...]
    ready_s: tuple[float, ...]
    forward_s: float
    made: str
    holds_for: Mapping[str, str]

    def __post_init__(self) -> None:
        if not self.tensors or len(self.tensors) != len(self.ready_s):
            raise ConfigError(
                f"expected a ready time for each tensor, got {len(self.ready_s)} for {len(self.tensors)}"
            )
        names = [name for name, _ in self.tensors]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ConfigError(f"expected tensors with names of their own, got {min(twice)} again")
        check_ready(self.ready_s)
        if not 0 <= self.forward_s <= self.ready_s[0]:
            raise ConfigError(
                f"expected a forward pass that ends before the first gradient, at {self.ready_s[0]:g} s, "
                f"got one of {self.forward_s:g} s; {AGAIN}"
            )

    @classmethod
    def median(
        cls, tensors: Tensors, ready_s: Sequence[Sequence[float]], forward_s: Sequence[float], made: str,
        holds_for: Mapping[str, str],
    ) -> ReadyTimes:  # fmt: skip
        """Return the medians over iterations.

        Args:
            ready_s: Ready times in seconds, [iterations][tensors].
            forward_s: Seconds of forward passes, [iterations].
        """
        times = np.median(np.asarray(ready_s, float), axis=0)
        order = np.argsort(times, kind="stable")
        forward = min(float(np.median(forward_s)), float(times[order[0]]))
        in_order = tuple((tensors[at][0], int(tensors[at][1])) for at in order)
        return cls(in_order, tuple(times[order].tolist()), forward, made, dict(holds_for))

    @property
    def backward_s(self) -> float:
        """From the end of the forward pass to the last gradient; the loss counts here."""
        return self.ready_s[-1] - self.forward_s

    @property
    def sizes(self) -> tuple[int, ...]:
        """Values of each tensor."""
        return tuple(size for _, size in self.tensors)

    def scaled(self, total_s: float) -> ReadyTimes:
        """Return the same course of an iteration that computes for so long."""
        factor = total_s / self.ready_s[-1]
        times = tuple(min(seconds * factor, total_s) for seconds in self.ready_s[:-1])
        return replace(self, ready_s=(*times, total_s), forward_s=min(self.forward_s * factor, total_s))

    def check(self, tensors: Tensors | None = None) -> None:
        """Raise ConfigError where it is of another machine, version or model, with the first difference."""
        for name, measured_on in self.holds_for.items():
            here = present(name)
            if measured_on != here:
                raise ConfigError(f"expected a profile of {name} {here}, got one of {measured_on}; {AGAIN}")
        known = dict(self.tensors)
        for name, size in tensors or ():
            if known.pop(name, None) != size:
                result = dict(self.tensors).get(name)
                actual = "none of that name" if result is None else f"one of {result}"
                raise ConfigError(
                    f"expected a profile of this model, whose {name} has {size} values, got {actual}; {AGAIN}"
                )
        if tensors is not None and known:
            raise ConfigError(
                f"expected a profile of this model, got one with a tensor {min(known)} beyond it; {AGAIN}"
            )

    def ready(self, tensors: Tensors) -> Floats:
        """Return when each of these is there, float64 [tensors]; none before those in front of it.

        Groups are reduced in this order, so none of them gets later by that.
        """
        self.check(tensors)
        at = {name: seconds for (name, _), seconds in zip(self.tensors, self.ready_s, strict=True)}
        return np.maximum.accumulate([at[name] for name, _ in tensors])

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        head = {
            "format": FORMAT,
            "made": self.made,
            "holds_for": dict(self.holds_for),
            "forward_s": self.forward_s,
            "backward_s": self.backward_s,
        }
        lines = ["# When gradients become ready in an iteration: `oscar tune --profile`.\n"]
        lines.append(yaml.safe_dump(head, sort_keys=False))
        lines.append("tensors: # name, values, seconds when it is ready\n")
        for (name, size), seconds in zip(self.tensors, self.ready_s, strict=True):
            row = yaml.safe_dump([name, size, seconds], default_flow_style=True, width=10_000)
            lines.append(f"  - {row}")
        write_text(path, "".join(lines))


def load_profile(path: Path) -> ReadyTimes:
    """Return the profile in a file; raises ConfigError for what is none."""
    tree = read(path)
    try:
        if tree["format"] != FORMAT:
            raise ConfigError(f"expected a profile of format {FORMAT}, got {tree['format']!r}")
        rows = [_row(*row) for row in tree["tensors"]]
        times = tuple(seconds for _, _, seconds in rows)
        forward, backward = (_seconds(tree[name]) for name in ("forward_s", "backward_s"))
        holds = {str(name): str(value) for name, value in tree["holds_for"].items()}
        result = ReadyTimes(tuple(row[:2] for row in rows), times, forward, str(tree["made"]), holds)
        if result.backward_s != backward:
            raise ConfigError(
                f"expected forward and backward pass to end with the last gradient, at {times[-1]:g} s, "
                f"got {forward:g} and {backward:g} s; {AGAIN}"
            )
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{path}: expected a profile as ReadyTimes.write makes it, got {error}") from None
    return result


def here(library: str) -> dict[str, str]:
    """Return what a measurement with a library holds for: machine and versions."""
    return {name: present(name) for name in ("machine", "oscar", library)}


def present(name: str) -> str:
    """Return the machine's processor, or the version that is installed of a package."""
    if name in ("machine", "oscar"):
        return processor() if name == "machine" else __version__
    return installed(name)


def even(tensors: Tensors, compute_s: float, forward: float) -> ReadyTimes:
    """Return the times at an even rate of values, after a forward pass of that share."""
    share = np.cumsum([size for _, size in tensors]) / max(1, sum(size for _, size in tensors))
    times = compute_s * (forward + (1 - forward) * share)
    return ReadyTimes(tuple(tensors), tuple(times.tolist()), compute_s * forward, "an even rate", {})


def _row(name: Any, size: Any, seconds: Any) -> tuple[str, int, float]:
    if not isinstance(name, str) or isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise TypeError(f"{[name, size]} for a name and a number of 0 or more")
    return name, size, _seconds(seconds)


def _seconds(value: Any) -> float:
    check_seconds("a ready time", value)
    return float(value)
