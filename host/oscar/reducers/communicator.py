"""One rank of an AllReduce between processes, over a transport."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oscar.array import sizes_of
from oscar.coding.codec import Codec
from oscar.collective.frames import Frames
from oscar.collective.redundant import Redundant
from oscar.collective.schedule import Schedule
from oscar.config import Config
from oscar.errors import ConfigError, GradientOverflowError
from oscar.numerics.tensors import as_floats
from oscar.reducers.checks import MAX_NODES, check_list
from oscar.reducers.copies import Counts
from oscar.reducers.on_device import flat_on, place_of, there, why_on_host
from oscar.reducers.party import Party, greeting
from oscar.reducers.reducer import Call, Reducer, Shapes, State, check_config
from oscar.reducers.remote_wire import RemoteWire
from oscar.reducers.scheduling import shares_of
from oscar.reducers.wire import Wire
from oscar.schemes.base import Channel
from oscar.state import Saved
from oscar.transports import handshake
from oscar.transports.base import Transport


@dataclass(frozen=True)
class PeerStats:
    """The statistics of one rank in one AllReduce. `Communicator` has an example.

    Attributes:
        values: As in Stats.
        plan: As in Stats.
        iteration: As in Stats.
        sent_bytes: Bytes that this rank sent, with headers and the exchange of step sizes.
        exchange_bytes: Bytes that it sent to agree on step sizes.
        frames: Its coded frames.
        clipped: Number of its values that saturated.
        clipped_energy: Share of its energy that saturation cut off, as in Stats.
        reset: State was made anew because shapes changed.
        seconds: Duration of the call.
        waited_s: Part of it spent waiting.
        tasks: What copies of tasks cost, of a TaskCommunicator.
    """

    rank: int
    nodes: int
    values: int
    plan: str
    iteration: int
    clipped: int
    clipped_energy: float
    reset: bool
    sent_bytes: int
    exchange_bytes: int
    seconds: float
    waited_s: float
    frames: Frames = field(repr=False)
    tasks: Counts | None = None


@dataclass(frozen=True)
class PeerResult:
    """The result of one AllReduce between processes. `Communicator` has an example.

    Attributes:
        mean: float32 arrays [tensor] in the tensors' shapes, equal on all ranks.
        sums: The integers, or floats, from which the mean was computed.
        stats: Statistics of this rank. Of a call on a GPU, mean and sums are tensors there; sums are part
            of the state, so do not write to them.
    """

    mean: list[np.ndarray]
    sums: np.ndarray = field(repr=False)
    stats: PeerStats


class Communicator(Reducer):
    """AllReduce of this rank's tensors with the tensors of all other ranks of `transport`.

    Construction is collective: ranks compare their configurations and all raise the same ConfigError where
    they differ. `allreduce` returns the same bits as a LocalCluster over the same gradients.

    Args:
        transport: This rank's end. It must be keyed (`oscar.transports.keyed.secured`) where
            `config.transport.security` is not none.
        timeout_s: Longest wait for a peer, in seconds.
        codec: As in LocalCluster.
        weights: As in LocalCluster.
        extra: Further JSON values, by key, that must be equal on all ranks.

    >>> import numpy as np
    >>> from oscar.transports.threads import local_transports
    >>> (transport,) = local_transports(1)  # one rank; a real run has one process for each
    >>> with Communicator(Config(method="fp32"), transport) as communicator:
    ...     result = communicator.allreduce([np.array([1, 2], np.float32)])
    >>> result.mean[0].tolist(), result.stats.sent_bytes
    ([1.0, 2.0], 0)
    """

    def __init__(
        self,
        config: Config,
        transport: Transport,
        *,
        timeout_s: float = 60.0,
        codec: Codec | None = None,
        weights: Sequence[float] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        check_config(config)
        if not timeout_s > 0:
            raise ValueError(f"expected a timeout above 0 s, got {timeout_s}")
        if transport.nodes > MAX_NODES:
            raise ConfigError(f"expected 1 to {MAX_NODES} ranks, got {transport.nodes}")
        if config.transport.security != "none" and not transport.keyed:
            raise ConfigError(
                f"transport.security is {config.transport.security}, the transport would send in plain text: "
                "make a keyed one of it with oscar.transports.keyed.secured(transport, "
                "config.transport.security, key=config.transport.key), or set transport.security to none"
            )
        if config.transport.pad != transport.pad:
            raise ConfigError(
                f"transport.pad is {config.transport.pad:g} per cent, the transport pads by "
                f"{transport.pad:g}: give oscar.transports.keyed.secured the same pad"
            )
        super().__init__(config, codec=codec, weights=weights)
        self.transport, self.party = transport, Party(transport, timeout_s)
        self.party.check_alive()
        self.rank, self.nodes = transport.rank, transport.nodes
        self._ended: float | None = None  # time of the last result of the first key
        refused: ConfigError | None = None
        self._default: Schedule | None = None  # of plain messages, for all keys: the time model is asked once
        try:
            self._default = self._schedule(self.nodes, 0)
            digest = self._default.digest
        except ConfigError as error:  # perhaps only this rank's file is bad; all ranks must hear of it
            refused, digest = error, f"refused: {error}"
        self.greeting = {**greeting(config, self.codec, self.nodes), "schedule": digest, **(extra or {})}
        self.greeting["weights"] = None if self.weights is None else self.weights.tolist()
        advice = "start all ranks with one release and one configuration"
        self.party.compare(self.greeting, "handshake", advice=advice)
        if refused is not None:
            raise refused
        self._check_schedule(self._default)

    def _check_schedule(self, schedule: Schedule | None) -> None:
        """Raise ConfigError for a schedule that another class runs."""
        if isinstance(schedule, Redundant):
            raise ConfigError(
                "schedule redundant: expected a way to compute tasks of other ranks, got the gradient of "
                "this one; take oscar.reducers.tasks.TaskCommunicator (in PyTorch "
                "oscar.torch_ddp.OscarTasks), or another schedule"
            )

    @property
    def gradients(self) -> int:
        """Number of gradients in a mean."""
        return self.nodes

    def _make_wire(self, nodes: int, channels: Mapping[str, Channel]) -> Wire:
        return RemoteWire(self.party, channels, self._default)

    @property
    def agreed(self) -> str:
        """16 hexadecimal digits that identify the configuration on which all ranks agree."""
        return handshake.fingerprint(self.greeting)

    @property
    def failed(self) -> str | None:
        """The error that ended this communicator, or None."""
        return self.party.failed

    def why_on_host(self, shapes: Shapes) -> str | None:
        """Return why tensors of these shapes cannot be reduced on a GPU; None: they can."""
        if self.weights is not None or self.own_codec:
            return "a codec was handed in" if self.own_codec else "ranks have weights"
        values = sum(sizes_of(shapes))
        return why_on_host(self.config, self._schedule(self.nodes, values), self.nodes, values)

    def allreduce(self, tensors: Sequence[Any], *, key: Hashable = 0, device: Any = None) -> PeerResult:
        """Return the mean of `tensors` over all ranks. Collective.

        When one rank raises, all ranks raise within the timeout, and their state is as before. After an error
        the communicator cannot be used again, except after GradientOverflowError, which all ranks raise
        alike. A SaturationWarning is given last: if warnings are errors, the call has succeeded anyway.

        Args:
            tensors: Floating-point arrays of NumPy or dense tensors of PyTorch, equal shapes on all ranks;
                they are converted to float32 (docs/reference/inputs.md) and never written to.
            key: Names the state to use. A training that reduces in buckets uses one key for each; all ranks
                call in the same order.
            device: A GPU of torch, on which all tensors are (torch.Tensor); they are coded there and so is
                the result, with the bits of the host's. Needs that `why_on_host` returns None. Other ranks
                may be on the host, and calls of one key too.

        Raises:
            TypeError: For tensors of this rank that are not dense floats, and, with ConfigError, before any
                other rank waits, where tensors cannot be reduced on `device`.
            PeerError: When a peer fails, or when the shapes are new on some ranks only.
            ConfigError: For unequal shapes that are new on all ranks.
            GradientError: For NaN, Inf, and tensors that are all below float32's range.
        """
        self.party.check_alive()
        check_list(tensors, "a list of tensors")
        if device is not None:
            device = self._admitted(tensors, key, device)
        return self._wholly(lambda: self._attempt(tensors, key, device), key, device)

    def _wholly(
        self, attempt: Callable[[], tuple[PeerResult, Call]], key: Hashable, device: Any = None
    ) -> PeerResult:
        """Make a call as a whole or not at all."""
        try:
            with there(device), self._kept(key):
                result, call = attempt()
                self.party.check_blame()
        except GradientOverflowError as error:
            self.party.shared(error)
            raise
        except BaseException as error:
            self.give_up(error)
            raise
        state = self.states[key]
        if self.rank == 0:
            self.caution.tell(state.scheme)
        self._tell(state, call)
        return result

    def _admitted(self, tensors: Sequence[Any], key: Hashable, device: Any) -> Any:
        """Return the device, where tensors can be reduced on it; raises TypeError or ConfigError."""
        device, shapes = place_of(tensors, device), [tuple(tensor.shape) for tensor in tensors]
        state = self.states.get(key)
        known = state is not None and (state.device, state.scheme.shapes) == (device, shapes)
        if not known and (reason := self.why_on_host(shapes)) is not None:
            raise ConfigError(f"tensors cannot be reduced on {device}: {reason}; give arrays instead")
        return device

    def _attempt(self, tensors: Sequence[Any], key: Hashable, device: Any) -> tuple[PeerResult, Call]:
        began, waited = time.perf_counter(), self.party.waited_s
        flat = as_floats(tensors, self.rank) if device is None else flat_on(tensors)
        shapes = [
            tensor.shape if type(tensor) is np.ndarray else tuple(np.shape(tensor)) for tensor in tensors
        ]
        state, reset = self._fit(key, shapes, device)
        totals, call = self._exchange(state, [flat])
        self._timed(key, time.perf_counter() - (self._ended or began), self._of_rank_0)
        mean = self._finish(state, totals, [flat])
        seconds = time.perf_counter() - began, self.party.waited_s - waited
        if key == next(iter(self.states)):
            self._ended = time.perf_counter()
        return PeerResult(mean, self._sums(state), self._stats(state, call, seconds, reset=reset)), call

    def _stats(
        self, state: State, call: Call, seconds: tuple[float, float], *, reset: bool = False, **more: Any
    ) -> PeerStats:
        """Return the statistics of a call. seconds: its duration, and the part spent waiting."""
        return PeerStats(
            rank=self.rank,
            nodes=self.nodes,
            values=state.scheme.values,
            plan=call.plan,
            iteration=state.scheme.iteration - 1,
            **call.clipped(),
            reset=reset,
            sent_bytes=sum(moved.sent_bytes for moved in call.traffic) + call.exchange_bytes,
            exchange_bytes=call.exchange_bytes,
            seconds=seconds[0],
            waited_s=seconds[1],
            frames=call.frames,
            **more,
        )

    def _of_rank_0(self, value: float) -> float:
        """Return rank 0's `value` on all ranks; collective."""
        mine = np.float64(value).tobytes()
        return float(
            np.frombuffer(self.party.gather(mine, len(mine), "times of iterations")[0], np.float64)[0]
        )

    def _fit(self, key: Hashable, shapes: Shapes, device: Any) -> tuple[State, bool]:
        """Return the state of `key`, made anew if its shapes differ, and whether it replaces another."""
        state = self.states.get(key)
        subject = self.party.subject = handshake.Subject(str(key), shapes)
        if state is not None and state.scheme.shapes == shapes:
            if state.device != device:  # its own rank alone knows where it is
                moved = self._make_state(self.gradients, shapes, device)
                moved.load_state_dict(Saved(state.state_dict()))
                self.states[key] = state = moved
            return state, False
        described = {f"tensor {index}": list(shape) for index, shape in enumerate(shapes)}
        values = sum(sizes_of(shapes))
        schedule = self._schedule(self.nodes, values)
        pairs = {"key": str(key), "tensors": len(shapes), **described, "schedule": schedule.digest}
        pairs["plan.shares"] = shares_of(self.config, schedule, values)
        self.party.compare_shapes(subject.news([] if state is None else state.scheme.shapes), pairs)
        self.states[key] = self._make_state(self.gradients, shapes, device)
        return self.states[key], state is not None

    def gather(self, mine: bytes, cap: int) -> list[bytes]:
        """Return every rank's `mine`, by rank; collective.

        Args:
            cap: Most bytes of each.

        Raises:
            PeerError: On all ranks within the timeout; the communicator cannot be used afterwards.
        """
        self.party.check_alive()
        try:
            return self.party.gather(mine, cap, "a gather")
        except BaseException as error:
            self.give_up(error)
            raise

    def give_up(self, error: BaseException) -> None:
        """Tell the other ranks that this one has failed; the communicator cannot be used afterwards."""
        self.party.give_up(error)

    def close(self) -> None:
        """Close the transport, and so all communicators over it. Raises nothing; a second call does nothing.

        No rank waits for another. The end of the process also closes it. States can still be saved.
        """
        self.transport.close()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reset(self) -> None:
        """Drop the state of all keys, for example after buckets changed; call it on all ranks."""
        self.states.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of this rank's state of all keys. A run that loads it resumes bit for bit."""
        return {
            "fingerprint": self.fingerprint,
            "rank": self.rank,
            "nodes": self.nodes,
            "states": {key: state.state_dict() for key, state in self.states.items()},
            **self._chosen,
        }

    def load_state_dict(self, state: Any) -> None:
        """Load a state that `state_dict` returned on this rank.

        Raises ConfigError, and changes nothing, where `state` does not fit.
        """
        saved = Saved.of(state)
        saved.fits("fingerprint", self.fingerprint)
        saved.fits("rank", self.rank)
        saved.fits("nodes", self.nodes)
        fresh, states = {}, saved["states"]
        with self._resumed(saved):
            for key in states.keys(lambda _: True, "any"):
                with states[key]["shapes"].fitting():
                    fresh[key] = self._make_state(self.gradients, states[key]["shapes"].shapes())
                fresh[key].load_state_dict(states[key])
        self.states, self._ended = fresh, None
