"""N nodes in one process that AllReduce real gradients (docs/protocol.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from oscar.allreduce.local import Fault
from oscar.allreduce.node import Layout, Node
from oscar.allreduce.ring import Ring
from oscar.allreduce.stats import AllReduceResult, Stats
from oscar.codecs.base import Codec
from oscar.codecs.registry import make_codec
from oscar.config import Config
from oscar.errors import ConfigError, GradientError
from oscar.plans import USES_COSTS, ChunkPlan, block_costs, make_plan
from oscar.position import PositionState
from oscar.quantize import SUMMARY_BYTES, StepTracker, WorkerQuantiser, check_tensors, summarise
from oscar.timing.recurrence import ring_time

COST_SMOOTHING = 1  # block costs move by half of the difference


class LocalCluster:
    """AllReduce between the nodes of this process.

    `allreduce(gradients)` takes gradients[node][tensor] (float32) and returns the mean and statistics. The
    gradients say how many nodes there are (`config.nodes` is for workloads; `stats.nodes` is what ran). The
    first call fixes nodes and shapes; a later call with others starts anew (`stats.reset`). What every
    node derives from the aggregated sums (steps, position classes, plan) is computed once and shared,
    after checking that all nodes ended bit-identical; link tables and residuals are each node's own.
    A call that raises leaves the gradients untouched and all state as it was before.
    """

    def __init__(self, config: Config, *, codec: Codec | None = None) -> None:
        self.config = config
        self.params = config.quantiser_params()
        self.codec = codec or make_nic_codec(config)
        self.duplex = config.ring.gather == "duplex"
        self.boomerang = self.duplex or config.ring.gather == "boomerang"
        if self.boomerang and not (self.codec.lossless and self.codec.domain == "int"):
            raise ConfigError(
                f"the {config.ring.gather} all-gather needs a lossless integer codec, "
                f"{self.codec.name} is not one; set ring.gather to forward"
            )
        self.shapes: list[tuple[int, ...]] | None = None
        self.iteration = 0

    def _start(self, nodes: int, shapes: list[tuple[int, ...]]) -> None:
        sizes = [int(np.prod(shape, dtype=np.int64)) for shape in shapes]
        floating = self.codec.domain == "float"
        self.dtype = np.dtype(np.float32) if floating else self.params.sum_dtype(nodes)
        width = (lambda terms: 32) if floating else self.params.sum_width
        self.nodes = [
            Node(rank, nodes, self.codec, boomerang=self.boomerang, width=width) for rank in range(nodes)
        ]
        self.workers = [WorkerQuantiser(self.params, rank) for rank in range(nodes)]
        self.steps = StepTracker(self.params, sizes, nodes)
        self.position = PositionState(sum(sizes)) if self.codec.uses_context else None
        self.costs: np.ndarray | None = None
        self.plan: ChunkPlan | None = None
        self.shapes, self.iteration = shapes, 0

    def allreduce(
        self, gradients: Sequence[Sequence[np.ndarray]], *, faults: Sequence[Fault] = ()
    ) -> AllReduceResult:
        """Return the mean of gradients[node][tensor] over the nodes, as every node computed it.

        gradients: float32 arrays of equal shapes on all nodes, 1 to 256 nodes; never written to.
        Raises GradientError (NaN, Inf, unequal shapes), TypeError (not floating point) and PeerError
        (a fault injected through `faults`, or a frame that does not decode).
        """
        token = self._snapshot()
        try:
            return self._attempt(gradients, faults)
        except BaseException:  # a fault, bad input, Ctrl-C: whatever it was, the call never happened
            self._restore(token)
            raise

    def _snapshot(self) -> tuple[dict[str, Any], tuple[Any, ...] | None]:
        """Return what `_restore` needs; links and residuals are replaced, not written to: cheap."""
        if self.shapes is None:
            return dict(vars(self)), None
        mean = None if self.position is None else self.position.mean.copy()
        return dict(vars(self)), (
            [node.snapshot() for node in self.nodes],
            [(worker.iteration, worker.residual) for worker in self.workers],
            self.steps.snapshot(),
            mean,
        )

    def _restore(self, token: tuple[dict[str, Any], tuple[Any, ...] | None]) -> None:
        attributes, inner = token
        vars(self).clear()
        vars(self).update(attributes)
        if inner is None:
            return
        nodes, workers, steps, mean = inner
        for node, saved in zip(self.nodes, nodes, strict=True):
            node.restore(saved)
        for worker, (iteration, residual) in zip(self.workers, workers, strict=True):
            worker.iteration, worker.residual = iteration, residual
        self.steps.restore(steps)
        if self.position is not None:
            self.position.load_state_dict({"mean": mean})

    def _attempt(self, gradients: Sequence[Sequence[np.ndarray]], faults: Sequence[Fault]) -> AllReduceResult:
        reset = self._fit(gradients)
        tensors = [check_tensors(node, rank) for rank, node in enumerate(gradients)]
        if self.codec.domain == "float":
            flat, exchange, clipped = [_join(node) for node in tensors], 0, 0
        else:
            flat, exchange, clipped = self._quantise(tensors)
        plan = self._plan()
        clipped -= self._clipped_by_codec()  # counted since the links were made
        ring, sums, identical = self._reduce(flat, plan, faults)
        exact = identical and self._is_sum(plan, flat, sums)
        mean = self._finish(sums)
        stats = Stats(
            nodes=len(self.nodes),
            values=sums.size,
            plan=plan.name,
            iteration=self.iteration,
            exact=exact,
            identical=identical,
            clipped=clipped + self._clipped_by_codec(),
            reset=reset,
            exchange_bytes=exchange,
            time_s=self._time(ring),
            frame_bytes=ring.frame_bytes,
            counts=ring.counts,
            clocks=ring.clocks(),
        )
        self.iteration += 1
        return AllReduceResult(mean, sums, stats)

    def _fit(self, gradients: Sequence[Sequence[np.ndarray]]) -> bool:
        """Check that all nodes bring equal shapes; start (anew) when they differ from the last call's."""
        if not isinstance(gradients, (Sequence, np.ndarray)):
            raise TypeError(f"expected gradients[node][tensor], got {type(gradients).__name__}")
        if not 1 <= len(gradients) <= 256:
            raise GradientError(f"expected gradients of 1 to 256 nodes, got {len(gradients)}")
        shapes = [np.shape(tensor) for tensor in gradients[0]]
        for rank, node in enumerate(gradients):
            theirs = [np.shape(tensor) for tensor in node]
            if len(theirs) != len(shapes):
                raise GradientError(
                    f"node {rank} has {len(theirs)} tensors, node 0 has {len(shapes)}: "
                    "all nodes must run the same model"
                )
            for index, (came, expected) in enumerate(zip(theirs, shapes, strict=True)):
                if came != expected:
                    raise GradientError(
                        f"node {rank}, tensor {index} has shape {came}, on node 0 it has {expected}: "
                        "all nodes must run the same model"
                    )
        if self.shapes == shapes and len(self.nodes) == len(gradients):
            return False
        restarted = self.shapes is not None
        self._start(len(gradients), shapes)
        return restarted

    def _quantise(self, tensors: list[list[np.ndarray]]) -> tuple[list[np.ndarray], int, int]:
        """Return every node's integers, the bytes it took to agree on steps, and how many saturated."""
        corrected = [w.corrected(t) for w, t in zip(self.workers, tensors, strict=True)]
        unset, exchange = self.steps.unset, 0
        if unset:
            summaries = [summarise([node[t] for t in unset], self.params) for node in corrected]
            self.steps.agree(summaries)
            exchange = SUMMARY_BYTES * len(unset) * len(self.nodes) * (len(self.nodes) - 1)
        flat = [w.quantise(t, self.steps.exponents) for w, t in zip(self.workers, corrected, strict=True)]
        return flat, exchange, sum(w.clipped for w in self.workers)

    def _plan(self) -> ChunkPlan:
        spec = self.config.plan
        values = int(self.steps.offsets[-1])
        if self.plan is None or spec.name in USES_COSTS:
            self.plan = make_plan(spec.name, values, len(self.nodes), granule=spec.granule, costs=self.costs)
        return self.plan

    def _reduce(
        self, flat: list[np.ndarray], plan: ChunkPlan, faults: Sequence[Fault]
    ) -> tuple[Ring, np.ndarray, bool]:
        """Run the ring; return it, the sums in natural order, and whether all nodes agree on them."""
        layout = Layout(plan.bounds, self.config.ring.subframes)
        classes = None if self.position is None else plan.gather(self.position.classes)
        for node, local in zip(self.nodes, flat, strict=True):
            node.begin(plan.gather(local.astype(self.dtype, copy=False)), classes, layout)
        ring = Ring(
            self.nodes,
            subframes=layout.subframes,
            boomerang=self.boomerang,
            duplex=self.duplex,
            faults=faults,
        )
        ring.run()
        first = self.nodes[0].result()
        bits = first.view(np.uint8)
        identical = all(np.array_equal(bits, node.result().view(np.uint8)) for node in self.nodes)
        return ring, plan.scatter(first), identical

    def _is_sum(self, plan: ChunkPlan, flat: list[np.ndarray], sums: np.ndarray) -> bool:
        """Whether `sums` is the sum computed directly: in integers, or in ring order for fp32."""
        if not self.codec.lossless:
            return False
        if self.codec.domain == "int":
            total = np.zeros(sums.size, np.int64)
            for local in flat:
                total += local
            return bool(np.array_equal(total, sums))
        ordered = [plan.gather(local) for local in flat]
        nodes = len(ordered)
        for chunk in range(nodes):
            low, high = plan.bounds[chunk], plan.bounds[chunk + 1]
            total = ordered[chunk][low:high].copy()
            for hop in range(1, nodes):
                total = ordered[(chunk + hop) % nodes][low:high] + total
            if not np.array_equal(total, plan.gather(sums)[low:high]):
                return False
        return True

    def _finish(self, sums: np.ndarray) -> list[np.ndarray]:
        """Dequantise, then let every shared state see the sums."""
        assert self.shapes is not None
        offsets = self.steps.offsets
        if self.codec.domain == "float":
            means = [
                sums[offsets[t] : offsets[t + 1]] / np.float32(len(self.nodes))
                for t in range(len(self.shapes))
            ]
        else:
            means = self.steps.dequantise(sums)
            rises = self.steps.observe(sums)
            if self.position is not None:
                self.position.observe(sums)
                self.position.rescale(offsets, rises)
        if self.config.plan.name in USES_COSTS and self.codec.domain == "int":
            fresh = block_costs(sums, self.config.plan.granule) << 8
            self.costs = (
                fresh if self.costs is None else self.costs + ((fresh - self.costs) >> COST_SMOOTHING)
            )
        for worker in self.workers:
            worker.commit()
        return [mean.reshape(shape) for mean, shape in zip(means, self.shapes, strict=True)]

    def _clipped_by_codec(self) -> int:
        saturated = self.codec.saturated
        if saturated is None:
            return 0
        return sum(saturated(e) for node in self.nodes for e in node.encoders.values())

    def _time(self, ring: Ring) -> float:
        if len(self.nodes) == 1:
            return 0.0
        return ring_time(
            ring.frame_bytes,
            ring.counts,
            self.config.link.model(),
            boomerang=self.boomerang,
            duplex=self.duplex,
            adopt=not self.codec.lossless,
            coded=self.codec.coded,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of all state, so that a run can be resumed bit for bit."""
        if self.shapes is None:
            return {"shapes": None}
        return {
            "fingerprint": self.fingerprint,
            "shapes": list(self.shapes),
            "iteration": self.iteration,
            "nodes": [node.state_dict() for node in self.nodes],
            "workers": [worker.state_dict() for worker in self.workers],
            "steps": self.steps.state_dict(),
            "position": None if self.position is None else self.position.state_dict(),
            "costs": None if self.costs is None else self.costs.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned; raises ConfigError unless it is of an equal configuration."""
        if state["shapes"] is None:
            self.shapes = None
            return
        if state.get("fingerprint") != self.fingerprint:
            raise ConfigError(
                f"state was saved under {state.get('fingerprint')}, this cluster runs {self.fingerprint}: "
                "resume with the configuration of the run that saved it"
            )
        token = self._snapshot()
        try:
            self._load(state)
        except BaseException:
            self._restore(token)
            raise

    @property
    def fingerprint(self) -> str:
        """What has to be equal for a saved state to fit."""
        c = self.config
        return f"{self.params}, {self.codec.name}, {c.asc}, {c.ring.gather}, {c.plan}"

    def _load(self, state: dict[str, Any]) -> None:
        self._start(len(state["nodes"]), [tuple(shape) for shape in state["shapes"]])
        self.iteration = state["iteration"]
        for node, saved in zip(self.nodes, state["nodes"], strict=True):
            node.load_state_dict(saved)
        for worker, saved in zip(self.workers, state["workers"], strict=True):
            worker.load_state_dict(saved)
        self.steps.load_state_dict(state["steps"])
        if self.position is not None:
            self.position.load_state_dict(state["position"])
        self.costs = None if state["costs"] is None else state["costs"].copy()


def make_nic_codec(config: Config) -> Codec:
    """Return the configured codec on the configured NIC."""
    if config.nic in ("compiled", "reference"):
        implementation: Any = config.nic
        return make_codec(config.codec, asc=config.asc_params(), implementation=implementation)
    from importlib.metadata import entry_points

    if config.codec != "asc":
        raise ConfigError(f"nic {config.nic!r} codes ASC only, the configuration asks for {config.codec!r}")
    (entry,) = entry_points(group="oscar.nic", name=config.nic)
    codec: Codec = entry.load()(config)
    return codec


def _join(tensors: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(tensors) if tensors else np.zeros(0, np.float32)
