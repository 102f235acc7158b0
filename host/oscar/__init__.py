"""OSCAR: compressed gradient AllReduce with adaptive stepwise coding and chunk plans.

import oscar
cluster = oscar.LocalCluster(oscar.load_config("default"))
result = cluster.allreduce(gradients)   # gradients[node][tensor] float32
result.mean[0], result.stats.bits_per_value
"""

from typing import TYPE_CHECKING, Any

from oscar import moved
from oscar.version import __version__

__all__ = ["Config", "LocalCluster", "__version__", "load_config"]

if TYPE_CHECKING:
    from oscar.config import Config, load_config
    from oscar.reducers.cluster import LocalCluster

_HOME = {"LocalCluster": "oscar.reducers.cluster", "Config": "oscar.config", "load_config": "oscar.config"}

moved.install()


def __getattr__(name: str) -> Any:
    """Import on first use, so that `oscar --help` and `oscar.coding.asc` stay quick."""
    if name not in _HOME:
        raise AttributeError(f"module 'oscar' has no attribute {name!r}")
    from importlib import import_module

    from oscar.errors import check_packages

    check_packages()
    return getattr(import_module(_HOME[name]), name)
