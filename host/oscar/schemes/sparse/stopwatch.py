"""Seconds of each stage of a sparse exchange on one rank, so that no rank's work hides behind another's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

Stage = Literal["select", "index", "reduce", "apply"]
STAGES: tuple[Stage, ...] = ("select", "index", "reduce", "apply")
T = TypeVar("T")


class Stopwatch:
    """seconds: of this rank's own work in the last iteration, by stage.

    select: find the positions. index: code and decode streams of positions, unite them. reduce: gather,
    quantise and add values; the wire's time is not in it. apply: residual, mean gradient.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(STAGES, 0.0)

    def start(self) -> None:
        """Begin an iteration."""
        self.seconds = dict.fromkeys(STAGES, 0.0)

    @contextmanager
    def on(self, stage: Stage) -> Iterator[None]:
        """Count the time of the block."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] += time.perf_counter() - began

    def shared(self, once: Callable[..., Any], stage: Stage, key: str, compute: Callable[[], T]) -> T:
        """Return `compute()`, done once for all workers of a process; each of them is charged all of it.

        once: Scheme.once.
        """

        def timed() -> tuple[T, float]:
            began = time.perf_counter()
            return compute(), time.perf_counter() - began

        found: tuple[T, float] = once(key, timed)
        self.seconds[stage] += found[1]
        return found[0]
