"""N nodes in one process that AllReduce real gradients (docs/protocol.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from oscar.coding.codec import Codec
from oscar.collective.executor import Ring
from oscar.collective.local import Fault
from oscar.collective.stats import AllReduceResult, Stats
from oscar.config import Config
from oscar.numerics.plans import ChunkPlan
from oscar.numerics.position import PositionState
from oscar.numerics.quantiser import QuantiserParams, WorkerQuantiser
from oscar.numerics.saturation import ADVICE, SaturationNotice
from oscar.numerics.steps import SUMMARY_BYTES, summarise
from oscar.numerics.tensors import check_tensors
from oscar.reducers.gradients import MAX_NODES, check_gradients
from oscar.reducers.replica import (
    Replica,
    clipped_by,
    clipped_share,
    fingerprint,
    gather_of,
    join,
    make_nic_codec,
    sums_dtype,
)
from oscar.state import Saved
from oscar.timeline.recurrence import ring_time
from oscar.timeline.sizes import received_bytes


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
        self.codec = codec or make_nic_codec(config)
        self.boomerang, self.duplex = gather_of(config, self.codec)
        self.shapes: list[tuple[int, ...]] | None = None
        self.notice = SaturationNotice()

    def _start(self, nodes: int, shapes: list[tuple[int, ...]]) -> None:
        self.replica = Replica(self.config, self.codec, nodes=nodes, shapes=shapes)
        self.nodes = [self.replica.make_node(rank) for rank in range(nodes)]
        values = int(self.replica.steps.offsets[-1])
        self.workers = [WorkerQuantiser(self.params, rank, values) for rank in range(nodes)]
        self.shapes = shapes

    @property
    def params(self) -> QuantiserParams:
        """Of the quantiser, for as many nodes as there are; before the first call, for `config.nodes`."""
        return self.config.quantiser_params(self.config.nodes) if self.shapes is None else self.replica.params

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the sums; before the first call, those of `config.nodes`."""
        return sums_dtype(
            self.codec, self.params, self.config.nodes if self.shapes is None else len(self.nodes)
        )

    @property
    def position(self) -> PositionState | None:
        """Of the codec, where it uses one; None before the first call."""
        return None if self.shapes is None else self.replica.position

    @property
    def iteration(self) -> int:
        """AllReduces done since state was made."""
        return 0 if self.shapes is None else self.replica.iteration

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
        return dict(vars(self)), (
            [node.snapshot() for node in self.nodes],
            [(worker.iteration, worker.residual) for worker in self.workers],
            self.replica.snapshot(),
        )

    def _restore(self, token: tuple[dict[str, Any], tuple[Any, ...] | None]) -> None:
        attributes, inner = token
        vars(self).clear()
        vars(self).update(attributes)
        if inner is None:
            return
        nodes, workers, replica = inner
        for node, saved in zip(self.nodes, nodes, strict=True):
            node.restore(saved)
        for worker, (iteration, residual) in zip(self.workers, workers, strict=True):
            worker.iteration, worker.residual = iteration, residual
        self.replica.restore(replica)

    def _attempt(self, gradients: Sequence[Sequence[np.ndarray]], faults: Sequence[Fault]) -> AllReduceResult:
        reset = self._fit(gradients)
        tensors = [check_tensors(node, rank) for rank, node in enumerate(gradients)]
        if self.codec.domain == "float":
            flat, exchange = [join(node) for node in tensors], 0
        else:
            flat, exchange = self._quantise(tensors)
        plan, iteration = self.replica.make_plan(), self.replica.iteration
        before = clipped_by(self.codec, self.nodes)  # counted since the links were made
        ring, sums, identical = self._reduce(flat, plan, faults)
        exact = identical and self._is_sum(plan, flat, sums)
        losses, sent = [worker.saturation for worker in self.workers], int(ring.counts.sum())
        clipped = clipped_by(self.codec, self.nodes) - before
        if not self.params.error_feedback:
            self.notice.tell(dict(enumerate(losses)), ADVICE)
        self.notice.tell_codec(self.codec.name, clipped[1] / max(1, sent))
        mean = self._finish(sums)
        stats = Stats(
            nodes=len(self.nodes),
            values=sums.size,
            plan=plan.name,
            iteration=iteration,
            exact=exact,
            identical=identical,
            **clipped_share(losses, clipped, sent),
            reset=reset,
            exchange_bytes=exchange,
            time_s=self._time(ring),
            frame_bytes=ring.frame_bytes,
            counts=ring.counts,
            received=received_bytes(ring.frame_bytes, boomerang=self.boomerang),
            clocks=ring.clocks(),
        )
        return AllReduceResult(mean, sums, stats)

    def _fit(self, gradients: Sequence[Sequence[np.ndarray]]) -> bool:
        """Start (anew) when nodes or shapes differ from the last call's; return whether there was a state."""
        shapes = check_gradients(gradients)
        if self.shapes == shapes and len(self.nodes) == len(gradients):
            return False
        restarted = self.shapes is not None
        self._start(len(gradients), shapes)
        return restarted

    def _quantise(self, tensors: list[list[np.ndarray]]) -> tuple[list[np.ndarray], int]:
        """Return every node's integers, and the bytes it took to agree on steps."""
        steps = self.replica.steps
        unset, exchange = steps.unset, 0
        if unset:
            corrected = [w.corrected(t, unset) for w, t in zip(self.workers, tensors, strict=True)]
            summaries = [summarise(node, self.params) for node in corrected]
            steps.agree(summaries)
            exchange = SUMMARY_BYTES * len(unset) * len(self.nodes) * (len(self.nodes) - 1)
        flat = [
            w.quantise(t, steps.exponents, self.replica.dtype)
            for w, t in zip(self.workers, tensors, strict=True)
        ]
        return flat, exchange

    def _reduce(
        self, flat: list[np.ndarray], plan: ChunkPlan, faults: Sequence[Fault]
    ) -> tuple[Ring, np.ndarray, bool]:
        """Run the ring; return it, the sums in natural order, and whether all nodes agree on them."""
        layout, classes = self.replica.place(plan)
        for node, local in zip(self.nodes, flat, strict=True):
            node.begin(plan.gather(local.astype(self.replica.dtype, copy=False), node.local), classes, layout)
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
        """Dequantise, then let every state see that it is done."""
        means = self.replica.finish(sums)
        for worker in self.workers:
            worker.commit()
        return means

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
            "nodes": [node.state_dict() for node in self.nodes],
            "workers": [worker.state_dict() for worker in self.workers],
            **self.replica.state_dict(),
        }

    def load_state_dict(self, state: Any) -> None:
        """Take over what `state_dict` returned; raises ConfigError, and changes nothing, where it is none."""
        saved = Saved.of(state)
        if saved["shapes"].missing:
            self.shapes = None
            return
        saved.fits("fingerprint", self.fingerprint)
        token = self._snapshot()
        try:
            self._load(saved)
        except BaseException:
            self._restore(token)
            raise

    @property
    def fingerprint(self) -> str:
        """What has to be equal for a saved state to fit."""
        return fingerprint(self.config, self.codec)

    def _load(self, saved: Saved) -> None:
        nodes = saved["nodes"].items()
        if not 1 <= len(nodes) <= MAX_NODES:
            raise saved["nodes"].refuse(f"1 to {MAX_NODES} nodes", str(len(nodes)))
        workers = saved["workers"].items(len(nodes))
        with saved["shapes"].fitting():
            self._start(len(nodes), saved["shapes"].shapes())
        for node, own in zip(self.nodes, nodes, strict=True):
            node.load_state_dict(own)
        for worker, own in zip(self.workers, workers, strict=True):
            worker.load_state_dict(own)
        self.replica.load_state_dict(saved)
