"""AllReduce between N nodes in one process (docs/reference/protocol.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from oscar.coding.codec import Codec
from oscar.collective.frames import AllReduceResult, Stats
from oscar.collective.local import Fault
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.numerics.quantiser import QuantiserParams
from oscar.numerics.tensors import as_floats
from oscar.reducers.checks import MAX_NODES, check_gradients
from oscar.reducers.local_wire import LocalWire
from oscar.reducers.reducer import Call, Reducer, Shapes, State
from oscar.reducers.scheduling import network_of, refuse_unfit
from oscar.schemes.base import Channel, Scheme
from oscar.schemes.exact import Exact, sums_dtype
from oscar.state import Saved

KEY = 0  # a cluster has one state only


class LocalCluster(Reducer):
    """AllReduce between the nodes of this process, by the configured method.

    The first call fixes the number of nodes and the shapes. A later call with others makes all state anew
    (`stats.reset`). Step sizes, position classes and plans follow from the aggregated sums. They are computed
    once and shared, after a check that all nodes ended bit-identical. Each node has its own link tables and
    residuals. A call that raises leaves gradients and state as they were.

    The number of nodes comes from the gradients (`stats.nodes`), not from `config.nodes`.

    Args:
        config: The configuration.
        codec: Replaces the configured codec.
        weights: By node, with a mean of 1; see Reducer.

    >>> import numpy as np
    >>> gradients = [[np.array([1, 2], np.float32)], [np.array([3, 4], np.float32)]]  # two nodes
    >>> result = LocalCluster(Config(method="fp32")).allreduce(gradients)
    >>> result.mean[0].tolist(), result.stats.nodes, result.stats.exact
    ([2.0, 3.0], 2, True)
    """

    def __init__(
        self, config: Config, *, codec: Codec | None = None, weights: Sequence[float] | None = None
    ) -> None:
        super().__init__(config, codec=codec, weights=weights)
        refuse_unfit(config.schedule.name, self.codec)
        self.compute_s = 1e-3 * (config.train.compute_ms or 0.0)  # of one iteration; the bandit adds it

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
        """The own state of each node; empty before the first call."""
        return [] if self.state is None else self.state.workers

    @property
    def nodes(self) -> int:
        """Number of nodes of the last call; the configured number before the first call."""
        return self.config.nodes if self.state is None else self.state.wire.nodes

    @property
    def params(self) -> QuantiserParams:
        """The quantiser's parameters for `nodes`."""
        return self.config.quantiser_params(self.nodes)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the sums."""
        return sums_dtype(self.codec, self.params, self.nodes)

    @property
    def iteration(self) -> int:
        """Number of AllReduces since the state was made."""
        return 0 if self.state is None else self.state.scheme.iteration

    def allreduce(
        self, gradients: Sequence[Sequence[np.ndarray]], *, faults: Sequence[Fault] = ()
    ) -> AllReduceResult:
        """Return the mean of gradients[node][tensor] over the nodes, as every node computed it.

        Args:
            gradients: Floating-point arrays of NumPy or dense tensors of PyTorch, equal shapes on all nodes,
                1 to 256 nodes; they are converted to float32 (docs/reference/inputs.md) and never written to.
            faults: Faults to inject; codecs only.

        Raises:
            GradientError: For NaN, Inf, tensors that are all below float32's range, and unequal shapes.
            GradientOverflowError: For a mean beyond float32.
            TypeError: For what is not floating point, or not dense.
            PeerError: For an injected fault, or a frame that does not decode.
            ConfigError: For an option that does not allow this number of nodes, or faults with a scheme.
        """
        with self._kept(KEY):
            return self._attempt(gradients, faults)

    def kept(self) -> AbstractContextManager[None]:
        """Return a context that restores all state where its block raises."""
        return self._kept(KEY)

    def _attempt(self, gradients: Sequence[Sequence[np.ndarray]], faults: Sequence[Fault]) -> AllReduceResult:
        shapes = check_gradients(gradients)
        state, reset = self._fit(len(gradients), shapes)
        self._strike(state, faults)
        tensors = [as_floats(node, rank) for rank, node in enumerate(gradients)]
        self.caution.tell(state.scheme)
        totals, call = self._exchange(state, tensors)
        self._tell(state, call)
        if self.bandit is not None:
            self._timed(KEY, self.compute_s + sum(moved.time_s for moved in call.moved))
        mean = self._finish(state, totals, tensors)
        return AllReduceResult(mean, self._sums(state), self._stats(state, call, reset=reset))

    def _fit(self, nodes: int, shapes: Shapes) -> tuple[State, bool]:
        """Return the state, and whether it replaces a state of other nodes or shapes."""
        state = self.state
        if state is not None and state.scheme.shapes == shapes and state.wire.nodes == nodes:
            return state, False
        self.states[KEY] = self._make_state(nodes, shapes)
        return self.states[KEY], state is not None

    def _strike(self, state: State, faults: Sequence[Fault]) -> None:
        """Hand `faults` to the wire. Raises ConfigError for a scheme: faults strike schedules of codecs."""
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
        """Return a copy of all state. A run that loads it resumes bit for bit."""
        if self.state is None:
            return {"shapes": None}
        return {"fingerprint": self.fingerprint, **self.state.state_dict(), **self._chosen}

    def load_state_dict(self, state: Any) -> None:
        """Load a state of `state_dict`. Raises ConfigError, and changes nothing, if it does not fit."""
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
