"""Bundles without what a block does not look at."""

from __future__ import annotations

from typing import Any


def without(bundle: Any, *names: str) -> Any:
    """Return a bundle without signals that a block does not look at: a port that nobody reads is an error."""
    for name in names:
        delattr(bundle, name)
    return bundle


def only(bundle: Any, *names: str) -> Any:
    """Return a bundle with these signals alone."""
    return without(bundle, *(set(vars(bundle)) - set(names)))
