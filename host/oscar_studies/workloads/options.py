"""What can be set for each workload; the defaults live here and nowhere else.

No torch and no scikit-learn here: a wrong option is reported before an extra is asked for.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from oscar.errors import ConfigError

OptionsT = TypeVar("OptionsT")


def _whole(default: int, *, least: int = 1, multiple: int = 1) -> Any:
    """Declare a whole number of at least `least` that `multiple` divides."""
    return field(default=default, metadata={"kind": int, "least": least, "multiple": multiple})


def _real(default: float, *, zero: bool = False) -> Any:
    """Declare a finite real number above zero, or from zero."""
    return field(default=default, metadata={"kind": float, "zero": zero})


@dataclass(frozen=True)
class NumpyLmOptions:
    """Word-level language model; 288 k parameters, two thirds of them in sparse embedding rows."""

    vocabulary: int = _whole(6000, least=2)  # rows of the embedding; rarer words share row 0
    dimension: int = _whole(32)
    context: int = _whole(6)  # words the next one is predicted from
    hidden: int = _whole(80)
    outputs: int = _whole(1000, least=2)  # words that can be predicted; the others share output 0
    batch: int = _whole(64)  # per node
    learning_rate: float = _real(3e-3)
    text_bytes: int = _whole(2_000_000, least=10_000)


@dataclass(frozen=True)
class NumpyDigitsOptions:
    """Two-layer perceptron on 8 x 8 digits; 9.6 k parameters."""

    hidden: int = _whole(128)
    batch: int = _whole(16)
    learning_rate: float = _real(0.03)
    momentum: float = _real(0.9, zero=True)
    noise: float = _real(0.35, zero=True)  # standard deviation added to pixels of 0..1; keeps the task hard


@dataclass(frozen=True)
class CnnOptions:
    """Three convolutions and two dense layers on 8 x 8 digits; 160 k parameters."""

    batch: int = _whole(16)
    learning_rate: float = _real(0.03)
    momentum: float = _real(0.9, zero=True)
    noise: float = _real(0.35, zero=True)


@dataclass(frozen=True)
class TransformerOptions:
    """Causal character transformer; 1.29 M parameters. `d=96, layers=2` makes a small one (254 k)."""

    d: int = _whole(160, least=32, multiple=32)  # 32 per attention head
    layers: int = _whole(4)
    length: int = _whole(64)  # characters per sequence
    batch: int = _whole(8)
    learning_rate: float = _real(1e-3)
    warmup: int = _whole(30)  # steps in which the learning rate rises to its full value
    text_bytes: int = _whole(4_000_000, least=10_000)


@dataclass(frozen=True)
class EmbeddingOptions:
    """Large embedding under a small network; 711 k parameters, nine tenths of them sparse rows."""

    vocabulary: int = _whole(20_000, least=2)
    dimension: int = _whole(32)
    hidden: int = _whole(64)
    context: int = _whole(16, least=2)
    outputs: int = _whole(1000, least=2)
    batch: int = _whole(128)
    learning_rate: float = _real(2e-3)
    text_bytes: int = _whole(4_000_000, least=10_000)


@dataclass(frozen=True)
class LogisticOptions:
    """L1 logistic regression on hashed n-grams of source code; all samples in every iteration."""

    features_log2: int = _whole(18, least=8)  # weights: n-grams are hashed to 2^18
    lines: int = _whole(12)  # of code in a sample
    samples: int = _whole(6000, least=20)  # at most, of either class
    l1: float = _real(1e-4)  # weight of the sum of magnitudes, beside the mean loss
    coupling: float = _real(6e-5)  # how firmly a node's own weights are held to the common ones
    relaxation: float = _real(1.7)  # 1 to below 2; above 1, nodes overshoot
    newton: int = _whole(2)  # passes of a node in an iteration,
    conjugate: int = _whole(6)  # and steps of conjugate gradients in each


def parse_options(kind: type[OptionsT], given: Mapping[str, Any], *, workload: str) -> OptionsT:
    """Return `kind` filled from `given`; raises ConfigError that names the option and what is valid."""
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    for name, value in given.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            valid = ", ".join(known)
            raise ConfigError(f"workload {workload} has no option {name!r}{hint}; valid ones: {valid}")
        _check(value, known[name].metadata, what=f"workload {workload}: option {name}")
    # A YAML `1` for a rate is fine, but the options should hold the declared type.
    return kind(**{name: known[name].metadata["kind"](value) for name, value in given.items()})


def _check(value: Any, rule: Mapping[str, Any], *, what: str) -> None:
    """Raise ConfigError unless `value` satisfies the rule declared with the option."""
    if rule["kind"] is int:
        least, multiple = rule["least"], rule["multiple"]
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or value < least or value % multiple:
            of = f", a multiple of {multiple}" if multiple > 1 else ""
            raise ConfigError(f"{what}: expected a whole number from {least}{of}, got {value!r}")
        return
    real = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not real or value < 0 or (value == 0 and not rule["zero"]):
        bound = "of at least 0" if rule["zero"] else "above 0"
        raise ConfigError(f"{what}: expected a finite number {bound}, got {value!r}")
