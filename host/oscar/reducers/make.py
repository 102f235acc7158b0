"""The cluster that a configuration asks for: a ring of codecs, or a scheme over plain AllReduces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from oscar.collective.stats import AllReduceResult
from oscar.config import Config
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.scheme_cluster import SchemeCluster
from oscar.schemes.registry import SCHEMES


class Cluster(Protocol):
    """What training asks of an AllReduce between the workers of one process."""

    def allreduce(self, gradients: Sequence[Sequence[np.ndarray]]) -> AllReduceResult: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Any) -> None: ...


def make_cluster(config: Config) -> Cluster:
    """Return the cluster of `config.method`, be it a codec or a scheme."""
    return SchemeCluster(config) if config.method in SCHEMES else LocalCluster(config)
