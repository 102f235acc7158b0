"""The bars of a timeline: what a node or a port did, from when and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

STAGES = ("encode", "send", "wait", "decode-add")


@dataclass(frozen=True)
class Span:
    """One bar of a timeline: seconds since the AllReduce began; `step` counts within `phase`.

    `stage` is one of STAGES; "send" includes forwarding, "decode-add" plain decoding; both codec stages
    hold the time that the codec is occupied, without the latency of its pipeline. `core`: which one; of a
    "send", which of the rank's ways out (always 0 at a switch).
    """

    rank: int
    stage: str
    start_s: float
    duration_s: float
    phase: int
    step: int
    chunk: int
    sub: int
    core: int = 0


class Carried(NamedTuple):
    """One frame in one port, in seconds since the AllReduce began."""

    port: int
    start_s: float
    end_s: float
    sender: int
    receiver: int
    phase: int
    chunk: int
    sub: int
