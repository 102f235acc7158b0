"""The bars of a timeline: what a node did, from when and for how long."""

from __future__ import annotations

from dataclasses import dataclass

STAGES = ("encode", "send", "wait", "decode-add")


@dataclass(frozen=True)
class Span:
    """One bar of a timeline: seconds since the AllReduce began; `step` counts within `phase`.

    `stage` is one of STAGES; "send" includes forwarding, "decode-add" plain decoding; both codec stages
    hold the time that the engine is occupied, without the latency of its pipeline. `engine`: which one.
    """

    rank: int
    stage: str
    start_s: float
    duration_s: float
    phase: int
    step: int
    chunk: int
    sub: int
    engine: int = 0
