"""What every node derives from aggregated sums, the same everywhere: steps, position classes, costs, plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oscar.coding.codec import Codec
from oscar.coding.registry import make_codec
from oscar.collective.node import Layout, Node
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.numerics.plans import USES_COSTS, ChunkPlan, block_costs, make_plan
from oscar.numerics.position import PositionState
from oscar.numerics.quantiser import QuantiserParams
from oscar.numerics.saturation import Saturation
from oscar.numerics.steps import StepTracker
from oscar.state import Saved, crc

COST_SMOOTHING = 1  # block costs move by half of the difference
MOST_COST = 65  # of a value: 2 * 32 bits, and 1


class Replica:
    """The replicated state of an AllReduce between `nodes` nodes over tensors of `shapes`.

    In the order of one call: agree on `steps.unset`, `place` the integers, run the ring, `finish` the sums.
    Whoever holds a replica calls `snapshot` before and `restore` after a call that failed.
    """

    def __init__(
        self, config: Config, codec: Codec, *, nodes: int, shapes: Sequence[tuple[int, ...]]
    ) -> None:
        self.config, self.codec, self.nodes, self.shapes = config, codec, nodes, list(shapes)
        self.boomerang, self.duplex = gather_of(config, codec)
        self.params = config.quantiser_params(nodes)
        config.check_width(codec, nodes)
        self.floating = codec.domain == "float"
        self.dtype = sums_dtype(codec, self.params, nodes)
        self.width: Callable[[int], int] = (lambda terms: 32) if self.floating else self.params.sum_width
        sizes = [int(np.prod(shape, dtype=np.int64)) for shape in shapes]
        self.steps = StepTracker(self.params, sizes, nodes)
        self.position = PositionState(sum(sizes)) if codec.uses_context else None
        self.costs: np.ndarray | None = None
        self.plan: ChunkPlan | None = None
        self.iteration = 0
        self._classes: np.ndarray | None = None  # in plan order, of the present call

    def make_node(self, rank: int) -> Node:
        """Return a node of this ring, its links new."""
        return Node(rank, self.nodes, self.codec, boomerang=self.boomerang, width=self.width)

    def make_plan(self) -> ChunkPlan:
        """Return the plan of the coming call."""
        spec = self.config.plan
        if self.plan is None or spec.name in USES_COSTS:
            values = int(self.steps.offsets[-1])
            self.plan = make_plan(spec.name, values, self.nodes, granule=spec.granule, costs=self.costs)
        return self.plan

    def place(self, plan: ChunkPlan) -> tuple[Layout, np.ndarray | None]:
        """Return where chunks and sub-frames lie, and the position classes in plan order."""
        if self.position is not None:
            self._classes = plan.gather(self.position.classes, self._classes)
        return Layout(plan.bounds, self.config.ring.subframes), self._classes

    def finish(self, sums: np.ndarray) -> list[np.ndarray]:
        """Return the mean [tensor] (float32, in its shape) of `sums` in natural order; all state moves on."""
        offsets = self.steps.offsets
        if self.floating:
            means = [
                sums[offsets[t] : offsets[t + 1]] / np.float32(self.nodes) for t in range(len(self.shapes))
            ]
        else:
            means = self.steps.dequantise(sums)
            rises = self.steps.observe(sums)
            if self.position is not None:
                self.position.observe(sums)
                self.position.rescale(offsets, rises)
        if self.config.plan.name in USES_COSTS and not self.floating:
            fresh = block_costs(sums, self.config.plan.granule) << 8
            self.costs = (
                fresh if self.costs is None else self.costs + ((fresh - self.costs) >> COST_SMOOTHING)
            )
        self.iteration += 1
        return [mean.reshape(shape) for mean, shape in zip(means, self.shapes, strict=True)]

    def digests(self) -> dict[str, int]:
        """Return 32 bits of each part of the state, which are equal on all nodes; the order is fixed."""
        classes = None if self.position is None else self.position.classes
        return {
            "iterations": self.iteration & 0xFFFFFFFF,
            "steps": self.steps.digest(),
            "classes": crc(classes),
            "costs": crc(self.costs),
        }

    def snapshot(self) -> tuple[Any, ...]:
        """Return a token of the present state for `restore`."""
        mean = None if self.position is None else self.position.mean  # `observe` leaves it alone, once
        return self.costs, self.plan, self.iteration, self.steps.snapshot(), mean

    def restore(self, token: tuple[Any, ...]) -> None:
        """Go back to the state of `snapshot`."""
        self.costs, self.plan, self.iteration, steps, mean = token
        self.steps.restore(steps)
        if self.position is not None:
            self.position.load_state_dict({"mean": mean})

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state."""
        return {
            "iteration": self.iteration,
            "steps": self.steps.state_dict(),
            "position": None if self.position is None else self.position.state_dict(),
            "costs": None if self.costs is None else self.costs.copy(),
        }

    def load_state_dict(self, state: Any) -> None:
        """Take over what `state_dict` returned for equal shapes and configuration.

        Raises ConfigError, and changes nothing, where it is none.
        """
        saved = Saved.of(state)
        iteration, costs = saved["iteration"].integer(), self._read_costs(saved["costs"])
        before = self.steps.snapshot()
        self.steps.load_state_dict(saved["steps"])
        try:
            if self.position is not None:
                self.position.load_state_dict(saved["position"])
            elif not saved["position"].missing:
                raise saved["position"].refuse("None for a codec without position classes", "one")
        except BaseException:
            self.steps.restore(before)
            raise
        self.iteration, self.costs, self.plan = iteration, costs, None

    def _read_costs(self, saved: Saved) -> np.ndarray | None:
        if saved.missing:
            return None
        if self.config.plan.name not in USES_COSTS or self.floating:
            raise saved.refuse("None for a plan without costs", "costs")
        granule = self.config.plan.granule
        blocks = -(-int(self.steps.offsets[-1]) // granule)
        return saved.array(np.int64, (blocks,), 0, MOST_COST * granule << 8)


def sums_dtype(codec: Codec, params: QuantiserParams, nodes: int) -> np.dtype[Any]:
    """Return what the sums over `nodes` are kept in: float32 for a codec of floats."""
    return np.dtype(np.float32) if codec.domain == "float" else params.sum_dtype(nodes)


def gather_of(config: Config, codec: Codec) -> tuple[bool, bool]:
    """Return (boomerang, duplex); raises ConfigError where the codec's sums depend on their order."""
    duplex = config.ring.gather == "duplex"
    boomerang = duplex or config.ring.gather == "boomerang"
    if boomerang and not (codec.lossless and codec.domain == "int"):
        raise ConfigError(
            f"the {config.ring.gather} all-gather needs a lossless integer codec, "
            f"{codec.name} is not one; set ring.gather to forward"
        )
    return boomerang, duplex


def fingerprint(config: Config, codec: Codec) -> str:
    """What has to be equal for a saved state to fit, beside the number of nodes."""
    sections = f"{config.quantiser}, seed={config.seed}, {codec.name}, {config.asc}"
    return f"{sections}, {config.ring.gather}, {config.plan}"


def clipped_by(codec: Codec, nodes: Sequence[Node]) -> np.ndarray:
    """Return the sums of Codec.saturated, float64 [2], since the links of `nodes` were made."""
    total = np.zeros(2)
    if codec.saturated is not None:
        for node in nodes:
            total += np.sum([codec.saturated(encoder) for encoder in node.encoders.values()], axis=0)
    return total


def clipped_share(losses: Sequence[Saturation], codec: np.ndarray, sent: int) -> dict[str, Any]:
    """Return `clipped` and `clipped_energy` of the statistics: what quantiser and codec cut off in a call.

    losses: of every worker here; codec: by how much `clipped_by` grew; sent: values in the frames.
    """
    values = sum(loss.values for loss in losses) + int(codec[0])
    energy = sum(loss.energy for loss in losses) / max(1, len(losses)) + float(codec[1]) / max(1, sent)
    return {"clipped": values, "clipped_energy": min(1.0, energy)}


def make_nic_codec(config: Config) -> Codec:
    """Return the configured codec on the configured NIC."""
    if config.nic in ("compiled", "reference"):
        implementation: Any = config.nic
        return make_codec(config.method, asc=config.asc_params(), implementation=implementation)
    from importlib.metadata import entry_points

    if config.method != "asc":
        raise ConfigError(f"nic {config.nic!r} codes ASC only, the configuration asks for {config.method!r}")
    (entry,) = entry_points(group="oscar.nic", name=config.nic)
    codec: Codec = entry.load()(config)
    return codec


def join(tensors: Sequence[np.ndarray]) -> np.ndarray:
    """Return flat tensors as one float32 array."""
    return np.concatenate(list(tensors)) if tensors else np.zeros(0, np.float32)
