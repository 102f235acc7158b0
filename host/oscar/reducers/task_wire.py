"""One rank's part of AllReduces whose tasks several ranks can compute.

docs/reference/protocol.md, "Redundant tasks", is the contract. All ranks add the same integers of the same
tasks, whichever copy of a task counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from oscar.array import Array
from oscar.collective.frames import ROW, Frames, Moved
from oscar.cores import at_most
from oscar.errors import FrameError, PeerError
from oscar.reducers.copies import HEAD, WHOLE, Copies, Counts, Key
from oscar.reducers.task_sums import Coded, Gathered, Part, Plain, Sums, Tables
from oscar.reducers.wire import Traffic, Wire
from oscar.schemes.base import Channel, Message, Messages, Scheme
from oscar.state import Saved

BACKUP_DELAY = 0.25  # share of its own computing time that a rank waits before it computes tasks of others
RECORD_BYTES = 64  # most bytes of a tensor in a message before or after the sums
ZEROS = -1  # in the place of a task: a gradient of zeros

Compute = Callable[[int], Sequence[Array]]


class TaskWire(Wire):
    """Keeps one set of tables for each rank's part, equal on all ranks, and runs calls.

    late: ranks whose parts others computed in the last call. Nobody waits before it does their tasks again.
    """

    weighs = False
    keeps = False

    def __init__(self, copies: Copies, channels: Mapping[str, Channel]) -> None:
        schedule = copies.schedule
        super().__init__(schedule.tasks, range(schedule.tasks), channels)
        self.copies, self.schedule = copies, schedule
        (self.channel,) = channels.values()
        self.tables = Tables(self.channel, schedule, copies.rank)
        self.late: set[int] = set()

    def combine(self, messages: Sequence[Message]) -> NoReturn:
        """Raise NotImplementedError: `reduce` combines the messages of tasks."""
        raise NotImplementedError("a task wire reduces tasks, not messages")

    def reduce(
        self, scheme: Scheme, workers: Sequence[Any], compute: Compute
    ) -> tuple[list[Any], list[Traffic], Counts]:
        """Return the combined messages of all tasks, their traffic, and what this call moved.

        workers: by task. compute: returns a task's flat float32 tensors. Raises PeerError.
        """
        return TaskCall(self, scheme, workers, compute).run()

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the tables of all parts; equal on all ranks."""
        return {"parts": self.tables.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        """Load a state of `state_dict`. Raises ConfigError, and changes nothing, if it does not fit."""
        self.tables.load_state_dict(Saved.of(state)["parts"])

    def snapshot(self) -> dict[Any, Any]:
        """Return a cheap token of all tables, for `restore`."""
        return dict(self.tables.states)

    def restore(self, token: dict[Any, Any]) -> None:
        """Restore the tables of a `snapshot`."""
        self.tables.states = dict(token)


class TaskCall:
    """One call: computes tasks, sends what nobody else has sent, and adds the first copies.

    The messages of a scheme are *rounds*. In each round this rank has messages of the tasks that it has
    computed. A rank that has computed none follows the rounds with a gradient of zeros, whose messages it
    does not send.
    """

    def __init__(self, wire: TaskWire, scheme: Scheme, workers: Sequence[Any], compute: Compute) -> None:
        self.wire, self.scheme, self.workers, self.compute = wire, scheme, workers, compute
        self.copies, self.schedule, self.rank = wire.copies, wire.schedule, wire.copies.rank
        self.running: dict[int, Messages] = {}  # by task
        self.messages: dict[int, Message | None] = {}  # of this round, by task; None once all rounds are over
        self.answers: list[tuple[str, Any]] = []  # of earlier rounds: the channel, and what came back
        self.rows: list[tuple[int, ...]] = []
        self.traffic: list[Traffic] = []
        self.covered: set[int] = set()  # parts that were added in this round
        self.late: set[int] = set()
        self._sums: Sums | None = None
        self._begin = time.monotonic()
        self._spent: float | None = None  # seconds that this rank's own part took
        self._until: float | None = None  # when this rank's patience ends
        self._orphaned: float | None = None  # when it first knew that nobody is left for a task

    def run(self) -> tuple[list[Any], list[Traffic], Counts]:
        """See TaskWire.reduce."""
        values, tables = self.scheme.values, self.wire.tables
        frame = max(tables.channel.codec.max_frame(values, tables.width(sub)) for sub in (0, 1))
        records = RECORD_BYTES * self.schedule.pieces * max(1, len(self.scheme.sizes))
        digests = self.scheme.digests()
        mixed = sum(value * (2 * turn + 1) for turn, value in enumerate(digests.values()))
        self.copies.begin(max(frame, 4 * values, records), mixed & 0xFFFFFFFF)
        while None not in self.messages.values():
            before = self.copies.counts.sent_bytes
            answer = self._round()
            self.answers.append((self._any().channel, answer))
            self._note(self._any(), self.copies.counts.sent_bytes - before)
            self.messages = {task: self._advance(task, answer) for task in self.running}
        self.wire.late = self.late
        self.copies.end()
        return [answer for _, answer in self.answers], self.traffic, self.copies.counts

    def _note(self, message: Message, sent: int) -> None:
        """Note the traffic of a round."""
        if message.coded:
            frames, plan = Frames.of(np.array(self.rows, ROW)), message.plan
            moved = Moved(self.schedule, self.wire.channel.codec.coded, frames)
            self.traffic.append(Traffic(moved, sent, plan="equal" if plan is None else plan.name))
        else:
            self.traffic.append(Traffic(exchange_bytes=sent))

    def _round(self) -> Any:
        """Return the combined messages of this round."""
        self.covered, self.late, self._sums = set(), set(), None
        for done in [*self.messages]:
            self._offer(done)
        while True:
            self.copies.pump()
            self._take()
            if len(self.covered) == self.schedule.nodes:
                return self.sums.answer()
            task = self._next()
            if task is None:
                self.copies.wait("tasks of other ranks", self._due, self._until)
            else:
                self._compute(task)

    def _compute(self, task: int) -> None:
        tensors = self.compute(task)
        self.copies.counts.computed.append(task)
        self.copies.pump()
        self._start(task, tensors, self.workers[task])
        self._offer(task)

    def _start(self, task: int, tensors: Sequence[Array], worker: Any) -> None:
        """Bring a task to this round. It skips what ranks have agreed on before it began."""
        self.running[task] = self.scheme.start(worker, tensors)
        message = self._advance(task)
        for channel, answer in self.answers:
            if message is not None and message.channel == channel:
                message = self._advance(task, answer)
        self.messages[task] = message

    def _advance(self, task: int, answer: Any = None) -> Message | None:
        """Return the next message of a task.

        In one thread: ranks with other numbers of threads would add floats in another order.
        """
        try:
            with at_most(1):
                return self.running[task].send(answer)
        except StopIteration:
            return None

    def _any(self) -> Message:
        """Return a message of this round; all are alike but for their data."""
        if not self.messages:
            zeros = [np.zeros(size, np.float32) for size in self.scheme.sizes]
            self._start(ZEROS, zeros, self.scheme.make_worker(self.rank))
        message = next(iter(self.messages.values()))
        assert message is not None
        return message

    @property
    def sums(self) -> Sums:
        """The sums of this round."""
        if self._sums is None:
            message = self._any()
            if message.coded:
                self._sums = Coded(self.wire.tables, message, self.scheme.dtype)  # type: ignore[attr-defined]
            elif message.op == "agree":
                self._sums = Gathered(self.schedule, message.data.size)
            else:
                self._sums = Plain(message.data.size)
        return self._sums

    def _key(self, task: int) -> Key:
        return len(self.answers), *divmod(task, self.schedule.pieces)

    def _arrived(self, task: int) -> bool:
        key = self._key(task)
        return self.copies.get(key) is not None or self.copies.get((*key[:2], WHOLE)) is not None

    def _missing(self, task: int) -> bool:
        """Whether a task was neither computed here nor received."""
        return not (
            task in self.running or task // self.schedule.pieces in self.covered or self._arrived(task)
        )

    def _next(self) -> int | None:
        """Return the task that this rank should compute now, of its own part first; None: it should wait."""
        for task in self.schedule.part(self.rank):
            if self._missing(task):
                return task
        if self._spent is None:
            self._spent = time.monotonic() - self._begin
        end = self._begin + (1 + BACKUP_DELAY) * self._spent
        self._until = None
        for task in filter(self._missing, self.schedule.backups(self.rank)):
            part = task // self.schedule.pieces
            if part in self.wire.late or part in self.copies.dead or time.monotonic() >= end:
                return task
            self._until = end
        return None

    def _offer(self, task: int) -> None:
        """Send a task of another rank's part that was computed here, unless a copy of it has arrived."""
        number, part, piece = self._key(task)
        message = self.messages[task]
        if task != ZEROS and part != self.rank and message is not None and not self._arrived(task):
            self._send((number, part, piece), self.sums.pack(task, message))

    def _take(self) -> None:
        """Add the parts that have become whole."""
        for part in range(self.schedule.nodes):
            key = len(self.answers), part, WHOLE
            whole = self.copies.get(key)
            if part in self.covered:
                continue
            try:
                if whole is not None:
                    self.sums.add(part, whole)
                    on_time = self.copies.sender(key) == part
                elif (tasks := self._tasks_of(part)) is not None:
                    on_time = part == self.rank and not all(map(self._arrived, self.schedule.part(part)))
                    payload = self.sums.join(part, tasks)
                    (self._send if on_time else self.copies.note)(key, payload)
                else:
                    continue
            except FrameError as error:
                self._refuse(part, error)
            self.covered.add(part)
            self.late |= set() if on_time else {part}

    def _tasks_of(self, part: int) -> list[Part] | None:
        """Return all tasks of a part, computed here or received; None where one is missing."""
        result: list[Part] = []
        for task in self.schedule.part(part):
            each = self.messages.get(task) or self.copies.get(self._key(task))
            if each is None:
                return None
            result.append(each)
        return result

    def _send(self, key: Key, payload: bytes) -> None:
        self.copies.send(key, payload)
        if isinstance(self.sums, Coded):
            sub = 0 if key[2] == WHOLE else key[2] + 1
            terms, size = 1 if sub else self.schedule.pieces, HEAD.size + len(payload)
            self.rows += [
                (0, 0, self.rank, peer, key[1], sub, terms, self.scheme.values, size)
                for peer in self.copies.finished
            ]

    def _due(self) -> list[int]:
        """Return the living ranks for which this rank waits. Raises PeerError where nobody has a task."""
        alive = self.copies.finished
        missing = [task for task in range(self.schedule.tasks) if self._missing(task)]
        ranks = {task: [rank for rank in self.schedule.ranks_of(task) if rank in alive] for task in missing}
        orphans = [task for task, left in ranks.items() if not left]
        if orphans:
            self._check_orphan(orphans[0])
        else:
            self._orphaned = None
        # One that has ended the call sends nothing more of it, and may be silent.
        return sorted(
            {rank for left in ranks.values() for rank in left if alive[rank] < self.copies.call}
        ) or [*alive]

    def _check_orphan(self, task: int) -> None:
        """Raise PeerError for a task whose ranks are dead, unless a living one may still pass a copy on."""
        now = time.monotonic()
        self._orphaned = self._orphaned or now
        if self.copies.finished and now < self._orphaned + self.copies.party.timeout_s / 2:
            return
        ranks = self.schedule.ranks_of(task)
        text = (
            f"rank {self.rank}: no copy of task {task} is left, as ranks {', '.join(map(str, ranks))} are "
            "dead; gradients are untouched: start again without them, or with more schedule.copies than "
            f"{self.schedule.copies}"
        )
        raise PeerError(text, rank=self.rank, peer=ranks[0], step=task, chunk=0)

    def _refuse(self, part: int, error: FrameError) -> NoReturn:
        key = len(self.answers), part, WHOLE
        sender = part if self.copies.get(key) is None else self.copies.sender(key)
        text = f"rank {self.rank}: the part of rank {part}, from rank {sender}, is bad: {error}"
        raise PeerError(text, rank=self.rank, peer=sender, step=part, chunk=0) from error
