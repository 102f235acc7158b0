"""One rank of an AllReduce between processes: the schedule and the node of the cluster, over a transport."""

from __future__ import annotations

import struct
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from oscar.coding.codec import Codec
from oscar.collective.ring import Action, Op, ring_actions
from oscar.config import Config
from oscar.errors import ConfigError, OscarError, PeerError
from oscar.numerics.quantiser import SUMMARY_BYTES, WorkerQuantiser, check_tensors, summarise
from oscar.numerics.saturation import ADVICE, SaturationNotice
from oscar.reducers.gradients import MAX_NODES
from oscar.reducers.greeting import greeting
from oscar.reducers.replica import (
    Replica,
    clipped_by,
    clipped_share,
    fingerprint,
    gather_of,
    join,
    make_nic_codec,
)
from oscar.state import Saved
from oscar.transports import handshake
from oscar.transports.base import Notice, Transport, TransportError

SENDS = (Op.SEND, Op.FORWARD)
UNTOUCHED = "gradients are untouched: start all ranks again from one checkpoint"
_SUMMARY = struct.Struct("<Ihxx")


@dataclass(frozen=True)
class PeerStats:
    """What one rank sent in one AllReduce.

    frame_bytes, counts: int64 [phase 2, step N-1, sub K], headers included; clipped: this rank's values
    that saturated; clipped_energy: the share of its energy that this cut off, as in Stats; reset: state was
    made anew because shapes changed; exchange_bytes: sent by this rank to agree on steps; seconds: of the
    whole call; waited_s: of it in waits.
    """

    rank: int
    nodes: int
    values: int
    plan: str
    iteration: int
    clipped: int
    clipped_energy: float
    reset: bool
    exchange_bytes: int
    seconds: float
    waited_s: float
    frame_bytes: np.ndarray = field(repr=False)
    counts: np.ndarray = field(repr=False)

    @property
    def sent_bytes(self) -> int:
        """Bytes this rank sent, with headers and the exchange of steps."""
        return int(self.frame_bytes.sum()) + self.exchange_bytes


@dataclass(frozen=True)
class PeerResult:
    """mean[tensor]: float32 in the tensor's shape, the same on every rank; sums: the integers behind it."""

    mean: list[np.ndarray]
    sums: np.ndarray = field(repr=False)
    stats: PeerStats


class _Member:
    """This rank's state for one list of tensors: the replicated part, its link ends, its residual."""

    def __init__(self, config: Config, codec: Codec, rank: int, nodes: int, shapes: list[tuple[int, ...]]):
        self.replica = Replica(config, codec, nodes=nodes, shapes=shapes)
        self.node = self.replica.make_node(rank)
        self.worker = WorkerQuantiser(self.replica.params, rank, int(self.replica.steps.offsets[-1]))

    def snapshot(self) -> tuple[Any, ...]:
        return (
            self.replica.snapshot(), self.node.snapshot(), self.worker.iteration, self.worker.residual
        )  # fmt: skip

    def restore(self, token: tuple[Any, ...]) -> None:
        replica, node, self.worker.iteration, self.worker.residual = token
        self.replica.restore(replica)
        self.node.restore(node)


class _Call:
    """What one call sent and waited for."""

    def __init__(self, nodes: int, subframes: int) -> None:
        shape = (2, max(0, nodes - 1), subframes)
        self.frame_bytes, self.counts = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.sent: dict[tuple[int, int], Action] = {}
        self.begin = time.perf_counter()
        self.waited_s = 0.0


class Communicator:
    """AllReduce of this rank's tensors with those of all other ranks of `transport`.

    Making one is collective: ranks compare their configurations and raise the same ConfigError where they
    differ. transport: a keyed one (`oscar.transports.keyed.secured`) where `config.transport.security` asks
    for it, or else ConfigError. extra: JSON values by key that must be equal, too. timeout_s: how long a peer
    may keep this rank waiting. `allreduce` gives the bits of a LocalCluster over the same gradients.
    """

    def __init__(
        self,
        config: Config,
        transport: Transport,
        *,
        timeout_s: float = 60.0,
        codec: Codec | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
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
        self.config, self.transport, self.timeout_s = config, transport, timeout_s
        self.rank, self.nodes = transport.rank, transport.nodes
        self.codec = codec or make_nic_codec(config)
        gather_of(config, self.codec)  # refuses what does not go together
        self.failed: str | None = None
        self.notice = SaturationNotice()
        self._members: dict[Hashable, _Member] = {}
        self.greeting = {**greeting(config, self.codec, self.nodes), **(extra or {})}
        advice = "start all ranks with one release and one configuration"
        self._compare(self.greeting, "handshake", advice=advice)

    @property
    def fingerprint(self) -> str:
        """Of what all ranks have been found to agree on."""
        return handshake.fingerprint(self.greeting)

    def allreduce(self, tensors: Sequence[np.ndarray], *, key: Hashable = 0) -> PeerResult:
        """Return the mean over all ranks of `tensors` [tensor] (float32, equal shapes on all ranks).

        key: whose state this is; a training that reduces in buckets gives each a key, and all ranks call in
        the same order. Collective. `tensors` are never written to. Raises PeerError when a peer fails,
        ConfigError for unequal shapes, GradientError (NaN, Inf) and TypeError for this rank's own; all ranks
        raise something within the timeout, their state is as before, and the communicator serves no more.
        A SaturationWarning comes after all that: where it is an error the call has happened, as elsewhere.
        """
        self._check_alive()
        member = self._members.get(key)
        token = None if member is None else member.snapshot()
        try:
            result, cut = self._attempt(tensors, key)
        except BaseException as error:  # whatever it was, the call never happened
            if member is None:
                self._members.pop(key, None)
            else:
                member.restore(token or ())
                self._members[key] = member
            self.give_up(error)
            raise
        self._warn(self._members[key].worker, cut)
        return result

    def _warn(self, worker: WorkerQuantiser, cut: float) -> None:
        """Tell what the quantiser lost, and the codec; `cut`: its share of the energy in frames."""
        if not worker.params.error_feedback:
            self.notice.tell({worker.rank: worker.saturation}, ADVICE)
        self.notice.tell_codec(self.codec.name, cut)

    def gather(self, mine: bytes, cap: int) -> list[bytes]:
        """Return every rank's `mine`, by rank; collective, `cap` bytes at most.

        Raises PeerError, on all ranks within the timeout; the communicator then serves no more.
        """
        self._check_alive()
        try:
            return self._gather(mine, cap, "a gather")
        except BaseException as error:
            self.give_up(error)
            raise

    def _check_alive(self) -> None:
        if self.failed is not None:
            raise self._error(f"this communicator failed before ({self.failed}); make a new one", peer=-1)

    def forget(self) -> None:
        """Drop the state of all keys, as after buckets were made anew; to be done on all ranks."""
        self._members.clear()

    def _attempt(self, tensors: Sequence[np.ndarray], key: Hashable) -> tuple[PeerResult, float]:
        """Return the result, and the share of the energy in this rank's frames that the codec cut off."""
        flat = check_tensors(tensors, self.rank)
        member, reset = self._member(key, [np.shape(tensor) for tensor in tensors])
        replica, node, worker = member.replica, member.node, member.worker
        call = _Call(self.nodes, self.config.ring.subframes)
        exchange = 0
        same = handshake.StateCheck(self.transport, replica.digests())
        if replica.floating:
            local = join(flat)
        else:
            if replica.steps.unset:
                self._check_state(same, None)  # ranks that lack other steps would wait for each other
                exchange = self._agree(replica, worker, flat)
                same = handshake.StateCheck(self.transport, replica.digests())
            local = worker.quantise(flat, replica.steps.exponents, replica.dtype)
        plan, iteration = replica.make_plan(), replica.iteration
        before = clipped_by(self.codec, [node])
        layout, classes = replica.place(plan)
        node.begin(plan.gather(local.astype(replica.dtype, copy=False), node.local), classes, layout)
        self._run(member, call, same)
        sums = plan.scatter(node.result())
        mean = replica.finish(sums)
        worker.commit()
        clipped, sent = clipped_by(self.codec, [node]) - before, int(call.counts.sum())
        stats = PeerStats(
            rank=self.rank,
            nodes=self.nodes,
            values=sums.size,
            plan=plan.name,
            iteration=iteration,
            **clipped_share([worker.saturation], clipped, sent),
            reset=reset,
            exchange_bytes=exchange,
            seconds=time.perf_counter() - call.begin,
            waited_s=call.waited_s,
            frame_bytes=call.frame_bytes,
            counts=call.counts,
        )
        return PeerResult(mean, sums, stats), clipped[1] / max(1, sent)

    def _member(self, key: Hashable, shapes: list[tuple[int, ...]]) -> tuple[_Member, bool]:
        """Return the state of `key`, made anew unless it is of `shapes`, and whether it replaces another."""
        member = self._members.get(key)
        if member is not None and member.replica.shapes == shapes:
            return member, False
        described = {f"tensor {index}": list(shape) for index, shape in enumerate(shapes)}
        self._compare(
            {"key": str(key), "tensors": len(shapes), **described},
            "shapes",
            advice="run one model on all ranks",
        )
        self._members[key] = _Member(self.config, self.codec, self.rank, self.nodes, shapes)
        return self._members[key], member is not None

    def _agree(self, replica: Replica, worker: WorkerQuantiser, flat: list[np.ndarray]) -> int:
        """Set steps that are unset from all ranks' summaries; return the bytes this rank sent for it."""
        unset = replica.steps.unset
        mine = summarise(worker.corrected(flat, unset), replica.steps.params)
        packed = b"".join(_SUMMARY.pack(*summary) for summary in mine)
        every = self._gather(packed, len(packed), "steps of tensors")
        replica.steps.agree([list(_SUMMARY.iter_unpack(theirs)) for theirs in every])
        return SUMMARY_BYTES * len(unset) * (self.nodes - 1)

    def _run(self, member: _Member, call: _Call, same: handshake.StateCheck) -> None:
        """Perform this rank's actions; raises PeerError."""
        node, replica = member.node, member.replica
        actions = ring_actions(
            self.rank,
            self.nodes,
            subframes=self.config.ring.subframes,
            boomerang=replica.boomerang,
            duplex=replica.duplex,
            adopt=self.nodes > 1 and not self.codec.lossless,
        )
        for action in actions:
            count = node.count(action)
            if count == 0:
                continue  # an empty sub-frame is never sent
            if action.op is Op.POST_RECV:
                self.transport.post_recv(action.peer, action.tag, node.cap(action))
            elif action.op is Op.WAIT:
                self._check_state(same, action)
                node.receive(action, self._wait(action, call))
            else:
                frame = node.perform(action)
                if frame is not None and action.op in SENDS:
                    at = (action.phase, action.step, action.sub)
                    call.frame_bytes[at], call.counts[at] = len(frame), count
                    call.sent[action.peer, action.tag] = action
                    self.transport.post_send(action.peer, action.tag, frame)
        self._check_state(same, None)  # where this rank has waited for nothing
        self._flush(call)

    def _check_state(self, same: handshake.StateCheck, action: Action | None) -> None:
        """Raise PeerError where the rank before has another replicated state, from which all else follows."""
        try:
            found = same.difference(time.monotonic() + self.timeout_s)
        except TransportError as error:
            self._blame(error, f"while {self._due(action)} was due", action)
        if found is not None:
            raise self._error(f"{same.describe(found)}; {UNTOUCHED}", peer=same.left, action=action)

    def _due(self, action: Action | None) -> str:
        if action is None:
            return "the digest of its state"
        return f"its frame of step {action.ring_step(self.nodes)}, chunk {action.chunk}"

    def _wait(self, action: Action, call: _Call) -> bytes:
        at = action.ring_step(self.nodes)
        begin = time.perf_counter()
        try:
            what = f"the frame of step {at}, chunk {action.chunk}, sub-frame {action.sub}"
            deadline = time.monotonic() + self.timeout_s
            return bytes(self.transport.wait(action.peer, action.tag, deadline, what))
        except TransportError as error:
            self._blame(error, f"while {self._due(action)} was due", action)
        finally:
            call.waited_s += time.perf_counter() - begin

    def _flush(self, call: _Call) -> None:
        begin = time.perf_counter()
        try:
            self.transport.flush(time.monotonic() + self.timeout_s)
        except TransportError as error:
            action = call.sent.get((error.peer, error.tag))
            which = "its last frames"
            if action is not None:
                which = f"the frame of step {action.ring_step(self.nodes)}, chunk {action.chunk}"
            self._blame(error, f"while it was sent {which}", action)
        finally:
            call.waited_s += time.perf_counter() - begin

    def _gather(self, mine: bytes, cap: int, what: str) -> list[bytes]:
        try:
            return self.transport.gather(mine, cap, time.monotonic() + self.timeout_s, what)
        except TransportError as error:
            self._blame(error, f"while {what} were due", None)

    def _compare(self, pairs: Mapping[str, Any], what: str, *, advice: str) -> None:
        deadline = time.monotonic() + self.timeout_s
        try:
            handshake.compare(self.transport, pairs, deadline, what, advice=advice)
        except TransportError as error:
            try:
                self._blame(error, f"during the {what}", None)
            except PeerError as blame:
                self.give_up(blame)
                raise

    def _blame(self, error: TransportError, where: str, action: Action | None) -> NoReturn:
        """Raise the PeerError that `error` means; one that comes from elsewhere keeps its step and chunk."""
        notice = error.notice
        if notice is not None:
            raise PeerError(
                f"rank {self.rank}: {error}",
                rank=self.rank,
                peer=notice.peer if notice.peer >= 0 else notice.rank,
                step=notice.step,
                chunk=notice.chunk,
            ) from error
        text = f"{error} {where}; gradients are untouched: start again"
        blame = self._error(text, peer=error.peer, action=action)
        blame.advice = ", or go on without it"
        raise blame from error

    def _error(self, text: str, *, peer: int, action: Action | None = None) -> PeerError:
        step, chunk = (-1, -1) if action is None else (action.ring_step(self.nodes), action.chunk)
        return PeerError(f"rank {self.rank}: {text}", rank=self.rank, peer=peer, step=step, chunk=chunk)

    def give_up(self, error: BaseException) -> None:
        """Tell the neighbours, who tell theirs; a notice that came from one is passed on as it is."""
        self.failed = f"{type(error).__name__}: {error}"
        if isinstance(error, ConfigError):
            return  # from a comparison: every rank has found the same
        cause = error.__cause__
        notice = cause.notice if isinstance(cause, TransportError) else None
        if notice is None:
            peer = isinstance(error, PeerError)
            fact = error.fact if isinstance(error, OscarError) else str(error)  # advice is this rank's own
            notice = Notice(
                rank=self.rank,
                peer=error.peer if isinstance(error, PeerError) else -1,
                step=error.step if isinstance(error, PeerError) else -1,
                chunk=error.chunk if isinstance(error, PeerError) else -1,
                reason=fact if peer else f"{type(error).__name__}: {fact}",
            )
        self.transport.abort(notice)

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of this rank's state of all keys, so that a run can be resumed bit for bit."""
        return {
            "fingerprint": fingerprint(self.config, self.codec),
            "rank": self.rank,
            "nodes": self.nodes,
            "members": {
                key: {
                    "shapes": list(member.replica.shapes),
                    "replica": member.replica.state_dict(),
                    "node": member.node.state_dict(),
                    "worker": member.worker.state_dict(),
                }
                for key, member in self._members.items()
            },
        }

    def load_state_dict(self, state: Any) -> None:
        """Take over what `state_dict` returned on this rank; raises ConfigError, with nothing changed."""
        saved = Saved.of(state)
        saved.fits("fingerprint", fingerprint(self.config, self.codec))
        saved.fits("rank", self.rank)
        saved.fits("nodes", self.nodes)
        fresh, members = {}, saved["members"]
        for key in members.keys(lambda _: True, "any"):
            own = members[key]
            with own["shapes"].fitting():
                member = _Member(self.config, self.codec, self.rank, self.nodes, own["shapes"].shapes())
            member.replica.load_state_dict(own["replica"])
            member.node.load_state_dict(own["node"])
            member.worker.load_state_dict(own["worker"])
            fresh[key] = member
        self._members = fresh
