"""Given routes as a schedule."""

from __future__ import annotations

from oscar.collective.routes import Routed, Routes
from oscar.collective.schedule_file import FileSchedule


def as_schedule(routes: Routes, subframes: int, *, adopt: bool = False) -> Routed:
    """Return `routes` as a schedule: what a file of them reads as."""
    return FileSchedule(routes.nodes, subframes, adopt, routes=routes)
