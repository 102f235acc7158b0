"""N workers of one process that AllReduce real gradients through a scheme; the twin of LocalCluster."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.registry import asc_codec
from oscar.collective.local import Fault
from oscar.collective.stats import AllReduceResult, Stats
from oscar.config import Config
from oscar.errors import CautionWarning, ConfigError, OscarError
from oscar.numerics.saturation import SaturationNotice
from oscar.numerics.tensors import check_tensors
from oscar.reducers.gradients import MAX_NODES, check_gradients
from oscar.reducers.local_wire import LocalWire, Traffic
from oscar.reducers.replica import clipped_share, join
from oscar.schemes.base import ADVICE, Messages, Scheme, Worker
from oscar.schemes.registry import make_scheme
from oscar.state import Saved


def scheme_fingerprint(config: Config) -> str:
    """Return what has to be equal for a saved state of a scheme to fit, in process or between processes."""
    c = config
    return f"{c.method} {sorted(c.scheme.items())}, seed {c.seed}, {c.asc}, {c.plan}"


def _plans(traffic: Sequence[Traffic]) -> str:
    """Return the plans of an iteration's messages, those that moved more bytes first."""
    moved: dict[str, int] = {}
    for one in traffic:
        moved[one.plan] = moved.get(one.plan, 0) + int(one.frame_bytes.sum())
    return "+".join(sorted(moved, key=lambda name: -moved[name])) or "equal"


class CautionNotice:
    """Warns once in its life of what a scheme would have its user know when training begins."""

    def __init__(self) -> None:
        self.told = False

    def tell(self, scheme: Scheme) -> None:
        """Warn, if there is a caution and it has not been told."""
        if not self.told and (said := scheme.caution()):
            text = f"scheme {scheme.name}: {said} (docs/results/convergence.md)"
            warnings.warn(text, CautionWarning, stacklevel=3)
            self.told = True


class SchemeCluster:
    """AllReduce between the workers of this process by the scheme that `config.method` names.

    `allreduce`, `state_dict` and `load_state_dict` are LocalCluster's. A call that raises leaves the
    gradients untouched and all state as it was before.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.scheme: Scheme | None = None
        self.workers: list[Worker] = []
        self.notice, self.caution = SaturationNotice(), CautionNotice()

    def _start(self, nodes: int, shapes: list[tuple[int, ...]]) -> None:
        c = self.config
        scheme = make_scheme(c.method, c.scheme, shapes=shapes, nodes=nodes, seed=c.seed)
        self.wire = LocalWire(
            nodes,
            codec=asc_codec(c.asc_params()),
            link=c.link.model(),
            plan=c.plan.name,
            granule=c.plan.granule,
            channels=scheme.coded_channels(),
        )
        self.scheme, self.workers = scheme, [Worker(rank, scheme.values) for rank in range(nodes)]

    def allreduce(
        self, gradients: Sequence[Sequence[np.ndarray]], *, faults: Sequence[Fault] = ()
    ) -> AllReduceResult:
        """Return the mean of gradients[node][tensor] as the scheme gives it to every node.

        gradients: float32 arrays of equal shapes on all nodes, 1 to 256 nodes; never written to.
        Raises GradientError (NaN, Inf, unequal shapes), TypeError (not floating point) and ConfigError (an
        option that does not go with so many nodes; faults, which schemes do not have).
        """
        if faults:
            raise ConfigError(
                f"expected no faults with the scheme {self.config.method}, got {len(faults)}: "
                "they are injected into rings of codecs"
            )
        shapes = check_gradients(gradients)
        flat = [join(check_tensors(node, rank)) for rank, node in enumerate(gradients)]
        before, old = dict(vars(self)), self.scheme
        fits = old is not None and old.shapes == shapes and old.nodes == len(gradients)
        token = (self.wire.snapshot(), old.snapshot()) if fits and old is not None else None
        try:
            if token is None:
                self._start(len(gradients), shapes)
            scheme = self.scheme
            assert scheme is not None
            self.caution.tell(scheme)
            totals, traffic = self._exchange(scheme, flat)
            if not scheme.clips:
                self.notice.tell({worker.rank: worker.unreturned for worker in self.workers}, ADVICE)
            mean = scheme.finish(totals)
        except BaseException:  # bad input, Ctrl-C: whatever it was, the call never happened
            vars(self).clear()
            vars(self).update(before)
            for worker in self.workers:
                worker.pending = None
            if token is not None and old is not None:
                old.forget()
                self.wire.restore(token[0])
                old.restore(token[1])
            raise
        scheme.forget()
        for worker in self.workers:
            worker.commit()
        stats = self._stats(scheme, traffic, reset=old is not None and not fits)
        bounds = scheme.offsets
        means = [mean[bounds[t] : bounds[t + 1]].reshape(shape) for t, shape in enumerate(shapes)]
        sums = scheme.reference_sums()
        return AllReduceResult(means, np.zeros(0, np.int32) if sums is None else sums, stats)

    def _exchange(self, scheme: Scheme, flat: list[Array]) -> tuple[list[Array], list[Traffic]]:
        """Run all workers' generators in lockstep; return every combined message and what it moved."""
        running: list[Messages] = [
            scheme.messages(worker, values) for worker, values in zip(self.workers, flat, strict=True)
        ]
        totals: list[Array] = []
        traffic: list[Traffic] = []
        answer: Any = None
        while True:
            messages = []
            for generator in running:
                try:
                    messages.append(next(generator) if answer is None else generator.send(answer))
                except StopIteration:
                    continue
            if not messages:
                return totals, traffic
            if len(messages) != len(running):
                raise OscarError(
                    f"scheme {scheme.name}: expected message {len(totals)} from all {len(running)} workers, "
                    f"got {len(messages)}: this is a bug; please report it with the configuration"
                )
            answer, moved = self.wire.combine(messages)
            totals.append(answer)
            traffic.append(moved)

    def _stats(self, scheme: Scheme, traffic: Sequence[Traffic], *, reset: bool) -> Stats:
        return Stats(
            nodes=scheme.nodes,
            values=scheme.values,
            plan=_plans(traffic),
            iteration=scheme.iteration - 1,
            exact=scheme.lossless and self._is_sum(scheme),
            identical=all(moved.identical for moved in traffic),  # the mean is made of these, once
            **clipped_share([worker.saturation for worker in self.workers], np.zeros(2), 0),
            reset=reset,
            exchange_bytes=0,
            time_s=sum(moved.time_s for moved in traffic),
            frame_bytes=np.sum([moved.frame_bytes for moved in traffic], axis=0),
            counts=np.sum([moved.counts for moved in traffic], axis=0),
            received=np.sum([moved.received for moved in traffic], axis=0),
        )

    def _is_sum(self, scheme: Scheme) -> bool:
        sums, locals_ = scheme.reference_sums(), [worker.integers for worker in self.workers]
        if sums is None or any(local is None for local in locals_):
            return False
        total = np.zeros(sums.size, np.int64)
        for local in locals_:
            assert local is not None
            total += local
        return bool(np.array_equal(total, sums))

    @property
    def fingerprint(self) -> str:
        """What has to be equal for a saved state to fit."""
        return scheme_fingerprint(self.config)

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of all state, so that a run can be resumed bit for bit."""
        if self.scheme is None:
            return {"shapes": None}
        return {
            "fingerprint": self.fingerprint,
            "shapes": list(self.scheme.shapes),
            "scheme": self.scheme.state_dict(),
            "workers": [worker.state_dict() for worker in self.workers],
            "links": self.wire.state_dict(),
        }

    def load_state_dict(self, state: Any) -> None:
        """Take over what `state_dict` returned; raises ConfigError, and changes nothing, where it is none."""
        saved = Saved.of(state)
        if saved["shapes"].missing:
            self.scheme = None
            return
        saved.fits("fingerprint", self.fingerprint)
        before = dict(vars(self))
        try:
            self._load(saved)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    def _load(self, saved: Saved) -> None:
        workers = saved["workers"].items()
        if not 1 <= len(workers) <= MAX_NODES:
            raise saved["workers"].refuse(f"1 to {MAX_NODES} workers", str(len(workers)))
        with saved["shapes"].fitting():
            self._start(len(workers), saved["shapes"].shapes())
        assert self.scheme is not None
        self.scheme.load_state_dict(saved["scheme"])
        for worker, own in zip(self.workers, workers, strict=True):
            worker.load_state_dict(own)
        self.wire.load_state_dict(saved["links"])
