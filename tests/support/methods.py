"""Every method with the options that change what it does, and gradients for all of them.

The contract suite runs each property over these cases. A method that is not here runs with its defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oscar.config import Config
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.communicator import Communicator
from oscar.schemes.registry import is_scheme, method_names

Changes = dict[str, Any]
SHAPES: list[tuple[int, ...]] = [(41, 16), (3,), (0, 4), (7, 3, 5), ()]
SPLITTER = {"name": "splitter", "granule": 16}
FEEDBACK = {"quantiser": {"error_feedback": True}}
VALUE_STEPS = {"quantiser": {"step": "value", "coarseness": 1.0, "error_feedback": True}}

# Changes of a configuration by method, beside the default one.
CODECS: dict[str, list[Changes]] = {
    "asc": [
        {"schedule": {"name": "ring", "subframes": 2}, "quantiser": {"rounding": "stochastic"}},
        {"schedule": {"name": "boomerang"}, **FEEDBACK},
        {"schedule": {"name": "duplex", "subframes": 3}, "plan": {"name": "snake", "granule": 16}},
        {"schedule": {"name": "direct", "subframes": 2}, "plan": SPLITTER, **FEEDBACK},
        {"schedule": {"name": "hierarchical", "group": 2}, "quantiser": {"scale": "max"}},
        {"schedule": {"name": "exchange", "group": 2, "subframes": 2}, **FEEDBACK},
        {"schedule": {"name": "star", "subframes": 3}, "plan": {"name": "equal"}},
        {"quantiser": {"bits": 16, "coarseness": 2.0**-8}},
        {"quantiser": {"controller": "bandit", "error_feedback": True, "arms": [0.125, 0.25]}},
        VALUE_STEPS,
    ],
    "int16": [{"quantiser": {"bits": 8}, "schedule": {"name": "duplex"}}, VALUE_STEPS],
    "rans0": [VALUE_STEPS],
    "fp32": [{"schedule": {"name": "hierarchical", "group": 2}}, {"schedule": {"name": "star", "root": 1}}],
    "int8": [{"schedule": {"name": "hierarchical", "group": 2}, **FEEDBACK}],
}  # fmt: skip
SPARSE = {"controller": "released", "values": "asc", "density": 0.1}
SCHEMES: dict[str, list[Changes]] = {  # changes of the section `scheme`
    "oscar-sw": [
        {"share": 0.2, "lane_bits": 10, "coded": True}, {"paper": True}, {"relative": True, "every": 2},
    ],
    "oscar-sw-best": [{"share": 0.1, "coded": True, "lane_bits": 10}, {"spread": True, "period": 3}],
    "oscar-sw-lossless": [{"stages": 1, "widths": 0}, {"stages": 4, "widths": 3}, {"message_bits": 3000}],
    "count-sketch": [{"error_feedback": True, "threshold": 2.0}, {"estimate": "mean", "fresh_hash": False}],
    "lhc": [{"cells": "values"}, {"lanes": 16, "hashes": 4, "ratio": 1.0}, {"error_feedback": False}],
    "topk": [
        {"momentum": 0.9, "warmup": 3, "density": 0.1}, SPARSE, {"values": "int8", "index": "popular"},
        {"density": 1.0},
    ],
    "zen": [
        *({"exchange": name} for name in ("balanced", "doubling", "all-gather", "blocks", "dense")),
        {"values": "asc", "push": "popular", "error_feedback": True},
        {"partition": "learnt", "exchange": "balanced", "grain": "value"},
        {"partition": "range", "exchange": "balanced", "pull": "gaps"},
    ],
    "adatopk": [{"density": 0.1, "rates": ""}],
    "fedft": [{"density": 0.1, "chunk": 16}, {"values": "asc", "index": "popular"}],
    "demo": [{"values": "int8", "decay": 0.5, "chunk": 7}],
    "spafl": [{"error_feedback": False}],
    "micro": [{"controller": "released", "density": 1.0}, {"partition": "learnt", "values": "asc"}],
    "exdyna": [{"partition": "released", "controller": "released", "values": "int8"}, SPARSE],
    "deft": [SPARSE, {"values": "int8", "density": 1e-9}],
    "clt-k": [{"values": "int8"}],
    "scalecom": [{"values": "asc", "beta": 0.5}],
    "hard-threshold": [SPARSE],
    "sidco": [{"fit": "pareto", "controller": "released"}, {"values": "asc"}],
    "dct-threshold": [{"every": 2}, {"every": 3, "controller": "released", "values": "int8"}],
    "oktopk": [
        {"density": 0.05, "reuse": 3, "regions": 2},
        {"density": 0.1, "controller": "released", "uneven": 1.0, "index": "coo"},
    ],
    "powersgd": [{"rank": 3, "warm_start": False}, {"error_feedback": False}],
    "qsgd": [{"norm": "l2", "bucket": 7, "error_feedback": True}, {"coded": True}],
    "s2-reducer": [{"index": "gather"}, {"error_feedback": True}],
    "sketched-sgd": [{"exact": False, "momentum": 0.9}],
    "terngrad": [{"clip": 0.0, "error_feedback": True}, {"coded": True}],
    "thc": [{"error_feedback": False, "block": 64}],
    "dynamiq": [{"error_feedback": True, "bits": 3.0, "correlated": False}],
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A method and changes of the configuration."""

    method: str
    changes: Changes

    def config(self, nodes: int = 3) -> Config:
        """Return the configuration between this many ranks."""
        changes = dict(self.changes)
        schedule = changes.get("schedule", {})
        if "group" in schedule:
            changes["schedule"] = {**schedule, "group": min(schedule["group"], nodes)}
        if "root" in schedule:
            changes["schedule"] = {**schedule, "root": min(schedule["root"], nodes - 1)}
        return Config.model_validate({"method": self.method, "nodes": nodes, **changes})

    def cluster(self, nodes: int = 3) -> LocalCluster:
        """Return a cluster."""
        return LocalCluster(self.config(nodes))

    def communicator(self, transport: Any, nodes: int) -> Communicator:
        """Return a rank."""
        return Communicator(self.config(nodes), transport, timeout_s=30)

    def __str__(self) -> str:
        flat = self.changes.get("scheme", self.changes)
        return f"{self.method} {flat}" if flat else self.method


def _cases() -> list[Case]:
    result = []
    for name in method_names():
        changes = [{"scheme": options} for options in SCHEMES.get(name, [])]
        result += [Case(name, one) for one in [{}, *(changes if is_scheme(name) else CODECS.get(name, []))]]
    # Messages of schemes go to owners where all ranks are connected, and around a ring here.
    return [
        *result,
        *(Case(name, {"schedule": {"name": "ring"}}) for name in ("oscar-sw-best", "powersgd", "topk")),
    ]


CASES = _cases()


def gradients(
    random: np.random.Generator,
    nodes: int = 3,
    shapes: list[tuple[int, ...]] | None = None,
    scale: float = 1.0,
) -> list[list[np.ndarray]]:
    """Return gradients [node][tensor] of heavy tails with a common part, a tenth of them 0.

    Matrices of more than 8 rows have few rows that are not 0, others at each node.

    Each tensor has a mean square of scale^2 in every call, so that no call is a spike by chance.
    """

    def draw(part: np.ndarray) -> np.ndarray:
        kept = random.random(part.shape) > 0.1
        if part.ndim == 2 and part.shape[0] > 8:  # of an embedding, say
            kept &= random.random((part.shape[0], 1)) < 0.2
        tensor = (part + random.laplace(size=part.shape) ** 3) * kept
        size = np.sqrt(np.square(tensor).mean()) if tensor.any() else 1.0
        return np.asarray(tensor * (scale / size), np.float32)

    common = [random.laplace(size=shape) ** 3 for shape in (SHAPES if shapes is None else shapes)]
    return [[draw(part) for part in common] for _ in range(nodes)]
