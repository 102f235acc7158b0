"""The schedules by name."""

from __future__ import annotations

from oscar.collective.exchange import ExchangeSchedule
from oscar.collective.ring import Boomerang, Duplex, Ring
from oscar.collective.schedule import Schedule
from oscar.collective.schedule_file import FileSchedule, read_schedule
from oscar.collective.trees import Direct, Hierarchical, Star

SCHEDULES: dict[str, type[Schedule]] = {
    kind.name: kind for kind in (Ring, Boomerang, Duplex, Direct, Hierarchical, ExchangeSchedule, Star)
}
GROUPED = Hierarchical, ExchangeSchedule  # take the ranks of a group
KINDS: dict[str, type[Schedule]] = SCHEDULES | {FileSchedule.name: FileSchedule}  # with what is no built-in


def make_schedule(
    name: str,
    nodes: int,
    *,
    subframes: int = 1,
    adopt: bool = False,
    group: int | None = None,
    root: int = 0,
    file: str | None = None,
) -> Schedule:
    """Return the schedule of that name between `nodes`.

    adopt: for a lossy codec. group: ranks of a group, of hierarchical and exchange (None: about the root of
    `nodes`). root: of star. file: of file. Raises ValueError, and ConfigError for a file.
    """
    if name not in KINDS:
        raise ValueError(f"schedule must be one of {', '.join(KINDS)}, got {name!r}")
    if name == FileSchedule.name:
        if file is None:
            raise ValueError("schedule file: expected the path of a schedule file, got none")
        return read_schedule(file, nodes=nodes, subframes=subframes, adopt=adopt)
    kind = SCHEDULES[name]
    adopt = adopt and not kind.integers
    if issubclass(kind, GROUPED):
        size = round(max(1, nodes) ** 0.5) if group is None else group
        return kind(nodes, subframes, adopt, group=size)
    if kind is Star:
        return Star(nodes, subframes, adopt, root=root)
    return kind(nodes, subframes, adopt)
