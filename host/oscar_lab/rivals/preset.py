"""Costs of the ways of the tree: the constants of Espresso's model (`espresso-2023`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oscar.planning.tuning.policy import OTHER, SAME, Option
from oscar.timeline import engine
from oscar.timeline.engine import AFTER, BEFORE, CODEC, COMPUTE, PORT, Floats, Step
from oscar.timeline.lanes import GRID
from oscar_lab.rivals.tree import BETWEEN, COMPRESS, DECOMPRESS, FLAT, INSIDE, Way, ways

US_PER_KB = 1e-6 / 1e3  # seconds for a byte


@dataclass(frozen=True)
class Preset:
    """Constants of Espresso's model, in us and us per kB.

    ratio: of compressed bytes to fp32's. encode_us, decode_us: of up to `flat` values, in proportion beyond;
    they belong to the compressor, and default to what MergeComp found at the least. cpu_gbps: of its encoder.
    """

    nodes: int = 8
    per_node: int = 8
    alpha_us: float = 150.0
    inside_us: float = 0.4
    between_us: float = 0.8
    flat: int = 2**20
    ratio: float = 1 / 32
    encode_us: float = 100.0
    decode_us: float = 30.0
    cpu_gbps: float = 20.0

    @classmethod
    def nvlink(cls, **others: float) -> Preset:
        """Return the one of accelerators behind NVLink."""
        return cls(**{"inside_us": 0.02, **others})  # type: ignore[arg-type]

    def coding(self, routine: str, processor: str, values: Floats) -> Floats:
        """Return the seconds of compressing or decompressing so many values."""
        if processor == OTHER:
            return values * 32 / (self.cpu_gbps * 1e9) / 2  # the whole way is in the constant
        once = self.encode_us if routine == COMPRESS else self.decode_us
        return once * 1e-6 * np.maximum(1.0, values / self.flat)

    def option(self, way: Way, name: str = "") -> Option:
        """Return a way of the tree with its costs."""
        state = _State(self)
        pairs = [state.act(action) for action in way]
        steps, curves = zip(*pairs, strict=True)
        text = name or " ".join(f"{a.routine}@{a.where}" for a in way)
        return Option(text, tuple(steps), tuple(curves))

    def options(self) -> list[Option]:
        """Return the five of the released simulator: fp32, fp16, compressed, over two levels, by the CPU."""
        k, n = self.per_node, self.nodes
        inside, between = 2 * (k - 1) / k * self.inside_us, 2 * (n - 1) / n * self.between_us

        def port(alphas: int, of_inside: float, of_between: float) -> Floats:
            moved = 4 * GRID * US_PER_KB * (of_inside * inside + of_between * between)
            return np.asarray(alphas * self.alpha_us * 1e-6 + moved)

        raw = (Step(PORT, BEFORE, 0),)
        result = [Option("fp32", raw, (port(2, 1, 1),)), Option("fp16", raw, (port(2, 0.5, 0.5),))]
        encode, decode = (self.coding(routine, SAME, GRID / k) for routine in (COMPRESS, DECOMPRESS))
        steps = Step(COMPUTE, BEFORE, 0), Step(PORT, BEFORE, 0), Step(COMPUTE, AFTER, 0)
        one, two = port(2, 0.5, self.ratio), port(4, self.ratio, self.ratio)
        result.append(Option(f"compressed {SAME}", steps, (encode, one, decode)))
        result.append(Option(f"two-level {SAME}", steps, (encode, two, decode)))
        cpu = self.coding(COMPRESS, OTHER, GRID)
        others = tuple(step._replace(lane=CODEC) if step.lane == COMPUTE else step for step in steps)
        result.append(Option(f"compressed {OTHER}", others, (cpu, one, cpu)))
        return result


class _State:
    """What an accelerator holds on a way: a share of the tensor, in parts that are not added up yet."""

    def __init__(self, preset: Preset) -> None:
        self.preset = preset
        self.share, self.parts, self.compressed, self.senders = 1.0, 1.0, False, 1
        self.before: list[float] = []

    def act(self, action: tuple[str, str]) -> tuple[Step, Floats]:
        """Return the step of an action and its curve; go on to what it leaves."""
        routine, where = action
        if routine in (COMPRESS, DECOMPRESS):
            lane = COMPUTE if where == SAME else CODEC
            seconds = self.preset.coding(routine, where, GRID * self.share)
            self.compressed, self.parts = routine == COMPRESS, 1.0
            return Step(lane, BEFORE if routine == COMPRESS else AFTER, 0), seconds
        p = self.preset
        count = {FLAT: p.nodes * p.per_node, INSIDE: p.per_node, BETWEEN: p.nodes}[where]
        each = p.inside_us if where == INSIDE else p.between_us * (self.senders if where == BETWEEN else 1)
        held = 4 * GRID * self.share * self.parts * (p.ratio if self.compressed else 1.0)
        times, alphas, back = self._moved(routine, count)
        lane = engine.INSIDE if where == INSIDE else PORT
        seconds = alphas * p.alpha_us * 1e-6 + times * each * US_PER_KB * held
        if where == INSIDE and not back:
            self.senders = p.per_node if routine in ("reduce-scatter", "alltoall") else 1
        return Step(lane, BEFORE if back else BEFORE + 1, 0), np.asarray(seconds)

    def _moved(self, routine: str, count: int) -> tuple[float, float, bool]:
        """Return how often what is held crosses a port, in how many alphas, whether it is a second half."""
        whole = (count - 1) / count
        half = 1.0 if self.compressed else 0.5  # so that the released formulas come out
        if routine == "allreduce":
            return 2 * whole, 1.0, False
        if routine in ("reduce-scatter", "alltoall"):
            self.before.append(count)
            self.share /= count
            self.parts *= count if self.compressed else 1
            return whole, half, False
        if routine in ("reduce", "gather"):
            self.before.append(1)
            self.parts *= count if self.compressed else 1
            return (count - 1.0 if self.compressed else 1.0), half, False
        if routine == "broadcast":
            self.before.pop()
            return 1.0, half, True
        if not self.before or self.before[-1] == 1:  # an AllGather of all that is compressed
            self.parts *= count
            return count - 1.0, 1.0, False
        self.share *= self.before.pop()
        return count - 1.0, half, True


def tree(preset: Preset) -> list[Option]:
    """Return the ways that no other is better than on every lane and as a whole, for every size."""
    result = [preset.option(way) for way in ways()]
    loads = np.array([_loads(option) for option in result])
    loads = np.round(loads / loads.max(axis=0, initial=1e-30), 12)
    _, first = np.unique(loads, axis=0, return_index=True)
    own = loads[np.sort(first)]
    kept = [
        at
        for at, load in zip(np.sort(first), own, strict=True)
        if not ((own <= load).all(axis=1) & (own < load).any(axis=1)).any()
    ]
    return [result[at] for at in kept]


def _loads(option: Option) -> Floats:
    lanes = np.zeros((len(engine.LANES) + 1, GRID.size))
    for step, curve in zip(option.steps, option.curves, strict=True):
        lanes[step.lane] += curve
        lanes[-1] += curve
    return lanes.ravel()
