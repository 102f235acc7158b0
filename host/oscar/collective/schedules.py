"""The registry of schedules."""

from __future__ import annotations

from oscar.collective.exchange import ExchangeSchedule
from oscar.collective.redundant import Redundant, usual_pieces
from oscar.collective.ring import Boomerang, Duplex, Ring
from oscar.collective.schedule import Schedule
from oscar.collective.schedule_file import FileSchedule, read_schedule
from oscar.collective.trees import Direct, Hierarchical, Star, Switch

SCHEDULES: dict[str, type[Schedule]] = {
    kind.name: kind for kind in (Ring, Boomerang, Duplex, Direct, Hierarchical, ExchangeSchedule, Star)
}
GROUPED = Hierarchical, ExchangeSchedule  # have the option `group`
KINDS: dict[str, type[Schedule]] = SCHEDULES | {  # built-in, from a file, and of tasks
    kind.name: kind for kind in (FileSchedule, Redundant)
}


def make_schedule(
    name: str,
    nodes: int,
    *,
    subframes: int = 1,
    adopt: bool = False,
    group: int | None = None,
    root: int = 0,
    slices: int = 1,
    file: str | None = None,
    copies: int = 2,
    pieces: int | None = None,
) -> Schedule:
    """Return the schedule `name` for `nodes` ranks.

    Args:
        subframes: Sub-frames of each chunk.
        adopt: Owners decode their own final frames; set it for lossy codecs.
        group: Ranks in a group, for hierarchical and exchange (None: about the square root of `nodes`).
        root: The rank that adds, for star.
        file: Path of a schedule file, for file.
        copies: Ranks that can compute a task, for redundant.
        pieces: Tasks of a rank's part, for redundant (None: one for each other rank, at most 8).
        slices: For switch, which has so many ranks more, without values; no host runs it.

    Raises:
        ValueError: For arguments out of range.
        ConfigError: For a file that cannot be used.

    >>> make_schedule("hierarchical", 8, group=4).describe()
    'hierarchical, 8 ranks, 8 chunks of 1 sub-frames'
    """
    if name == Switch.name:
        return Switch(nodes + slices, subframes, adopt, slices=slices)
    if name not in KINDS:
        raise ValueError(f"schedule must be one of {', '.join(KINDS)}, got {name!r}")
    if name == FileSchedule.name:
        if file is None:
            raise ValueError("schedule file: expected the path of a schedule file, got none")
        return read_schedule(file, nodes=nodes, subframes=subframes, adopt=adopt)
    if name == Redundant.name:
        return Redundant(nodes, subframes, adopt, copies=copies, pieces=pieces or usual_pieces(nodes))
    kind = SCHEDULES[name]
    adopt = adopt and not kind.integers
    if issubclass(kind, GROUPED):
        size = round(max(1, nodes) ** 0.5) if group is None else group
        return kind(nodes, subframes, adopt, group=size)
    if kind is Star:
        return Star(nodes, subframes, adopt, root=root)
    return kind(nodes, subframes, adopt)
