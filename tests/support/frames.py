"""Frames of any schedule, drawn at random."""

from __future__ import annotations

import random
from collections import defaultdict

from oscar.collective.actions import SENDS
from oscar.collective.frames import Frames
from oscar.collective.schedule import Schedule


def unequal(schedule: Schedule, seed: random.Random) -> Frames:
    """Draw frames of `schedule`, some chunks empty; a frame is the same to all its receivers."""
    count = {
        (chunk, sub): seed.choice([0, seed.randrange(1, 5000)])
        for chunk in range(schedule.chunks)
        for sub in range(schedule.subframes)
    }
    size: dict[tuple[int, ...], int] = defaultdict(lambda: seed.randrange(25, 9000))
    return Frames.of(
        (a.phase, a.step, rank, a.peer, a.chunk, a.sub, a.workers, count[a.chunk, a.sub],
         size[a.phase, rank, a.chunk, a.sub])
        for rank in range(schedule.nodes)
        for a in schedule.actions(rank)
        if a.op in SENDS and count[a.chunk, a.sub]
    )  # fmt: skip
