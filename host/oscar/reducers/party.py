"""The services of a communicator: compare settings, gather bytes, wait for peers, name the failed rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from oscar.coding.codec import Codec
from oscar.coding.frame import VERSION
from oscar.collective.actions import SENDS, Action
from oscar.config import Config
from oscar.errors import ConfigError, OscarError, PeerError
from oscar.transports import handshake
from oscar.transports.base import Notice, Transport, TransportError
from oscar.transports.handshake import flatten
from oscar.version import __version__

SECTIONS = ("quantiser", "asc", "plan", "schedule")  # configuration sections that change bytes or values


def greeting(config: Config, codec: Codec, nodes: int) -> dict[str, Any]:
    """Return the settings that must be equal on all ranks, as one flat mapping with dotted keys."""
    whole = config.model_dump(mode="json")
    pairs: dict[str, Any] = {
        "oscar": __version__,
        "frame version": VERSION,
        "nodes": nodes,
        "seed": config.seed,
        "method": config.method,
        "codec": codec.name,
        **flatten(config.scheme, "scheme"),
    }
    for section in SECTIONS:
        pairs.update(flatten(whole[section], section))
    pairs.pop("schedule.file")  # paths may differ; the schedules' digests are compared
    pairs["quantiser.bits"] = config.quantiser_params(nodes).bits  # the number, where it was auto
    return pairs


UNTOUCHED = "gradients are untouched: start all ranks again from one checkpoint"


class Party:
    """This rank and its peers over `transport`. It turns TransportErrors into PeerErrors that name a rank.

    timeout_s: longest wait for a peer, in seconds. `waited_s` sums the seconds spent in waits.
    """

    def __init__(self, transport: Transport, timeout_s: float) -> None:
        self.transport, self.timeout_s = transport, timeout_s
        self.rank, self.nodes = transport.rank, transport.nodes
        self.failed: str | None = None
        self.waited_s = 0.0
        self.subject: handshake.Subject | None = None  # subject of the current call
        self._state: handshake.StateCheck | None = None
        self._names: list[str] = []  # names of the parts of the replicated state
        self._shared: OscarError | None = None  # the error that every rank raises

    @property
    def deadline(self) -> float:
        """The deadline of a wait that begins now, in seconds of time.monotonic."""
        return time.monotonic() + self.timeout_s

    def check_alive(self) -> None:
        """Raise PeerError after a failure (the ranks are out of step), and OscarError after `close`."""
        if self.failed is not None:
            raise self._error(f"this communicator failed before ({self.failed}); make a new one", peer=-1)
        if self.transport.closed:
            raise OscarError("this communicator is closed; make a new one, and its transport, on all ranks")

    def compare(self, pairs: Mapping[str, Any], what: str, *, advice: str) -> None:
        """Raise the same ConfigError on all ranks unless `pairs` are equal on all of them; collective."""
        try:
            handshake.compare(self.transport, pairs, self.deadline, what, advice=advice)
        except ConfigError as error:
            self.shared(error)
            raise
        except TransportError as error:
            try:
                self.blame(error, f"during the {what}", None)
            except PeerError as blame:
                self.give_up(blame)
                raise

    def shared(self, error: OscarError) -> OscarError:
        """Return `error` and note that every rank raises it here, so that no notice is sent."""
        self._shared = error
        return error

    def gather(self, mine: bytes, cap: int, what: str) -> list[bytes]:
        """Return every rank's `mine`, by rank; collective. cap: most bytes of each. Raises PeerError."""
        try:
            return self.transport.gather(mine, cap, self.deadline, what)
        except TransportError as error:
            self.blame(error, f"while {what} were due", None)

    def announce(self, digests: Mapping[str, int]) -> None:
        """Send the digests of the replicated state to the next rank."""
        self._names, self._state = list(digests), handshake.StateCheck.of_state(self.transport, digests)

    def compare_shapes(self, news: bytes, pairs: Mapping[str, Any]) -> None:
        """Raise the same ConfigError on all ranks unless all have the same new shapes; collective.

        news: message for the next rank, which may be in a call with known shapes. That rank then raises a
        PeerError with the shapes of both, and all ranks follow.
        """
        check = handshake.StateCheck(self.transport, news)
        self.compare(pairs, "shapes", advice="run one model on all ranks")
        try:
            check.receive(self.deadline)
        except TransportError as error:
            self.blame(error, "during the shapes", None)

    def settle(self, action: Action | None = None) -> None:
        """Raise PeerError where the previous rank announced another state: later results would differ.

        action: the WAIT that comes next, or None.
        """
        if self._state is None:
            return
        try:
            result = self._state.difference(self._names, self.subject, self.deadline)
        except TransportError as error:
            self.blame(error, f"while {self._due(action)} was due", action)
        if result is not None:
            raise self._error(f"{result}; {UNTOUCHED}", peer=self._state.left, action=action)

    def wait(self, action: Action, *, work: Callable[[], bool] | None = None) -> memoryview:
        """Return the frame for a WAIT, valid until its tag is awaited anew. Raises PeerError.

        work: is called while the frame has not come; returns whether there was anything to do.
        """
        self.settle(action)
        begin, busy = time.perf_counter(), 0.0

        def timed() -> bool:
            nonlocal busy
            start = time.perf_counter()
            result = work is not None and work()
            busy += time.perf_counter() - start
            return result

        what = f"the frame of {action.place}, sub-frame {action.sub}"
        try:
            return self.transport.wait(action.peer, action.tag, self.deadline, what, work=work and timed)
        except TransportError as error:
            self.blame(error, f"while {self._due(action)} was due", action)
        finally:
            self.waited_s += time.perf_counter() - begin - busy

    def check_blame(self) -> None:
        """Raise PeerError where another rank gave up this call because this rank came too late for it.

        A rank that comes late has all frames of those that waited for it in vain.
        """
        try:
            self.transport.check_blame()
        except TransportError as error:
            self.blame(error, "at the end of the call", None)

    def flush(self, actions: Callable[[], Iterable[Action]]) -> None:
        """Wait until all frames of `actions` have left. Raises PeerError."""
        begin = time.perf_counter()
        try:
            self.transport.flush(self.deadline)
        except TransportError as error:
            at = error.peer, error.tag
            action = next((a for a in actions() if a.op in SENDS and (a.peer, a.tag) == at), None)
            which = "its last frames" if action is None else f"the frame of {action.place}"
            self.blame(error, f"while this rank was sending it {which}", action)
        finally:
            self.waited_s += time.perf_counter() - begin

    def _due(self, action: Action | None) -> str:
        return "the digest of its state" if action is None else f"its frame of {action.place}"

    def blame(self, error: TransportError, where: str, action: Action | None) -> NoReturn:
        """Raise `error` as a PeerError. A failure reported by another rank keeps its peer, step and chunk."""
        notice = error.notice
        if notice is not None:
            raise PeerError(
                f"rank {self.rank}: {error}",
                rank=self.rank,
                peer=notice.peer if notice.peer >= 0 else notice.rank,
                step=notice.step,
                chunk=notice.chunk,
            ) from error
        limit = (
            f"; the deadline is {self.timeout_s:g} s (transport.timeout_s)" if error.kind == "silent" else ""
        )
        text = f"{error} {where}{limit}; gradients are untouched: start again"
        blame = self._error(text, peer=error.peer, action=action)
        blame.advice = ", or go on without it"
        raise blame from error

    def _error(self, text: str, *, peer: int, action: Action | None = None) -> PeerError:
        step, chunk = (-1, -1) if action is None else (action.step, action.chunk)
        return PeerError(f"rank {self.rank}: {text}", rank=self.rank, peer=peer, step=step, chunk=chunk)

    def give_up(self, error: BaseException) -> None:
        """Tell the neighbours of a failure; they tell theirs. A received notice is passed on unchanged."""
        self.failed = f"{type(error).__name__}: {error}"
        if error is self._shared:
            return  # every rank raises the same error
        cause = error.__cause__
        notice = cause.notice if isinstance(cause, TransportError) else None
        if notice is None:
            fact = (
                error.fact if isinstance(error, OscarError) else str(error)
            )  # the advice is for this rank only
            notice = Notice(self.rank, -1, -1, -1, f"{type(error).__name__}: {fact}")
            if isinstance(error, PeerError):
                notice = Notice(self.rank, error.peer, error.step, error.chunk, fact)
        self.transport.abort(notice)
