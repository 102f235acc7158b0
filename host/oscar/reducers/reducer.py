"""The reducer: runs a method's scheme over a wire. State changes only when a call has succeeded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from oscar.array import Array, sizes_of
from oscar.coding.codec import Codec
from oscar.collective.frames import Frames, Moved
from oscar.collective.schedule import Schedule
from oscar.config import Config
from oscar.cores import at_most, beside_training
from oscar.errors import CautionWarning, ConfigError, OscarError, warn
from oscar.numerics.bandit import Bandit, Share
from oscar.numerics.saturation import Saturation, SaturationNotice
from oscar.numerics.tensors import check_finite, cut
from oscar.reducers.checks import check_means
from oscar.reducers.method import make_codec_of, make_scheme_of, method_fingerprint
from oscar.reducers.scheduling import schedule_of
from oscar.reducers.wire import Traffic, Wire
from oscar.schemes.base import Channel, Message, Messages, Scheme
from oscar.schemes.exact import Exact
from oscar.schemes.registry import method_info
from oscar.state import Saved

Shapes = list[tuple[int, ...]]
MEAN_SLACK = 1e-5  # allowed error of the weights' mean: rounding to float32


@dataclass
class State:
    """State of the scheme, the local workers and the links, for one list of tensors.

    schedule: digest of the schedule of coded messages, with which the links have learned. device: where
    tensors are, None for arrays.
    """

    scheme: Scheme
    workers: list[Any]
    wire: Wire
    schedule: str
    device: Any = None

    def snapshot(self) -> tuple[Any, ...]:
        """Return a cheap token for `restore`. It needs no copies: calls replace arrays and links."""
        return self.scheme.snapshot(), [worker.snapshot() for worker in self.workers], self.wire.snapshot()

    def restore(self, token: tuple[Any, ...]) -> None:
        """Restore the state of a `snapshot`."""
        scheme, workers, wire = token
        self.scheme.restore(scheme)
        for worker, saved in zip(self.workers, workers, strict=True):
            worker.restore(saved)
        self.wire.restore(wire)

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the whole state."""
        return {
            "shapes": list(self.scheme.shapes),
            "schedule": self.schedule,
            "scheme": self.scheme.state_dict(),
            "workers": [worker.state_dict() for worker in self.workers],
            "links": self.wire.state_dict(),
        }

    def load_state_dict(self, saved: Saved) -> None:
        """Load a state that `state_dict` returned, except the shapes. Raises ConfigError."""
        saved.fits("schedule", self.schedule)
        self.scheme.load_state_dict(saved["scheme"])
        for worker, state in zip(self.workers, saved["workers"].items(len(self.workers)), strict=True):
            worker.load_state_dict(state)
        self.wire.load_state_dict(saved["links"])


@dataclass
class Call:
    """The traffic and the losses of one call.

    traffic: one entry for each message. losses: saturation by rank. unreturned: saturation by rank that error
    feedback does not return.
    """

    traffic: list[Traffic] = field(default_factory=list)
    losses: dict[int, Saturation] = field(default_factory=dict)
    unreturned: dict[int, Saturation] = field(default_factory=dict)

    @property
    def exchange_bytes(self) -> int:
        """Bytes sent to agree on step sizes."""
        return sum(moved.exchange_bytes for moved in self.traffic)

    @property
    def plan(self) -> str:
        """The names of the messages' plans, in descending order of bytes."""
        moved: dict[str, int] = {}
        for one in self.traffic:
            if one.plan:
                moved[one.plan] = moved.get(one.plan, 0) + one.sent_bytes
        return "+".join(sorted(moved, key=lambda name: -moved[name])) or "equal"

    @property
    def moved(self) -> tuple[Moved, ...]:
        """The traffic of the messages whose frames are counted."""
        return tuple(one.moved for one in self.traffic if one.moved is not None)

    @cached_property
    def frames(self) -> Frames:
        """The counted frames of all messages."""
        return Frames.joined([one.frames for one in self.moved])

    @property
    def clocks(self) -> Array | None:
        """Clock cycles of simulated devices for all messages; None without devices."""
        clocks = [one.clocks for one in self.traffic if one.clocks is not None]
        return np.concatenate(clocks) if clocks else None

    def clipped(self) -> dict[str, Any]:
        """Return the statistics `clipped` and `clipped_energy`: losses in quantiser and codec."""
        beyond, lost = self.codec_loss
        values = sum(loss.values for loss in self.losses.values()) + int(beyond)
        energy = sum(loss.energy for loss in self.losses.values()) / max(1, len(self.losses))
        return {"clipped": values, "clipped_energy": min(1.0, energy + lost)}

    @cached_property
    def codec_loss(self) -> tuple[float, float]:
        """The codec's saturated values, and their lost energy over the values in frames."""
        values = energy = 0.0
        for moved in self.traffic:
            values += moved.clipped[0]
            energy += moved.clipped[1]
        return float(values), float(energy / max(1, self.frames.values) if energy else 0.0)


class CautionNotice:
    """Gives a scheme's warning once."""

    def __init__(self) -> None:
        self.told = False

    def tell(self, scheme: Scheme) -> None:
        """Warn if the scheme has a caution that was not given yet."""
        if not self.told and (said := scheme.caution()):
            text = f"scheme {scheme.name}: {said} (docs/results/accuracy.md)"
            warn(text, CautionWarning)
            self.told = True


class Reducer(ABC):
    """Runs the method of `config` over a wire. Subclasses choose the wire and define the call.

    State is kept by key, so that a training that reduces in buckets can use one key for each.
    codec: codec of the method's frames; None: the configured one.
    weights: one for each rank, with a mean of 1. A rank's gradients are multiplied by its weight before
    anything else, so that the result is the mean over unequal batches (timeline.choose.batch_shares).
    """

    def __init__(
        self, config: Config, *, codec: Codec | None = None, weights: Sequence[float] | None = None
    ) -> None:
        check_config(config)
        if config.policy is not None:
            raise ConfigError(
                f"policy: expected none here, got {config.policy}: `oscar train` and OscarState take "
                "policies; leave it out"
            )
        self.config = config
        self.weights = None if weights is None else checked_weights(weights)
        self.codec = make_codec_of(config) if codec is None else codec
        self.own_codec = codec is not None
        self.states: dict[Hashable, State] = {}
        quantises = self.codec.domain == "int" and method_info(config.method).codec is not None
        section = config.quantiser
        self.bandit: Bandit | None = None
        if section.controller == "bandit" and quantises:  # it chooses the coarseness
            self.bandit = Bandit(section.arms, section.coarseness)
        self._read: dict[int, Schedule] = {}
        self._threads = beside_training() if config.threads == "auto" else config.threads
        self.notice, self.caution = SaturationNotice(), CautionNotice()

    @property
    def fingerprint(self) -> str:
        """The settings that must be equal for a saved state to fit, besides the number of nodes."""
        return method_fingerprint(self.config, self.codec)

    @abstractmethod
    def _make_wire(self, nodes: int, channels: Mapping[str, Channel]) -> Wire:
        """Return a new wire between `nodes`."""

    def _schedule(self, nodes: int, values: int) -> Schedule:
        """Return the schedule of coded messages. A schedule file is read once."""
        if self.config.schedule.name != "file":
            return schedule_of(self.config, self.codec, nodes, values)
        if nodes not in self._read:
            self._read[nodes] = schedule_of(self.config, self.codec, nodes, values)
        return self._read[nodes]

    def _timed(self, key: Hashable, seconds: float, share: Share = float) -> None:
        """Tell the bandit the time of an iteration; only the first key counts."""
        if self.bandit is not None and key == next(iter(self.states)):
            self.bandit.add(seconds, share)

    def _make_state(self, nodes: int, shapes: Shapes, device: Any = None) -> State:
        schedule = self._schedule(nodes, sum(sizes_of(shapes)))
        scheme, default = make_scheme_of(
            self.config, self.codec, nodes=nodes, shapes=shapes, schedule=schedule, device=device
        )
        wire = self._make_wire(nodes, scheme.channels(default))
        wire.values = sum(sizes_of(shapes))
        workers = [scheme.make_worker(rank) for rank in wire.ranks]
        if self.bandit is not None and isinstance(scheme, Exact):
            scheme.steps.coarseness = self.bandit.coarseness
        return State(scheme, workers, wire, schedule.digest, device)

    @contextmanager
    def _kept(self, key: Hashable) -> Iterator[None]:
        """Run a block as a whole or not at all: on any exception, restore the state of `key`.

        NumPy's overflow warnings are off inside; `check_means` raises where an overflow matters.
        """
        before = self.states.get(key)
        token = None if before is None else before.snapshot()
        arm = None if self.bandit is None else self.bandit.snapshot()
        try:
            with np.errstate(over="ignore", invalid="ignore"), at_most(self._threads):
                yield
        except BaseException:  # a fault, bad input, Ctrl-C
            if before is None or token is None:
                self.states.pop(key, None)
            else:
                before.scheme.forget()
                before.restore(token)
                self.states[key] = before
            if self.bandit is not None:
                self.bandit.restore(arm)
            raise

    @contextmanager
    def _resumed(self, saved: Saved) -> Iterator[None]:
        """Load the bandit's state before the block loads others; restore it where the block raises."""
        if self.bandit is None:
            yield
            return
        before = self.bandit.snapshot()
        self.bandit.load_state_dict(saved["bandit"])
        try:
            yield
        except BaseException:
            self.bandit.restore(before)
            raise

    def forget(self) -> None:
        """Drop what error feedback carries over, for a training loop that skips the optimiser's step.

        The ranks keep their steps and tables, so a rank may call it alone and no message is sent.
        """
        for state in self.states.values():
            for worker in state.workers:
                worker.forget()

    @property
    def _chosen(self) -> dict[str, Any]:
        """The bandit's part of a saved state; empty without a bandit."""
        return {} if self.bandit is None else {"bandit": self.bandit.state_dict()}

    def _weighted(self, state: State, tensors: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """Return new tensors, each multiplied by its rank's weight."""
        weights, nodes = self.weights, state.scheme.nodes
        assert weights is not None
        if len(weights) != nodes:
            raise ConfigError(f"expected a weight for each of {nodes} ranks, got {len(weights)}")
        workers = zip(state.workers, tensors, strict=True)
        return [[tensor * weights[worker.rank] for tensor in mine] for worker, mine in workers]

    def _exchange(self, state: State, tensors: Sequence[Sequence[Array]]) -> tuple[list[Array], Call]:
        """Run the workers' generators in lockstep; return all combined messages, and the call's traffic.

        tensors: flat float32 [worker][tensor]. Raises GradientError on NaN or Inf.
        """
        scheme, wire, call = state.scheme, state.wire, Call()
        if self.weights is not None or not scheme.finds_bad:
            for worker, mine in zip(state.workers, tensors, strict=True):
                check_finite(mine, worker.rank)
        if self.weights is not None:
            tensors = self._weighted(state, tensors)
        running: list[Messages] = [
            scheme.start(worker, mine) for worker, mine in zip(state.workers, tensors, strict=True)
        ]
        totals: list[Array] = []
        answers: list[Any] = [None] * len(running)
        sent = 0
        announced = False
        while messages := [
            message
            for one, answer in zip(running, answers, strict=True)
            if (message := advance(one, answer)) is not None
        ]:
            if len(messages) != len(running):
                raise OscarError(
                    f"scheme {scheme.name}: expected message {sent} from all {len(running)} workers, "
                    f"got {len(messages)}: this is a bug; please report it with the configuration"
                )
            if not announced:
                wire.announce(scheme.digests)
            sent += 1
            announced = messages[0].op != "agree"  # "agree" changes the replicated state: announce it again
            answer, moved = wire.combine(messages)
            differs = messages[0].op == "exchange"
            if not moved.exact and messages[0].coded and scheme.name != "exact":
                raise OscarError(
                    f"channel {messages[0].channel}: expected the direct sum from the coded message, "
                    "got another: this is a bug; please report it with the configuration"
                )
            if not differs:
                totals.append(answer)
            answers = answer if differs else [answer] * len(running)
            call.traffic.append(moved)
        wire.settle()
        call.losses = {worker.rank: worker.saturation for worker in state.workers}
        call.unreturned = {worker.rank: worker.unreturned for worker in state.workers}
        return totals, call

    def _finish(self, state: State, totals: list[Array], tensors: Sequence[Sequence[Array]]) -> list[Array]:
        """Return the mean [tensor], float32 in the tensors' shapes, and commit all state.

        tensors: the input of `_exchange`. Raises GradientOverflowError on all ranks alike.
        """
        scheme = state.scheme
        if self.bandit is not None and isinstance(scheme, Exact):  # neighbours are less apart than hysteresis
            scheme.steps.coarseness, scheme.steps.sharp = self.bandit.coarseness, self.bandit.begins
        values = scheme.finish(totals)
        if isinstance(values, np.ndarray) and (values.dtype, values.shape) != (np.float32, (scheme.values,)):
            raise TypeError(
                f"scheme {scheme.name}: finish must return float32 of shape ({scheme.values},), got "
                f"{values.dtype} of shape {values.shape}"
            )
        parts = cut(values, scheme.offsets)
        mean = [part.reshape(shape) for part, shape in zip(parts, scheme.shapes, strict=True)]
        if not scheme.bounded:
            check_means(state.wire, mean, tensors, scheme.snapshot())
        scheme.forget()
        for worker in state.workers:
            worker.commit()
        return mean

    def _sums(self, state: State) -> Array:
        """Return the integers, or floats, behind the last mean; empty where the scheme keeps none."""
        sums = state.scheme.reference_sums()
        return np.zeros(0, np.int32) if sums is None else sums

    def _tell(self, state: State, call: Call) -> None:
        """Warn of losses by saturation, and of what was dropped from residuals."""
        if not state.scheme.clips:
            self.notice.tell(call.unreturned, state.scheme.advice)
        self.notice.tell_dropped({worker.rank: worker.dropped for worker in state.workers})
        self.notice.tell_codec(self.codec.name, call.codec_loss[1])


def advance(running: Messages, answer: Any) -> Any:
    """Return the generator's next message, or None at its end."""
    try:
        message = next(running) if answer is None else running.send(answer)
    except StopIteration:
        return None
    if not isinstance(message, Message):
        raise TypeError(f"messages of a scheme must yield Message, got {type(message).__name__}")
    return message


def check_config(config: Any) -> None:
    """Raise TypeError unless `config` is a Config."""
    if not isinstance(config, Config):
        raise TypeError(
            f"expected an oscar.Config, got {type(config).__name__}; write oscar.Config(nodes=4) or "
            "oscar.load_config(path)"
        )


def checked_weights(weights: Sequence[float]) -> Array:
    """Return weights as float32. Raises ConfigError unless all are 0 or more and their mean is 1."""
    result = np.asarray(weights, np.float32)
    bad = [f"{weight:g} of rank {rank}" for rank, weight in enumerate(result) if not 0 <= weight < np.inf]
    mean = float(result.mean(dtype=np.float64)) if result.size else 0.0
    if result.ndim != 1 or bad or abs(mean - 1) > MEAN_SLACK:
        got = bad[0] if bad else f"a mean of {mean:g}" if result.size else "none"
        raise ConfigError(
            f"weights: expected numbers of 0 or more, one for each rank, whose mean is 1, got {got}; "
            "timeline.choose.batch_shares computes them"
        )
    return result
