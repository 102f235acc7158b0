"""Schemes by name; a new one is one line here, one module, and its options beside it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from oscar.errors import ConfigError, did_you_mean
from oscar.schemes.base import Scheme


@dataclass(frozen=True)
class SchemeEntry:
    """Where a scheme lives ("module:class", imported only when made), and what it is in one line."""

    target: str
    summary: str
    lossless: bool = False


SCHEMES: dict[str, SchemeEntry] = {
    "oscar-sw": SchemeEntry(
        "oscar.schemes.oscar_sw:OscarSw", "probable non-zeros dense, the rest count-sketched"
    ),
    "oscar-sw-best": SchemeEntry(
        "oscar.schemes.oscar_sw:OscarSwBest", "probable non-zeros dense, a random share of the rest, feedback"
    ),
    "oscar-sw-lossless": SchemeEntry(
        "oscar.schemes.lhc:SplitLhc", "probable non-zeros dense, the rest by index and peeling", lossless=True
    ),
    "count-sketch": SchemeEntry("oscar.schemes.count_sketch:CountSketchScheme", "everything count-sketched"),
    "sketched-sgd": SchemeEntry(
        "oscar.schemes.sketched_sgd:SketchedSgd", "top-k of a sketch with error feedback"
    ),
    "lhc": SchemeEntry("oscar.schemes.lhc:Lhc", "index of non-zeros, sketch, peeling", lossless=True),
    "s2-reducer": SchemeEntry("oscar.schemes.s2:S2Reducer", "bitmap, count sketch of non-zeros"),
    "terngrad": SchemeEntry("oscar.schemes.stochastic:TernGrad", "stochastic ternary values"),
    "qsgd": SchemeEntry("oscar.schemes.stochastic:Qsgd", "stochastic levels by bucket norm"),
    "topk": SchemeEntry("oscar.schemes.sparse.top_k:TopK", "each worker's largest values, error feedback"),
    "zen": SchemeEntry("oscar.schemes.sparse.zen:Zen", "what is not zero, pushed to balanced servers; exact"),
    "oktopk": SchemeEntry(
        "oscar.schemes.sparse.ok_topk:OkTopk", "sums by regions, the largest gathered evenly"
    ),
    "adatopk": SchemeEntry(
        "oscar.schemes.sparse.ada_topk:AdaTopK", "top-k with a density for each rank's link"
    ),
    "fedft": SchemeEntry(
        "oscar.schemes.sparse.frequency:FedFt", "largest cosine coefficients, error feedback"
    ),
    "demo": SchemeEntry(
        "oscar.schemes.sparse.frequency:Demo", "largest cosine coefficients of local momentum"
    ),
    "spafl": SchemeEntry("oscar.schemes.sparse.spafl:SpaFl", "one number a row, feedback"),
    "clt-k": SchemeEntry("oscar.schemes.sparse.clt_k:CltK", "in turns one worker's largest values, feedback"),
    "micro": SchemeEntry(
        "oscar.schemes.sparse.micro:Micro", "ranges in turns, one threshold, error feedback"
    ),
    "exdyna": SchemeEntry(
        "oscar.schemes.sparse.micro:ExDyna", "ranges of equal counts, one threshold, feedback"
    ),
    "scalecom": SchemeEntry("oscar.schemes.sparse.clt_k:ScaleCom", "clt-k with a low-passed residual"),
    "hard-threshold": SchemeEntry(
        "oscar.schemes.sparse.held_threshold:HardThreshold", "one threshold, feedback"
    ),
    "sidco": SchemeEntry("oscar.schemes.sparse.sidco:Sidco", "thresholds of fitted distributions, feedback"),
    "deft": SchemeEntry(
        "oscar.schemes.sparse.deft:Deft", "tensors' largest values by their norms, error feedback"
    ),
    "dct-threshold": SchemeEntry(
        "oscar.schemes.sparse.held_threshold:DctThreshold", "a threshold for L iterations, error feedback"
    ),
    "powersgd": SchemeEntry("oscar.schemes.powersgd:PowerSgd", "low-rank factors with error feedback"),
}


def scheme_class(name: str) -> type[Scheme]:
    """Return the class of the scheme `name`; raises ConfigError that names the nearest one."""
    if name not in SCHEMES:
        hint = did_you_mean(name, SCHEMES)
        raise ConfigError(f"unknown scheme {name!r}; {hint}valid ones: {', '.join(SCHEMES)}")
    module, _, attribute = SCHEMES[name].target.partition(":")
    found: type[Scheme] = getattr(importlib.import_module(module), attribute)
    return found


def make_scheme(
    name: str, options: Mapping[str, Any], *, shapes: Sequence[tuple[int, ...]], nodes: int, seed: int
) -> Scheme:
    """Return the scheme `name` for tensors of `shapes` on `nodes` workers.

    Raises ConfigError for an unknown option, and for a value that is wrong in itself or for so many workers.
    """
    kind = scheme_class(name)
    parsed = parse(name, kind, options)
    try:
        return kind(parsed, shapes=shapes, nodes=nodes, seed=seed)
    except ValueError as error:
        raise ConfigError(f"scheme {name}: {error}") from None


def parse(name: str, kind: type[Scheme], given: Mapping[str, Any]) -> Any:
    """Return the options of a scheme filled from `given`; raises ConfigError that says what is valid."""
    known = {f.name: f for f in fields(kind.Options)}
    for key in given:
        if key not in known:
            hint = did_you_mean(key, known)
            raise ConfigError(f"scheme {name} has no option {key!r}; {hint}valid ones: {', '.join(known)}")
    defaults = kind.Options()
    for key, value in given.items():
        expected = type(getattr(defaults, key))
        fits = isinstance(value, expected) or (expected is float and isinstance(value, int))
        if not fits or (isinstance(value, bool) and expected is not bool):
            raise ConfigError(
                f"scheme {name}: option {key}: expected {expected.__name__}, got {value!r} "
                f"(default: {getattr(defaults, key)!r})"
            )
    try:
        return kind.Options(**given)
    except ValueError as error:
        raise ConfigError(f"scheme {name}: {error}") from None
