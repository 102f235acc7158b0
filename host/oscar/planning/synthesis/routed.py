"""Given routes as a schedule."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from oscar.collective.routes import Routed, Routes


@dataclass(frozen=True)
class Given(Routed):
    """Routes from a file or from synthesis."""

    name: ClassVar[str] = "file"

    routes: Routes = field(kw_only=True)  # a field in place of the property


def as_schedule(routes: Routes, subframes: int, *, adopt: bool = False) -> Routed:
    """Return `routes` as a schedule."""
    return Given(routes.nodes, subframes, adopt, routes=routes)
