"""Schedules of kept results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oscar.collective.schedule import Schedule
from oscar.collective.schedules import make_schedule
from oscar.config import ScheduleSection
from oscar.results import Results


def kept_schedule(results: Results, row: Mapping[str, Any]) -> Schedule:
    """Return the schedule of a row of a comparison's results."""
    options = ScheduleSection(**results["config"]["schedule"]).named(row["schedule"])
    adopt = not row["lossless"]
    return make_schedule(nodes=results["nodes"], adopt=adopt, **options.model_dump())
