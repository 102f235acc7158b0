"""Workloads by name; a new one is one line here, one options class and one class."""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
from typing import Any, cast

from oscar.errors import ConfigError
from oscar_studies.workloads import options as opt
from oscar_studies.workloads.base import Workload


@dataclass(frozen=True)
class WorkloadEntry:
    """A workload that can be chosen by name.

    target: where it lives, "module:class"; imported only when made.
    options: what can be set.
    warmup: iterations to train before gradients are measured. The first gradients of a network are unlike all
        later ones: columns of the output layer repeat, which a byte compressor finds and a training leaves.
        The numbers come from looking at losses of 300 iterations with eight nodes: the first multiple of 100
        after the plateau that follows the first fall. A convex loss has none.
    """

    target: str
    options: type[Any]
    warmup: int


WORKLOADS: dict[str, WorkloadEntry] = {
    "numpy-lm": WorkloadEntry("oscar_studies.workloads.numpy_lm:NumpyLm", opt.NumpyLmOptions, 100),
    "numpy-digits": WorkloadEntry(
        "oscar_studies.workloads.numpy_digits:NumpyDigits", opt.NumpyDigitsOptions, 100
    ),
    "logistic": WorkloadEntry("oscar_studies.workloads.logistic:Logistic", opt.LogisticOptions, 0),
    "cnn": WorkloadEntry("oscar_studies.workloads.torch_models:Cnn", opt.CnnOptions, 200),
    "transformer": WorkloadEntry(
        "oscar_studies.workloads.torch_models:Transformer", opt.TransformerOptions, 100
    ),
    "embedding": WorkloadEntry("oscar_studies.workloads.torch_models:Embedding", opt.EmbeddingOptions, 200),
}


def make_workload(name: str, *, nodes: int, seed: int, **options: Any) -> Workload:
    """Return the workload `name` for `nodes` workers; the same arguments give the same gradients.

    The text workloads read the sources of the running Python's own standard library, so their numbers repeat
    on one Python version and differ a little between versions.
    Raises ConfigError for an unknown name, option or value, and MissingExtraError where a package is missing.
    """
    if name not in WORKLOADS:
        near = difflib.get_close_matches(name, WORKLOADS, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ConfigError(f"unknown workload {name!r}{hint}; valid ones: {', '.join(WORKLOADS)}")
    for what, value, least in (("nodes", nodes, 1), ("seed", seed, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigError(f"workload {name}: {what}: expected a whole number from {least}, got {value!r}")
    entry = WORKLOADS[name]
    parsed = opt.parse_options(entry.options, options, workload=name)
    module, _, attribute = entry.target.partition(":")
    factory = getattr(importlib.import_module(module), attribute)
    return cast(Workload, factory(nodes=nodes, seed=seed, options=parsed))
