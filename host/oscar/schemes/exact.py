"""The coded ring as a scheme: quantised gradients (or plain floats) are summed in frames of one codec.

Every node derives step sizes, position classes, block costs and the chunk plan from the sums. They are
replicated state: equal on all nodes and never sent. docs/reference/protocol.md has the rules.
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
from oscar.numerics import renewal, saturation
from oscar.numerics.meanwhile import Meanwhile
from oscar.numerics.passes import Passes
from oscar.numerics.plans import USES_COSTS, ChunkPlan, block_costs, gather_range, make_plan
from oscar.numerics.position import PositionState
from oscar.numerics.quantiser import QuantiserParams, WorkerQuantiser
from oscar.numerics.steps import Settled, StepTracker
from oscar.numerics.summaries import summarise
from oscar.numerics.tensors import check_finite
from oscar.numerics.value_steps import ValueSteps
from oscar.schemes.base import Channel, Message, Messages, Scheme, Worker, join
from oscar.schemes.fields import field_bits
from oscar.state import PART, Saved, absent, crc, optional

COST_SMOOTHING = 1  # a shift: block costs move by half of the difference
EARLY_VALUES = 1 << 20  # of a gradient, from which sums that are final do not wait for the others
MOST_COST = 65  # bits of one value at most: 2 * 32 + 1
_SUMMARY = struct.Struct("<Ihxx")


@dataclass(frozen=True)
class ExactOptions:
    """Options of the coded ring, filled from the configuration.

    Attributes:
        codec: Codec of the frames.
        quantiser: Step sizes and integer width.
        schedule: Who sends which chunk to whom.
        plan: How values are dealt to chunks, see `make_plan`.
        granule: Values in a block of the plan.
        shares: Each chunk's share of the values. None: all are equal.
    """

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
    """Sum quantised gradients exactly, as integers. A float codec sums the gradients without quantisation."""

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
        self.position: PositionState | ValueSteps | None = None
        self._place()
        self.costs: Array | None = None
        self.plan: ChunkPlan | None = None
        self._sums: Array | None = None
        self._classes_digest = 0  # of the classes with which this call began
        self.renewed: dict[int, int] = {}  # by how much exponents changed within the last call, by tensor

    def _place(self) -> None:
        """Make what holds values: steps and position state."""
        self.steps = StepTracker(self.params, self.sizes, self.nodes)
        if self.params.step == "value" and not self.floating:
            self.position = ValueSteps(self.values)
        elif self.codec.uses_context:
            self.position = PositionState(self.values)
        self._planned: Array | None = None  # the classes in the order of a plan

    def make_worker(self, rank: int) -> WorkerQuantiser:
        return WorkerQuantiser(self.params, rank, self.values)

    def channels(self, default: Channel) -> dict[str, Channel]:
        """Return the one channel, "sums", with the configured codec and schedule. `default` is not used."""
        width: Callable[[int], int] = (lambda workers: 32) if self.floating else self.params.sum_width
        return {"sums": Channel(self.codec, self.options.schedule, width)}

    def start(self, worker: WorkerQuantiser, tensors: Sequence[Array]) -> Messages:
        """Yield a summary of the tensors without a step size, if there are any; then the values."""
        if self.floating:
            yield Message("sums", join(tensors), coded=True, plan=self.once("plan", self._make_plan))
            return
        if self.steps.unset:  # replicated state: all workers take the same branch
            packed = b"".join(_SUMMARY.pack(*summary) for summary in self._summaries(worker, tensors))
            summaries = yield Message("steps of tensors", np.frombuffer(packed, np.uint8), "agree")
            self.once("steps", lambda: self._agree(summaries))
        plan, self.renewed = self.once("plan", self._make_plan), {}
        local = self._quantise(worker, tensors, plan)
        classes = self.once("classes", lambda: self._classes(plan))
        sums, notice = yield Message(
            "sums",
            local,
            coded=True,
            context=classes,
            plan=plan,
            planned=True,
            meanwhile=self._meanwhile(plan),
            notice=renewal.notice_of(worker, tensors, local, self.steps),
        )
        if notice:
            yield from self._renew(worker, tensors, plan, sums, notice)

    def _renew(
        self, worker: WorkerQuantiser, tensors: Sequence[Array], plan: ChunkPlan, sums: Array, notice: int
    ) -> Messages:
        """Agree on new steps where those of now do not fit; sum again (docs/reference/protocol.md)."""
        fallen: list[int] = []
        if notice & renewal.COARSE:
            fallen = self.once("fallen", lambda: self._fallen(sums, plan))
        if not fallen and not notice & renewal.SATURATED:
            return
        shifts = self.position.shifts if isinstance(self.position, ValueSteps) else None
        packed = renewal.records_of(worker, tensors, self.steps, shifts)
        records = yield Message("steps again", np.frombuffer(packed, np.uint8), "agree")
        changed = self.once(
            "changed", lambda: renewal.renew(self.steps, [record.tobytes() for record in records], fallen)
        )
        if not changed:
            return
        integers = renewal.requantise(worker, tensors, self.steps, changed, shifts)
        bits = field_bits(self.params.limit, self.nodes)
        again = yield Message("sums again", integers, bits=bits, aside=True)
        self.renewed = self.once("renewed", lambda: self._replace(sums, plan, changed, again))

    def _fallen(self, sums: Any, plan: ChunkPlan) -> list[int]:
        """Return the tensors whose sums, in the order of `plan`, confirm that their steps are too coarse."""
        if self.params.scale == "max":
            return renewal.confirmed_by_peak(self.steps, self.steps.peak(sums))
        return renewal.confirmed(self.steps, self._energies(sums, plan))

    def _energies(self, sums: Array, plan: ChunkPlan) -> list[int]:
        """Return the sum of squares of each tensor's sums.

        The passes of `_settle` find them. They are made early: a rank may give notice of small values in
        every call, and calls whose sums do not confirm it should not take longer.
        """
        if isinstance(self.position, ValueSteps):
            return self.steps.energies(plan.scatter(sums))
        passes = self._passes(sums, plan)
        passes.through(sums.size)
        return passes.energies()

    def _passes(self, sums: Array, plan: ChunkPlan) -> Passes:
        """Return the passes over the sums of this call, in the order of `plan`."""
        position: Any = self.position  # not ValueSteps, which settle otherwise
        if "passes" not in self._memory:
            self._memory["passes"] = Passes(self.steps, sums, plan, position)
        passes: Passes = self._memory["passes"]
        return passes

    def _replace(self, sums: Any, plan: ChunkPlan, changed: dict[int, int], again: Array) -> dict[int, int]:
        """Put the sums of the changed tensors, in their order, in the place of the first ones."""
        if isinstance(self.position, ValueSteps):
            self._put(sums, plan, changed, again)
            return changed
        passes = self._passes(sums, plan)
        passes.through(sums.size)  # those over the changed tensors are made anew
        self._put(sums, plan, changed, again)
        passes.renew(changed)
        return changed

    def _put(self, sums: Any, plan: ChunkPlan, changed: dict[int, int], again: Array) -> None:
        first = 0
        for t in changed:
            values = again[first : first + self.sizes[t]]
            gather_range(values, *plan.places, self.steps.offsets[t], sums)
            first += values.size

    def _meanwhile(self, plan: ChunkPlan) -> Meanwhile | None:
        """Return what a rank may do while frames are due; None where that is not worth a look."""
        if self.values < EARLY_VALUES or isinstance(self.position, ValueSteps):
            return None
        return Meanwhile(plan, lambda sums, end: self._passes(sums, plan).through(end))

    def _summaries(self, worker: WorkerQuantiser, tensors: Sequence[Array]) -> list[tuple[int, int]]:
        """Return the sizes of the tensors without a step; raises GradientError: one of NaN has no summary."""
        unset = self.steps.unset
        check_finite(tensors, worker.rank, unset)
        corrected = zip(unset, worker.corrected(tensors, unset), strict=True)
        sizes = [tensors[t] if worker.is_idle(tensors[t]) else values for t, values in corrected]
        return summarise(sizes, self.params)

    def _quantise(self, worker: WorkerQuantiser, tensors: Sequence[Array], plan: ChunkPlan) -> Array:
        """Return the worker's integers in the order of `plan`."""
        shifts = self.position.shifts if isinstance(self.position, ValueSteps) else None
        worker.room = worker.quantise(tensors, self.steps.exponents, self.dtype, plan, worker.room, shifts)
        return worker.room

    def _classes(self, plan: ChunkPlan) -> Array | None:
        """Return the position classes in the order of `plan`; they change when the call settles."""
        if self.position is None or not self.codec.uses_context:
            return None
        if plan.order is None:
            return self.position.classes
        self._planned = plan.gather(self.position.classes, self._planned)
        return self._planned

    def _settle(self, sums: Array) -> Settled:
        """Derive the mean and the next state from the sums, in plan order; and the costs of their blocks."""
        settled = self.steps.settle(sums, self.plan, self.position, self._memory.get("passes"))
        if self.options.plan in USES_COSTS:
            self._observe_costs(block_costs(settled.sums, self.options.granule))
        return settled

    def _observe_costs(self, costs: Array) -> None:
        fresh, old = costs << 8, self.costs
        self.costs = fresh if old is None else old + ((fresh - old) >> COST_SMOOTHING)

    def messages(self, worker: Worker, values: Array) -> Messages:
        """Raise NotImplementedError. `start` quantises the tensors without joining them."""
        raise NotImplementedError("the exact scheme starts from tensors")

    def _agree(self, summaries: list[Array]) -> None:
        """Set the step sizes from all workers' summaries, by rank. If the call fails, Reducer undoes this."""
        self.steps.agree([list(_SUMMARY.iter_unpack(packed.data)) for packed in summaries])

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
        if self.floating:
            sums = totals[-1]
            mean: Array = sums / np.float32(self.nodes)
        else:
            planned = next(total[0] for total in totals if isinstance(total, tuple))
            sums, mean = self._settle(planned)
        self._sums = sums
        self.iteration += 1
        return mean

    @property
    def finds_bad(self) -> bool:
        """See Scheme.finds_bad: the quantiser's pass over the values does it."""
        return not self.floating

    @property
    def bounded(self) -> bool:
        """See Scheme.bounded: the largest sum of its width times the largest step has a float32 mean."""
        return not self.floating

    def is_exact(self, workers: Sequence[Any]) -> bool:
        """Return True if the codec is lossless. The wire has already compared the sums."""
        return self.codec.lossless

    def reference_sums(self) -> Array | None:
        return self._sums

    def digests(self) -> dict[str, int]:
        position, steps = self.position, self.steps.digest()
        # Passes move classes while frames are due, on each rank as far as its time allows. A digest within
        # the call is that of the classes with which the call began.
        if "passes" not in self._memory:
            if isinstance(position, PositionState):
                self._classes_digest = position.digest()
            else:
                self._classes_digest = crc(None if position is None else position.classes)
        return {
            "iterations": self.iteration & 0xFFFFFFFF,
            "steps": position.digest(steps) if isinstance(position, ValueSteps) else steps,
            "classes": self._classes_digest,
            "costs": crc(self.costs),
        }


def sums_dtype(codec: Codec, params: QuantiserParams, nodes: int) -> np.dtype[Any]:
    """Return the dtype of the sums over `nodes`: float32 for a float codec, else an integer type."""
    return np.dtype(np.float32) if codec.domain == "float" else params.sum_dtype(nodes)
