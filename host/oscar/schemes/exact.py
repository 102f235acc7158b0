"""The coded ring as a scheme: quantised gradients, or floats as they are, summed by frames of one codec.

What every node derives from the sums (steps, position classes, block costs, the chunk plan) is replicated
state: equal everywhere, never sent. docs/protocol.md has the rules.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.coding.codec import Codec
from oscar.collective.schedule import Schedule
from oscar.numerics import saturation
from oscar.numerics.plans import USES_COSTS, ChunkPlan, block_costs, make_plan
from oscar.numerics.position import PositionState
from oscar.numerics.quantiser import QuantiserParams, WorkerQuantiser
from oscar.numerics.steps import StepTracker, summarise
from oscar.schemes.base import Channel, Message, Messages, Scheme, Worker, join
from oscar.state import PART, Saved, absent, crc, optional

COST_SMOOTHING = 1  # block costs move by half of the difference
MOST_COST = 65  # of a value: 2 * 32 bits, and 1
_SUMMARY = struct.Struct("<Ihxx")


@dataclass(frozen=True)
class ExactOptions:
    """codec: of the frames; schedule: who sends what; plan, granule, shares: how chunks are made."""

    codec: Codec
    quantiser: QuantiserParams
    schedule: Schedule
    plan: str
    granule: int
    shares: tuple[float, ...] | None = None


def _has_costs(exact: Any) -> bool:
    return exact.options.plan in USES_COSTS and not exact.floating


def _read_costs(exact: Any, saved: Saved) -> Array:
    granule = exact.options.granule
    return saved.array(np.int64, (-(-exact.values // granule),), 0, MOST_COST * granule << 8)


class Exact(Scheme):
    """Sums of quantised gradients, exact in integers; a codec of floats gets the gradients themselves."""

    name: ClassVar[str] = "exact"
    Options: ClassVar[type[Any]] = ExactOptions
    advice: ClassVar[str] = saturation.ADVICE

    STATE = Scheme.STATE | {
        "steps": PART,
        "position": absent("for a codec without position classes"),
        "costs": optional(_read_costs, when=_has_costs, without="for a plan without costs"),
    }

    def _setup(self) -> None:
        self.codec, self.params = self.options.codec, self.options.quantiser
        self.floating = self.codec.domain == "float"
        self.dtype = sums_dtype(self.codec, self.params, self.nodes)
        self.steps = StepTracker(self.params, self.sizes, self.nodes)
        self.position = PositionState(self.values) if self.codec.uses_context else None
        self.costs: Array | None = None
        self.plan: ChunkPlan | None = None
        self._sums: Array | None = None

    def make_worker(self, rank: int) -> WorkerQuantiser:
        return WorkerQuantiser(self.params, rank, self.values)

    def channels(self, default: Channel) -> dict[str, Channel]:
        """See Scheme.channels: one, and nothing of it is the default."""
        width: Callable[[int], int] = (lambda workers: 32) if self.floating else self.params.sum_width
        return {"sums": Channel(self.codec, self.options.schedule, width)}

    def start(self, worker: WorkerQuantiser, tensors: Sequence[Array]) -> Messages:
        """Yield a summary of the tensors without a step, where there are any, and the integers, or floats."""
        if self.floating:
            yield Message("sums", join(tensors), coded=True, plan=self.once("plan", self._make_plan))
            return
        if self.steps.unset:  # on all workers alike
            summaries = summarise(worker.corrected(tensors, self.steps.unset), self.params)
            packed = b"".join(_SUMMARY.pack(*summary) for summary in summaries)
            every = yield Message("steps of tensors", np.frombuffer(packed, np.uint8), "agree")
            self.once("steps", lambda: self._agree(every))
        plan = self.once("plan", self._make_plan)
        local = worker.quantise(tensors, self.steps.exponents, self.dtype, plan, worker.room)
        worker.room = local
        classes = None if self.position is None else self.position.classes
        yield Message("sums", local, coded=True, context=classes, plan=plan, planned=True)

    def messages(self, worker: Worker, values: Array) -> Messages:
        """Not used: tensors are quantised where they lie, see `start`."""
        raise NotImplementedError("the exact scheme starts from tensors")

    def _agree(self, every: list[Array]) -> None:
        """Set the steps from all workers' summaries, by rank; `Reducer` takes them back if the call fails."""
        self.steps.agree([list(_SUMMARY.iter_unpack(mine.data)) for mine in every])

    def _make_plan(self) -> ChunkPlan:
        o = self.options
        if self.plan is None or o.plan in USES_COSTS:
            self.plan = make_plan(
                o.plan,
                self.values,
                o.schedule.chunks,
                granule=o.granule,
                costs=self.costs,
                shares=o.shares,
            )
        return self.plan

    def finish(self, totals: Sequence[Array]) -> Array:
        sums = self._sums = totals[-1]
        if self.floating:
            mean: Array = sums / np.float32(self.nodes)
        else:
            mean = self.steps.dequantise(sums)
            rises = self.steps.observe(sums)
            if self.position is not None:
                self.position.observe(sums)
                self.position.rescale(self.offsets, rises)
            if self.options.plan in USES_COSTS:
                fresh = block_costs(sums, self.options.granule) << 8
                old = self.costs
                self.costs = fresh if old is None else old + ((fresh - old) >> COST_SMOOTHING)
        self.iteration += 1
        return mean

    def is_exact(self, workers: Sequence[Any]) -> bool:
        """Whether the codec is lossless; the wire has compared the sums."""
        return self.codec.lossless

    def reference_sums(self) -> Array | None:
        return self._sums

    def digests(self) -> dict[str, int]:
        return {
            "iterations": self.iteration & 0xFFFFFFFF,
            "steps": self.steps.digest(),
            "classes": crc(None if self.position is None else self.position.classes),
            "costs": crc(self.costs),
        }


def sums_dtype(codec: Codec, params: QuantiserParams, nodes: int) -> np.dtype[Any]:
    """Return what the sums over `nodes` are kept in: float32 for a codec of floats."""
    return np.dtype(np.float32) if codec.domain == "float" else params.sum_dtype(nodes)
