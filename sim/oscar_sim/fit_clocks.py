"""Fits the coefficients of a NIC's file to clocks that were measured in RTL simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from oscar.array import Array
from oscar.errors import OscarError, needed
from oscar.timeline.clocks import Stage, Terms, engaged, frame_terms
from oscar.timeline.nic import NIC, NicFile

DECIMALS = 4  # of a coefficient in a file


@dataclass(frozen=True)
class Queue:
    """Frames of one direction, with their clocks alone and one right after the other.

    Attributes:
        model: Whose gradients they are.
        seed: Of the training.
        way: "encode" or "decode".
        values: Values of each frame.
        cells: What each frame gives units to do (`asc.turns.cells_of`).
        alone: Clocks of each frame that has the NIC to itself.
        front: Clocks of these until its first row is read.
        begin: When each frame is there, in the queue.
        end: When its result is there, in the queue.
    """

    model: str
    seed: int
    way: str
    values: list[int]
    cells: list[list[list[int]]]
    alone: list[int]
    front: list[int]
    begin: list[int]
    end: list[int]

    def terms(self, units: int, block: int) -> Array:
        """Return the terms of all frames, float64 [frames, terms]."""
        frames = zip(self.cells, self.values, strict=True)
        way = NIC.index(self.way)
        return np.array([frame_terms(np.array(cells), count, units, block)[way] for cells, count in frames])


class Errors(NamedTuple):
    """Relative errors of fitted clocks.

    Attributes:
        median, worst: Of frames alone.
        queue_median, queue_worst: Of queues, from the end of the first frame to the end of the last one.
    """

    median: float
    worst: float
    queue_median: float
    queue_worst: float


def fit_nic(nic: NicFile, queues: Sequence[Queue], *, source: str, revision: str) -> NicFile:
    """Return the NIC with coefficients fitted to `queues`; source: how these were measured."""
    clocks = {}
    for way in NIC:
        own = [queue for queue in queues if queue.way == way]
        clocks[way] = _fit(own, [queue.terms(nic.units, nic.block) for queue in own])
    changed = {"clocks": clocks, "measured_by": source, "revision": revision}
    return NicFile.model_validate(nic.model_dump(mode="json") | changed)


def _fit(queues: Sequence[Queue], terms: Sequence[Array]) -> dict[str, Any]:
    """Return the tree of a StageFile; terms: of each queue's frames."""
    every, alone = np.concatenate(terms), np.concatenate([queue.alone for queue in queues]).astype(float)
    # Of a raw block the probe sees rows late.
    coded = every[:, Terms._fields.index("raw_rows")] == 0
    front = float(np.median(np.concatenate([queue.front for queue in queues])[coded]))
    result = _least_squares(every, alone - front, 1 / alone)
    hold = _least_deviations(*_holds(queues, terms))
    errors = _errors(queues, terms, front, result, hold)
    parts = {"result": result, "hold": hold, "error": errors}
    return {"front": front} | {name: part._asdict() for name, part in parts.items()}


def _least_squares(terms: Array, clocks: Array, weights: Array) -> Terms:
    """Return non-negative coefficients; weights: of each row of `terms`."""
    solve = needed("scipy.optimize", "fitting a NIC's clocks", "schedule").nnls
    solution, _ = solve(terms * weights[:, None], clocks * weights)
    return Terms(*(round(float(each), DECIMALS) for each in solution))


def _least_deviations(terms: Array, clocks: Array, weights: Array) -> Terms:
    """Return non-negative coefficients whose absolute errors add up to the least.

    Some frames wait for what no term says, such as one of the frames under way before. Squares would bend all
    coefficients towards these.
    """
    solve = needed("scipy.optimize", "fitting a NIC's clocks", "schedule").linprog
    rows, size = weights[:, None] * terms, weights.size
    above, below = np.eye(size), -np.eye(size)  # of each error one is used
    costs = np.concatenate([np.zeros(rows.shape[1]), np.ones(2 * size)])
    fit = solve(costs, A_eq=np.hstack([rows, above, below]), b_eq=weights * clocks)
    if not fit.success:
        raise OscarError(f"coefficients of holds: expected a fit of {size} frames, got: {fit.message}")
    return Terms(*(round(float(each), DECIMALS) for each in fit.x[: rows.shape[1]]))


def _holds(queues: Sequence[Queue], terms: Sequence[Array]) -> tuple[Array, Array, Array]:
    """Return terms, clocks and weights of frames that kept the one behind them waiting.

    A frame's result comes as much later than that of the frame before as that one's hold, plus what the frame
    takes longer alone.
    """
    rows, clocks, weights = [], [], []
    for queue, each in zip(queues, terms, strict=True):
        alone, end = np.array(queue.alone), np.array(queue.end)
        gaps, weight = np.diff(end) - np.diff(alone), 1 / max(1, end[-1] - end[0])
        waited = (end - np.array(queue.begin) > alone)[1:]
        rows += [*each[:-1][waited]]
        clocks += [*gaps[waited]]
        weights += [weight] * int(waited.sum())
        if waited.size and waited.all():  # the whole queue counts as much as its frames do
            rows.append(each[:-1].sum(axis=0))
            clocks.append(gaps.sum())
            weights.append(weight * waited.size)
    return np.array(rows), np.array(clocks, float), np.array(weights)


def _errors(
    queues: Sequence[Queue], terms: Sequence[Array], front: float, result: Terms, hold: Terms
) -> Errors:
    """Return the errors of fitted clocks; a queue is played as the time model does."""
    frames, whole = [], []
    for queue, each in zip(queues, terms, strict=True):
        stage = Stage(front, result, hold)
        works, holds = zip(*(engaged(Terms(*frame), stage) for frame in each), strict=True)
        frames += [*abs((front + np.array(works)) / np.array(queue.alone) - 1)]
        free, ends = 0.0, []
        for begin, work, held in zip(queue.begin, works, holds, strict=True):
            start = max(begin + front, free)
            ends.append(start + work)
            free = start + held
        if len(ends) > 1:
            whole.append(abs((ends[-1] - ends[0]) / (queue.end[-1] - queue.end[0]) - 1))
    figures = (of(errors) for errors in (frames, whole or [0.0]) for of in (np.median, np.max))
    return Errors(*(round(float(figure), DECIMALS) for figure in figures))
