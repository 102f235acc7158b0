"""What benches of sparsifiers share: the rules by name, and a model that trains with one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from oscar.config import Config
from oscar.errors import CautionWarning, OscarError
from oscar.reducers.cluster import LocalCluster
from oscar.schemes.sparse.sparsifier import Sparsifier
from oscar_studies.workloads.registry import make_workload

# Method and options, by the name in tables.
RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "topk": ("topk", {}),
    "clt-k": ("clt-k", {}),
    "deft": ("deft", {}),
    "micro": ("micro", {}),
    "micro released": ("micro", {"controller": "released"}),
    "exdyna": ("exdyna", {}),
    "exdyna one block": ("exdyna", {"partition": "released"}),
    "exdyna released": ("exdyna", {"partition": "released", "controller": "released"}),
    "sidco": ("sidco", {"controller": "released"}),
    "sidco counted": ("sidco", {}),
    "dct-threshold": ("dct-threshold", {"controller": "released"}),
    "hard-threshold": ("hard-threshold", {"controller": "released"}),
}


def sparsifier_of(cluster: LocalCluster) -> Sparsifier:
    """Return the scheme of a cluster that has reduced something."""
    scheme = cluster.scheme
    if not isinstance(scheme, Sparsifier):
        raise OscarError(f"expected a sparsifier that has reduced something, got {scheme!r}")
    return scheme


class SparseTraining:
    """A workload that trains with a rule of RULES; cluster: what reduces."""

    def __init__(self, rule: str, workload: str, *, nodes: int, seed: int, **options: Any) -> None:
        method, own = RULES[rule]
        self.cluster = LocalCluster(Config(nodes=nodes, seed=seed, method=method, scheme={**own, **options}))
        self.workload = make_workload(workload, nodes=nodes, seed=seed)

    def run(self, iterations: int) -> Iterator[Any]:
        """Train; yield the result of each AllReduce, whose scheme says what was chosen."""
        for _ in range(iterations):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CautionWarning)  # what it costs is measured elsewhere
                result = self.cluster.allreduce(self.workload.gradients())
            self.workload.apply(result.mean)
            yield result
