"""One rank's part of AllReduces whose tasks several ranks can compute (docs/protocol.md, "Redundant tasks").

All ranks add the same integers of the same tasks, whichever copy of a task counts. So sums, and the coder's
tables, depend on what was computed, not on who computed it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from oscar.array import Array
from oscar.coding.frame import noticed, parted, peek
from oscar.collective.frames import ROW, Frames, Moved
from oscar.collective.redundant import Redundant
from oscar.cores import at_most
from oscar.errors import FrameError, PeerError
from oscar.reducers.copies import HEAD, WHOLE, Copies, Counts, Key
from oscar.reducers.wire import Traffic, Wire
from oscar.schemes.base import Channel, Message, Messages, Scheme
from oscar.state import Saved

PATIENCE = 0.25  # of the time of a rank's own tasks: how long it waits for others before it does their tasks
RECORD_BYTES = 64  # most bytes of a tensor in a message before or after the sums

Compute = Callable[[int], Sequence[Array]]
Part = Message | bytes  # a task's message as it was computed here, or its payload as it arrived


class TaskWire(Wire):
    """Keeps one set of tables for each rank's part, equal on all ranks, and runs calls.

    tables: by rank's part, the state of a link end, to encode or decode. late: ranks whose parts others did in
    the last call; nobody is patient with them.
    """

    weighs = False
    keeps = False

    def __init__(self, copies: Copies, channels: Mapping[str, Channel]) -> None:
        schedule = copies.schedule
        super().__init__(schedule.tasks, range(schedule.tasks), channels)
        self.copies, self.schedule = copies, schedule
        (self.channel,) = channels.values()
        codec = self.channel.codec.of(copies.rank)
        self.encoder, self.decoder = codec.make_encoder(), codec.make_decoder()
        self.tables = dict.fromkeys(range(schedule.nodes), self.encoder.snapshot())
        self.late: set[int] = set()

    def combine(self, messages: Sequence[Message]) -> NoReturn:
        """Raise NotImplementedError: messages of tasks are combined by `reduce`."""
        raise NotImplementedError("a task wire reduces tasks, not messages")

    def reduce(
        self, scheme: Scheme, workers: Sequence[Any], compute: Compute
    ) -> tuple[list[Any], list[Traffic], Counts]:
        """Return the combined messages of all tasks, their traffic, and what this call moved.

        compute: returns a task's flat float32 tensors. Raises PeerError.
        """
        return TaskCall(self, scheme, workers, compute).run()

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the tables of all parts; equal on all ranks."""
        parts = {}
        for part, token in self.tables.items():
            self.encoder.restore(token)
            parts[part] = self.encoder.state_dict()
        return {"parts": parts}

    def load_state_dict(self, state: Any) -> None:
        """Load a state of `state_dict`. Raises ConfigError, and changes nothing, if it does not fit."""
        saved, fresh = Saved.of(state)["parts"], {}
        for part in saved.keys(self.tables.__contains__, f"parts of 0 to {len(self.tables) - 1}"):
            self.encoder.load_state_dict(saved[part])
            fresh[part] = self.encoder.snapshot()
        self.tables = self.tables | fresh

    def snapshot(self) -> dict[Any, Any]:
        """Return a cheap token of all tables, for `restore`."""
        return dict(self.tables)

    def restore(self, token: dict[Any, Any]) -> None:
        """Restore the tables of a `snapshot`."""
        self.tables = dict(token)


class _Combiner(ABC):
    """Turns the messages of tasks into payloads and payloads into the combined answer, for one message.

    A payload is that of a task, or of a whole part: of all tasks of a rank.
    """

    @abstractmethod
    def pack(self, task: int, message: Message) -> bytes:
        """Return the payload of one task's message."""

    @abstractmethod
    def join(self, part: int, pieces: Sequence[Part]) -> bytes:
        """Add all tasks of a part; return the payload of the whole part, the same bytes on every rank."""

    @abstractmethod
    def add(self, part: int, payload: bytes) -> None:
        """Add a whole part that has arrived; raises FrameError."""

    @abstractmethod
    def answer(self) -> Any:
        """Return the combined messages of all parts."""


class _Agreed(_Combiner):
    """Bytes of every task, which are not combined."""

    def __init__(self, schedule: Redundant, size: int) -> None:
        self.schedule, self.size = schedule, size
        self.parts: dict[int, bytes] = {}

    def pack(self, task: int, message: Message) -> bytes:
        return message.data.tobytes()

    def join(self, part: int, pieces: Sequence[Part]) -> bytes:
        self.parts[part] = b"".join(p if isinstance(p, bytes) else p.data.tobytes() for p in pieces)
        self.add(part, self.parts[part])
        return self.parts[part]

    def add(self, part: int, payload: bytes) -> None:
        if len(payload) != self.size * self.schedule.pieces:
            raise FrameError(f"{len(payload)} bytes, expected {self.size} for each task")
        self.parts[part] = payload

    def answer(self) -> list[Array]:
        joined = b"".join(self.parts[part] for part in range(self.schedule.nodes))
        return list(np.frombuffer(joined, np.uint8).reshape(self.schedule.tasks, self.size))


class _Added(_Combiner):
    """Plain integers, which are added."""

    def __init__(self, message: Message) -> None:
        self.total = np.zeros(message.data.size, np.int32)

    def pack(self, task: int, message: Message) -> bytes:
        return message.data.astype("<i4").tobytes()

    def join(self, part: int, pieces: Sequence[Part]) -> bytes:
        total = np.zeros_like(self.total)
        for piece in pieces:
            total += self._values(piece) if isinstance(piece, bytes) else piece.data
        payload = total.astype("<i4").tobytes()
        self.add(part, payload)
        return payload

    def add(self, part: int, payload: bytes) -> None:
        self.total += self._values(payload)

    def _values(self, payload: bytes) -> Array:
        if len(payload) != 4 * self.total.size:
            raise FrameError(f"{len(payload)} bytes, expected 4 for each of {self.total.size} values")
        return np.frombuffer(payload, "<i4")

    def answer(self) -> Array:
        return self.total


class _Coded(_Combiner):
    """Integers in frames. A frame of a whole part moves its tables on; a frame of one task does not."""

    def __init__(self, wire: TaskWire, message: Message, dtype: Any) -> None:
        self.wire, self.channel, self.pieces = wire, wire.channel, wire.schedule.pieces
        self.context, count = message.context, message.data.size
        if self.context is None and self.channel.codec.uses_context:
            self.context = np.zeros(count, np.uint8)
        self.total, self.notice = np.zeros(count, dtype), 0

    def pack(self, task: int, message: Message) -> bytes:
        part, piece = divmod(task, self.pieces)
        return self._encode(part, piece + 1, message.data, message.notice or 0)[0]

    def join(self, part: int, pieces: Sequence[Part]) -> bytes:
        total, notice = np.zeros_like(self.total), 0
        for piece, each in enumerate(pieces):
            if isinstance(each, bytes):
                notice |= self._decode(part, piece + 1, each, total)[0]
            else:
                total += each.data
                notice |= each.notice or 0
        payload, self.wire.tables[part] = self._encode(part, 0, total, notice)
        self.total += total
        self.notice |= notice
        return payload

    def add(self, part: int, payload: bytes) -> None:
        notice, self.wire.tables[part] = self._decode(part, 0, payload, self.total)
        self.notice |= notice

    def answer(self) -> tuple[Array, int]:
        return self.total, self.notice

    def _width(self, sub: int) -> int:
        return self.channel.width(1 if sub else self.pieces)

    def _encode(self, part: int, sub: int, values: Array, notice: int) -> tuple[bytes, Any]:
        """Return the frame, and the tables after it. sub: the task in its part from 1, or 0 for all."""
        end = self.wire.encoder
        end.restore(self.wire.tables[part])
        known = {"step": 0, "context": self.context, "width": self._width(sub)}
        frame = end.encode(values, **known, chunk=part, sub=sub)
        return bytes(noticed(frame, notice)), end.snapshot()

    def _decode(self, part: int, sub: int, payload: bytes, onto: Array) -> tuple[int, Any]:
        """Add a frame's values to `onto`; return its notice, and the tables after it."""
        end: Any = self.wire.decoder
        end.restore(self.wire.tables[part])
        frame, notice = parted(payload)
        if self.channel.codec.decodes_into:
            end.decode(frame, step=0, context=self.context, out=onto, add=True)
        else:
            values = end.decode(frame, step=0, context=self.context)
            if values.shape != onto.shape:
                raise FrameError(f"frame has {values.size} values, expected {onto.size}")
            onto += values.astype(onto.dtype, copy=False)
        head = peek(frame)
        if (head.width, head.chunk, head.sub) != (self._width(sub), part, sub):
            raise FrameError(
                f"frame has (width, chunk, sub-frame) {(head.width, head.chunk, head.sub)}, expected "
                f"{(self._width(sub), part, sub)}"
            )
        return notice, end.snapshot()


class TaskCall:
    """One call: computes tasks, sends what nobody else has sent, and combines the first copies.

    A scheme's messages are *rounds*. In each round this rank has messages of the tasks that it has computed. A
    rank that has computed none follows the rounds with a gradient of zeros, whose messages are not sent.
    """

    def __init__(self, wire: TaskWire, scheme: Scheme, workers: Sequence[Any], compute: Compute) -> None:
        self.wire, self.scheme, self.workers, self.compute = wire, scheme, workers, compute
        self.copies, self.schedule, self.rank = wire.copies, wire.schedule, wire.copies.rank
        self.running: dict[int, Messages] = {}
        self.messages: dict[int, Message | None] = {}  # of this round, by task; -1: of zeros
        self.answers: list[Any] = []  # of earlier rounds, and the channels of their messages
        self.channels: list[str] = []
        self.rows: list[tuple[int, ...]] = []
        self.traffic: list[Traffic] = []
        self._begin = time.monotonic()
        self._spent: float | None = None  # seconds that this rank's own part took
        self._orphaned_at: float | None = None  # when a task's ranks were first known to be dead

    def run(self) -> tuple[list[Any], list[Traffic], Counts]:
        """See TaskWire.reduce."""
        values, pieces, width = self.scheme.values, self.schedule.pieces, self.wire.channel.width
        frame = max(self.wire.channel.codec.max_frame(values, width(terms)) for terms in (1, pieces))
        records = RECORD_BYTES * pieces * max(1, len(self.scheme.sizes))
        digests = self.scheme.digests()
        state = sum(value * (2 * turn + 1) for turn, value in enumerate(digests.values())) & 0xFFFFFFFF
        self.copies.begin(max(frame, 4 * values, records), state)
        while not self.messages or None not in self.messages.values():
            before = self.copies.counts.sent_bytes
            answer, coded = self._round()
            self.channels.append(self._any().channel)
            self.answers.append(answer)
            self.messages = {task: self._advance(task, answer) for task in self.running}
            self._note(coded, self.copies.counts.sent_bytes - before)
        self.wire.late = self._late
        self.copies.end()
        return self.answers, self.traffic, self.copies.counts

    def _note(self, coded: bool, sent: int) -> None:
        if coded:
            frames = Frames.of(self.rows) if self.rows else Frames.of(np.zeros(0, ROW))
            self.traffic.append(Traffic(Moved(self.schedule, True, frames), sent, plan=self._plan))
        else:
            self.traffic.append(Traffic(exchange_bytes=sent))

    def _advance(self, task: int, answer: Any = None) -> Message | None:
        """Return the next message of a task. One thread: float sums must not depend on the threads of a rank."""
        try:
            with at_most(1):
                return self.running[task].send(answer)
        except StopIteration:
            return None

    def _start(self, task: int, tensors: Sequence[Array], worker: Any) -> None:
        """Bring a task to this round. It skips what ranks have agreed on before it began."""
        self.running[task] = self.scheme.start(worker, tensors)
        message = self._advance(task)
        for channel, answer in zip(self.channels, self.answers, strict=True):
            if message is not None and message.channel == channel:
                message = self._advance(task, answer)
        self.messages[task] = message

    def _any(self) -> Message:
        """Return any message of this round; they are alike but for their data."""
        if not self.messages:
            zeros = [np.zeros(size, np.float32) for size in self.scheme.sizes]
            self._start(-1, zeros, self.scheme.make_worker(self.rank))
        message = next(iter(self.messages.values()))
        assert message is not None
        return message

    def _combiner(self) -> _Combiner:
        message = self._any()
        if message.coded:
            self._plan = "equal" if message.plan is None else message.plan.name
            return _Coded(self.wire, message, self.scheme.dtype)  # type: ignore[attr-defined]
        return _Agreed(self.schedule, message.data.size) if message.op == "agree" else _Added(message)

    def _round(self) -> tuple[Any, bool]:
        """Return the combined messages of this round, and whether they were coded."""
        self.covered: set[int] = set()
        self._late: set[int] = set()
        self._made: _Combiner | None = None
        for task in [task for task in self.messages if task >= 0]:
            self._offer(task)
        while True:
            self.copies.pump()
            self._take()
            if len(self.covered) == self.schedule.nodes:
                assert self._made is not None
                return self._made.answer(), isinstance(self._made, _Coded)
            task = self._next()
            if task is None:
                self.copies.wait("tasks of other ranks", self._due, self._until)
            else:
                self._do(task)

    def _do(self, task: int) -> None:
        """Compute a task; it is sent unless a copy came meanwhile."""
        tensors = self.compute(task)
        self.copies.counts.computed.append(task)
        self._start(task, tensors, self.workers[task])
        self.copies.pump()
        self._offer(task)

    def _next(self) -> int | None:
        """Return the task that this rank should compute now: of its own part first; None to wait."""
        for task in self.schedule.part(self.rank):
            if self._missing(task):
                return task
        if self._spent is None:
            self._spent = time.monotonic() - self._begin
        patient = time.monotonic() < self._begin + (1 + PATIENCE) * self._spent
        self._until: float | None = None
        for task in self.schedule.backups(self.rank):
            if self._missing(task):
                part = task // self.schedule.pieces
                if not patient or part in self.wire.late or part in self.copies.dead:
                    return task
                self._until = self._begin + (1 + PATIENCE) * self._spent
        return None

    def _missing(self, task: int) -> bool:
        """Whether a task is neither covered nor computed here, and no copy has arrived."""
        part = task // self.schedule.pieces
        return part not in self.covered and task not in self.running and not self._has(task)

    def _has(self, task: int) -> bool:
        return self.copies.get(self._key(task)) is not None

    def _key(self, task: int) -> Key:
        return len(self.answers), *divmod(task, self.schedule.pieces)

    def _offer(self, task: int) -> None:
        """Send another rank's task that was computed here; those of the own part are sent as a whole."""
        key = self._key(task)
        if key[1] == self.rank or key[1] in self.covered or self._has(task):
            return
        message = self.messages[task]
        assert message is not None
        if self.copies.get((key[0], key[1], WHOLE)) is None:
            self._send(key, self._combine.pack(task, message))

    @property
    def _combine(self) -> _Combiner:
        if self._made is None:
            self._made = self._combiner()
        return self._made

    def _take(self) -> None:
        """Add the parts that have become whole."""
        for part in [part for part in range(self.schedule.nodes) if part not in self.covered]:
            key = len(self.answers), part, WHOLE
            whole = self.copies.get(key)
            try:
                if whole is not None:
                    self._combine.add(part, whole)
                    if self.copies.sender(key) != part:
                        self._late.add(part)
                elif not self._join(part):
                    continue
            except FrameError as error:
                self._bad(part, error)
            self.covered.add(part)

    def _join(self, part: int) -> bool:
        """Add a part whose tasks are all here; return whether they are."""
        tasks, own = self.schedule.part(part), part == self.rank
        pieces: list[Part] = []
        fresh = False
        for task in tasks:
            message, arrived = self.messages.get(task), self.copies.get(self._key(task))
            if message is None and arrived is None:
                return False
            fresh |= arrived is None
            pieces.append(message if message is not None else arrived)  # type: ignore[arg-type]
        payload, key = self._combine.join(part, pieces), (len(self.answers), part, WHOLE)
        if own and fresh:
            self._send(key, payload)
        else:
            self.copies.note(key, payload)
            self._late.add(part)
        return True

    def _send(self, key: Key, payload: bytes) -> None:
        self.copies.send(key, payload)
        if isinstance(self._made, _Coded):
            terms, count = 1 if key[2] != WHOLE else self.schedule.pieces, self.scheme.values
            sub = 0 if key[2] == WHOLE else key[2] + 1
            size = HEAD.size + len(payload)
            self.rows += [
                (0, 0, self.rank, peer, key[1], sub, terms, count, size) for peer in self.copies.finished
            ]

    def _due(self) -> list[int]:
        """Return the living ranks for which this rank waits. Raises PeerError where nobody has a task."""
        alive, result, orphans = self.copies.finished, [], []
        for task in range(self.schedule.tasks):
            if (
                task // self.schedule.pieces not in self.covered
                and task not in self.running
                and not self._has(task)
            ):
                ranks = [rank for rank in self.schedule.ranks_of(task) if rank in alive]
                result += ranks
                orphans += [] if ranks else [task]
        if orphans:
            self._orphaned(orphans[0], alive)
        return result or list(alive)

    def _orphaned(self, task: int, alive: Mapping[int, int]) -> None:
        """Raise PeerError for a task whose ranks are all dead, unless one that lives may still pass it on."""
        since = self._orphaned_at = self._orphaned_at or time.monotonic()
        if alive and time.monotonic() < since + self.copies.party.timeout_s / 2:
            return
        ranks = self.schedule.ranks_of(task)
        raise PeerError(
            f"rank {self.rank}: no copy of task {task} is left: its ranks {', '.join(map(str, ranks))} are dead; "
            "gradients are untouched: start again without them, or with more schedule.copies than "
            f"{self.schedule.copies}",
            rank=self.rank,
            peer=ranks[0],
            step=task,
            chunk=0,
        )

    def _bad(self, part: int, error: FrameError) -> NoReturn:
        key = len(self.answers), part, WHOLE
        sender = self.copies.sender(key) if self.copies.get(key) is not None else part
        text = f"rank {self.rank}: the copy of rank {part}'s part from rank {sender} is bad: {error}"
        raise PeerError(text, rank=self.rank, peer=sender, step=part, chunk=0) from error
