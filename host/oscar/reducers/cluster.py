"""N nodes in one process that AllReduce real gradients (docs/protocol.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from oscar.coding.codec import Codec
from oscar.collective.local import Fault
from oscar.collective.stats import AllReduceResult, Stats
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.numerics.quantiser import QuantiserParams
from oscar.numerics.tensors import check_tensors
from oscar.reducers.gradients import MAX_NODES, check_gradients
from oscar.reducers.local_wire import LocalWire
from oscar.reducers.reducer import Call, Reducer, Shapes, State
from oscar.reducers.scheduling import network_of, refuse_unfit
from oscar.schemes.base import Channel, Scheme
from oscar.schemes.exact import Exact, sums_dtype
from oscar.state import Saved

KEY = 0  # of the only state


class LocalCluster(Reducer):
    """AllReduce between the nodes of this process, by the configured method.

    `allreduce(gradients)` takes gradients[node][tensor] (float32) and returns the mean and statistics. The
    gradients say how many nodes there are (`config.nodes` is for workloads; `stats.nodes` is what ran). The
    first call fixes nodes and shapes; a later call with others starts anew (`stats.reset`). What every
    node derives from the aggregated sums (steps, position classes, plan) is computed once and shared,
    after checking that all nodes ended bit-identical; link tables and residuals are each node's own.
    A call that raises leaves the gradients untouched and all state as it was before.
    """

    def __init__(
        self, config: Config, *, codec: Codec | None = None, weights: Sequence[float] | None = None
    ) -> None:
        super().__init__(config, codec=codec, weights=weights)
        refuse_unfit(config.schedule.name, self.codec)
        self.compute_s = 1e-3 * (config.train.compute_ms or 0.0)  # of an iteration, for the bandit

    def _make_wire(self, nodes: int, channels: Mapping[str, Channel]) -> LocalWire:
        return LocalWire(nodes, channels, **network_of(self.config, nodes))

    @property
    def state(self) -> State | None:
        """The state of all nodes; None before the first call."""
        return self.states.get(KEY)

    @property
    def scheme(self) -> Scheme | None:
        """The method's scheme; None before the first call."""
        return None if self.state is None else self.state.scheme

    @property
    def workers(self) -> list[Any]:
        """What each node alone has; none before the first call."""
        return [] if self.state is None else self.state.workers

    @property
    def nodes(self) -> int:
        """Nodes of the last call; before the first, those that are configured."""
        return self.config.nodes if self.state is None else self.state.wire.nodes

    @property
    def params(self) -> QuantiserParams:
        """The quantiser's parameters for that many nodes."""
        return self.config.quantiser_params(self.nodes)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the sums."""
        return sums_dtype(self.codec, self.params, self.nodes)

    @property
    def iteration(self) -> int:
        """AllReduces done since state was made."""
        return 0 if self.state is None else self.state.scheme.iteration

    def allreduce(
        self, gradients: Sequence[Sequence[np.ndarray]], *, faults: Sequence[Fault] = ()
    ) -> AllReduceResult:
        """Return the mean of gradients[node][tensor] over the nodes, as every node computed it.

        gradients: float32 arrays of equal shapes on all nodes, 1 to 256 nodes; never written to.
        Raises GradientError (NaN, Inf, unequal shapes), GradientOverflowError (a mean beyond float32),
        TypeError (not floating point), PeerError (a fault injected through `faults`, or a frame that does not
        decode) and ConfigError (an option that does not go with so many nodes; faults for a scheme, which has
        none).
        """
        with self._kept(KEY):
            return self._attempt(gradients, faults)

    def kept(self) -> AbstractContextManager[None]:
        """Let what is called inside happen as a whole: where it raises, all state is as it was before."""
        return self._kept(KEY)

    def _attempt(self, gradients: Sequence[Sequence[np.ndarray]], faults: Sequence[Fault]) -> AllReduceResult:
        shapes = check_gradients(gradients)
        state, reset = self._fit(len(gradients), shapes)
        self._strike(state, faults)
        tensors = [check_tensors(node, rank) for rank, node in enumerate(gradients)]
        self.caution.tell(state.scheme)
        totals, call = self._exchange(state, tensors)
        self._tell(state, call)
        if self.bandit is not None:
            self._timed(KEY, self.compute_s + sum(moved.time_s for moved in call.moved))
        mean = self._finish(state, totals, tensors)
        return AllReduceResult(mean, self._sums(state), self._stats(state, call, reset=reset))

    def _fit(self, nodes: int, shapes: Shapes) -> tuple[State, bool]:
        """Return the state, and whether it replaces one of other nodes or shapes."""
        state = self.state
        if state is not None and state.scheme.shapes == shapes and state.wire.nodes == nodes:
            return state, False
        self.states[KEY] = self._make_state(nodes, shapes)
        return self.states[KEY], state is not None

    def _strike(self, state: State, faults: Sequence[Fault]) -> None:
        """Hand `faults` to the wire; raises ConfigError for a scheme that is not one schedule of frames."""
        if faults and not isinstance(state.scheme, Exact):
            raise ConfigError(
                f"expected no faults with the scheme {self.config.method}, got {len(faults)}: "
                "they are injected into schedules of codecs"
            )
        if isinstance(state.wire, LocalWire):
            state.wire.faults = faults

    def _stats(self, state: State, call: Call, *, reset: bool) -> Stats:
        scheme, identical = state.scheme, all(moved.identical for moved in call.traffic)
        exact = identical and all(moved.exact for moved in call.traffic) and scheme.is_exact(state.workers)
        return Stats(
            nodes=scheme.nodes,
            values=scheme.values,
            plan=call.plan,
            iteration=scheme.iteration - 1,
            exact=exact,
            identical=identical,
            **call.clipped(),
            reset=reset,
            exchange_bytes=call.exchange_bytes,
            moved=call.moved,
            clocks=call.clocks,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of all state, so that a run can be resumed bit for bit."""
        if self.state is None:
            return {"shapes": None}
        return {"fingerprint": self.fingerprint, **self.state.state_dict(), **self._chosen}

    def load_state_dict(self, state: Any) -> None:
        """Take over what `state_dict` returned; raises ConfigError, and changes nothing, where it is none."""
        saved = Saved.of(state)
        if saved["shapes"].missing:
            self.states.clear()
            return
        saved.fits("fingerprint", self.fingerprint)
        workers = len(saved["workers"].items())
        if not 1 <= workers <= MAX_NODES:
            raise saved["workers"].refuse(f"1 to {MAX_NODES} workers", str(workers))
        with self._resumed(saved):
            with saved["shapes"].fitting():
                fresh = self._make_state(workers, saved["shapes"].shapes())
            fresh.load_state_dict(saved)
        self.states[KEY] = fresh
