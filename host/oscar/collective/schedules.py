"""The schedules by name."""

from __future__ import annotations

from oscar.collective.ring import Boomerang, Duplex, Ring
from oscar.collective.schedule import Schedule
from oscar.collective.trees import Direct, Hierarchical, Star

SCHEDULES: dict[str, type[Schedule]] = {
    kind.name: kind for kind in (Ring, Boomerang, Duplex, Direct, Hierarchical, Star)
}
