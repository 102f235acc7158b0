"""Seconds of each stage of a sparsifier on every rank, taken from outside: the scheme holds no clock.

select: find the positions. index: code and decode streams of positions, unite them. reduce: gather, quantise
and add values, without the wire's time. apply: residual and mean. Where workers of one process share a
result (`Scheme.once`), each of them is charged the time it took, as each rank of a real run would be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from oscar.array import Array
from oscar.schemes.sparse.sparsifier import Sparsifier

STAGES = ("select", "index", "reduce", "apply")


class Stages:
    """Times a sparsifier's stages while it is entered; seconds: float64, (workers, stages)."""

    def __init__(self, scheme: Sparsifier, workers: Sequence[Any]) -> None:
        self.scheme, self.workers = scheme, workers
        self.seconds = np.zeros((len(workers), len(STAGES)))
        self._shared: dict[str, float] = {}
        self._owner: dict[int, int] = {}  # rank of each array of gradient and residual
        self._now: tuple[int, str] | None = None

    def __enter__(self) -> Stages:
        with ExitStack() as stack:
            replaced: list[tuple[Any, str, Any]] = [
                (self.scheme, "choose", self._choose(self.scheme.choose)),
                (self.scheme, "once", self._once(self.scheme.once)),
                (self.scheme.index, "encode", self._encode(self.scheme.index.encode)),
                (self.scheme.sum, "messages", self._sum(self.scheme.sum.messages)),
            ]
            replaced += [(w, "keep", self._keep(w.rank, w.keep)) for w in self.workers]
            for owner, name, timed in replaced:
                stack.enter_context(patch.object(owner, name, timed))
            self._patches = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()

    @contextmanager
    def _on(self, rank: int, stage: str) -> Iterator[None]:
        self._now, began = (rank, stage), time.perf_counter()
        try:
            yield
        finally:
            self._add(rank, stage, time.perf_counter() - began)
            self._now = None

    def _add(self, rank: int, stage: str, seconds: float) -> None:
        self.seconds[rank, STAGES.index(stage)] += seconds

    def _each_turn(self, rank: int, stage: str, running: Generator[Any, Any, Any]) -> Any:
        """Run a generator of messages; the time between a message and its answer does not count."""
        answer: Any = None
        while True:
            with self._on(rank, stage):
                try:
                    message = running.send(answer)
                except StopIteration as end:
                    return end.value
            answer = yield message

    def _choose(self, choose: Callable[..., Any]) -> Callable[..., Any]:
        def timed(worker: Any, acc: Array) -> Any:
            self._owner[id(acc)] = worker.rank
            return self._each_turn(worker.rank, "select", choose(worker, acc))

        return timed

    def _sum(self, messages: Callable[..., Any]) -> Callable[..., Any]:
        def timed(acc: Array, *rest: Any) -> Any:
            return self._each_turn(self._owner[id(acc)], "reduce", messages(acc, *rest))

        return timed

    def _encode(self, encode: Callable[..., Any]) -> Callable[..., Any]:
        def timed(rank: int, positions: Array) -> Any:
            with self._on(rank, "index"):
                return encode(rank, positions)

        return timed

    def _keep(self, rank: int, keep: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*what: Any) -> None:
            with self._on(rank, "apply"):
                keep(*what)

        return timed

    def _once(self, once: Callable[..., Any]) -> Callable[..., Any]:
        def timed(key: str, compute: Callable[[], Any]) -> Any:
            def first() -> Any:
                began = time.perf_counter()
                value = compute()
                self._shared[key] = time.perf_counter() - began
                if key == "union":  # outside the stages above; every rank decodes and unites
                    for rank in range(len(self.workers)):
                        self._add(rank, "index", self._shared[key])
                return value

            known = key in self._shared
            value = once(key, first)
            if known and self._now is not None:
                self._add(*self._now, self._shared[key])
            return value

        return timed
